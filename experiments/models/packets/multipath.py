"""Multipath TCP connections: the data that subflows share.

A subflow is a TCP flow on a path of its own, with its own segment numbers, window, and repair of
losses. All subflows of a connection share one supply of data segments and one receive window:

- A subflow that may send a new segment takes the next data segment of the supply, up to the receive
  window beyond the first data segment that is not acknowledged. No subflow is preferred; the one
  whose ACK comes first sends first, so a subflow takes data as fast as its path delivers them.
- A timeout strands the data of a subflow: they count as lost on its path, until ACKs of all that
  was sent before the timeout. Other subflows take stranded data again if they have nothing else to
  send: at the end of the supply, or if the receive window is full. The subflow itself repeats its
  segments too, as TCP must.

All subflows are open when the connection starts, on links that do not fail. Not simulated: the
handshakes of subflows, and a choice among subflows by their round trips.

`controls.lia` couples the windows of the subflows; with other controls each has its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Bools, Ints, Records, zero_records
from pillarbox.experiments.models.packets.state import LOSS, NONE, Connection, TcpFlow


class SharedData(NamedTuple):
    """State of all Multipath TCP connections, which changes in place; empty for TCP."""

    connections: Records[Connection]
    data: Ints  # for each segment of a subflow: the data segment that it carries
    carrier: Ints  # for each data segment: the subflow that took it last
    arrived: Bools  # for each data segment: whether it has arrived on any subflow


def no_shared_data() -> SharedData:
    """Return the state of a simulation without Multipath TCP."""
    none = numpy.zeros(0, numpy.int32)
    return SharedData(zero_records(Connection, 0), none, none, none.astype(bool))


def share_data(flows: Records[TcpFlow], subflows: Ints) -> SharedData:
    """Make connections of consecutive flows, of which each connection has the given number.

    The records of the flows have the segments of the whole connection.
    """
    connections = zero_records(Connection, len(subflows))
    firsts = numpy.cumsum(subflows) - subflows
    segments = flows["segments"][firsts].astype(numpy.int64)
    connections["first"], connections["subflows"] = firsts, subflows
    connections["segments"] = connections["missing"] = segments
    connections["segment"] = numpy.cumsum(segments) - segments
    flows["connection"] = numpy.repeat(numpy.arange(len(subflows)), subflows)
    flows["segments"], flows["last"] = 0, NONE
    return SharedData(
        connections,
        numpy.zeros(int((segments * subflows).sum()), numpy.int32),
        numpy.zeros(int(segments.sum()), numpy.int32),
        numpy.zeros(int(segments.sum()), bool),
    )


def offer_data(shared: SharedData, flows: Records[TcpFlow], one: int, most: float) -> None:
    """Set the number of segments that a subflow may have sent, by the data it may take now.

    `most` is the connection's receive window in segments.
    """
    flow = flows[one]
    connection = shared.connections[flow.connection]
    flow.segments = flow.next
    # A subflow has segment numbers for each data segment once.
    if flow.next == connection.segments:
        return
    window = min(connection.segments, connection.acked + int(most))
    if connection.next < window:
        flow.segments = min(flow.next + window - connection.next, connection.segments)
        return
    if connection.next < connection.segments:
        connection.is_blocked = True
    if flow.doing != LOSS and _next_stranded_segment(shared, flows, connection) != NONE:
        flow.segments = flow.next + 1


def take_data(shared: SharedData, flows: Records[TcpFlow], one: int, most: float) -> None:
    """Let a subflow's next segment carry the data segment that `offer_data` has found."""
    flow = flows[one]
    connection = shared.connections[flow.connection]
    taken = connection.next
    if taken < min(connection.segments, connection.acked + int(most)):
        connection.next += 1
    else:
        taken = _next_stranded_segment(shared, flows, connection)
    shared.data[flow.segment + flow.next] = taken
    shared.carrier[connection.segment + taken] = one
    if taken == connection.segments - 1:
        flow.last = flow.next


def process_data_ack(shared: SharedData, flow: TcpFlow, acked: int) -> bool:
    """Process the data ACK of a subflow's ACK; return True if other subflows may now take data."""
    connection = shared.connections[flow.connection]
    if acked <= connection.acked:
        return False
    connection.acked = acked
    was_blocked = connection.is_blocked
    connection.is_blocked = False
    return was_blocked


def receive_data_segment(shared: SharedData, flow: TcpFlow, segment: int) -> bool:
    """Receive a subflow's segment; return False if its data have arrived on another subflow."""
    connection = shared.connections[flow.connection]
    at = connection.segment + shared.data[flow.segment + segment]
    if shared.arrived[at]:
        return False
    shared.arrived[at] = True
    connection.missing -= 1
    while (
        connection.expected < connection.segments
        and shared.arrived[connection.segment + connection.expected]
    ):
        connection.expected += 1
    return True


def _next_stranded_segment(
    shared: SharedData, flows: Records[TcpFlow], connection: Connection
) -> int:
    """Return the first data segment that is missing and was taken by a subflow that timed out."""
    while connection.stranded < connection.next:
        at = connection.segment + connection.stranded
        if not shared.arrived[at] and flows[shared.carrier[at]].doing == LOSS:
            return connection.stranded
        connection.stranded += 1
    return NONE
