"""FiConn's rules on single servers and fields, worked out from the paper's definitions."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.hosts.ficonn import rules
from pillarbox.hosts.ficonn.rules import (
    BYONE,
    BYZERO,
    NOWHERE,
    ONWARD,
    ProbePlace,
    ProbeVerdict,
    Server,
)
from pillarbox.topos.ficonn import BACKUP, SWITCH, FiConn

SIZES = [4, 12, 48]
NET = rules.nested(SIZES)
FICONN = FiConn(4, 2)


def test_wiring_and_levels_are_those_of_the_topology() -> None:
    assert (NET.steps, NET.starts, NET.ports) == ([1, 2, 4], [0, 0, 1], [0, 1, 1])
    assert rules.most_members(SIZES) == 4
    assert rules.most_members([4]) == 0
    for server in range(48):
        assert rules.level_of(NET, server) == FICONN.level(server)
    larger = rules.nested([4, 12, 48, 336])
    assert (larger.steps, larger.starts, larger.ports) == ([1, 2, 4, 8], [0, 0, 1, 3], [0, 1, 1, 1])


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


def place_of(
    here: int, destination: int, came: int = NOWHERE, dead: int = NOWHERE, **own: Any
) -> ProbePlace:
    """Return a probe's position at a server all of whose links work, except the one to `dead`."""
    level = FICONN.level(here)
    far = topos.Topology.plug(FICONN, here, 1).node if level else NOWHERE
    server = Server(here, level, far, bool(level), True, 0)._replace(**own)
    mates = {one: one != dead for one in range(48)}
    came_by = NOWHERE if came == NOWHERE else SWITCH
    return ProbePlace(NET, server, mates, random.Random(1), [0] * 4, destination, came_by, came)


@pytest.mark.parametrize(
    ("destination", "progress", "level", "is_bypass"),
    [
        # Level 1: FiConn_0s of 4 servers. TOR leads from server 0 to server 5 in the second one.
        (5, [9], 1, True),
        (5, [4], 1, False),
        (5, [7], 1, False),
        (5, [8], 1, True),
        (9, [0], 1, True),
        (5, [BYZERO], 1, False),
        (5, [BYONE], 1, False),
        (3, [9], 1, False),  # TOR uses no level-1 cable
        # Level 2: FiConn_1s of 12 servers.
        (13, [BYZERO, 25], 2, True),
        (13, [BYZERO, 20], 2, False),
        (13, [25, 20], 2, False),
        (13, [BYZERO, 24], 2, True),
        (13, [BYZERO, 23], 2, False),
        (35, [BYZERO, 23], 2, True),
        # Level 1 on the way to the proxy of level 2: to server 9, whose cable leads to FiConn_1 3.
        (13, [5, 36], 1, True),
        (13, [9, 36], 1, False),
    ],
)
def test_a_bypass_leads_through_a_third_ficonn(
    destination: int, progress: list[int], level: int, is_bypass: bool
) -> None:
    place = place_of(0, destination)
    assert rules.bypasses(place, progress, level) == is_bypass


# The level-1 cables of the first FiConn_1: 0 - 4, 2 - 8 and 6 - 10.


@pytest.mark.parametrize(
    ("place", "progress", "replaced"),
    [
        (place_of(0, 5), [BYZERO, BYZERO], None),  # no proxy
        (place_of(0, 5), [5], None),  # the proxy is no bypass
        (place_of(0, 5), [9], [8]),  # the source draws another one, here the only one,
        (place_of(0, 5, dead=2), [9], [5]),  # or uses the cable, if its first hop works
        (place_of(0, 5, dead=2, by_backup=False), [9], None),
        (place_of(0, 5, came=3), [9], [5]),  # other servers use the cable
        (place_of(0, 5, came=3, dead=2, by_backup=False), [9], [5]),
        (place_of(0, 13, came=3), [BYONE, 25], [BYZERO, 13]),
    ],
)
def test_a_proxy_that_cannot_be_reached_is_replaced(
    place: ProbePlace, progress: list[int], replaced: list[int] | None
) -> None:
    before = [*progress]
    assert rules.replace_proxy(place, progress) == (replaced is not None)
    assert progress == (replaced or before)


@pytest.mark.parametrize(
    ("at", "destination", "progress", "undone"),
    [
        (0, 5, [BYONE], [5]),
        (0, 5, [BYZERO], None),
        (0, 5, [9], None),
        (0, 5, [], None),
        (0, 3, [BYONE], None),  # TOR uses no level-1 cable
        (3, 5, [BYONE], None),  # no backup link
        (1, 13, [BYZERO, BYONE], [BYZERO, 13]),
        (1, 13, [BYONE, BYONE], [BYZERO, 13]),
        (1, 13, [BYONE, BYZERO], None),
        (1, 13, [BYONE], None),
    ],
)
def test_a_bypass_that_met_a_failure_is_undone(
    at: int, destination: int, progress: list[int], undone: list[int] | None
) -> None:
    before = [*progress]
    assert rules.undo_bypass(place_of(3, destination), progress, at) == (undone is not None)
    assert progress == (undone or before)


@pytest.mark.parametrize(
    ("place", "progress", "is_preferred"),
    [
        (place_of(0, 9, better=1), [BYZERO], True),
        (place_of(0, 9, better=0), [BYZERO], False),
        (place_of(0, 9, better=-1), [BYZERO], False),
        (place_of(0, 9, better=1, by_backup=False), [BYZERO], False),
        (place_of(0, 9, better=1, came=3), [BYZERO], False),  # not the source
        (place_of(0, 9, better=1), [BYONE], False),
        (place_of(0, 9, better=1), [BYZERO, 36], False),  # a path to a proxy
        (place_of(0, 3, better=1), [BYZERO], False),  # server 4 would send the probe back
    ],
)
def test_a_source_prefers_a_backup_link_with_more_bandwidth(
    place: ProbePlace, progress: list[int], is_preferred: bool
) -> None:
    assert rules.prefers_backup(place, progress) == is_preferred


@pytest.mark.parametrize(
    ("place", "progress", "left"),
    [
        (place_of(0, 9), [BYZERO], [4]),  # the far end is the proxy
        (place_of(0, 3), [BYZERO], [10]),  # server 4 would send the probe back: a third FiConn
        (place_of(0, 3), [BYONE], None),
        (place_of(0, 9, by_backup=False), [BYZERO], None),
        (place_of(1, 9), [BYZERO], None),  # no entry for level 2
        (place_of(1, 30), [BYONE, BYZERO], [BYZERO, 13]),
    ],
)
def test_a_source_leaves_by_its_backup_link(
    place: ProbePlace, progress: list[int], left: list[int] | None
) -> None:
    verdict = rules.leave(place, progress)
    if left is None:
        assert verdict == rules.stuck()
    else:
        hop = ProbeVerdict(ONWARD, BACKUP, place.own.far, NOWHERE, NOWHERE, False)
        assert (verdict, progress) == (hop, left)


def test_a_cable_resets_the_entries_of_lower_levels() -> None:
    hop = ProbeVerdict(ONWARD, BACKUP, 13, SWITCH, 3, False)
    for progress, after in (
        ([BYONE, BYONE, 40], [BYZERO, BYONE, 40]),
        ([BYONE], [BYZERO]),
        ([], []),
    ):
        assert rules.onward(place_of(1, 30, came=3), progress, BACKUP, 13) == hop
        assert progress == after
    progress = [BYONE, BYONE]
    rules.onward(place_of(0, 30), progress, BACKUP, 4)  # a level-1 cable
    rules.onward(place_of(1, 30), progress, SWITCH, 2)
    assert progress == [BYONE, BYONE]
