"""Records of links, flows and packets, which compiled code changes in place.

Every flow keeps to one path, and every queue is first in, first out. So packets of a flow never
overtake one another, and **transmissions are numbered**: once number i has arrived, all earlier
ones have arrived or are lost. This single number replaces SACK and RACK (RFC 6675, RFC 8985) in a
network that does not reorder: a sender has `sent - newest` packets in flight, and a segment is lost
if its last transmission is not above `newest` and no ACK has reported its arrival.
"""

from __future__ import annotations

import numpy

from pillarbox.experiments.models.arrays import Flag, Float64, Int8, Int16, Int32, Int64

NONE = -1
NOT_ARRIVED = (1 << 31) - 1  # higher than the number of any transmission
NEVER = numpy.inf

# states of a sender: no segment is missing; fast recovery; recovery after a timeout; and reduction
# of the window after an ECN mark, while no segment is missing
OPEN, RECOVERY, LOSS, REDUCTION = 0, 1, 2, 3

# kinds of packets: data on the first link of its path, data on another link, and acknowledgements
AT_HOME, AWAY, ACK = 0, 1, 2


class Link:
    """Record of a link: the cable behind a port, or a relay's processor."""

    # The first cache line has what changes with each packet.
    due_s: Float64  # arrival of the link's first packet at the other end
    free_s: Float64  # when all packets accepted so far will have left, at the link's rate
    turn_s: Float64  # when transmission of the link's last packet begins
    last_s: Float64  # arrival time of the link's last packet, which no packet overtakes
    first: Int32  # first packet (record number) on the link; `last` is the last one
    last: Int32
    waits: Int32  # first packet that had not left the link at the last check
    later: Int32  # next link in the same bucket of the event queue
    passed: Int64  # number of packets forwarded by the link
    dropped: Int64
    byte_s: Float64  # transmission time of a byte on the link
    packet_s: Float64  # additional transmission time of each packet on the link
    delay_s: Float64  # propagation delay to the other end of the link
    jitter_s: Float64  # maximum random delay added per segment
    limit_s: Float64  # longest queueing delay: that of a full queue
    # time that a lab's port may send ahead of its rate, and save up while idle
    owed_s: Float64
    # queueing delay from which packets get an ECN mark, the packet's own transmission included; and
    # when the port has sent all packets, computed without bursts, as a lab's marking program does
    mark_s: Float64
    busy_s: Float64


class Packet:
    """Record of a packet on its way, data or an ACK: one cache line."""

    due_s: Float64  # arrival at the other end of the packet's link
    leaves_s: Float64  # departure from the packet's link
    stamp_s: Float64  # timestamp: when the data was sent; an ACK echoes it
    newest_s: Float64  # ACK: when the newest segment that has arrived was sent
    flow: Int32
    behind: Int32  # next packet on the same link
    at: Int32  # the packet's current link, as an index into all paths' links
    number: Int32  # first segment in the packet; in an ACK, the first missing segment
    newest: Int32  # transmission number; in an ACK, the highest that has arrived
    taken: Int32  # number of segments that have arrived (in an ACK)
    count: Int16  # number of consecutive segments in the packet (a super-packet has several)
    kind: Int8  # AT_HOME, AWAY or ACK
    is_last: Flag  # whether the packet has the flow's last segment
    has_holes: Flag  # whether segments after the missing one have arrived (in an ACK)
    capable: Flag  # whether a link may mark the packet (ECN-capable transport)
    marked: Flag  # ECN mark (congestion experienced); in an ACK, ECN-Echo
    reduced: Flag  # the sender has reduced its window after an ECN-Echo (CWR)


class TcpFlow:
    """Record of a TCP flow, or of a subflow: request, sender, receiver, and results."""

    # Sender and receiver may be simulated by different threads: each writes to its own cache lines.
    # First line: the flow as requested, which both read. Segments and links of all flows are
    # concatenated in arrays.
    begin_s: Float64
    segment: Int64  # index of the flow's first segment in the arrays of all flows
    segments: Int32  # number of segments; of a subflow, those that it may have sent by now
    last: Int32  # the segment that carries the last data; NONE if no segment of a subflow does
    last_bytes: Int32  # payload bytes of the last data segment
    connection: Int32  # number of a subflow's Multipath TCP connection; NONE for TCP
    path: Int32  # first link of the path, and of the return path; NONE without a path
    back: Int32
    control: Int32  # number of the congestion control: see `congestion.py`
    # State of the TCP sender that seldom changes, and results.
    repeats: Int32
    timeouts: Int32
    until: Int32  # recovery lasts until all segments below this one have arrived
    begun_sent: Int32  # number of transmissions and of arrived segments at the start of recovery
    begun_taken: Int32
    # Second line: state of the TCP receiver.
    expected: Int32  # first segment that is missing
    highest: Int32  # number of the highest segment that has arrived, plus one
    arrived: Int32  # highest transmission number that has arrived
    segments_in: Int32  # number of segments that have arrived, duplicates included
    unacked: Int32  # number of segments that have arrived since the last ACK
    echoes: Flag  # whether ACKs report an ECN mark (ECN-Echo)
    echo_s: Float64  # timestamp of the first segment since the last ACK
    newest_s: Float64  # timestamp of the newest segment
    answer_s: Float64  # expiry of the delayed-ACK timer; and when the event queue has it
    answer_due_s: Float64
    end_s: Float64  # arrival of the last segment
    # Further lines: state of the TCP sender.
    owes_notice: Flag  # whether the next new segment reports a reduced window (CWR)
    probed: Flag  # whether a tail loss probe was sent: see `sender.py`
    full: Flag  # whether the window was full within the current round trip
    own: Int32  # number of the flow's packets that wait at its server's own port
    timer_s: Float64  # expiry of the sender's timer; and when the event queue has it
    timer_due_s: Float64
    window: Float64  # congestion window, in segments like all the following numbers
    threshold: Float64
    next: Int32  # first segment that the sender has not sent yet
    acked: Int32  # first segment not yet acknowledged cumulatively
    sent: Int32  # number of segments sent by the flow, retransmissions included
    newest: Int32  # highest transmission number known to have left the network
    reported: Int32  # highest transmission number whose arrival an ACK has reported
    repairs: Int32  # first segment of the search for the next lost one
    taken: Int32  # number of segments known to have arrived, in any order
    doing: Int32
    doublings: Int32  # number of doublings of the retransmission timeout
    # segment up to which ACKs end the round trip of `full`
    full_until: Int32
    round_trip_s: Float64
    deviation_s: Float64
    ever_s: Float64  # shortest round trip of the flow
    most: Float64  # CUBIC: window at the last loss
    reno: Float64  # CUBIC: window that Reno would have
    epoch_s: Float64  # CUBIC: start of the current growth
    rise_s: Float64  # CUBIC: time until the window reaches `most` again
    # State of HyStart: a round lasts until all segments sent before it have arrived.
    round_end: Int32
    samples: Int32  # HyStart: number of round trips measured in this round
    round_s: Float64
    train_s: Float64  # HyStart: time of the last ACK of the current ACK train
    least_s: Float64  # HyStart: shortest round trip of this round
    increase: Float64  # LIA: window growth per acknowledged segment that all subflows may have
    # ECN, and the controls that use it
    alpha: Float64  # DCTCP: estimated share of marked segments
    window_end: Int32  # DCTCP: the observation window ends with this segment
    observed: Int32  # DCTCP: number of segments acknowledged in the observation window
    marked: Int32  # DCTCP: number of marked segments among them
    begun_window: Float64  # window at the start of recovery
    undo_s: Float64  # time of the timeout; window and threshold before it follow
    undo_window: Float64
    undo_threshold: Float64
    # control by delay: latest round trip, and time of the latest reduction
    latest_s: Float64
    cut_s: Float64


class Connection:
    """Record of a Multipath TCP connection: the supply of data segments that its subflows share."""

    first: Int32  # number of the first subflow's record; the others follow
    subflows: Int32
    segment: Int64  # index of the first data segment in the arrays of all connections
    segments: Int32
    # State of the sender.
    next: Int32  # first data segment that no subflow has taken
    acked: Int32  # first data segment that is not acknowledged yet
    stranded: Int32  # first data segment of the search for stranded ones
    is_blocked: Flag  # whether the receive window kept a subflow from taking data
    # State of the receiver.
    expected: Int32  # first data segment that is missing
    missing: Int32  # number of data segments that have not arrived on any subflow
