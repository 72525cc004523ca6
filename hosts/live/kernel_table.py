"""Python decides, the kernel forwards: the decisions of one server that the kernel carries out.

The forwarder hands a packet to its router. Where the answer holds for the packets that follow, it
is installed here (table.py), and the programs of forward.bpf.c do the same to them without waking
Python.

Whatever was learnt (a link is down, a path is better) may make any decision wrong: `flush` takes
all back at once, at the price of one write, `forget` those about one flow, `take_back` one. A full
table forgets what was not used lately. In any case the packets are back with Python, which decides
anew.

State: the tables are the kernel's; here is only what `used_since_last` told before. A table lives
in the network namespace in which it was made; with its process all forwarding ends.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple, TypeVar

from hosts.base.network import headers
from hosts.linux.bpf import Map
from hosts.live.bpf import FORWARD, Alone, Programs
from hosts.live.generated import FIRST_KIND, counted, forms_of, kind_of
from hosts.live.table import Action, Deliver, Push, Unwrap, Usage, Used
from hosts.wire import ipv4
from hosts.wire.header import ByHeader
from hosts.wire.ipv4 import FlowKey
from hosts.wire.relayed import ByDestination, ByFlow, ByTunnel, RelayKey
from topos.base.errors import require

# In each of two tables, which take the memory of all that they may hold: 170 KB for 1024 decisions.
# Where each flow that passes has one of its own, there are as many as hosts/ficonn remembers.
ENTRIES, FLOW_ENTRIES = 1024, 4096

# Counters of packets; among them heart-beats are counted as well.
FORWARDED = ("done pushed", "done relayed", "done unwrapped", "done delivered")

Key = TypeVar("Key")

# -- as forward.h has it: enumerations, and the parts of its structures ---------------------------


class KeyKind(IntEnum):
    """By what a frame is looked up."""

    DESTINATION = 1
    FLOW = 2
    TUNNEL = 3  # from FIRST_KIND on: headers


class ActionKind(IntEnum):
    """What is done to it."""

    SEND = 1
    DELIVER = 2
    UNWRAP = 3


_WORDS = struct.Struct(">4I")  # of a key, in the network's byte order: compared with packets
_WHERE = struct.Struct("=2I")  # of a relay's key: interface, kind
_INDEX = struct.Struct("=I")
_WHITHER = struct.Struct("=I12s")  # of an action, behind its generation: interface, MAC addresses
_DETAILS = struct.Struct("=3Bx")  # kind, header size, what is counted at times
_COUNTS = struct.Struct("=2Q")  # packets, bytes, before the header
_COUNTS_AT = _INDEX.size + _WHITHER.size + _DETAILS.size
_HEADER_AT = _COUNTS_AT + _COUNTS.size
_CONFIG = struct.Struct("=5I")  # the two tables' generations, by flow, sees connections, rests
_NO_WORDS = (0,) * 4
_NO_MACS = bytes(12)
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
    programs : Programs, optional
        This server's part in the programs of a lab; else they are loaded for it alone.
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
        programs: Programs | None = None,
        entries: int | None = None,
    ) -> None:
        relays = entries or (FLOW_ENTRIES if by_flow else ENTRIES)
        require(
            0 < relays <= FLOW_ENTRIES,
            f"the kernel remembers 1 to {FLOW_ENTRIES} decisions, not {relays}",
        )
        self._ports: dict[int, Port] = {}
        self._numbers: dict[int, int] = {}
        self._application = application
        self._by_flow, self._sees_connections = by_flow, sees_connections
        self._rests = False
        self.counted = 0
        self._forms = forms_of(headers())
        self.programs = programs or Alone(FORWARD)
        own = self.programs.add
        self._flows, self._relays = _Table(own("flows", ENTRIES)), _Table(own("relays", relays))
        maps = self.programs.maps
        self._counters, self._configs = maps["counters"], maps["configs"]
        self._names = [name.lower().replace("_", " ") for name in self.programs.enums["counter"]]
        self._counters[self.programs.key] = bytes(self._counters.value_size)
        self.flush()
        self.programs.attach("app_out", application, egress=True)
        for number, port in ports.items():
            self.open_port(number, port)

    def open_port(self, number: int, port: Port) -> None:
        """Forward what comes in by a port, and out of it."""
        self._ports[number] = port
        self._numbers[port.ifindex] = number
        self.programs.attach("port_in", port.ifindex, egress=False)

    def close_port(self, number: int) -> None:
        """Forget a port, whose interface goes; no decision may be left that leads there."""
        del self._numbers[self._ports.pop(number).ifindex]

    def install_flow(self, flow: FlowKey, push: Push) -> None:
        """Carry out that decision for the packets of a flow of this server's applications."""
        self._flows.install(_WORDS.pack(*_flow_words(flow)), self._push(push))

    def install_relay(self, key: RelayKey, action: Action) -> None:
        """Carry out that decision for the frames that have the key."""
        self._relays.install(self._key(key), self._action(key, action))

    def forget(self, flow: FlowKey) -> None:
        """Take back the decisions about one flow, where they are by flow."""
        words = _flow_words(flow)
        self._flows.forget(_WORDS.pack(*words))
        if self._by_flow:
            for port in self._ports:
                self._relays.forget(self._looked_up(KeyKind.FLOW, port, *words))

    def take_back(self, key: FlowKey | RelayKey) -> None:
        """Take back one decision, if there is one."""
        if isinstance(key, FlowKey):
            self._flows.forget(_WORDS.pack(*_flow_words(key)))
        else:
            self._relays.forget(self._key(key))

    def flush(self, *, relays: bool = True) -> None:
        """Take all decisions back, or only those about packets of this server's applications."""
        for table in (self._flows, self._relays) if relays else (self._flows,):
            table.generation = (table.generation + 1) & 0xFFFFFFFF
        self._configure()

    def rest(self, rests: bool) -> None:
        """Ring the server's bell, once, when anything is forwarded again, or no more."""
        self._rests = rests
        self._configure()

    def _configure(self) -> None:
        generations = self._flows.generation, self._relays.generation
        config = *generations, self._by_flow, self._sees_connections, self._rests
        self._configs[self.programs.key] = _CONFIG.pack(*config)

    def counters(self) -> dict[str, int]:
        """Return how many packets (super-packets count once) were treated how.

        "done ...": forwarded in the kernel; "slow ...": left to Python; "drop ...": lost, and why.
        """
        names = self._names[:-1]  # the last is their number
        counts = struct.unpack(f"={len(names)}Q", self._counters[self.programs.key])
        return dict(zip(names, counts, strict=True))

    def repeated(self) -> int:
        """Return how many packets were forwarded without the router."""
        counters = self.counters()
        return sum(counters[name] for name in FORWARDED)

    def used_since_last(self) -> Usage:
        """Return what was used since this was last asked."""
        return Usage(self.flows_used(), self.relays_used())

    def flows_used(self) -> dict[FlowKey, Used]:
        """Return those about packets of this server's applications that were used since then."""
        used, self.counted = self._flows.used(_flow)
        return used

    def relays_used(self) -> dict[RelayKey, Used]:
        """Return the others."""
        used, self.counted = self._relays.used(self._relay)
        return used

    def close(self) -> None:
        """Take the programs off the interfaces.

        Without this, the end of the process makes them drop everything: a dead server is dead.
        """
        self.programs.close()

    # -- keys ------------------------------------------------------------------------------------

    def _key(self, key: RelayKey) -> bytes:
        match key:
            case ByHeader(form, values, port, next_hop):
                return self._looked_up(kind_of(self._forms, form) + next_hop, port, *values)
            case ByDestination(destination, port):
                return self._looked_up(KeyKind.DESTINATION, port, destination)
            case ByFlow(flow, port):
                return self._looked_up(KeyKind.FLOW, port, *_flow_words(flow))
            case ByTunnel(direction, outer_destination, destination):
                words = direction, outer_destination, destination
                return self._looked_up(KeyKind.TUNNEL, None, *words)

    def _looked_up(self, kind: int, port: int | None, *words: int) -> bytes:
        ifindex = 0 if port is None else self._port(port).ifindex
        return _WORDS.pack(*words, *_NO_WORDS[len(words) :]) + _WHERE.pack(ifindex, kind)

    def _relay(self, key: bytes) -> RelayKey:
        """Return the key that these bytes are."""
        words = _WORDS.unpack_from(key)
        ifindex, kind = _WHERE.unpack_from(key, _WORDS.size)
        port = self._numbers.get(ifindex)
        if kind >= FIRST_KIND:
            number, next_hop = divmod(kind - FIRST_KIND, 2)
            form = self._forms[number]
            values = words[: 1 if next_hop else len(form.key)]
            return ByHeader(form, values, port, bool(next_hop))
        if kind == KeyKind.TUNNEL:
            return ByTunnel(*words[:3])
        assert port is not None
        if kind == KeyKind.DESTINATION:
            return ByDestination(words[0], port)
        return ByFlow(_flow(key), port)

    # -- actions ---------------------------------------------------------------------------------

    def _push(self, push: Push) -> bytes:
        size = len(push.header)
        right = {0, ipv4.SIZE, *(form.size for form in self._forms)}
        require(size in right, f"a header has one of {sorted(right)} bytes, not {size}")
        to = self._towards(push.port, push.peer)
        return to + _DETAILS.pack(ActionKind.SEND, size, 0) + _UNUSED + push.header

    def _action(self, key: RelayKey, action: Action) -> bytes:
        if isinstance(action, Deliver):
            details = _DETAILS.pack(ActionKind.DELIVER, 0, 0)
            return self._out_of(self._application, _NO_MACS) + details + _UNUSED
        to = self._towards(action.port, action.peer)
        if isinstance(action, Unwrap):
            return to + _DETAILS.pack(ActionKind.UNWRAP, 0, 0) + _UNUSED
        size, header, at_times = 0, b"", 0
        if isinstance(key, ByHeader):
            bits = counted(key.form.header)
            at_times = sum(bits[name] for name in action.change.counts)
        if action.change.becomes:
            form = action.change.becomes.form
            size = form.size
            header = form.template(action.change.becomes.values).to_bytes(size, "big")
        return to + _DETAILS.pack(ActionKind.SEND, size, at_times) + _UNUSED + header

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
        self._counts_then: dict[bytes, tuple[int, int]] = {}
        self._touched = False  # the kernel need not be asked about what was never filled

    def install(self, key: bytes, action: bytes) -> None:
        """Put an entry in; one that it replaces hands its counts on."""
        self._touched = True
        value = bytearray(_INDEX.pack(self.generation) + action)
        value += bytes(self._entries.value_size - len(value))
        if self._entries.insert(key, bytes(value)):
            return
        before = self._entries.get(key)
        if before:
            value[_COUNTS_AT:_HEADER_AT] = before[_COUNTS_AT:_HEADER_AT]
        self._entries[key] = bytes(value)

    def forget(self, key: bytes) -> None:
        """Take an entry out, if it is there; what it was used for since the last time is lost."""
        self._counts_then.pop(key, None)
        self._entries.discard(key)

    def used(self, name: Callable[[bytes], Key]) -> tuple[dict[Key, Used], int]:
        """Return what was used since the last call, and how many entries there are."""
        if not self._touched:
            return {}, 0
        found = {}
        counts = {}
        for key, value in self._entries.items():
            packets, size = _COUNTS.unpack_from(value, _COUNTS_AT)
            counts[key] = packets, size
            packets_then, size_then = self._counts_then.get(key, (0, 0))
            if packets < packets_then:  # it was forgotten in between, and installed anew
                packets_then = size_then = 0
            if packets > packets_then:
                found[name(key)] = Used(packets - packets_then, size - size_then)
        self._counts_then = counts
        return found, len(counts)


def _flow_words(flow: FlowKey) -> tuple[int, ...]:
    source, destination, protocol, source_port, destination_port = flow
    return source, destination, source_port << 16 | destination_port, protocol


def _flow(key: bytes) -> FlowKey:
    source, destination, ports, protocol = _WORDS.unpack_from(key)
    return FlowKey(source, destination, protocol, ports >> 16, ports & 0xFFFF)
