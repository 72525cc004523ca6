"""Rounds of probes and the choice among paths, as every routing that probes uses them."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.probing import NEARLY_BEST, Candidate, Pace, PathState, Probing, best


def path(name: int, length: int = 2) -> Path:
    return Path(0, tuple(Step(name, hop) for hop in range(1, length + 1)))


def probing(*lengths: int) -> Probing:
    return Probing(path(name, length) for name, length in enumerate(lengths))


def answer_all(rounds: Probing, bps: float = 1e9) -> None:
    for index in rounds.begin():
        assert rounds.answer(rounds.round, index, bps)


def states(rounds: Probing) -> list[PathState]:
    return [candidate.state for candidate in rounds.candidates]


def test_the_first_path_is_used_before_anything_is_known() -> None:
    rounds = probing(3, 2)
    assert rounds.current == 0
    assert not rounds.works
    assert not rounds.choose()
    assert rounds.current_path == path(0, 3)


def test_no_paths_at_all() -> None:
    rounds = probing()
    assert rounds.begin() == []
    assert rounds.finished
    assert not rounds.choose()
    assert rounds.current_path is None


def test_the_shortest_of_equal_paths_is_used() -> None:
    rounds = probing(5, 3, 4)
    answer_all(rounds)
    assert rounds.finished
    assert rounds.choose()
    assert rounds.current == 1
    assert rounds.works


def test_more_bandwidth_wins_over_fewer_hops_only_if_it_is_clearly_more() -> None:
    rounds = probing(2, 4)
    for share, chosen in ((NEARLY_BEST + 0.01, 0), (NEARLY_BEST - 0.01, 1)):
        answers = zip(rounds.begin(), (share * 1e9, 1e9), strict=True)
        assert all(rounds.answer(rounds.round, index, bps) for index, bps in answers)
        rounds.choose()
        assert rounds.current == chosen


def test_a_flow_does_not_flap_between_equal_paths() -> None:
    rounds = probing(2, 2)
    answer_all(rounds)
    rounds.fail(0)
    assert rounds.choose()
    assert rounds.current == 1
    answer_all(rounds)
    assert not rounds.choose(), "the first works again, and is no better"


def test_traffic_returns_to_a_shorter_path_that_works_again() -> None:
    rounds = probing(2, 4)
    answer_all(rounds)
    rounds.fail(0)
    rounds.choose()
    assert rounds.current == 1
    answer_all(rounds)
    assert rounds.choose()
    assert rounds.current == 0


def test_silence_is_failure_and_then_an_untried_path_before_none() -> None:
    rounds = probing(2, 2)
    rounds.begin()
    assert rounds.add(path(7)) == 2
    assert rounds.fail_unanswered() == [0, 1, 2]
    rounds.candidates.append(Candidate(path(8)))
    assert rounds.choose()
    assert rounds.current == 3
    rounds.fail(3)
    assert rounds.choose()
    assert rounds.current == 0, "silence is no proof"
    for index in range(3):
        rounds.fail(index)
    assert rounds.choose()
    assert rounds.current is None
    assert rounds.current_path is None


def test_only_an_answer_that_is_waited_for_counts() -> None:
    rounds = probing(2, 2)
    assert not rounds.answer(0, 0, 1e9), "before any round"
    rounds.begin()
    assert not rounds.answer(2, 0, 1e9), "of another round"
    assert not rounds.answer(1, 2, 1e9), "of no path"
    assert not rounds.answer(1, -1, 1e9)
    assert rounds.answer(1, 0, 1e9)
    assert not rounds.answer(1, 0, 2e9), "a second time"
    assert rounds.candidates[0].available_bps == 1e9
    rounds.fail(1)
    assert not rounds.answer(1, 1, 1e9), "too late"
    assert states(rounds) == [PathState.WORKING, PathState.FAILED]


def test_failures_are_found_by_what_they_break() -> None:
    rounds = probing(2, 2, 2)
    answer_all(rounds)
    rounds.choose()
    assert not rounds.fail_where(lambda one: one == path(2))
    assert rounds.fail_where(lambda one: one == path(0))
    assert states(rounds) == [PathState.FAILED, PathState.WORKING, PathState.FAILED]
    rounds.choose()
    assert rounds.current == 1


def test_nobody_waits_for_the_answer_of_a_path_that_is_told_to_have_failed_again() -> None:
    rounds = probing(2, 2)
    rounds.fail(0)
    rounds.fail(1)
    rounds.begin()
    assert not rounds.finished
    rounds.fail_where(lambda _: True)
    assert rounds.finished and rounds.fail_unanswered() == []


def test_a_round_with_other_paths_keeps_what_is_known_of_those_that_stay() -> None:
    rounds = probing(2, 3)
    answer_all(rounds, 5e8)
    rounds.choose()
    assert rounds.begin([path(9), path(0, 2)]) == [0, 1]
    assert rounds.current == 1
    assert states(rounds) == [PathState.UNTRIED, PathState.WORKING]
    assert rounds.candidates[1].available_bps == 5e8
    rounds.begin([path(9)])
    assert rounds.current is None


def test_what_a_flow_sends_counts_as_free_on_its_own_path() -> None:
    full, other = (Candidate(path(i), PathState.WORKING, bps) for i, bps in enumerate((1e8, 5e8)))
    assert best([full, other], using=0) == 1
    assert best([full, other], using=0, own_bps=3e8) == 1
    assert best([full, other], using=0, own_bps=4e8) == 0
    assert best([full, other], using=None, own_bps=4e8) == 1


@given(
    st.lists(
        st.tuples(st.sampled_from(PathState), st.integers(0, 10**9), st.integers(1, 7)), max_size=8
    ),
    st.integers(0, 7),
)
def test_best_works_is_nearly_best_and_shortest_of_those(
    drawn: list[tuple[PathState, int, int]], using: int
) -> None:
    candidates = [
        Candidate(path(i, length), state, bps) for i, (state, bps, length) in enumerate(drawn)
    ]
    chosen = best(candidates, using)
    working = [one for one in candidates if one.state == PathState.WORKING]
    assert (chosen is None) == (not working)
    if chosen is None:
        return
    most = max(one.available_bps for one in working)
    good = [one for one in working if one.available_bps >= NEARLY_BEST * most]
    assert candidates[chosen] in good
    assert len(candidates[chosen].path) == min(len(one.path) for one in good)


def test_departs_a_path_from_which_only_no_answer_came_is_used_before_none() -> None:
    rounds = probing(2, 2)
    rounds.begin()
    rounds.fail_unanswered()
    rounds.choose()
    assert rounds.current is not None and not rounds.works
    for index in range(2):
        rounds.fail(index)
    rounds.choose()
    assert rounds.current is None


def test_an_answer_that_comes_late_brings_its_path_back() -> None:
    rounds = probing(2, 2)
    number = rounds.begin() and rounds.round
    rounds.fail_unanswered()
    assert rounds.answer(number, 1, 5e8)
    assert rounds.choose() and rounds.current == 1 and rounds.works
    rounds.fail(0)  # not for silence, but because somebody said so
    assert not rounds.answer(number, 0, 9e8)
    rounds.begin()
    assert not rounds.answer(number, 1, 5e8), "of a round before"


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=60))
def test_a_pace_is_kept_on_average(steps: list[tuple[float, bool]]) -> None:
    pace, now, turns = Pace(0.25, 0.0, Random(1)), 0.0, []
    for wait_s, urgent in steps:
        now += wait_s
        turn = pace.turn(now, urgent=urgent)
        assert turn == now if urgent else turn >= now
        turns.append(turn)
    calm = [turn for turn, (_, urgent) in zip(turns, steps, strict=True) if not urgent]
    for begin, end in zip(calm, calm[Pace.TOGETHER + 2 :], strict=False):
        assert end - begin >= 0.25 * 0.99


def test_servers_that_begin_together_do_not_probe_together() -> None:
    paces = [Pace(0.25, 0.0, Random(server)) for server in range(16)]
    for pace in paces:
        for _ in range(Pace.TOGETHER):
            assert pace.turn(0.0) == 0.0
    turns = sorted(pace.turn(0.0) for pace in paces)
    assert turns[0] > 0.25 and turns[-1] < 0.5
    assert max(end - begin for begin, end in pairwise(turns)) < 0.125


@pytest.mark.parametrize(("spacing_s", "together"), [(0.0, 100), (0.25, 8), (0.5, 4), (7.0, 1)])
def test_costly_rounds_follow_one_another_less(spacing_s: float, together: int) -> None:
    pace = Pace(spacing_s, 0.0, Random(1))
    assert [pace.turn(0.0) for _ in range(100)].count(0.0) == together


def test_departs_a_longer_path_must_offer_more_for_each_hop() -> None:
    short = Candidate(path(0, 1), PathState.WORKING, 1e8)
    for free_bps, chosen in (
        (2e8, 0),
        (3.9e8, 0),
        (4.1e8, 1),
    ):  # two hops more, and one to be worth it
        long = Candidate(path(1, 3), PathState.WORKING, free_bps)
        assert best([short, long], using=0, slack_bps=1e8) == chosen
    assert best([short, Candidate(path(1, 3), PathState.WORKING, 2e8)], using=0) == 1
