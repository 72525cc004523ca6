"""Judges: each failure is the answer of that judge alone, and a sealed judge can do no harm."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pillarbox.experiments.apps.teaching import forbidden_actions, judge
from pillarbox.experiments.apps.teaching.judge import JudgeFailure, Seal, run_judge, run_judges
from pillarbox.topos.base.errors import PillarboxError


def right(_: Seal) -> dict[str, Any]:
    return {"right": os.getpid()}


def loops(_: Seal) -> dict[str, Any]:
    while True:
        pass


def waits(_: Seal) -> dict[str, Any]:
    time.sleep(600)
    return {}


def hoards(_: Seal) -> dict[str, Any]:
    return {"much": len([bytearray(1 << 20) for _ in range(1 << 14)])}


def leaves(_: Seal) -> dict[str, Any]:
    os._exit(0)


def floods(_: Seal) -> dict[str, Any]:
    return {"long": "x" * (judge.MOST_ANSWER_BYTES + 1)}


def refuses(_: Seal) -> dict[str, Any]:
    raise PillarboxError("it is a link")


def stumbles(_: Seal) -> dict[str, Any]:
    raise KeyError("what the teacher alone may read")


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (loops, "more than 1 s of processor time"),
        (waits, "more than 5 s"),
        (hoards, "more than 256 MiB of memory"),
        (leaves, "ended without an answer"),
        (floods, "answer is longer than"),
        (refuses, "it is a link"),
        (stumbles, r"cannot handle it \(KeyError in test_judge.py, line \d+\)"),
    ],
)
def test_whatever_happens_in_a_judge_is_its_own_answer(
    work: Callable[[Seal], dict[str, Any]], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if work is loops:
        monkeypatch.setattr(judge, "MOST_CPU_S", 1)
    if work is waits:
        monkeypatch.setattr(judge, "MOST_WALL_S", 5.0)
    found = dict(run_judges([right, work, right], jobs=3))
    for number in (0, 2):
        assert found[number]["right"] != os.getpid()  # type: ignore[index]
    assert isinstance(found[1], PillarboxError if work is refuses else JudgeFailure)
    with pytest.raises(PillarboxError, match=says):
        run_judge(work)


def test_answers_come_one_after_the_other_where_there_is_one_job() -> None:
    assert [number for number, _ in run_judges([right] * 3, jobs=1)] == [0, 1, 2]


def children() -> set[str]:
    tasks = Path("/proc/self/task").iterdir()
    return {process for task in tasks for process in (task / "children").read_text().split()}


def test_no_judge_is_left_when_nobody_reads_on() -> None:
    before = children()
    found = run_judges([right, waits, waits], jobs=3)
    next(found)
    assert len(children() - before) == 2
    found.close()  # type: ignore[attr-defined]
    assert not children() - before


def possible(seal: Seal) -> dict[str, Any]:
    """Return the attacks that succeed in a sealed judge."""
    before = forbidden_actions.StateBeforeSeal(
        os.geteuid() + 1, os.getppid(), "/etc/passwd", judge.MOST_MEMORY_BYTES
    )
    seal()
    import decimal  # modules can still be imported

    assert decimal
    return {"possible": forbidden_actions.possible_actions(before), "text": json.dumps("\ud800")}


def test_a_judge_is_sealed() -> None:
    assert run_judge(possible) == {"possible": [], "text": '"\\ud800"'}
