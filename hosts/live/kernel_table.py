"""The decisions of one server that the kernel carries out: Python decides, the kernel forwards.

The forwarder passes a packet to its router. If the router's decision holds for further packets, it
is installed here (table.py), and the programs of forward.bpf.c apply it without waking Python.

News such as a down link or a better path may invalidate decisions: `flush` withdraws all of them
with one write, `forget` those on one flow, `remove_decision` a single one. A full table evicts
decisions that were not used recently. In each case packets go to Python again, which makes a new
decision.

State: the tables are in the kernel; this module stores only the counters that `used_since_last` has
reported. A table belongs to the network namespace in which it was made; when its process ends, all
forwarding ends.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeVar

from pillarbox.hosts.base.network import headers
from pillarbox.hosts.linux.bpf import Map
from pillarbox.hosts.live.generated import FIRST_KIND, counter_bits, header_forms, key_kind_of
from pillarbox.hosts.live.lab_programs import FORWARD, ServerPrograms, SingleServerPrograms
from pillarbox.hosts.live.table import (
    Action,
    DecisionUse,
    DeliverDecision,
    PushDecision,
    TableUsage,
    UnwrapDecision,
)
from pillarbox.hosts.wire import ipv4
from pillarbox.hosts.wire.header import ByHeader
from pillarbox.hosts.wire.ipv4 import FlowKey
from pillarbox.hosts.wire.relay_keys import ByDestination, ByFlow, ByTunnel, RelayKey
from pillarbox.topos.base.errors import UnknownNameError, require

# Entries in each of the two eBPF tables of decisions; 1024 entries always take 170 KB of memory.
# FLOW_ENTRIES is for routers that decide by flow: the number of flows that hosts/ficonn stores.
ENTRIES, FLOW_ENTRIES = 1024, 4096

# Names of the eBPF counters of forwarded packets; their counts include heartbeats.
FORWARDED = ("done pushed", "done relayed", "done unwrapped", "done delivered")

Key = TypeVar("Key")

# -- enumerations and structures of forward.h -----------------------------------------------------


class KeyKind(IntEnum):
    """Kinds of lookup keys of cached actions, by the frame fields that the keys contain."""

    DESTINATION = 1
    FLOW = 2
    TUNNEL = 3  # kinds from FIRST_KIND on belong to forms of declared headers


class ActionKind(IntEnum):
    """Kinds of cached actions of the eBPF data plane: send, deliver or unwrap a packet."""

    SEND = 1
    DELIVER = 2
    UNWRAP = 3


_WORDS = struct.Struct(">4I")  # a lookup key's words, in network byte order as in packets
_WHERE = struct.Struct("=2I")  # rest of a relay's lookup key: ingress interface, kind
_INDEX = struct.Struct("=I")
# Part of a cached action after its generation number: egress interface, MAC addresses.
_WHITHER = struct.Struct("=I12s")
# End of a cached action: kind, header size; bits of fields to count (relays), or the path in turn
# and the number of paths (sprayed flows); segments until the turn of the next path.
_DETAILS = struct.Struct("=4B")
_COUNTS = struct.Struct("=2Q")  # packets forwarded, and their bytes without prepended headers
_COUNTS_AT = _INDEX.size + _WHITHER.size + _DETAILS.size
_HEADER_AT = _COUNTS_AT + _COUNTS.size
# Generations of both tables, and flags: by flow, sees connections, rests.
_CONFIG = struct.Struct("=5I")
_NO_WORDS = (0,) * 4
_NO_MACS = bytes(12)
_UNUSED = bytes(_COUNTS.size)


class TablePort(NamedTuple):
    """A network port as the eBPF data plane knows it: interface index and MAC address."""

    ifindex: int
    mac: bytes


class KernelTable:
    """eBPF data plane of one server: programs that apply cached actions stored in kernel maps.

    Parameters
    ----------
    ports : mapping of int to Port
        The server's ports by port number.
    application : int
        Index of the server's application interface, a TUN.
    by_flow : bool
        Relay plain IP by flow instead of by destination.
    sees_connections : bool
        Pass every packet that opens a TCP connection to Python, whose router selects a path for
        it.
    programs : ServerPrograms, optional
        This server's view of a lab's programs; if omitted, they are loaded for this server
        alone.
    entries : int, optional
        Upper bound for decisions on relayed packets. The least recently used are evicted, in a
        busy table some hundred entries before it is full.
    """

    def __init__(
        self,
        ports: Mapping[int, TablePort],
        application: int,
        *,
        by_flow: bool = False,
        sees_connections: bool = False,
        programs: ServerPrograms | None = None,
        entries: int | None = None,
    ) -> None:
        relays = entries or (FLOW_ENTRIES if by_flow else ENTRIES)
        require(
            0 < relays <= FLOW_ENTRIES,
            f"the eBPF data plane stores 1 to {FLOW_ENTRIES} decisions, not {relays}",
        )
        self._ports: dict[int, TablePort] = {}
        self._numbers: dict[int, int] = {}
        self._application = application
        self._by_flow, self._sees_connections = by_flow, sees_connections
        self._rests = False
        self.counted = 0
        self._forms = header_forms(headers())
        self.programs = programs or SingleServerPrograms(FORWARD)
        own = self.programs.add_own_map
        self._flows, self._relays = (
            _CountedKernelMap(own("flows", ENTRIES)),
            _CountedKernelMap(own("relays", relays)),
        )
        maps = self.programs.maps
        self._counters, self._configs = maps["counters"], maps["configs"]
        self._names = [name.lower().replace("_", " ") for name in self.programs.enums["counter"]]
        self._counters[self.programs.key] = bytes(self._counters.value_size)
        self.flush()
        self.programs.attach("app_out", application, egress=True)
        for number, port in ports.items():
            self.open_port(number, port)

    def open_port(self, number: int, port: TablePort) -> None:
        """Attach the eBPF programs to a port: they forward packets that arrive or leave by it."""
        self._ports[number] = port
        self._numbers[port.ifindex] = number
        self.programs.attach("port_in", port.ifindex, egress=False)

    def close_port(self, number: int) -> None:
        """Remove a port whose interface disappears; no cached action may refer to the port."""
        del self._numbers[self._ports.pop(number).ifindex]

    def install_flow(
        self, flow: FlowKey, push: PushDecision, others: Sequence[PushDecision] = ()
    ) -> None:
        """Install the cached action for packets of a local application's flow (table.py).

        The action of each other path of a sprayed flow has a key of its own, with the path's
        number. Removing the first action invalidates all.
        """
        for path, other in enumerate(others, 1):
            self._flows.install(_WORDS.pack(*_flow_words(flow, path)), self._packed_push(other))
        push_action = self._packed_push(push, len(others))
        self._flows.install(_WORDS.pack(*_flow_words(flow)), push_action)

    def install_relay(self, key: RelayKey, action: Action) -> None:
        """Install the cached action for received frames with a lookup key."""
        self._relays.install(self._packed_relay_key(key), self._packed_action(key, action))

    def forget_flow(self, flow: FlowKey) -> None:
        """Remove the cached actions for one flow, if the router decides by flow."""
        words = _flow_words(flow)
        self._flows.remove(_WORDS.pack(*words))
        if self._by_flow:
            for port in self._ports:
                self._relays.remove(self._packed_key(KeyKind.FLOW, port, *words))

    def remove_decision(self, key: FlowKey | RelayKey) -> None:
        """Remove the cached action with a lookup key, if it exists."""
        if isinstance(key, FlowKey):
            self._flows.remove(_WORDS.pack(*_flow_words(key)))
        else:
            self._relays.remove(self._packed_relay_key(key))

    def flush(self, *, relays: bool = True) -> None:
        """Remove all cached actions, or only those for packets of local applications."""
        for table in (self._flows, self._relays) if relays else (self._flows,):
            table.generation = (table.generation + 1) & 0xFFFFFFFF
        self._write_config()

    def set_rest(self, rests: bool) -> None:
        """Enable or disable the eBPF event that reports the next forwarded packet."""
        self._rests = rests
        self._write_config()

    def _write_config(self) -> None:
        generations = self._flows.generation, self._relays.generation
        config = *generations, self._by_flow, self._sees_connections, self._rests
        self._configs[self.programs.key] = _CONFIG.pack(*config)

    def counters(self) -> dict[str, int]:
        """Return the packet counts of the eBPF data plane by treatment; a GSO packet counts once.

        "done ...": forwarded by the kernel; "slow ...": passed to Python; "drop ...": dropped, by
        reason.
        """
        names = self._names[:-1]  # the last member of the C enumeration is the number of counters
        counts = struct.unpack(f"={len(names)}Q", self._counters[self.programs.key])
        return dict(zip(names, counts, strict=True))

    def forwarded_packets(self) -> int:
        """Return the number of packets that the eBPF data plane forwarded without the router."""
        counters = self.counters()
        return sum(counters[name] for name in FORWARDED)

    def used_since_last(self) -> TableUsage:
        """Return the packet and byte counts of all cached actions since the last call."""
        return TableUsage(self.flows_used(), self.relays_used())

    def flows_used(self) -> dict[FlowKey, DecisionUse]:
        """Return counts since the last call of cached actions for this server's own packets."""
        used, self.counted = self._flows.used(_unpacked_flow)
        return used

    def relays_used(self) -> dict[RelayKey, DecisionUse]:
        """Return counts since the last call of cached actions for relayed packets."""
        used, self.counted = self._relays.used(self._unpacked_relay_key)
        return used

    def close(self) -> None:
        """Detach the server's eBPF programs from its interfaces.

        If the process ends without this call, the programs drop all packets: a dead server is dead.
        """
        self.programs.close()

    # -- keys ------------------------------------------------------------------------------------

    def _packed_relay_key(self, key: RelayKey) -> bytes:
        match key:
            case ByHeader(form, values, port, next_hop):
                return self._packed_key(key_kind_of(self._forms, form) + next_hop, port, *values)
            case ByDestination(destination, port):
                return self._packed_key(KeyKind.DESTINATION, port, destination)
            case ByFlow(flow, port):
                return self._packed_key(KeyKind.FLOW, port, *_flow_words(flow))
            case ByTunnel(direction, outer_destination, destination):
                words = direction, outer_destination, destination
                return self._packed_key(KeyKind.TUNNEL, None, *words)

    def _packed_key(self, kind: int, port: int | None, *words: int) -> bytes:
        ifindex = 0 if port is None else self._table_port(port).ifindex
        return _WORDS.pack(*words, *_NO_WORDS[len(words) :]) + _WHERE.pack(ifindex, kind)

    def _unpacked_relay_key(self, key: bytes) -> RelayKey:
        """Return the lookup key that is encoded in these bytes."""
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
        return ByFlow(_unpacked_flow(key), port)

    # -- actions ---------------------------------------------------------------------------------

    def _packed_push(self, push: PushDecision, others: int = 0) -> bytes:
        size = len(push.header)
        right = {0, ipv4.SIZE, *(form.size for form in self._forms)}
        require(size in right, f"a prepended header has one of {sorted(right)} bytes, not {size}")
        to = self._packed_egress_to(push.port, push.peer)
        turns = 1 | 1 + others << 4 if others else 0
        left = 1 if others else 0
        return to + _DETAILS.pack(ActionKind.SEND, size, turns, left) + _UNUSED + push.header

    def _packed_action(self, key: RelayKey, action: Action) -> bytes:
        if isinstance(action, DeliverDecision):
            details = _DETAILS.pack(ActionKind.DELIVER, 0, 0, 0)
            return self._packed_egress(self._application, _NO_MACS) + details + _UNUSED
        to = self._packed_egress_to(action.port, action.peer)
        if isinstance(action, UnwrapDecision):
            return to + _DETAILS.pack(ActionKind.UNWRAP, 0, 0, 0) + _UNUSED
        size, header, at_times = 0, b"", 0
        if isinstance(key, ByHeader):
            bits = counter_bits(key.form.header)
            at_times = sum(bits[name] for name in action.change.counts)
        if action.change.becomes:
            form = action.change.becomes.form
            size = form.size
            header = form.template(action.change.becomes.values).to_bytes(size, "big")
        return to + _DETAILS.pack(ActionKind.SEND, size, at_times, 0) + _UNUSED + header

    def _packed_egress_to(self, port: int, peer: bytes) -> bytes:
        ifindex, mac = self._table_port(port)
        return self._packed_egress(ifindex, peer + mac)

    def _packed_egress(self, ifindex: int, macs: bytes) -> bytes:
        return _WHITHER.pack(ifindex, macs)

    def _table_port(self, number: int) -> TablePort:
        require(
            number in self._ports,
            f"the eBPF data plane of this server has no port {number}",
            UnknownNameError,
        )
        return self._ports[number]


class _CountedKernelMap:
    """A kernel table of cached actions, with each entry's counters as last reported."""

    def __init__(self, entries: Map) -> None:
        self._entries = entries
        # Number of the current generation; cached actions of others are invalid.
        self.generation = 0
        self._counts_then: dict[bytes, tuple[int, int]] = {}
        self._touched = False  # False while the kernel table is empty, so that it is not read

    def install(self, key: bytes, action: bytes) -> None:
        """Install a cached action; it inherits the counters of an action with the same key."""
        self._touched = True
        value = bytearray(_INDEX.pack(self.generation) + action)
        value += bytes(self._entries.value_size - len(value))
        if self._entries.insert(key, bytes(value)):
            return
        before = self._entries.get(key)
        if before:
            value[_COUNTS_AT:_HEADER_AT] = before[_COUNTS_AT:_HEADER_AT]
        self._entries[key] = bytes(value)

    def remove(self, key: bytes) -> None:
        """Remove a cached action if it exists; its counts since the last report are lost."""
        self._counts_then.pop(key, None)
        self._entries.discard(key)

    def used(self, name: Callable[[bytes], Key]) -> tuple[dict[Key, DecisionUse], int]:
        """Return counts of the cached actions used since the last call, and the number of all."""
        if not self._touched:
            return {}, 0
        found = {}
        counts = {}
        for key, value in self._entries.items():
            packets, size = _COUNTS.unpack_from(value, _COUNTS_AT)
            counts[key] = packets, size
            packets_then, size_then = self._counts_then.get(key, (0, 0))
            if packets < packets_then:  # the cached action was removed and installed again since
                packets_then = size_then = 0
            if packets > packets_then:
                found[name(key)] = DecisionUse(packets - packets_then, size - size_then)
        self._counts_then = counts
        return found, len(counts)


def _flow_words(flow: FlowKey, path: int = 0) -> tuple[int, ...]:
    """Return the words of a flow's lookup key; `path` is the number of a sprayed flow's path."""
    source, destination, protocol, source_port, destination_port = flow
    return source, destination, source_port << 16 | destination_port, path << 8 | protocol


def _unpacked_flow(key: bytes) -> FlowKey:
    source, destination, ports, protocol = _WORDS.unpack_from(key)
    return FlowKey(source, destination, protocol, ports >> 16, ports & 0xFFFF)
