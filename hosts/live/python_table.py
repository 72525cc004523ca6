"""The decisions of one server that its forwarder carries out, without eBPF (see table.py).

A packet with the lookup key of an earlier packet gets the same treatment without the router: its
header is compared, verified and rewritten as bytes. That takes a fraction of the time of parsing,
deciding and packing. Packets without a decision, malformed packets and control messages are passed
to the router, which sees the same packets that the kernel would pass to it (forward.bpf.c).

State: the decisions, at most MOST of each kind; a full table is cleared.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pillarbox.hosts.base.network import headers
from pillarbox.hosts.live.devices import Port
from pillarbox.hosts.live.numbers import NumericHeaderForm, RelayOperations
from pillarbox.hosts.live.table import (
    Action,
    DecisionUse,
    DeliverDecision,
    PushDecision,
    RelayDecision,
    UnwrapDecision,
)
from pillarbox.hosts.wire import ipv4
from pillarbox.hosts.wire.dcn import FIRST_MESSAGE, MESSAGE_MASK
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP
from pillarbox.hosts.wire.header import ByHeader
from pillarbox.hosts.wire.header_layout import checksum
from pillarbox.hosts.wire.ipv4 import IP_IN_IP, TCP, UDP, FlowKey
from pillarbox.hosts.wire.marks import TRACED
from pillarbox.hosts.wire.relay_keys import ByDestination, ByFlow, ByTunnel, RelayKey

MOST = 4096  # maximum number of cached actions for own packets, and for relayed ones
MOST_BYTES = 0xFFFF

IP = 0x45  # first byte of an IPv4 header without options: version, length

# Byte positions of IPv4 header fields, as hosts/wire declares them.
TOTAL = slice(ipv4.LAYOUT.byte("total_length"), ipv4.LAYOUT.byte("identification"))
CHECKSUM = slice(ipv4.LAYOUT.byte("checksum"), ipv4.LAYOUT.byte("source"))
TOS_AT, FRAGMENT_AT, TTL_AT, PROTOCOL_AT = map(
    ipv4.LAYOUT.byte, ("tos", "flags", "ttl", "protocol")
)
DESTINATION = slice(ipv4.LAYOUT.byte("destination"), ipv4.SIZE)
ADDRESSES_AND_PORTS = slice(ipv4.LAYOUT.byte("source"), ipv4.SIZE + 4)
TCP_FLAGS_AT = ipv4.SIZE + 13
WITH_PORTS = ipv4.SIZE + ipv4.PORTS.size  # minimum size in bytes of an IPv4 packet with ports

# IPv4 fields after the type of service: total length, identification.
_BEHIND_TOTAL = struct.Struct(">HH")
_WORD = struct.Struct(">H")
# Checksum that Pillarbox never writes, as it equals 0 (RFC 1624, section 3).
WRONG_ZERO = b"\xff\xff"
DONT_FRAGMENT, FRAGMENT_BITS, OFFSET_BITS = 0x40, 0x3F, 0x1F
SYN = 0x02
PROBE_MARK = 253  # IP protocol number of packets whose path is traced

_DCN, _IP = ETH_DCN.to_bytes(2, "big"), ETH_IP.to_bytes(2, "big")


class PacketOutlet(Protocol):
    """Egress of packets: a network port, or the interface to the server's applications."""

    def put(self, data: bytes, /) -> None:
        """Send a packet out of this egress, or raise OSError."""

    def drop_reason(self, error: OSError, /) -> str:
        """Return the drop reason under which a failure to send a packet is counted."""


class CachedAction:
    """A cached action of the Python data plane: bytes to prepend, egress, and packet counts."""

    __slots__ = (
        "action",
        "bytes",
        "delivers",
        "form",
        "front",
        "header",
        "key",
        "number",
        "onward",
        "others",
        "outlet",
        "packets",
        "told",
        "turn",
    )

    def __init__(
        self,
        key: FlowKey | RelayKey,
        action: Action | PushDecision,
        outlet: PacketOutlet,
        front: bytes,
    ) -> None:
        self.key, self.action, self.outlet, self.front = key, action, outlet, front
        self.delivers = isinstance(action, DeliverDecision)
        self.header = bytearray(action.header if isinstance(action, PushDecision) else b"")
        # For declared headers: the header to prepend, as an integer, or the changes by a relay.
        self.form: NumericHeaderForm | None = None
        self.number = 0
        self.onward: RelayOperations | None = None
        self.packets = self.bytes = 0
        self.told = DecisionUse(0, 0)
        # Actions for the other paths of a sprayed flow; the number of the next packet's action, 0
        # for this one. The packets of all paths are counted here.
        self.others: Sequence[CachedAction] = ()
        self.turn = 0

    def next_action(self) -> CachedAction:
        """Return the action for the next packet of a sprayed flow."""
        turn, self.turn = self.turn, (self.turn + 1) % (1 + len(self.others))
        return self.others[turn - 1] if turn else self

    def take_counts(self) -> DecisionUse:
        """Return the cached action's packet and byte counts since the last call."""
        then, self.told = self.told, DecisionUse(self.packets, self.bytes)
        return DecisionUse(self.packets - then.packets, self.bytes - then.bytes)


class PythonTable:
    """Python data plane: cached actions that a forwarder executes without its router.

    Parameters
    ----------
    ports : mapping of int to Port
        The server's ports by port number.
    applications : Outlet
        Interface for packets that are addressed to this server.
    count : callable
        Called with the reason when a packet is dropped.
    by_flow, sees_connections : bool
        The router's attributes of these names.
    """

    def __init__(
        self,
        ports: Mapping[int, Port],
        applications: PacketOutlet,
        count: Callable[[str], None],
        *,
        by_flow: bool = False,
        sees_connections: bool = False,
    ) -> None:
        self._ports, self._applications, self._count = ports, applications, count
        self._by_flow, self._sees_connections = by_flow, sees_connections
        forms = [form for header in headers() for form in header.forms]
        self._forms = {form.first: NumericHeaderForm(form) for form in forms}
        self._flows: dict[bytes, CachedAction] = {}
        self._relays: dict[tuple[int | type, int, bytes | int], CachedAction] = {}
        self._packet_counts: Counter[str] = Counter()
        self.counted = 0

    # -- decisions -------------------------------------------------------------------------------

    def install_flow(
        self, flow: FlowKey, push: PushDecision, others: Sequence[PushDecision] = ()
    ) -> None:
        """Install the cached action for packets of a local application's flow (table.py)."""
        if flow.protocol in (TCP, UDP):
            repeated = self._push(flow, push)
            if others:
                repeated.others, repeated.turn = [self._push(flow, other) for other in others], 1
            if len(self._flows) >= MOST:
                self._flows.clear()
            self._flows[_flow_bytes(flow)] = repeated

    def _push(self, flow: FlowKey, push: PushDecision) -> CachedAction:
        form = self._forms.get(push.header[0]) if push.header else None
        repeated = self._egress_decision(flow, push, ETH_DCN if form else ETH_IP)
        if form:
            repeated.form, repeated.number = form, form.as_number(push.header)
        return repeated

    def install_relay(self, key: RelayKey, action: Action) -> None:
        """Install the cached action for received frames with a lookup key."""
        if isinstance(key, ByFlow) and key.flow.protocol not in (TCP, UDP):
            return
        if len(self._relays) >= MOST:
            self._relays.clear()
        if isinstance(action, DeliverDecision):
            repeated = CachedAction(key, action, self._applications, b"")
        elif isinstance(key, ByHeader) and isinstance(action, RelayDecision):
            repeated = self._egress_decision(key, action, ETH_DCN)
            form = self._forms[key.form.first]
            repeated.onward = form.relay_operations(action.change, self._forms)
        else:
            repeated = self._egress_decision(key, action, ETH_IP)
        self._relays[self._relay_key(key)] = repeated

    def _egress_decision(
        self,
        key: FlowKey | RelayKey,
        action: PushDecision | RelayDecision | UnwrapDecision,
        ethertype: int,
    ) -> CachedAction:
        port = self._ports[action.port]
        front = action.peer + port.mac + ethertype.to_bytes(2, "big")
        return CachedAction(key, action, port, front)

    def forget_flow(self, flow: FlowKey) -> None:
        """Remove the cached actions for one flow, if the router decides by flow."""
        self._flows.pop(_flow_bytes(flow), None)
        for port in self._ports:
            self._relays.pop(self._relay_key(ByFlow(flow, port)), None)

    def _relay_key(self, key: RelayKey) -> tuple[int | type, int, bytes | int]:
        match key:
            case ByHeader(form):
                return self._forms[form.first].decision_key(key)
            case ByDestination(destination, port):
                return ByDestination, port, destination.to_bytes(4, "big")
            case ByFlow(flow, port):
                return ByFlow, port, _flow_bytes(flow)
            case ByTunnel(direction, outer_destination, destination):
                ends = outer_destination.to_bytes(4, "big") + destination.to_bytes(4, "big")
                return ByTunnel, direction, ends

    def remove_decision(self, key: FlowKey | RelayKey) -> None:
        """Remove the cached action with a lookup key, if it exists."""
        if isinstance(key, FlowKey):
            self._flows.pop(_flow_bytes(key), None)
        else:
            self._relays.pop(self._relay_key(key), None)

    def flush(self, *, relays: bool = True) -> None:
        """Remove all cached actions, or only those for packets of local applications."""
        self._flows.clear()
        if relays:
            self._relays.clear()

    def counters(self) -> dict[str, int]:
        """Return the counts of packets handled without the router, by treatment."""
        return dict(self._packet_counts)

    def forwarded_packets(self) -> int:
        """Return the number of packets that the Python data plane forwarded without the router."""
        return sum(self._packet_counts.values())

    def set_rest(self, rests: bool) -> None:
        """Do nothing: without eBPF, the forwarder sees every packet, so a rest needs no event."""

    def flows_used(self) -> dict[FlowKey, DecisionUse]:
        """Return counts since the last call of cached actions for this server's own packets."""
        used, self.counted = (
            {one.key: one.take_counts() for one in self._flows.values()},
            len(self._flows),
        )
        return {flow: n for flow, n in used.items() if n.packets and isinstance(flow, FlowKey)}

    def relays_used(self) -> dict[RelayKey, DecisionUse]:
        """Return counts since the last call of cached actions for relayed packets."""
        used = {one.key: one.take_counts() for one in self._relays.values()}
        self.counted = len(self._relays)
        return {key: n for key, n in used.items() if n.packets and not isinstance(key, FlowKey)}

    # -- packets ---------------------------------------------------------------------------------

    def send_by_decision(self, packet: bytes) -> bool:
        """Send an application's packet by its flow's cached action; return False without one."""
        flow = packet[PROTOCOL_AT : PROTOCOL_AT + 1] + packet[ADDRESSES_AND_PORTS]
        repeated = self._flows.get(flow)
        if (
            repeated is None
            or packet[0] != IP
            or packet[TOS_AT] == TRACED
            or packet[FRAGMENT_AT] & OFFSET_BITS
            or packet[FRAGMENT_AT + 1]
            or len(packet) < WITH_PORTS
        ):
            return False
        if self._sees_connections and _opens_connection(packet):
            return False
        action = repeated.next_action() if repeated.others else repeated
        header: bytes | bytearray = action.header
        if action.form:
            header = action.form.header_of_packet(action.number, len(packet), repeated.packets)
        elif header and not _adapt_tunnel_header(action.header, packet, repeated.packets):
            return False
        return self._send_or_deliver("done pushed", repeated, header, packet, action)

    def handle_by_decision(self, port: int, frame: bytes) -> bool:
        """Forward or deliver a received frame by its cached action; return False without one."""
        if frame[:6] != self._ports[port].mac:
            return False
        if frame[12:14] == _DCN:
            return self._forward_dcn(port, frame[14:])
        return frame[12:14] == _IP and self._forward_ip(port, frame[14:])

    def _send_or_deliver(
        self,
        what: str,
        repeated: CachedAction,
        header: bytes | bytearray,
        packet: bytes,
        sprayed: CachedAction | None = None,
    ) -> bool:
        """Send or deliver a packet by a cached action, with a header prepended.

        A packet of a sprayed flow leaves by `sprayed` and is counted by the flow's first action.
        """
        action = sprayed or repeated
        repeated.packets += 1
        repeated.bytes += len(packet)
        self._packet_counts[what] += 1
        try:
            action.outlet.put(b"".join((action.front, header, packet)))
        except OSError as error:
            self._count(action.outlet.drop_reason(error))
        return True

    def _forward_dcn(self, port: int, data: bytes) -> bool:
        form = self._forms.get(data[0]) if data else None
        if form is None or len(data) < form.size + ipv4.SIZE:
            return False
        payload, number = data[form.size :], int.from_bytes(data[: form.size], "big")
        # The DCN header's length is at the same offset as IPv4's.
        length = int.from_bytes(data[TOTAL], "big")
        key = form.key_of(number, port)
        if (
            key is None
            or not ipv4.SIZE <= length <= len(payload)
            or payload[0] != IP
            or _is_control(payload[TOS_AT], payload[PROTOCOL_AT])
        ):
            return False
        found = self._relays.get(key)
        if found is None:
            return False
        if found.delivers:
            return self._send_or_deliver("done delivered", found, b"", payload[:length])
        header = found.onward.forwarded_header(number) if found.onward else None
        return header is not None and self._send_or_deliver("done relayed", found, header, payload)

    def _forward_ip(self, port: int, data: bytes) -> bool:
        if not _is_plain_ipv4(data):
            return False
        if data[PROTOCOL_AT] == IP_IN_IP:
            return self._forward_tunnelled(data)
        if not self._by_flow:
            found = self._relays.get((ByDestination, port, data[DESTINATION]))
        elif data[FRAGMENT_AT] & OFFSET_BITS or data[FRAGMENT_AT + 1]:
            return False
        else:
            flow = data[PROTOCOL_AT : PROTOCOL_AT + 1] + data[ADDRESSES_AND_PORTS]
            found = self._relays.get((ByFlow, port, flow))
        if found is None:
            return False
        packet = data[: int.from_bytes(data[TOTAL], "big")]
        if self._by_flow and len(packet) < WITH_PORTS:
            return False
        if found.delivers:
            return self._send_or_deliver("done delivered", found, b"", packet)
        if data[TTL_AT] <= 1:
            return False
        return self._send_or_deliver("done relayed", found, b"", ipv4.decrement_ttl(packet))

    def _forward_tunnelled(self, data: bytes) -> bool:
        end = int.from_bytes(data[TOTAL], "big")
        inside = data[ipv4.SIZE : end]
        if data[FRAGMENT_AT] & FRAGMENT_BITS or data[FRAGMENT_AT + 1] or not _is_plain_ipv4(inside):
            return False
        direction = data[DESTINATION.start - 1] & ipv4.NIC_BIT
        found = self._relays.get((ByTunnel, direction, data[DESTINATION] + inside[DESTINATION]))
        if found is None:
            return False
        if found.delivers:
            return self._send_or_deliver("done delivered", found, b"", inside)
        if data[TTL_AT] <= 1:
            return False
        if isinstance(found.action, RelayDecision):
            return self._send_or_deliver("done relayed", found, b"", ipv4.decrement_ttl(data[:end]))
        # A packet that leaves its tunnel is forwarded with TTL decremented (RFC 2003, section 3.1).
        if inside[TTL_AT] <= 1:
            return False
        return self._send_or_deliver("done unwrapped", found, b"", ipv4.decrement_ttl(inside))


def _adapt_tunnel_header(header: bytearray, packet: bytes, number: int) -> bool:
    """Adapt a tunnel's outer IP header to a packet; return False if the packet is too long."""
    length = len(packet) + ipv4.SIZE
    if length > MOST_BYTES:
        return False
    # The outer header copies type of service, DF and TTL from the inner packet (RFC 2003).
    header[TOS_AT] = packet[TOS_AT]
    header[TTL_AT] = packet[TTL_AT]
    header[FRAGMENT_AT] = packet[FRAGMENT_AT] & DONT_FRAGMENT
    _BEHIND_TOTAL.pack_into(header, TOTAL.start, length, number & 0xFFFF)
    _WORD.pack_into(header, CHECKSUM.start, 0)
    _WORD.pack_into(header, CHECKSUM.start, checksum(bytes(header)))
    return True


# -- checks of packets -----------------------------------------------------------------------------


def _checksum_is_right(header: bytes) -> bool:
    """Return True if an IPv4 header has a correct checksum, in the form of hosts/wire."""
    return int.from_bytes(header, "big") % 0xFFFF == 0 and header[CHECKSUM] != WRONG_ZERO


def _is_control(tos: int, protocol: int) -> bool:
    """Return True for packets that the router must see: control messages and traced packets."""
    return tos == TRACED or protocol == PROBE_MARK or protocol & MESSAGE_MASK == FIRST_MESSAGE


def _is_plain_ipv4(data: bytes) -> bool:
    """Return True for a complete IPv4 packet of an application, without options."""
    return (
        len(data) >= ipv4.SIZE
        and data[0] == IP
        and ipv4.SIZE <= int.from_bytes(data[TOTAL], "big") <= len(data)
        and _checksum_is_right(data[: ipv4.SIZE])
        and not _is_control(data[TOS_AT], data[PROTOCOL_AT])
    )


def _opens_connection(packet: bytes) -> bool:
    flags = packet[TCP_FLAGS_AT : TCP_FLAGS_AT + 1]
    return packet[PROTOCOL_AT] == TCP and (not flags or flags[0] & SYN != 0)


def _flow_bytes(flow: FlowKey) -> bytes:
    """Return a flow as the bytes that packets contain: protocol, addresses, ports."""
    ports = flow.source_port << 16 | flow.destination_port
    words = (flow.source, flow.destination, ports)
    return bytes([flow.protocol]) + b"".join(word.to_bytes(4, "big") for word in words)
