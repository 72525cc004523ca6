"""Records of links, flows and packets, which compiled code changes in place.

Every flow keeps to one path, and every queue is first in, first out. So packets of a flow never
overtake one another, and **transmissions are numbered**: once number i has arrived, all earlier
ones have arrived or are lost. This single number replaces SACK and RACK (RFC 6675, RFC 8985) in a
network that does not reorder: a sender has `sent - newest` packets in flight, and a segment is lost
if its last transmission is not above `newest` and it has not arrived.
"""

from __future__ import annotations

import numpy

NONE = -1
NEVER = numpy.inf

# states of a sender: no segment is missing; fast recovery; recovery after a timeout
OPEN, RECOVERY, LOSS = 0, 1, 2

# Record of a link: the cable behind a port, or a relay's processor.
LINK = numpy.dtype(
    [
        ("byte_s", "f8"),  # transmission time of a byte on the link
        ("packet_s", "f8"),  # additional transmission time of each packet on the link
        ("delay_s", "f8"),  # propagation delay to the other end of the link
        ("jitter_s", "f8"),  # maximum random delay added per segment
        ("limit_s", "f8"),  # longest queueing delay: that of a full queue
        # time that a lab's port may send ahead of its rate, and save up while idle
        ("owed_s", "f8"),
        ("free_s", "f8"),  # when all packets accepted so far will have left, at the link's rate
        ("turn_s", "f8"),  # when transmission of the link's last packet begins
        ("last_s", "f8"),  # arrival time of the link's last packet, which no packet overtakes
        ("first", "i4"),  # first packet (record number) on the link; `last` is the last one
        ("last", "i4"),
        ("waits", "i4"),  # first packet that had not left the link at the last check
        ("passed", "i8"),  # number of packets forwarded by the link
        ("dropped", "i8"),
    ],
    align=True,
)
PACKET = numpy.dtype(
    [
        ("due_s", "f8"),  # arrival at the other end of the packet's link
        ("leaves_s", "f8"),  # departure from the packet's link
        ("stamp_s", "f8"),  # timestamp: when the data was sent; an ACK echoes it
        ("flow", "i4"),
        ("behind", "i4"),  # next packet on the same link
        ("at", "i8"),  # the packet's current link, as an index into all paths' links
        ("end", "i8"),  # end of the packet's path, as an index into all paths' links
        ("number", "i4"),  # first segment in the packet; in an ACK, the first missing segment
        (
            "count",
            "i4",
        ),  # number of consecutive segments in the packet (a super-packet has several)
        ("newest", "i4"),  # transmission number; in an ACK, the highest that has arrived
        ("taken", "i4"),  # number of segments that have arrived (in an ACK)
        ("is_ack", "b1"),
        ("has_holes", "b1"),  # whether segments after the missing one have arrived (in an ACK)
    ],
    align=True,
)
FLOW = numpy.dtype(
    [
        # The flow as requested. Segments and links of all flows are concatenated in arrays.
        ("begin_s", "f8"),
        ("segment", "i8"),  # index of the flow's first segment in the arrays of all flows
        ("segments", "i4"),
        ("last_bytes", "i4"),  # payload bytes of the flow's last segment
        ("path", "i8"),
        ("path_end", "i8"),
        ("back", "i8"),
        ("back_end", "i8"),
        # State of the TCP sender.
        ("window", "f8"),  # congestion window, in segments like all the following numbers
        ("threshold", "f8"),
        ("next", "i4"),  # first segment that the sender has not sent yet
        ("acked", "i4"),  # first segment not yet acknowledged cumulatively
        ("sent", "i4"),  # number of segments sent by the flow, retransmissions included
        ("newest", "i4"),  # highest transmission number known to have left the network
        ("repairs", "i4"),  # first segment of the search for the next lost one
        ("taken", "i4"),  # number of segments known to have arrived, in any order
        ("until", "i4"),  # recovery lasts until all segments below this one have arrived
        # At the start of recovery: transmissions, arrived segments, and the window.
        ("begun_sent", "i4"),
        ("begun_taken", "i4"),
        ("begun_window", "f8"),
        ("doing", "i4"),
        ("doublings", "i4"),  # number of doublings of the retransmission timeout
        ("probed", "b1"),  # whether a tail loss probe was sent: see `sender.py`
        ("undo_s", "f8"),  # time of the timeout; window and threshold before it follow
        ("undo_window", "f8"),
        ("undo_threshold", "f8"),
        ("own", "i4"),  # number of the flow's packets that wait at its server's own port
        ("full", "b1"),  # whether the window was full within the current round trip
        # segment up to which ACKs end the round trip of `full`
        ("full_until", "i4"),
        ("round_trip_s", "f8"),
        ("deviation_s", "f8"),
        ("most", "f8"),  # CUBIC: window at the last loss
        ("reno", "f8"),  # CUBIC: window that Reno would have
        ("epoch_s", "f8"),  # CUBIC: start of the current growth
        ("rise_s", "f8"),  # CUBIC: time until the window reaches `most` again
        # State of HyStart: a round lasts until all segments sent before it have arrived.
        ("round_end", "i4"),
        ("round_s", "f8"),
        ("train_s", "f8"),  # HyStart: time of the last ACK of the current ACK train
        ("samples", "i4"),  # HyStart: number of round trips measured in this round
        ("least_s", "f8"),  # HyStart: shortest round trip of this round
        ("ever_s", "f8"),  # shortest round trip of the flow
        # State of the TCP receiver.
        ("expected", "i4"),  # first segment that is missing
        ("highest", "i4"),  # number of the highest segment that has arrived, plus one
        ("arrived", "i4"),  # highest transmission number that has arrived
        ("segments_in", "i4"),  # number of segments that have arrived, duplicates included
        ("unacked", "i4"),  # number of segments that have arrived since the last ACK
        ("echo_s", "f8"),  # timestamp of the first segment since the last ACK
        # Results of the TCP flow.
        ("end_s", "f8"),
        ("drops", "i4"),  # number of the flow's dropped data packets and ACKs
        ("repeats", "i4"),
        ("timeouts", "i4"),
    ],
    align=True,
)
