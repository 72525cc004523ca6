"""What a sender of TCP puts into one packet, and how its window comes down."""

from __future__ import annotations

from types import SimpleNamespace

import numpy
import pytest

from pillarbox.experiments.models.packets.congestion import CUBIC
from pillarbox.experiments.models.packets.sender import process_ack, segments_of_next_packet
from pillarbox.experiments.models.packets.state import NOT_ARRIVED, RECOVERY

SEGMENTS, NEXT, NEWEST = 40, 30, 25  # sent up to 30; what was sent up to number 25 is known


@pytest.mark.parametrize(
    ("first", "most", "window", "count"),
    [
        (NEXT, 8, 100.0, 8),
        (NEXT, 50, 100.0, SEGMENTS - NEXT),  # the flow ends
        (NEXT, 8, 9.0, 4),  # half a window
        (NEXT, 8, 1.0, 1),
        (6, 8, 100.0, 1),
        (3, 8, 100.0, 4),  # lost, up to one that has arrived
        (8, 50, 100.0, 4),  # and to one that was sent again
        (20, 8, 100.0, 6),  # and to those of which nothing is known
        (20, 2, 100.0, 2),
    ],
)
def test_segments_go_together_that_are_all_lost_or_all_new(
    first: int, most: int, window: float, count: int
) -> None:
    flow = SimpleNamespace(
        segment=0, segments=SEGMENTS, next=NEXT, newest=NEWEST, reported=NEWEST, window=window
    )
    arrived_as, sent_as = numpy.full(SEGMENTS, NOT_ARRIVED), numpy.arange(SEGMENTS)
    arrived_as[7], sent_as[12] = 7, NEXT
    assert segments_of_next_packet(flow, first, most, arrived_as, sent_as) == count


@pytest.mark.parametrize(
    ("taken", "newest", "acked", "may_send"),
    [
        (4, 84, 0, 3),  # seven of ten that arrive, while more is under way than will be
        (10, 90, 0, 4),  # then up to what will be
        (1, 92, 0, 1),  # but one for one where so much is lost,
        (1, 92, 1, 1),
        (1, 81, 1, 1),
    ],
)
def test_a_window_comes_down_as_segments_arrive(
    taken: int, newest: int, acked: int, may_send: int
) -> None:
    # Twenty segments were under way when one was missed, and fourteen are to be.
    flow = SimpleNamespace(
        doing=RECOVERY, until=100, sent=100, newest=80, acked=0, taken=0, window=20.0,
        control=CUBIC, threshold=14.0, begun_sent=100, begun_taken=0, begun_window=20.0,
        round_trip_s=0.1, deviation_s=0.0, ever_s=0.1,
    )  # fmt: skip
    ack = SimpleNamespace(
        number=acked, newest=newest, taken=taken, stamp_s=0.0, has_holes=True, marked=False
    )
    process_ack(flow, ack, 0.1, 1000.0)
    assert flow.window == flow.sent - flow.newest + may_send
    assert flow.doing == RECOVERY
