"""Python decides, the kernel forwards: the decisions of one server that the kernel carries out.

The forwarder hands a packet to its router. Where the answer holds for the packets that follow, it
is installed here (table.py), and the programs of forward.bpf.c do the same to them without waking
Python.

Whatever was learnt (a link is down, a path is better) may make any decision wrong: `flush` takes
all back at once, at the price of one write, and `forget` those about one flow. A full table forgets
what was not used lately. In any case the packets are back with Python, which decides anew.

State: the tables are the kernel's; here is only what `used_since_last` told before. A table lives
in the network namespace in which it was made; with its process all forwarding ends.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from socket import htonl
from typing import NamedTuple, TypeVar

from hosts.linux.bpf import Map, Object
from hosts.live import liveness
from hosts.live.bpf import build
from hosts.live.table import Action, Deliver, Push, Relay, Unwrap, Usage, Used
from hosts.wire import bcube, dcn, ipv4
from hosts.wire.dcn import MOST_UID
from hosts.wire.ipv4 import FlowKey
from hosts.wire.relayed import (
    ByDcn,
    ByDestination,
    ByEnd,
    ByFlow,
    ByHop,
    ByTunnel,
    Change,
    Proxy,
    RelayKey,
)
from topos.base.errors import require

# In each of two tables, which take the memory of all that they may hold: 170 KB for 1024 decisions.
# Where each flow that passes has one of its own, there are as many as hosts/ficonn remembers.
ENTRIES, FLOW_ENTRIES = 1024, 4096
HEADER_SIZES = (0, ipv4.SIZE, dcn.PLAIN.size, dcn.PROXIED.size, bcube.SIZE)
MOST_HEADER = max(HEADER_SIZES)

Key = TypeVar("Key")

# -- as forward.h has it: enumerations, and the parts of its structures ---------------------------


class KeyKind(IntEnum):
    """By what a frame is looked up."""

    DCN = 1
    HOP = 2
    END = 3
    DESTINATION = 4
    FLOW = 5
    TUNNEL = 6


class ActionKind(IntEnum):
    """What is done to it."""

    SEND = 1
    DELIVER = 2
    UNWRAP = 3


SET_PROXY = 1  # KEEP and CLEAR: see `Proxy`

_WORDS = struct.Struct(">4I")  # of a key, in the network's byte order: compared with packets
_WHERE = struct.Struct("=2I")  # of a relay's key: interface, kind
_INDEX = struct.Struct("=I")
_WHITHER = struct.Struct("=I12s")  # of an action, behind its generation: interface, MAC addresses
_DETAILS = struct.Struct("=4BI")  # kind, header size, proxy change, rerouted, proxy
_COUNTS = struct.Struct("=2Q")  # packets, bytes, behind the header
_COUNTS_AT = _INDEX.size + _WHITHER.size + _DETAILS.size + MOST_HEADER
_CONFIG = struct.Struct("=4I")  # the two tables' generations, by flow, sees connections
_COUNTER = struct.Struct("=Q")
_NO_WORDS = (0,) * 4
_NO_MACS = bytes(12)
_NO_HEADER = bytes(MOST_HEADER)
_UNUSED = bytes(_COUNTS.size)


class Port(NamedTuple):
    """A network port of this server: its interface, and its MAC address."""

    ifindex: int
    mac: bytes


class KernelTable:
    """The decisions of one server, and the programs that carry them out: see the module's text.

    Parameters
    ----------
    ports : mapping of int to Port
        The server's ports by their numbers.
    application : int
        The interface of its applications, a TUN, by its index.
    by_flow : bool
        Relay plain IP by flow instead of by destination.
    sees_connections : bool
        Leave to Python what opens a TCP connection: its router draws paths then.
    links : int, optional
        How many neighbours the programs watch, as they are told (see liveness.py).
    entries : int, optional
        How many decisions about relayed packets are remembered; the least recently used make room,
        in a busy table some hundred before it is full.
    """

    def __init__(
        self,
        ports: Mapping[int, Port],
        application: int,
        *,
        by_flow: bool = False,
        sees_connections: bool = False,
        links: int = 1,
        entries: int | None = None,
    ) -> None:
        relays = entries or (FLOW_ENTRIES if by_flow else ENTRIES)
        require(
            0 < relays <= FLOW_ENTRIES,
            f"the kernel remembers 1 to {FLOW_ENTRIES} decisions, not {relays}",
        )
        self._ports = dict(ports)
        self._numbers = {port.ifindex: number for number, port in self._ports.items()}
        self._application = application
        self._by_flow, self._sees_connections = by_flow, sees_connections
        tables = {"flows": ENTRIES, "relays": relays} | liveness.entries(links)
        self.programs = Object(build(), tables)
        maps = self.programs.maps
        self._flows, self._relays = _Table(maps["flows"]), _Table(maps["relays"])
        self._counters, self._configs = maps["counters"], maps["configs"]
        self._names = [name.lower().replace("_", " ") for name in self.programs.enums["counter"]]
        self.flush()
        self.programs.attach("app_out", application, egress=True)
        for port in self._ports.values():
            self.programs.attach("port_in", port.ifindex, egress=False)

    def install_flow(self, flow: FlowKey, push: Push) -> None:
        """Carry out that decision for the packets of a flow of this server's applications."""
        self._flows.install(_WORDS.pack(*_flow_words(flow)), self._push(push))

    def install_relay(self, key: RelayKey, action: Action) -> None:
        """Carry out that decision for the frames that have the key."""
        self._relays.install(self._key(key), self._action(action))

    def forget(self, flow: FlowKey) -> None:
        """Take back the decisions about one flow, where they are by flow."""
        words = _flow_words(flow)
        self._flows.forget(_WORDS.pack(*words))
        if self._by_flow:
            for port in self._ports:
                self._relays.forget(self._looked_up(KeyKind.FLOW, port, *words))

    def flush(self, *, relays: bool = True) -> None:
        """Take all decisions back, or only those about packets of this server's applications."""
        for table in (self._flows, self._relays) if relays else (self._flows,):
            table.generation = (table.generation + 1) & 0xFFFFFFFF
        generations = self._flows.generation, self._relays.generation
        self._configs[_INDEX.pack(0)] = _CONFIG.pack(
            *generations, self._by_flow, self._sees_connections
        )

    def counters(self) -> dict[str, int]:
        """Return how many packets (super-packets count once) were treated how.

        "done ...": forwarded in the kernel; "slow ...": left to Python; "drop ...": lost, and why.
        """
        return {
            name: _COUNTER.unpack(self._counters[_INDEX.pack(index)])[0]
            for index, name in enumerate(self._names[:-1])  # the last is their number
        }

    def used_since_last(self) -> Usage:
        """Return what was used since this was last asked."""
        return Usage(self.flows_used(), self.relays_used())

    def flows_used(self) -> dict[FlowKey, Used]:
        """Return those about packets of this server's applications that were used since then."""
        return self._flows.used(_flow)

    def relays_used(self) -> dict[RelayKey, Used]:
        """Return the others."""
        return self._relays.used(self._relay)

    def close(self) -> None:
        """Take the programs off the interfaces.

        Without this, the end of the process makes them drop everything: a dead server is dead.
        """
        self.programs.close()

    # -- keys ------------------------------------------------------------------------------------

    def _key(self, key: RelayKey) -> bytes:
        match key:
            case ByDcn(destination, proxy, port):
                proxied = proxy is not None
                return self._looked_up(KeyKind.DCN, port, destination, proxy or 0, proxied)
            case ByDestination(destination, port):
                return self._looked_up(KeyKind.DESTINATION, port, destination)
            case ByFlow(flow, port):
                return self._looked_up(KeyKind.FLOW, port, *_flow_words(flow))
            case ByHop(nha):
                return self._looked_up(KeyKind.HOP, None, nha)
            case ByEnd(destination):
                return self._looked_up(KeyKind.END, None, destination)
            case ByTunnel(a, b, c, d):
                return self._looked_up(KeyKind.TUNNEL, None, a, b, c, d)

    def _looked_up(self, kind: int, port: int | None, *words: int) -> bytes:
        ifindex = 0 if port is None else self._port(port).ifindex
        return _WORDS.pack(*words, *_NO_WORDS[len(words) :]) + _WHERE.pack(ifindex, kind)

    def _relay(self, key: bytes) -> RelayKey:
        """Return the key that these bytes are."""
        a, b, c, d = _WORDS.unpack_from(key)
        ifindex, kind = _WHERE.unpack_from(key, _WORDS.size)
        if kind == KeyKind.HOP:
            return ByHop(a)
        if kind == KeyKind.END:
            return ByEnd(a)
        if kind == KeyKind.TUNNEL:
            return ByTunnel(a, b, c, d)
        port = self._numbers[ifindex]
        if kind == KeyKind.DCN:
            return ByDcn(a, b if c else None, port)
        return ByDestination(a, port) if kind == KeyKind.DESTINATION else ByFlow(_flow(key), port)

    # -- actions ---------------------------------------------------------------------------------

    def _push(self, push: Push) -> bytes:
        size = len(push.header)
        require(size in HEADER_SIZES, f"a header has one of {HEADER_SIZES} bytes, not {size}")
        details = _DETAILS.pack(ActionKind.SEND, size, 0, 0, 0)
        return self._towards(push.port, push.peer) + details + push.header.ljust(MOST_HEADER, b"\0")

    def _action(self, action: Action) -> bytes:
        match action:
            case Relay(port, peer, Change(Proxy() as change, rerouted)):
                details = _DETAILS.pack(ActionKind.SEND, 0, change.value, rerouted, 0)
            case Relay(port, peer, Change(int(uid), rerouted)):
                require(0 <= uid <= MOST_UID, f"a uid is at most {MOST_UID}, not {uid}")
                details = _DETAILS.pack(ActionKind.SEND, 0, SET_PROXY, rerouted, htonl(uid))
            case Unwrap(port, peer):
                details = _DETAILS.pack(ActionKind.UNWRAP, 0, 0, 0, 0)
            case Deliver():
                details = _DETAILS.pack(ActionKind.DELIVER, 0, 0, 0, 0)
                return self._out_of(self._application, _NO_MACS) + details + _NO_HEADER
        return self._towards(port, peer) + details + _NO_HEADER

    def _towards(self, port: int, peer: bytes) -> bytes:
        ifindex, mac = self._port(port)
        return self._out_of(ifindex, peer + mac)

    def _out_of(self, ifindex: int, macs: bytes) -> bytes:
        return _WHITHER.pack(ifindex, macs)

    def _port(self, number: int) -> Port:
        require(number in self._ports, f"this server has no port {number}")
        return self._ports[number]


class _Table:
    """One of the kernel's tables, and how often each entry had been used when that was told."""

    def __init__(self, entries: Map) -> None:
        self._entries = entries
        self.generation = 0  # a decision of another one does not count any more
        self._told: dict[bytes, tuple[int, int]] = {}
        self._touched = False  # the kernel need not be asked about what was never filled

    def install(self, key: bytes, action: bytes) -> None:
        """Put an entry in; one that it replaces hands its counts on."""
        self._touched = True
        before = self._entries.get(key)
        generation = _INDEX.pack(self.generation)
        self._entries[key] = generation + action + (before[_COUNTS_AT:] if before else _UNUSED)

    def forget(self, key: bytes) -> None:
        """Take an entry out, if it is there; what it was used for since the last time is lost."""
        self._told.pop(key, None)
        self._entries.discard(key)

    def used(self, name: Callable[[bytes], Key]) -> dict[Key, Used]:
        """Return what was used since the last call."""
        if not self._touched:
            return {}
        found = {}
        told = {}
        for key, value in self._entries.items():
            packets, size = _COUNTS.unpack_from(value, _COUNTS_AT)
            told[key] = packets, size
            packets_then, size_then = self._told.get(key, (0, 0))
            if packets < packets_then:  # it was forgotten in between, and installed anew
                packets_then = size_then = 0
            if packets > packets_then:
                found[name(key)] = Used(packets - packets_then, size - size_then)
        self._told = told
        return found


def _flow_words(flow: FlowKey) -> tuple[int, ...]:
    source, destination, protocol, source_port, destination_port = flow
    return source, destination, source_port << 16 | destination_port, protocol


def _flow(key: bytes) -> FlowKey:
    source, destination, ports, protocol = _WORDS.unpack_from(key)
    return FlowKey(source, destination, protocol, ports >> 16, ports & 0xFFFF)
