"""FiConn's rules on single servers and fields, worked out from the paper's definitions."""

from __future__ import annotations

import pytest

import topos
from hosts.ficonn import rules
from hosts.ficonn.rules import BYONE, BYZERO, NOWHERE
from topos.ficonn import FiConn

SIZES = [4, 12, 48]
NET = rules.nested(SIZES)
FICONN = FiConn(4, 2)


def test_wiring_and_levels_are_those_of_the_topology() -> None:
    assert (NET.steps, NET.starts, NET.ports) == ([1, 2, 4], [0, 0, 1], [0, 1, 1])
    assert rules.most_members(SIZES) == 4
    assert rules.most_members([4]) == 0
    for server in range(48):
        assert rules.level_of(NET, server) == FICONN.level(server)


@pytest.mark.parametrize("destination", range(48))
def test_a_probe_to_the_far_side_has_the_backup_neighbour_as_its_proxy(destination: int) -> None:
    for source in set(range(48)) - {destination}:
        progress = [7] * 3
        count = rules.start(NET, source, destination, True, progress)
        far = topos.Topology.plug(FICONN, destination, 1).node if FICONN.level(destination) else -1
        if far in (-1, source):
            assert count == rules.start(NET, source, destination, False, [7] * 3)
        else:
            assert (count, progress) == (3, [BYZERO, BYZERO, far])


def test_a_new_probe_has_an_entry_for_each_level_that_it_may_cross() -> None:
    for source in range(48):
        for destination in set(range(48)) - {source}:
            progress = [7] * 3
            count = rules.start(NET, source, destination, False, progress)
            common = next(
                n for n, size in enumerate(SIZES) if source // size == destination // size
            )
            assert count == max(common, FICONN.level(source))
            assert progress == [BYZERO] * count + [7] * (3 - count)


def test_entries_of_the_pr_field() -> None:
    assert [rules.may_bypass([BYZERO, BYONE, 5], level) for level in range(5)] == [
        *(False, True),
        *(False, False, False),
    ]
    progress = [BYONE, 9, BYONE]
    rules.put(progress, 3, 20)
    assert progress == [BYZERO, BYZERO, 20]
    rules.put(progress, 1, BYONE)
    assert progress == [BYONE, BYZERO, 20]
    assert [rules.target([BYONE, 0, 8], above, 30) for above in range(4)] == [0, 0, 8, 30]
    assert rules.target([], 0, 30) == 30


@pytest.mark.parametrize(
    ("level", "came_by", "progress", "starts"),
    [
        (2, 1, [0], True),
        (1, 1, [0], False),
        (2, 1, [BYZERO, 0], False),
        (3, 1, [BYZERO, 0], True),
        (2, 0, [0], False),
        (2, 1, [BYZERO, BYONE], False),
        (2, NOWHERE, [0], False),
    ],
)
def test_a_probe_starts_over_above_the_level_of_its_proxy(
    level: int, came_by: int, progress: list[int], starts: bool
) -> None:
    assert rules.starts_over(level, came_by, progress) == starts


@pytest.mark.parametrize(
    ("at", "level", "goal", "beyond"),
    [
        (0, 1, 5, 5),  # another FiConn_0 of the same FiConn_1: TOR heads for the destination
        (0, 1, 3, NOWHERE),  # the same FiConn_0: no level-1 cable
        (0, 2, 5, NOWHERE),
        (0, 2, 13, 13),
        (0, 1, 47, 9),  # the level-2 cable to the last FiConn_1 is at server 9: rank 2, 2 x 4 + 1
        (8, 1, 47, NOWHERE),
    ],
)
def test_target_beyond_a_cable(at: int, level: int, goal: int, beyond: int) -> None:
    assert rules.target_beyond(NET, at, level, goal) == beyond
