"""Tests that run side by side: each of them runs once, and none is lost with a worker."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.forked_tests import Shares

pytest_plugins = "pytester"
ROOT = Path(__file__).parents[2]

THEIRS = """
import os, signal, pytest

COLLECTED_BY = os.getpid()

@pytest.fixture(scope="module")
def who():
    return os.getpid()

@pytest.mark.alone
def test_alone():
    assert os.getpid() == COLLECTED_BY

@pytest.fixture(scope="module")
def once():
    if not os.path.exists(ONCE):
        open(ONCE, "x").close()
        raise OSError("the first time")

@pytest.mark.alone
def test_wrong_once(once, who):
    assert who == COLLECTED_BY

@pytest.mark.alone
def test_wrong_twice():
    raise AssertionError("alone and wrong")

@pytest.mark.parametrize("number", range(20))
def test_beside(number, who, tmp_path):
    assert os.getppid() == COLLECTED_BY and os.getpid() == who

def test_wrong():
    print("what it printed")
    assert not os.getpid()

def test_deadly():
    os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.in_turn
def test_wrong_beside_others():
    assert os.getpid() == COLLECTED_BY, "it ran beside others"

@pytest.mark.in_turn
def test_wrong_both_times():
    raise AssertionError("wrong alone too")

def test_skipped():
    pytest.skip("as it is asked to")

@pytest.mark.in_turn
@pytest.mark.parametrize("number", range(12))
def test_in_turn(number):
    open(HELD, "x").close()  # refused while another has it
    for _ in range(500):
        os.sched_yield()
    os.unlink(HELD)
"""


@given(tests=st.integers(0, 40), workers=st.integers(1, 5), data=st.data())
def test_each_is_taken_once(tests: int, workers: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, tests))
    shares, taken, busy = Shares(tests, workers, first), [], [*range(workers)]
    while busy:
        worker = data.draw(st.sampled_from(busy))
        place = shares.take(worker)
        if place is None:
            busy.remove(worker)
        else:
            taken.append(place)
    assert sorted(taken) == [*range(tests)]


def test_one_worker_begins_with_tests_that_do_not_wait() -> None:
    shares = Shares(tests=10, workers=3, first=4)
    assert [shares.take(worker) for worker in range(3)] == [0, 2, 4]
    assert [shares.take(0) for _ in range(2)] == [1, 3]  # the back half of what waits
    assert shares.take(1) == 7  # and only then of the others


def test_outcomes_are_those_of_a_run_in_turn_but_for_a_death(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    names = f"HELD, ONCE = {str(pytester.path / 'held')!r}, {str(pytester.path / 'once')!r}"
    pytester.makepyfile(f"{names}\n{THEIRS}")
    options = ("-p", "tests.harness.forked_tests", "-p", "no:cacheprovider", "-W", "ignore")
    done = pytester.runpytest_subprocess("--side-by-side=3", "--durations=2", *options)
    done.assert_outcomes(passed=35, failed=4, skipped=1)
    done.stdout.fnmatch_lines_random(
        [
            "*what it printed*",
            "*the worker process of this test has died*",
            "*failed at first, then ran again alone*",
            "*the first time*",
            "*alone and wrong*",
            "*it ran beside others*",
            "*wrong alone too*",
            "*slowest 2 durations*",
        ]
    )
    assert done.ret == pytest.ExitCode.TESTS_FAILED
