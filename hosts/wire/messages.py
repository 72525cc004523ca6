"""Bodies of control messages between servers.

A body follows a DCN, BCube or IPv4 header, whose protocol number identifies the message
(`pillarbox.hosts.wire.dcn.Protocol`). The papers define the content of messages, but no format.
Here each body begins with two message-specific bytes and a checksum of the whole body, since the
checksums of the headers cover only the headers. The body extends to the end of its packet.

Servers are encoded as uids, ports as the index of a server's port.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from pillarbox.hosts.wire.dcn import MOST_UID, Protocol
from pillarbox.hosts.wire.ficonn import PATH_PROBE, PathProbe
from pillarbox.hosts.wire.header_layout import (
    CHECKSUM,
    COUNT,
    Body,
    Field,
    HeaderLayout,
    WireError,
    value_texts,
)
from pillarbox.hosts.wire.ipv4 import FLOW_FIELDS, FlowKey

UNKNOWN_PORT = 255

HEARTBEAT = Body(
    [Field("port", 8), Field(COUNT, 8), Field(CHECKSUM, 16)],
    HeaderLayout([Field("heard", 32, "Heard Server", most=MOST_UID)]),
    title="heartbeat",
)
LINK_STATE = Body(
    [
        Field("reserved", 8, constant=0),
        Field(COUNT, 8),
        Field(CHECKSUM, 16),
        Field("sequence", 32),
    ],
    HeaderLayout([Field("peer", 32, most=MOST_UID), Field("port", 8)]),
    title="link state",
)
PROBE = Body(
    [
        Field("path", 8),
        Field("reserved", 8, constant=0),
        Field(CHECKSUM, 16),
        Field("round", 32),
        Field("available_bps", 64, "Available Bits per Second"),
    ],
    title="probe",
)
PATH_FAILURE = Body(
    [
        Field("port", 8, meaning={UNKNOWN_PORT: "unknown"}),
        Field(COUNT, 8, most=1),
        Field(CHECKSUM, 16),
        Field("server", 32, most=MOST_UID),
        Field("peer", 32, most=MOST_UID),
    ],
    HeaderLayout(FLOW_FIELDS),
    title="path failure",
)


class Unreached(IntEnum):
    """Reason codes of `Unreachable` messages: why a server dropped the packet."""

    NO_PATH = 1
    RETRY_EXHAUSTED = 2
    TTL_EXPIRED = 3
    NO_GATEWAY = 4
    NO_SERVER = 5


UNREACHABLE = Body(
    [
        Field("reason", 8, meaning=value_texts(Unreached)),
        Field("reserved", 8, constant=0),
        Field(CHECKSUM, 16),
        Field("destination", 32),
    ],
    title="unreachable",
)
CABLE_CUT = Body(
    [Field("port", 8), Field("reserved", 8, constant=0), Field(CHECKSUM, 16)],
    title="cable cut",
)


class Heartbeat(NamedTuple):
    """Heartbeat message to a port's neighbours, with the servers that its sender hears there.

    A receiver in this list knows that the link works in both directions (Guo 2008, section 7.1).

    ::

         0                   1                   2                   3
         0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |      Port     |     Count     |            Checksum           |
        +==================== as often as Count says ===================+
        |                          Heard Server                         |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+

    >>> Heartbeat.parse(Heartbeat(port=0, heard=(1, 2)).pack())
    Heartbeat(port=0, heard=(1, 2))
    """

    port: int
    heard: tuple[int, ...]

    def pack(self) -> bytes:
        """Return the body that encodes this control message."""
        return HEARTBEAT.pack(self.port, entries=[(uid,) for uid in self.heard])

    @classmethod
    @lru_cache(maxsize=256)  # parsed heartbeats are cached, since neighbours repeat identical ones
    def parse(cls, data: bytes) -> Heartbeat:
        """Return the control message parsed from its body, or raise WireError."""
        (port,), heard = HEARTBEAT.unpack(data)
        return cls(port, tuple([uid for (uid,) in heard]))


class LinkState(NamedTuple):
    """Link-state message: the working links of a server, each with port and next server.

    The link state with the highest sequence number is valid (Guo 2008, section 4.3.2 and 7.1).

    ::

         0                   1                   2                   3
         0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |    Reserved   |     Count     |            Checksum           |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                            Sequence                           |
        +==================== as often as Count says ===================+
        |                              Peer                             |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |      Port     |
        +-+-+-+-+-+-+-+-+

    >>> LinkState.parse(LinkState(sequence=7, links=((0, 1), (1, 17))).pack())
    LinkState(sequence=7, links=((0, 1), (1, 17)))
    """

    sequence: int
    links: tuple[tuple[int, int], ...]

    def pack(self) -> bytes:
        """Return the body that encodes this control message."""
        return LINK_STATE.pack(self.sequence, entries=[(uid, port) for port, uid in self.links])

    @classmethod
    def parse(cls, data: bytes) -> LinkState:
        """Return the control message parsed from its body, or raise WireError."""
        (sequence,), links = LINK_STATE.unpack(data)
        return cls(sequence, tuple([(port, uid) for uid, port in links]))


class Probe(NamedTuple):
    """Probe of one path, which collects the minimum available bandwidth of its links.

    `path` is the number of the path at its source, `round` the number of the probe round (Guo 2009,
    section 4; Liao 2012, section 4.5).

    ::

         0                   1                   2                   3
         0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |      Path     |    Reserved   |            Checksum           |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                             Round                             |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                                                               |
        +                   Available Bits per Second                   +
        |                                                               |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+

    >>> Probe.parse(Probe(round=1, path=2, available_bps=10**9).pack())
    Probe(round=1, path=2, available_bps=1000000000)
    """

    round: int
    path: int
    available_bps: int

    def pack(self) -> bytes:
        """Return the body that encodes this control message."""
        return PROBE.pack(self.path, self.round, self.available_bps)

    @classmethod
    def parse(cls, data: bytes) -> Probe:
        """Return the control message parsed from its body, or raise WireError."""
        (path, number, available_bps), _ = PROBE.unpack(data)
        return cls(number, path, available_bps)


class ProbeResponse(NamedTuple):
    """The destination's answer to a `Probe`, in the same format."""

    round: int
    path: int
    available_bps: int

    def pack(self) -> bytes:
        """Return the body that encodes this control message."""
        return Probe(*self).pack()

    @classmethod
    def parse(cls, data: bytes) -> ProbeResponse:
        """Return the control message parsed from its body, or raise WireError."""
        return cls(*Probe.parse(data))


class PathFailure(NamedTuple):
    """Message to a packet's source: the link from `server` to `peer` at `port` has failed.

    `flow` is the flow of the packet that met the failed link, or None (Guo 2009, section 4.2; Liao
    2012, section 4.5.1).

    ::

         0                   1                   2                   3
         0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |      Port     |     Count     |            Checksum           |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                             Server                            |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                              Peer                             |
        +==================== as often as Count says ===================+
        |                          Flow Source                          |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                        Flow Destination                       |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        | Flow Protocol |                    Reserved                   |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |        Flow Source Port       |     Flow Destination Port     |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+

    >>> PathFailure.parse(PathFailure(port=1, server=3, peer=7, flow=None).pack())
    PathFailure(port=1, server=3, peer=7, flow=None)
    """

    port: int
    server: int
    peer: int
    flow: FlowKey | None

    def pack(self) -> bytes:
        """Return the body that encodes this control message."""
        flows = [] if self.flow is None else [self.flow]
        return PATH_FAILURE.pack(self.port, self.server, self.peer, entries=flows)

    @classmethod
    def parse(cls, data: bytes) -> PathFailure:
        """Return the control message parsed from its body, or raise WireError."""
        (port, server, peer), flows = PATH_FAILURE.unpack(data)
        return cls(port, server, peer, FlowKey(*flows[0]) if flows else None)


class Unreachable(NamedTuple):
    """Message to a packet's source: the packet was dropped for a reason (Guo 2008, 4.3.3).

    ::

         0                   1                   2                   3
         0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |     Reason    |    Reserved   |            Checksum           |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                          Destination                          |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+

    >>> Unreachable.parse(Unreachable(destination=17, reason=Unreached.TTL_EXPIRED).pack())
    Unreachable(destination=17, reason=3)
    """

    destination: int
    reason: int

    def pack(self) -> bytes:
        """Return the body that encodes this control message."""
        return UNREACHABLE.pack(self.reason, self.destination)

    @classmethod
    def parse(cls, data: bytes) -> Unreachable:
        """Return the control message parsed from its body, or raise WireError."""
        (reason, destination), _ = UNREACHABLE.unpack(data)
        return cls(destination, reason)


class CableCut(NamedTuple):
    """Message to neighbours on a switch: the cable at the sender's port is cut.

    ::

         0                   1                   2                   3
         0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |      Port     |    Reserved   |            Checksum           |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+

    >>> CableCut.parse(CableCut(port=1).pack())
    CableCut(port=1)
    """

    port: int

    def pack(self) -> bytes:
        """Return the body that encodes this control message."""
        return CABLE_CUT.pack(self.port)

    @classmethod
    def parse(cls, data: bytes) -> CableCut:
        """Return the control message parsed from its body, or raise WireError."""
        (port,), _ = CABLE_CUT.unpack(data)
        return cls(port)


Message: TypeAlias = (
    Heartbeat | LinkState | Probe | ProbeResponse | PathFailure | Unreachable | PathProbe | CableCut
)

MESSAGES: dict[int, type[Message]] = {
    Protocol.HEARTBEAT: Heartbeat,
    Protocol.LINK_STATE: LinkState,
    Protocol.PROBE: Probe,
    Protocol.PROBE_RESPONSE: ProbeResponse,
    Protocol.PATH_FAILURE: PathFailure,
    Protocol.UNREACHABLE: Unreachable,
    Protocol.PATH_PROBE: PathProbe,
    Protocol.CABLE_CUT: CableCut,
}
BODIES: dict[int, Body] = {
    Protocol.HEARTBEAT: HEARTBEAT,
    Protocol.LINK_STATE: LINK_STATE,
    Protocol.PROBE: PROBE,
    Protocol.PROBE_RESPONSE: PROBE,
    Protocol.PATH_FAILURE: PATH_FAILURE,
    Protocol.UNREACHABLE: UNREACHABLE,
    Protocol.PATH_PROBE: PATH_PROBE,
    Protocol.CABLE_CUT: CABLE_CUT,
}
_PROTOCOLS = {message: Protocol(number) for number, message in MESSAGES.items()}


def protocol_of(message: Message) -> Protocol:
    """Return the DCN protocol number of a control message.

    >>> protocol_of(Heartbeat(0, ())).name
    'HEARTBEAT'
    """
    return _PROTOCOLS[type(message)]


def parse_message(protocol: int, body: bytes) -> Message:
    """Return the control message parsed by its protocol number, or raise WireError.

    >>> parse_message(Protocol.HEARTBEAT, Heartbeat(1, (4,)).pack())
    Heartbeat(port=1, heard=(4,))
    """
    if protocol not in MESSAGES:
        raise WireError("unknown message", f"no control message has protocol {protocol}")
    return MESSAGES[protocol].parse(body)
