"""Points of a class network: what counts, for whom, and what a server cannot gain by dropping."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.apps.teaching.class_points import (
    NOT_PASSED_ON,
    Packet,
    Score,
    add_packets,
    packet_of,
)
from pillarbox.hosts.base.failures import NONE, Failures

NETWORK = topos.parse("bcube,2,1")  # servers 0-1 and 2-3 share a switch, and 0-2 and 1-3
LOST = {"delivered": False, "dropped": "", "lost_to": "", "lost_port": None}


def scores(
    *packets: Packet, failures: Failures = NONE, stopped: Sequence[int] = ()
) -> dict[int, Score]:
    found = {server: Score() for server in range(NETWORK.servers)}
    add_packets(found, packets, NETWORK, failures, stopped)
    return found


def points(*rounds: Score) -> float:
    total = Score()
    for one in rounds:
        total.add(one)
    return total.points


def counts(score: Score) -> tuple[int, int, int, int]:
    return score.own_arrived, score.own, score.relayed_arrived, score.relayed


def lost(*path: int, to: int) -> Packet:
    return Packet(path[0], to, path, False, "no wish")


def test_packet_that_arrives_counts_for_all_its_servers() -> None:
    found = scores(Packet(0, 3, (0, 1, 3), True))
    assert [counts(found[one]) for one in range(4)] == [
        (1, 1, 0, 0),
        (0, 0, 1, 1),
        (0, 0, 0, 0),
        (1, 1, 0, 0),
    ]


def test_lost_packet_counts_against_source_and_relays() -> None:
    found = scores(lost(0, 1, to=3))
    assert counts(found[0]) == (0, 1, 0, 0)
    assert counts(found[1]) == (0, 0, 0, 1)
    assert counts(found[3]) == (0, 0, 0, 0)
    assert dict(found[1].losses) == {"no wish": 1}


def test_packet_lost_at_its_destination_counts_there_too() -> None:
    found = scores(lost(0, 1, 3, to=3))
    assert counts(found[0]) == counts(found[3]) == (0, 1, 0, 0)
    assert counts(found[1]) == (0, 0, 0, 1)
    assert dict(found[3].losses) == {"no wish": 1}


@pytest.mark.parametrize(
    ("failures", "stopped", "counted"),
    [
        (NONE, (), True),
        (NONE, (1,), True),  # another relay works
        (NONE, (1, 2), False),
        (NONE, (3,), False),
        (NONE, (0,), True),  # its own file is bad
        (Failures(nodes=frozenset({0})), (), False),  # the teacher killed it
        (Failures(nodes=frozenset({1, 2})), (), False),
        (Failures(nodes=frozenset({1}), links=frozenset({frozenset({0, 2})})), (), False),
    ],
)
def test_only_what_could_arrive_is_counted(
    failures: Failures, stopped: Sequence[int], counted: bool
) -> None:
    found = scores(lost(0, to=3), failures=failures, stopped=stopped)
    assert found[0].own == counted
    assert found[0].losses.total() == counted


def test_cut_cables_to_all_switches_leave_no_path() -> None:
    first, second = (NETWORK.server_plug(0, port).node for port in (0, 1))
    cut = {frozenset({0, first})}
    assert scores(lost(0, to=3), failures=Failures(links=frozenset(cut)))[0].own == 1
    cut.add(frozenset({0, second}))
    assert scores(lost(0, to=3), failures=Failures(links=frozenset(cut)))[0].own == 0


@given(st.lists(st.booleans(), min_size=1, max_size=20), st.integers(0, 20))
def test_dropping_the_packets_of_others_never_gains(arrives: list[bool], drop: int) -> None:
    honest = [Packet(0, 3, (0, 1, 3), True) if one else lost(0, 1, to=3) for one in arrives]
    greedy = [lost(0, 1, to=3) if number < drop else one for number, one in enumerate(honest)]
    own = [Packet(1, 3, (1, 3), True)]
    before, after = (points(scores(*own, *packets)[1]) for packets in (honest, greedy))
    assert 0 <= after <= before <= 100


def test_points_are_the_mean_of_the_counted_rounds() -> None:
    full, half = Score(own=4, own_arrived=4), Score(own=4, own_arrived=2)
    assert points() == points(Score()) == 0
    assert points(full, half, Score()) == 75
    assert points(Score(own=4, own_arrived=4, relayed=2, relayed_arrived=1)) == 75
    total = Score()
    total.add(full)
    total.add(Score(relayed=2, relayed_arrived=1))
    assert counts(total) == (4, 4, 1, 2)
    assert total.points == 75


def test_trace_becomes_a_packet() -> None:
    name = NETWORK.address
    arrived = {**LOST, "delivered": True, "path": [name(0), name(1), name(3)]}
    assert packet_of(NETWORK, (0, 3), arrived, NONE) == Packet(0, 3, (0, 1, 3), True)
    dropped = {**LOST, "dropped": "no path", "path": [name(0), name(1)]}
    assert packet_of(NETWORK, (0, 3), dropped, NONE) == Packet(0, 3, (0, 1), False, "no path")
    kept = {**LOST, "path": [name(0)], "lost_to": name(1), "lost_port": 0}
    assert packet_of(NETWORK, (0, 3), kept, NONE) == Packet(0, 3, (0, 1), False, NOT_PASSED_ON)
    dead = packet_of(NETWORK, (0, 3), kept, Failures(nodes=frozenset({1})))
    assert dead.path == (0,)
    assert "failed next hop" in dead.reason
    assert packet_of(NETWORK, (0, 3), {**LOST, "path": [name(0)]}, NONE).reason == NOT_PASSED_ON
