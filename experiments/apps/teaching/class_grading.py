"""Grading of a class: its submissions are found, graded in parallel, compared and recorded.

A submission is ``ID.py``, or a folder ``ID`` with one Python file; of the lab with congestion
controls ``ID.bpf.c``, and the class has a leaderboard. Each is read and graded by a
judge, a separate process (judge.py). If a judge fails, its student gets a sentence instead of marks
and no other student is affected. Marks are written after each submission: if the grader is killed,
the marks so far remain, and `--changed` continues from them.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pillarbox.experiments.apps.teaching import grade_report, grading_engine, judge, submissions
from pillarbox.experiments.apps.teaching.lateness import Deadline, lateness_text
from pillarbox.experiments.apps.teaching.marking import (
    GradingTask,
    Known,
    Marked,
    further_file_limits,
    grade_submission,
    validated_marks,
)
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from pillarbox.experiments.apps.teaching.similarity import (
    SimilarPair,
    pairs_with_same_runs,
    similar_by_submission,
    similar_pairs,
)
from pillarbox.experiments.base.files import output_folder
from pillarbox.experiments.base.text import printable
from pillarbox.experiments.runs.trials import manifest, store
from pillarbox.topos.base.errors import PillarboxError, require

IDENTITY = re.compile(r"\w[\w.@+-]{0,63}", re.ASCII)
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of spreadsheet formulas, escaped
# maximum lengths of student names and of remarks, in characters
LONGEST_NAME, LONGEST_REMARK = (80, 400)
PAGES = "students"
ROUNDS = 200_000  # PBKDF2 rounds that make guessing a secret expensive
WAITING = "not graded yet"


@dataclass
class GradedSubmission:
    """A student's submission with its marks, or the reason for missing marks."""

    student: str  # student ID without control characters
    file: str
    identified: bool = True  # True if the file name is a valid and unique student ID
    marks: list[grading_engine.Mark] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: str = ""
    like: list[tuple[str, float]] = field(default_factory=list)
    digest: str = ""  # hash of the submission; an unchanged submission keeps its marks
    days_late: int = 0
    kept: float = 1.0  # fraction of the points that a late submission keeps
    figures: dict[str, float] = field(default_factory=dict)  # measured figures of a control

    @property
    def got(self) -> float:
        """Points of a submission after the deduction for lateness."""
        return round(sum(mark.got for mark in self.marks) * self.kept, 2)

    @property
    def remark(self) -> str:
        """Reason why a submission misses marks or points, or its deduction for lateness."""
        late = lateness_text(self.days_late, self.kept)
        nothing = self.marks[0].why if self.marks and not any(m.got for m in self.marks) else ""
        return self.refused or "; ".join(filter(None, (late, nothing)))


@dataclass(frozen=True)
class ClassMarks:
    """The graded submissions of all students of a class, and the grading settings."""

    lab: str
    checks: Sequence[grading_engine.GradedPart]
    graded: list[GradedSubmission]
    pairs: list[SimilarPair]
    threshold: float
    secret: bool
    word: str = ""  # hash of the grading secret: marks with another secret are not comparable

    @property
    def leaderboard(self) -> list[tuple[int, GradedSubmission]]:
        """Measured controls with their ranks, best score first; equal scores share a rank."""
        measured = [one for one in self.graded if one.figures]
        scores = [one.figures["score"] for one in measured]
        ranked = [
            (1 + sum(other > score for other in scores), one)
            for score, one in zip(scores, measured, strict=True)
        ]
        return sorted(ranked, key=lambda pair: (pair[0], pair[1].student))

    @property
    def counts(self) -> str:
        """Sentence that says whether the marks count or are for practice only."""
        return grade_report.marks_count_text(self.secret)


# -- grading --------------------------------------------------------------------------------------


def grade_all(
    lab: str,
    folder: Path,
    secret: str,
    *,
    threshold: float,
    jobs: int,
    unsealed: bool = False,
    deadline: Deadline | None = None,
    before: Mapping[str, Any] | None = None,
    on_graded: Callable[[ClassMarks, GradedSubmission], object] = lambda *_: None,
) -> ClassMarks:
    """Grade all students' submissions in a folder, several in parallel.

    Submissions that are unchanged since `before`, the plain data of marks.json, keep their marks.
    """
    sheet = sheet_of(lab, "class")
    word, title = _secret_hash(lab, secret), f"Lab {sheet.number}, {sheet.lab.TITLE}"
    known = _known_marks(before, title, word)
    answered: dict[str, Marked] = {}
    with submissions.open_submissions(folder) as opened:
        names = [name for name in opened.names() if not name.startswith(".")]
        suffix = grading_engine.suffix_of(sheet.lab)
        entries = submission_entries(names, suffix)
        made = ClassMarks(title, sheet.lab.CHECKS, entries, [], threshold, bool(secret), word)
        to_grade = [pair for pair in zip(entries, names, strict=True) if not pair[0].refused]
        tasks = []
        for one, name in to_grade:
            one.refused = WAITING
            own = sheet_of(lab, one.student)
            others = further_file_limits(own)
            read = partial(submissions.read_submission, opened, name, others, suffix=suffix)
            tasks.append(GradingTask(own, read, secret, unsealed, known))
        answers = judge.run_judges([partial(grade_submission, task) for task in tasks], jobs)
        shipped: Mapping[str, frozenset[int]] = {}
        if grading_engine.is_control(sheet.lab):
            # imported here: only controls need the kernel
            from pillarbox.experiments.apps.teaching import control_grading

            control_grading.check_machine()
            answers = control_grading.measured_answers(tasks, answers)
            shipped = control_grading.fingerprints_of_shipped_controls(sheet.lab)
        for number, answer in answers:
            one, _ = to_grade[number]
            one.refused, found = _marks_or_error(answer, sheet.lab)
            if found:
                answered[one.student] = found
                one.marks, one.notes, one.digest = found.marks, found.notes, found.digest
                one.figures = found.figures
                if deadline:
                    one.days_late = deadline.days_late(one.student, found.changed_s)
                    one.kept = deadline.kept(one.days_late)
            on_graded(made, one)
    made.pairs.extend(pairs_with_same_runs({who: found.runs for who, found in answered.items()}))
    prints = {who: found.fingerprints for who, found in answered.items()}
    pairs = similar_pairs({**prints, **shipped}, threshold)
    made.pairs.extend(pair for pair in pairs if {pair.first, pair.second} - {*shipped})
    like = similar_by_submission(made.pairs)
    for one in made.graded:
        one.like = like.get(one.student, []) if one.student in answered and one.identified else []
    return made


def submission_entries(names: Sequence[str], suffix: str) -> list[GradedSubmission]:
    """Return an ungraded submission per file name; refuse invalid or duplicate student IDs."""
    students = [name.removesuffix(suffix) for name in names]
    times = Counter(students)
    found = []
    for student, name in zip(students, names, strict=True):
        one = GradedSubmission(printable(student, LONGEST_NAME), printable(name, LONGEST_NAME))
        if not IDENTITY.fullmatch(student):
            one.refused = "refused: its name is not a valid student ID"
        elif times[student] > 1:
            one.refused = f"refused: {student} has submitted both a file and a folder"
        one.identified = not one.refused
        found.append(one)
    return found


def _marks_or_error(answer: object, lab: grading_engine.Exercise) -> tuple[str, Marked | None]:
    """Return the reason why a submission has no marks, or its validated marks."""
    try:
        if isinstance(answer, PillarboxError | judge.JudgeFailure):
            raise answer
        assert isinstance(answer, dict)
        return "", validated_marks(answer, lab)
    except PillarboxError as error:
        return printable(f"refused: {error}", LONGEST_REMARK), None
    except judge.JudgeFailure as failed:
        return printable(f"not graded: {failed}", LONGEST_REMARK), None


def _secret_hash(lab: str, secret: str) -> str:
    """Return a one-way hash of the grading secret, which identifies the secret in marks.json."""
    return hashlib.pbkdf2_hmac("sha256", secret.encode(), lab.encode(), ROUNDS).hex()


def _known_marks(before: Any, lab: str, word: str) -> Known:
    """Return earlier grading results by submission digest; raise PillarboxError if outdated."""
    if before is None:
        return {}
    require(
        (before.get("lab"), before.get("word"), before.get("pillarbox"))
        == (lab, word, manifest.versions()),
        "the existing marks were graded with another lab, secret or version of Pillarbox: "
        "grade all submissions again, without --changed",
    )
    return {
        one.get("digest", ""): (
            [grading_engine.Mark(**mark) for mark in one["marks"]],
            one["notes"],
            one.get("figures", {}),
        )
        for one in before["submissions"]
        if one["marks"]
    }


# -- writing --------------------------------------------------------------------------------------


def write_class_report(made: ClassMarks, folder: Path) -> None:
    """Write a graded class's marks.csv, marks.json and class.html, and a page for each student."""
    from pillarbox.experiments.runs.reporting.report_page import rendered

    write_marks(made, folder)
    with _errors_of_writing(folder):
        store.write_text(
            folder / "class.html", rendered("class.html", made=made, lost=lost_points(made))
        )
        for one in made.graded:
            if one.identified:
                page = rendered("student.html", made=made, one=one)
                store.write_text(folder / PAGES / f"{one.student}.html", page)


def write_marks(made: ClassMarks, folder: Path) -> None:
    """Replace marks.csv and marks.json atomically with the class's marks so far."""
    output_folder(output_folder(folder) / PAGES)
    with _errors_of_writing(folder):
        store.write_text(folder / "marks.csv", as_csv(made))
        store.write_json(folder / "marks.json", as_plain(made))


@contextmanager
def _errors_of_writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PillarboxError(
            f"marks cannot be written to {folder} ({error.strerror}): the earlier marks "
            "stay; make room, and continue with --changed"
        ) from None


def as_csv(made: ClassMarks) -> str:
    """Return the marks of a class as CSV, with a row for each submission."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(
        [
            "student",
            "file",
            "points",
            *(check.name for check in made.checks),
            "days_late",
            "like",
            "remark",
            *(["score"] if made.leaderboard else []),
        ]
    )
    for one in made.graded:
        got = [mark.got for mark in one.marks] or [0.0] * len(made.checks)
        like = " ".join(f"{other} ({share:.0%})" for other, share in one.like)
        cells = [one.student, one.file, one.got, *got, one.days_late, like, one.remark]
        cells += [round(one.figures.get("score", 0.0), 3)] if made.leaderboard else []
        rows.writerow([safe_cell(cell) for cell in cells])
    return text.getvalue()


def safe_cell(value: object) -> object:
    """Return a CSV cell that a spreadsheet does not interpret as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def as_plain(made: ClassMarks) -> dict[str, Any]:
    """Return the class and its marks as plain data."""
    return {
        "lab": made.lab,
        "secret_used": made.secret,
        "word": made.word,
        "pillarbox": manifest.versions(),
        "similarity": {
            "threshold": made.threshold,
            "pairs": [pair._asdict() for pair in made.pairs],
        },
        "submissions": [
            {
                "student": one.student,
                "file": one.file,
                "points": one.got,
                "marks": [mark._asdict() for mark in one.marks],
                "notes": one.notes,
                "refused": one.refused,
                "days_late": one.days_late,
                "like": dict(one.like),
                "digest": one.digest,
                "figures": one.figures,
            }
            for one in made.graded
        ],
    }


def lost_points(made: ClassMarks) -> list[tuple[str, float, float]]:
    """Return each check of the lab with its points and the sum of points that all students lost."""
    marked = [one.marks for one in made.graded if one.marks]
    return [
        (check.name, check.points, sum(check.points - marks[i].got for marks in marked))
        for i, check in enumerate(made.checks)
        if marked
    ]
