"""Results that methods of a lab return."""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """What was done to a lab, and after how many ms each server had noticed."""

    did: str
    noticed_ms: dict[str, float]
    not_noticed: list[str]


class Size(NamedTuple):
    """A network after servers have joined or left."""

    network: str
    servers: int
    switches: int


class Way(NamedTuple):
    """The path of a packet: servers that it reached, and why it went no further."""

    servers: list[str]
    delivered: bool
    dropped: str  # reason
    lost_to: str  # next hop of a packet that never arrived there
    computed: list[str]  # path that the routing computes

    def __str__(self) -> str:
        """Return the addresses, and the reason if the packet was lost."""
        text = " ".join(self.servers)
        lost = self.dropped or (f"lost on the way to {self.lost_to}" if self.lost_to else "lost")
        return text if self.delivered else f"{text} ({lost})"


class Ping(NamedTuple):
    """Round-trip time of an ICMP echo in ms; None if there was no answer."""

    source: str
    destination: str
    ms: float | None


class Iperf(NamedTuple):
    """Throughput of one TCP connection."""

    source: str
    destination: str
    mbit: float  # per second
    seconds: float
    bytes: int
    retransmits: int | None
    tool: str


class Link(NamedTuple):
    """Load of one direction of a cable."""

    source: str  # server, or switch
    destination: str
    port: int  # of the source
    mbit: float  # per second
    share: float | None  # of the cable's rate; None if the cable has no limit


class Captured(NamedTuple):
    """A capture file, and the number of frames in it."""

    file: str
    frames: int
    missed: int  # frames that arrived too fast to be written
