"""Results that methods of a lab return."""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """A fault or repair in a lab, and the time each server took to detect it, in ms."""

    did: str
    noticed_ms: dict[str, float]
    not_noticed: list[str]


class NetworkSize(NamedTuple):
    """Size of a lab's network after servers have joined or left."""

    network: str
    servers: int
    switches: int


class PacketPath(NamedTuple):
    """The path of a packet: the servers it reached, and the reason if it was dropped."""

    servers: list[str]
    delivered: bool
    dropped: str  # reason why a server dropped the packet, or ""
    lost_to: str  # next hop that the packet was sent to and never reached
    computed: list[str]  # servers on the path that the routing computes

    def __str__(self) -> str:
        """Return the addresses on the path, and the reason if the packet was lost."""
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
    mbit: float  # throughput in Mbit/s
    seconds: float
    bytes: int
    retransmits: int | None
    tool: str


class Link(NamedTuple):
    """Load of one direction of a cable."""

    source: str  # sending server or switch
    destination: str
    port: int  # port number at the sending server or switch
    mbit: float  # current throughput in Mbit/s
    share: float | None  # fraction of the cable's rate; None if the rate is unlimited


class CaptureFile(NamedTuple):
    """A capture file, and the number of frames in it."""

    file: str
    frames: int
    missed: int  # frames missing in the file: they arrived faster than they could be written
