"""LIA, the Linked Increases Algorithm, which couples a connection's subflows (RFC 6356, section 3).

Per acknowledged segment, the window of subflow i grows by the lesser of

    alpha / cwnd_total                                                         (equation 1)
    1 / cwnd_i

    alpha = cwnd_total * max(cwnd_i / rtt_i^2) / sum(cwnd_i / rtt_i)^2         (equation 2)

with all windows in segments of equal size. So all subflows together grow as fast as TCP on the best
path, and no subflow grows faster than TCP on its path. Slow start, the reduction after a loss, and
the repair of losses are NewReno's.
"""

from __future__ import annotations

from pillarbox.experiments.models.arrays import Records
from pillarbox.experiments.models.packets.state import RECOVERY, TcpFlow


def lia_window(flow: TcpFlow, segments: int) -> float:
    """Return the window after an ACK of new segments."""
    return flow.window + segments * min(flow.increase, 1 / flow.window)


def lia_increase(flows: Records[TcpFlow], first: int, end: int) -> float:
    """Return alpha / cwnd_total of the subflows with these numbers, `end` excluded.

    A subflow that recovers from a loss counts with the window to which it falls.
    """
    best = total = 0.0
    for number in range(first, end):
        flow = flows[number]
        window = flow.threshold if flow.doing == RECOVERY else flow.window
        rate = window / flow.round_trip_s
        best = max(best, rate / flow.round_trip_s)
        total += rate
    return best / (total * total)
