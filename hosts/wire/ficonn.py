"""FiConn's path-probing packet (Li 2009, section IV): it sets up the route of one flow.

It follows a DCN header with protocol PATH_PROBE. Every server on the way notes for the flow where
the probe came from and where it goes (section IV.A). The destination sends one back, which sets up
the flow of the answers: R is 1 on that way, and the flow is the reversed one.

The PR field (section IV.B) has one entry for each level up to the lowest common one of source and
destination. PR_l is the server chosen as the proxy of level l while the packet is on its way to it,
else BYZERO (no link of level l bypassed so far) or BYONE (one was). On the wire every server is its
uid.

Tries says how many probes of a path went unanswered before this one, and B that the answer comes
back the way of the probe, and both ways are used at once (`hosts.ficonn.router`).

The paper draws no packet. The previous hop, which its Algorithm 3 reads from the packet, has a
field of its own, since some neighbours share a port.
"""

from __future__ import annotations

from typing import NamedTuple

from hosts.wire.dcn import MOST_UID
from hosts.wire.ipv4 import FLOW_FIELDS, FlowKey
from hosts.wire.layout import CHECKSUM, COUNT, Body, Field, Layout, WireError

BYZERO = 0xFFFFFFFF
BYONE = 0xFFFFFFFE

PATH_PROBE = Body(
    [
        Field("returning", 1, "R"),
        Field("tries", 3),
        Field(COUNT, 4),
        Field("back", 1, "B"),
        Field("reserved", 7, constant=0),
        Field(CHECKSUM, 16),
        Field("round", 32),
        Field("previous", 32, "Previous Hop", most=MOST_UID),
        *FLOW_FIELDS,
    ],
    Layout([Field("entry", 32, "PR Entry", meaning={BYZERO: "BYZERO", BYONE: "BYONE"})]),
    title="path probe",
)


class PathProbe(NamedTuple):
    """A path-probing packet; ``entries[0]`` is PR_1.

    ::

         0                   1                   2                   3
         0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
        +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
        |R|Tries| Count |B|   Reserved  |            Checksum           |
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
    tries: int = 0  # before this one, without an answer
    back: bool = False  # comes the answer, the way of the probe

    def pack(self) -> bytes:
        """Return the body of the message."""
        _check(self.entries)
        return PATH_PROBE.pack(
            self.returning,
            self.tries,
            self.back,
            self.round,
            self.previous,
            *self.flow,
            entries=[(entry,) for entry in self.entries],
        )

    @classmethod
    def parse(cls, data: bytes) -> PathProbe:
        """Return the message of a body, or raise WireError."""
        (returning, tries, back, number, previous, *flow), found = PATH_PROBE.unpack(data)
        entries = tuple([entry for (entry,) in found])
        _check(entries)
        key = FlowKey(*flow)
        return cls(key, number, bool(returning), previous, entries, tries, bool(back))


def _check(entries: tuple[int, ...]) -> None:
    for entry in entries:
        if MOST_UID < entry < BYONE:
            raise WireError("bad field", f"a PR entry is a uid, BYZERO or BYONE, not {entry}")
