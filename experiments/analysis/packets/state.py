"""What is known of links, flows and packets: a record each, which compiled code changes in place.

Every flow keeps to one path, and every queue is first in, first out. So packets of a flow never
overtake one another, and **transmissions are numbered**: once number i has arrived, all before it
have arrived or are lost. This is what SACK and RACK (RFC 6675, RFC 8985) find out in a network that
does not reorder, in one number: a sender has `sent - newest` packets under way, and a segment is
lost if its last transmission is not above `newest` and it has not arrived.
"""

from __future__ import annotations

import numpy

NONE = -1
NEVER = numpy.inf

OPEN, RECOVERY, LOSS = 0, 1, 2  # what a sender does: nothing is missing; repairs; was timed out

# The cable behind a port, or a relay's processor.
LINK = numpy.dtype(
    [
        ("byte_s", "f8"),  # that a byte takes
        ("packet_s", "f8"),  # and each packet besides
        ("delay_s", "f8"),  # until it is at the other end
        ("jitter_s", "f8"),  # what is drawn and comes to it for each segment, at most
        ("limit_s", "f8"),  # the longest wait: that of a full queue
        ("owed_s", "f8"),  # what it may owe before it waits, and save up at rest: a lab's port
        ("free_s", "f8"),  # when all will have left that it was given, by its rate
        ("turn_s", "f8"),  # when the last packet begins to be sent
        ("last_s", "f8"),  # when the last packet is due: nothing overtakes it
        ("first", "i4"),  # of the packets that it has, and the last
        ("last", "i4"),
        ("waits", "i4"),  # the first of those that have not left it, when that was last asked
        ("passed", "i8"),  # packets
        ("dropped", "i8"),
    ],
    align=True,
)
PACKET = numpy.dtype(
    [
        ("due_s", "f8"),  # at the other end of its link
        ("leaves_s", "f8"),  # it
        ("stamp_s", "f8"),  # when the data was sent; an ACK echoes it
        ("flow", "i4"),
        ("behind", "i4"),  # the next one on the same link
        ("at", "i8"),  # which of all paths' links it is on
        ("end", "i8"),  # and where its path ends
        ("number", "i4"),  # of the first segment; of an ACK, the first segment that is missing
        ("count", "i4"),  # of segments, one behind the other: a super-packet
        ("newest", "i4"),  # the number of this transmission; of an ACK, of the newest to arrive
        ("taken", "i4"),  # of an ACK, how many segments have arrived
        ("is_ack", "b1"),
        ("has_holes", "b1"),  # an ACK of something behind what is missing
    ],
    align=True,
)
FLOW = numpy.dtype(
    [
        # What is asked for. Segments and links of all flows stand in arrays, one behind another.
        ("begin_s", "f8"),
        ("segment", "i8"),  # where its segments begin
        ("segments", "i4"),
        ("last_bytes", "i4"),  # that its last segment delivers
        ("path", "i8"),
        ("path_end", "i8"),
        ("back", "i8"),
        ("back_end", "i8"),
        # The sender's.
        ("window", "f8"),  # in segments, as all that follows
        ("threshold", "f8"),
        ("next", "i4"),  # the first segment that was never sent
        ("acked", "i4"),  # the first that is not known to have arrived, nor all before it
        ("sent", "i4"),  # transmissions
        ("newest", "i4"),  # up to which they have left the network
        ("repairs", "i4"),  # where to look for the next lost segment
        ("taken", "i4"),  # that are known to have arrived, in whatever order
        ("until", "i4"),  # the recovery lasts until all below has arrived
        # When it began: transmissions, what had arrived, and the window.
        ("begun_sent", "i4"),
        ("begun_taken", "i4"),
        ("begun_window", "f8"),
        ("doing", "i4"),
        ("doublings", "i4"),  # of the time-out
        ("probed", "b1"),  # the tail: see `sender.py`
        ("undo_s", "f8"),  # when it was timed out, and what the window and threshold were
        ("undo_window", "f8"),
        ("undo_threshold", "f8"),
        ("own", "i4"),  # packets that wait at the server's own port
        ("full", "b1"),  # the window was, within a round trip:
        ("full_until", "i4"),  # it ends when all before this is acknowledged
        ("round_trip_s", "f8"),
        ("deviation_s", "f8"),
        ("most", "f8"),  # CUBIC's: the window at which packets were lost,
        ("reno", "f8"),  # what Reno's would be by now,
        ("epoch_s", "f8"),  # since when it grows,
        ("rise_s", "f8"),  # and how long it takes to be there again
        # HyStart's: a round lasts until all has arrived that was sent before it.
        ("round_end", "i4"),
        ("round_s", "f8"),
        ("train_s", "f8"),  # the last ACK of those that come one upon the other
        ("samples", "i4"),  # of its round trips,
        ("least_s", "f8"),  # and the shortest,
        ("ever_s", "f8"),  # also of all
        # The receiver's.
        ("expected", "i4"),  # the first segment that is missing
        ("highest", "i4"),  # one above the highest that has arrived
        ("arrived", "i4"),  # the newest transmission to arrive
        ("segments_in", "i4"),  # that have arrived, again or not
        ("unacked", "i4"),  # that have arrived since the last ACK
        ("echo_s", "f8"),  # the first one's time stamp
        # What became of it.
        ("end_s", "f8"),
        ("drops", "i4"),  # data and ACKs
        ("repeats", "i4"),
        ("timeouts", "i4"),
    ],
    align=True,
)
