"""Grading of one submission in a judge, and validation of the judge's answer.

`mark` and `ask_again` run in a judge and return plain data. `marked` and `replayed` run in the
grader: they check that every number is in its range and make every text safe to print.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from experiments.grading import grading_engine
from experiments.grading.judge import Failed, Seal
from experiments.grading.similarity import fingerprints
from experiments.grading.submissions import Submission
from experiments.text import printable
from topos.base.errors import PillarboxError

MOST_TEXT = 2000  # maximum length of a sentence in characters
MOST_LINES = 1000  # maximum number of printed lines, and of sentences in a list
MOST_PRINTS = 100_000  # maximum number of fingerprints

Known = Mapping[str, tuple[list[grading_engine.Mark], list[str]]]  # marks and notes by digest


@dataclass(frozen=True)
class GradingTask:
    """One submission, and the options for grading it."""

    sheet: grading_engine.Sheet
    read: Callable[[], Submission]
    secret: str
    unsealed: bool = False
    known: Known = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Compute the right answers that need a compiler: a sealed judge cannot run one."""
        getattr(self.sheet.lab, "prepare", lambda _: None)(self.sheet.values)


def wanted(sheet: grading_engine.Sheet) -> list[tuple[str, int]]:
    """Return the paths of the files that a lab needs in addition, with their bounds in bytes."""
    runs = _runs(sheet.lab)
    if not runs:
        return []
    from experiments.grading.evidence import places  # imported here: only these labs need pandas

    return places(runs)


def _runs(lab: grading_engine.Exercise) -> Sequence[str]:
    found: Sequence[str] = getattr(lab, "RUNS", ())
    return found


def _prints_of_runs(task: GradingTask, given: Submission) -> list[str]:
    runs = _runs(task.sheet.lab)
    if not runs:
        return []
    from experiments.grading.evidence import prints

    return sorted(prints(given.files, runs))


class Marked(NamedTuple):
    """The answer of a judge about one student's work."""

    marks: list[grading_engine.Mark]
    notes: list[str]
    digest: str  # hash of the submission: see Submission.digest
    changed_s: float  # newest modification time of its files
    fingerprints: frozenset[int]  # hashes of token sequences: see similarity.py
    runs: frozenset[str]  # hashes of the submitted trials

    def report(self, task: GradingTask) -> grading_engine.Report:
        """Return a submission's marks as a report."""
        return grading_engine.Report(task.sheet, self.marks, self.notes, bool(task.secret))


def mark(task: GradingTask, seal: Seal) -> dict[str, Any]:
    """Read and grade a submission; return the marks as plain data."""
    given = task.read()
    skeleton = grading_engine.skeleton_of(task.sheet.lab)
    if given.digest in task.known:
        seal()
        marks, notes = task.known[given.digest]
    else:
        sources = task.sheet, given.source, task.secret
        done = grading_engine.grade(*sources, unsealed=task.unsealed, files=given.files, seal=seal)
        marks, notes = done.marks, done.notes
    return {
        "marks": [one._asdict() for one in marks],
        "notes": notes,
        "digest": given.digest,
        "changed_s": given.changed_s,
        "fingerprints": [*(fingerprints(given.source) - fingerprints(skeleton))][:MOST_PRINTS],
        "runs": _prints_of_runs(task, given),
    }


def ask_again(task: GradingTask, case: str, seal: Seal) -> dict[str, Any]:
    """Repeat one case of a submission, given by its number in a report."""
    given = task.read()
    sources = task.sheet, given.source, case, task.secret
    one = grading_engine.replay(*sources, unsealed=task.unsealed, files=given.files, seal=seal)
    return {"asked": one.asked, "printed": [*one.printed], "judgement": one.judgement}


def marked(answer: Mapping[str, Any], lab: grading_engine.Exercise) -> Marked:
    """Return the validated answer of a judge; raise Failed if it is malformed."""
    try:
        found = [
            grading_engine.Mark(
                check.name,
                check.points,
                _number_up_to(one["got"], check.points),
                *_reason_and_errors(one),
            )
            for check, one in zip(lab.CHECKS, answer["marks"], strict=True)
        ]
        return Marked(
            found,
            _valid_texts(answer["notes"]),
            _valid_text(answer["digest"]),
            _finite_number(answer["changed_s"]),
            frozenset(map(int, answer["fingerprints"])),
            frozenset(_valid_texts(answer["runs"])),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise Failed("its process returned a malformed answer") from None


def replayed(answer: Mapping[str, Any]) -> grading_engine.Replayed:
    """Return the validated result of one case; raise PillarboxError if it is malformed."""
    try:
        share, wrong = answer["judgement"]
        judgement = grading_engine.Judgement(_number_up_to(share, 1.0), _valid_text(wrong))
        return grading_engine.Replayed(
            _valid_text(answer["asked"]), _valid_texts(answer["printed"]), judgement
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise PillarboxError("not graded: its process returned a malformed answer") from None


def _reason_and_errors(one: Mapping[str, Any]) -> tuple[str, list[str]]:
    return _valid_text(one["why"]), _valid_texts(one["wrong"])


def _valid_texts(lines: Sequence[Any]) -> list[str]:
    return [_valid_text(line) for line in lines[:MOST_LINES]]


def _valid_text(value: Any) -> str:
    return printable(str(value), MOST_TEXT)


def _finite_number(value: Any) -> float:
    if not math.isfinite(value):
        raise ValueError
    return float(value)


def _number_up_to(value: Any, most: float) -> float:
    if not 0.0 <= value <= most:
        raise ValueError
    return float(value)
