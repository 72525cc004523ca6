"""What a sender of TCP puts into one packet."""

from __future__ import annotations

from types import SimpleNamespace

import numpy
import pytest

from experiments.analysis.packets.sender import one_packet

SEGMENTS, NEXT, NEWEST = 40, 30, 25  # sent up to 30; what was sent up to number 25 is known


@pytest.mark.parametrize(
    ("first", "most", "window", "count"),
    [
        (NEXT, 8, 100.0, 8),
        (NEXT, 50, 100.0, SEGMENTS - NEXT),  # the flow ends
        (NEXT, 8, 9.0, 4),  # half a window
        (NEXT, 8, 1.0, 1),
        (3, 8, 100.0, 4),  # lost, up to one that has arrived
        (8, 50, 100.0, 4),  # and to one that was sent again
        (20, 8, 100.0, 6),  # and to those of which nothing is known
        (20, 2, 100.0, 2),
    ],
)
def test_segments_go_together_that_are_all_lost_or_all_new(
    first: int, most: int, window: float, count: int
) -> None:
    flow = SimpleNamespace(segment=0, segments=SEGMENTS, next=NEXT, newest=NEWEST, window=window)
    arrived, sent_as = numpy.zeros(SEGMENTS, bool), numpy.arange(SEGMENTS)
    arrived[7], sent_as[12] = True, NEXT
    assert one_packet(flow, first, most, arrived, sent_as) == count
