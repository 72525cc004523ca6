"""Grading of one submission in a judge, and validation of the judge's answer.

`mark` and `ask_again` run in a judge and return plain data. `marked` and `replayed` run in the
grader: they check that every number is in its range and make every text safe to print.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pillarbox.experiments.apps.teaching import grading_engine
from pillarbox.experiments.apps.teaching.judge import JudgeFailure, Seal
from pillarbox.experiments.apps.teaching.similarity import fingerprints
from pillarbox.experiments.apps.teaching.submissions import Submission
from pillarbox.experiments.base.text import printable
from pillarbox.topos.base.errors import PillarboxError, require

MOST_TEXT = 2000  # maximum length of a sentence in a judge's answer, in characters
MOST_LINES = 1000  # maximum number of lines in a list of a judge's answer
UNMEASURED = "not measured yet"
MOST_PRINTS = 100_000  # maximum number of fingerprints of a submission in a judge's answer

# earlier marks, notes and figures by the submission's digest
Known = Mapping[str, tuple[list[grading_engine.Mark], list[str], dict[str, float]]]


@dataclass(frozen=True)
class GradingTask:
    """A submission to grade: its lab, student, file and grading options."""

    sheet: grading_engine.Sheet
    read: Callable[[], Submission]
    secret: str
    unsealed: bool = False
    known: Known = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Compute right answers in advance that need Numba: a sealed judge cannot compile."""
        getattr(self.sheet.lab, "prepare", lambda _: None)(self.sheet.values)


def further_file_limits(sheet: grading_engine.Sheet) -> list[tuple[str, int]]:
    """Return the paths of further files that a submission needs, with maximum sizes in bytes."""
    runs = _submitted_runs(sheet.lab)
    if not runs:
        return []
    # imported here: only labs with submitted runs need pandas
    from pillarbox.experiments.apps.teaching.evidence import run_file_limits

    return run_file_limits(runs)


def _submitted_runs(lab: grading_engine.Exercise) -> Sequence[str]:
    found: Sequence[str] = getattr(lab, "RUNS", ())
    return found


def _hashes_of_trials(task: GradingTask, given: Submission) -> list[str]:
    runs = _submitted_runs(task.sheet.lab)
    if not runs:
        return []
    from pillarbox.experiments.apps.teaching.evidence import trial_hashes

    return sorted(trial_hashes(given.files, runs))


class Marked(NamedTuple):
    """Marks and fingerprints of one submission, as answered by a judge process."""

    marks: list[grading_engine.Mark]
    notes: list[str]
    digest: str  # hash of the submission's name and files
    changed_s: float  # newest modification time of the submission's files
    fingerprints: frozenset[int]  # hashes of the token sequences of the student's file
    runs: frozenset[str]  # hashes of the submitted trials
    figures: dict[str, float]  # figures of a control for the leaderboard, by name

    def report(self, task: GradingTask) -> grading_engine.Report:
        """Return a submission's marks as a report."""
        return grading_engine.Report(task.sheet, self.marks, self.notes, bool(task.secret))


def grade_submission(task: GradingTask, seal: Seal) -> dict[str, Any]:
    """Read and grade a submission; return the marks as plain data.

    A congestion control has no marks yet if it has a ``source`` in the answer: the grader measures
    it (control_grading.py).
    """
    given, lab, source = task.read(), task.sheet.lab, ""
    skeleton, suffix = grading_engine.skeleton_of(lab), grading_engine.suffix_of(lab)
    figures: dict[str, float] = {}
    if given.digest in task.known:
        seal()
        marks, notes, figures = task.known[given.digest]
    elif grading_engine.is_control(lab):
        seal()
        why = _refusal_of_control(lab, given.source, skeleton)
        marks, notes = grading_engine.no_marks(lab, why or UNMEASURED), []
        source = "" if why else given.source
    else:
        sources = task.sheet, given.source, task.secret
        done = grading_engine.grade(*sources, unsealed=task.unsealed, files=given.files, seal=seal)
        marks, notes = done.marks, done.notes
    prints = fingerprints(given.source, suffix) - fingerprints(skeleton, suffix)
    return {
        "marks": [one._asdict() for one in marks],
        "notes": notes,
        "digest": given.digest,
        "changed_s": given.changed_s,
        "fingerprints": [*prints][:MOST_PRINTS],
        "runs": _hashes_of_trials(task, given),
        "source": source,
        "figures": figures,
    }


def _refusal_of_control(lab: grading_engine.Exercise, source: str, skeleton: str) -> str:
    """Return the reason why a control is not measured, empty if it is."""
    # imported here: only controls need the compiler
    from pillarbox.experiments.apps.teaching.control_compiler import wrong_include

    return grading_engine.unfilled_reason(lab, source, skeleton) or wrong_include(source)


def replay_case(task: GradingTask, case: str, seal: Seal) -> dict[str, Any]:
    """Repeat one test case of a submission, given by its number in a report."""
    require(
        not grading_engine.is_control(task.sheet.lab),
        "the cases of a congestion control are one measurement: grade the file again, without "
        "--case",
    )
    given = task.read()
    sources = task.sheet, given.source, case, task.secret
    one = grading_engine.replay(*sources, unsealed=task.unsealed, files=given.files, seal=seal)
    return {"asked": one.asked, "printed": [*one.printed], "judgement": one.judgement}


def validated_marks(answer: Mapping[str, Any], lab: grading_engine.Exercise) -> Marked:
    """Return the validated marks of a judge process; raise JudgeFailure if they are malformed."""
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
            {_valid_text(name): _finite_number(one) for name, one in answer["figures"].items()},
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise JudgeFailure("its process returned a malformed answer") from None


def validated_replay(answer: Mapping[str, Any]) -> grading_engine.Replayed:
    """Return the validated result of a repeated test case; raise PillarboxError if malformed."""
    try:
        share, wrong = answer["judgement"]
        judgement = grading_engine.Judgement(_number_up_to(share, 1.0), _valid_text(wrong))
        return grading_engine.Replayed(
            _valid_text(answer["asked"]), _valid_texts(answer["printed"]), judgement
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise PillarboxError(
            "the submission was not graded: its judge process returned a malformed answer"
        ) from None


def _reason_and_errors(one: Mapping[str, Any]) -> tuple[str, list[str]]:
    return _valid_text(one["why"]), _valid_texts(one["wrong"])


def _valid_texts(lines: Sequence[Any]) -> list[str]:
    return [_valid_text(line) for line in lines[:MOST_LINES]]


def _valid_text(value: object) -> str:
    return printable(str(value), MOST_TEXT)


def _finite_number(value: Any) -> float:
    if not math.isfinite(value):
        raise ValueError
    return float(value)


def _number_up_to(value: Any, most: float) -> float:
    if not 0.0 <= value <= most:
        raise ValueError
    return float(value)
