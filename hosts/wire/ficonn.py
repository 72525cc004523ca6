"""FiConn's path-probing packet (Li 2009, section IV), which sets up the route of one flow.

The packet follows a DCN header with protocol PATH_PROBE. Every server on the path stores the
probe's previous hop and next hop for the flow (section IV.A). The destination sends a probe back,
which sets up the route of the reverse flow: then R is 1 and the flow is the reversed flow.

The PR field (section IV.B) has one entry for each level up to the lowest common level of source and
destination. PR_l is the proxy server of level l while the packet travels to it, otherwise BYZERO
(no link of level l bypassed so far) or BYONE (one link bypassed). Servers are encoded as uids.

Tries is the number of unanswered probes of the path before this probe. B means that the answer
takes the path of the probe backwards, and both directions are used simultaneously
(`pillarbox.hosts.ficonn.router`).

The paper does not specify the packet format. The previous hop, which Algorithm 3 reads from the
packet, has a separate field here, since some neighbours share a port.
"""

from __future__ import annotations

from typing import NamedTuple

from pillarbox.hosts.wire.dcn import MOST_UID
from pillarbox.hosts.wire.header_layout import CHECKSUM, COUNT, Body, Field, HeaderLayout, WireError
from pillarbox.hosts.wire.ipv4 import FLOW_FIELDS, FlowKey

BYZERO = 0xFFFFFFFF
BYONE = 0xFFFFFFFE

PATH_PROBE = Body(
    [
        Field("returning", 1, "R"),
        Field("tries", 3),
        Field(COUNT, 4),
        Field("back", 1, "B"),
        Field("stuck", 1, "S"),
        Field("reserved", 6, constant=0),
        Field(CHECKSUM, 16),
        Field("round", 32),
        Field("previous", 32, "Previous Hop", most=MOST_UID),
        *FLOW_FIELDS,
    ],
    HeaderLayout([Field("entry", 32, "PR Entry", meaning={BYZERO: "BYZERO", BYONE: "BYONE"})]),
    title="path probe",
)


class PathProbe(NamedTuple):
    """Path-probing message of FiConn; ``entries[0]`` is its PR_1.

    ::

         0                   1                   2                   3
         0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |R|Tries| Count |B|S|  Reserved |            Checksum           |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                             Round                             |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                          Previous Hop                         |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                          Flow Source                          |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |                        Flow Destination                       |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        | Flow Protocol |                    Reserved                   |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |        Flow Source Port       |     Flow Destination Port     |
        +==================== as often as Count says ===================+
        |                            PR Entry                           |
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+

    >>> flow = FlowKey(0x0A000001, 0x0A000009, 6, 40000, 80)
    >>> probe = PathProbe(flow, round=3, returning=False, previous=7, entries=(BYZERO, 21))
    >>> PathProbe.parse(probe.pack()) == probe
    True
    """

    flow: FlowKey
    round: int
    returning: bool
    previous: int
    entries: tuple[int, ...]
    tries: int = 0  # number of unanswered probes of this flow before this probe
    back: bool = False  # True for the answer, which returns along the path of the probe
    stuck: bool = False  # True for a probe that found no path and returns to its source

    def pack(self) -> bytes:
        """Return the message body that encodes this FiConn path probe."""
        _check_entries(self.entries)
        return PATH_PROBE.pack(
            self.returning,
            self.tries,
            self.back,
            self.stuck,
            self.round,
            self.previous,
            *self.flow,
            entries=[(entry,) for entry in self.entries],
        )

    @classmethod
    def parse(cls, data: bytes) -> PathProbe:
        """Return the FiConn path probe that a message body encodes, or raise WireError."""
        (returning, tries, back, stuck, number, previous, *flow), rows = PATH_PROBE.unpack(data)
        entries = tuple([entry for (entry,) in rows])
        _check_entries(entries)
        key = FlowKey(*flow)
        return cls(key, number, bool(returning), previous, entries, tries, bool(back), bool(stuck))


def _check_entries(entries: tuple[int, ...]) -> None:
    """Raise WireError if PR entries of a FiConn probe are neither uids nor BYZERO or BYONE."""
    for entry in entries:
        if MOST_UID < entry < BYONE:
            raise WireError("bad field", f"a PR entry is a uid, BYZERO or BYONE, not {entry}")
