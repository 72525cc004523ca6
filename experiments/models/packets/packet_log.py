"""Log of the packets of TCP flows: when each was sent, and when it passed each link.

Live labs and the packet simulation write the same log. A row is an event of a packet: its TCP
sender hands it to the network (`NO_LINK`), or it reaches the end of a link. Rows are in order of
time; rows of the same time are in the order of cause and effect.
"""

from __future__ import annotations

from typing import NamedTuple

from pillarbox.experiments.models.arrays import Bools, Flag, Float64, Floats, Int32, Ints

NO_LINK = -1  # link of a packet that has just been sent


class PacketLog(NamedTuple):
    """Columns of a packet log."""

    at_s: Floats
    flow: Ints
    link: Ints  # directed link that the packet has passed (`directed_links`), or NO_LINK
    packet: Ints  # number of the packet; a retransmission is another packet
    is_ack: Bools
    # Data: position of the first byte in the flow's data, and of the byte after the last. ACK: both
    # are the number of bytes received without a gap.
    first: Ints
    end: Ints
    bytes: Ints  # size on a cable, all headers included


class LoggedPacket:
    """Record of a row of the packet simulation's log (see `PacketLog`)."""

    at_s: Float64
    flow: Int32
    link: Int32
    # transmission number; in an ACK, the highest that has arrived: no two packets of a flow, and no
    # two of its ACKs, have the same
    newest: Int32
    number: Int32  # first segment in the packet; in an ACK, the first missing segment
    count: Int32  # number of segments
    is_ack: Flag
