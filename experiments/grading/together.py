"""A class's submissions: found in a folder, graded side by side, compared, and written down.

A submission is ``ID.py``, or a folder ``ID`` with one Python file. What is a link, or no file, is
refused: whoever hands in a link to another's file, or to a device, hands in nothing. Each is graded
in a process of its own, by `engine.grade`: sealed, and with an end. What goes wrong with one costs
no other its marks.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from experiments.files import output_folder
from experiments.grading import engine, report
from experiments.grading.evidence import prints
from experiments.grading.lateness import Deadline, said
from experiments.grading.sheets import sheet_of
from experiments.grading.similarity import Pair, alike, partners, same_runs
from experiments.reporting.page import rendered
from experiments.trials.runs import manifest, store
from topos.base.errors import PillarboxError, require

IDENTITY = re.compile(r"\w[\w.@+-]{0,63}", re.ASCII)  # no spreadsheet takes it for a formula
LONGEST_FILE = 200_000
PAGES = "students"
ROUNDS = 200_000  # so that a secret is not found by trying words


@dataclass
class Graded:
    """One submission: its marks, or why there are none."""

    student: str
    file: str
    marks: list[engine.Mark] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: str = ""
    like: list[tuple[str, float]] = field(default_factory=list)
    print: str = ""  # of all that was handed in: what has not changed keeps its marks
    days_late: int = 0
    kept: float = 1.0  # the part of the points that lateness leaves

    @property
    def got(self) -> float:
        """The points, what lateness costs taken off."""
        return round(sum(mark.got for mark in self.marks) * self.kept, 2)

    @property
    def remark(self) -> str:
        """Why there are no marks, or what lateness cost."""
        return self.refused or said(self.days_late, self.kept)


@dataclass(frozen=True)
class Class:
    """All of them, and how they were graded."""

    lab: str
    checks: Sequence[engine.Check]
    graded: list[Graded]
    pairs: list[Pair]
    threshold: float
    secret: bool
    word: str = ""  # a print of the secret: other cases are other marks

    @property
    def counts(self) -> str:
        """Whether the marks count, as a sentence."""
        return report.counts(self.secret)


# -- finding --------------------------------------------------------------------------------------


def submissions(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield students and their files, by name; raise PillarboxError where the folder is none."""
    require(folder.is_dir(), f"there is no folder {folder}")
    for entry in sorted(folder.iterdir()):
        if not entry.name.startswith("."):
            yield (entry.stem if entry.suffix == ".py" else entry.name), entry


def read(entry: Path) -> str:
    """Return the text of a submission, or raise PillarboxError; no link is followed."""
    status = entry.lstat()
    require(not stat.S_ISLNK(status.st_mode), "it is a link, and links are not followed")
    if stat.S_ISDIR(status.st_mode):
        files = [file for file in sorted(entry.iterdir()) if file.suffix == ".py"]
        require(len(files) == 1, f"the folder has {len(files)} Python files, not one")
        require(not files[0].is_symlink(), "its file is a link, and links are not followed")
        entry = files[0]
    require(entry.suffix == ".py", "it is no Python file")
    try:
        opened = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(opened, "rb") as stream:
            require(stat.S_ISREG(os.fstat(opened).st_mode), "it is no file")
            data = stream.read(LONGEST_FILE + 1)
    except OSError as error:
        raise PillarboxError(f"it cannot be read: {error.strerror}") from None
    require(len(data) <= LONGEST_FILE, f"it is longer than {LONGEST_FILE} bytes")
    return data.decode("utf-8", errors="replace")


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
    on_graded: Callable[[Graded], object] = lambda _: None,
) -> Class:
    """Grade all submissions of a folder, so many at a time; `on_graded` hears of each.

    What has not changed since `before`, the plain data of marks.json, keeps the marks it has there.
    """
    sheet = sheet_of(lab, "class")
    graded: list[Graded] = []
    sources: dict[str, str] = {}
    runs: dict[str, set[str]] = {}
    places: list[Path | None] = []
    for student, entry in submissions(folder):
        one = Graded(student, entry.name)
        graded.append(one)
        try:
            require(bool(IDENTITY.fullmatch(student)), "its name is no student's ID")
            require(student not in sources, f"{student} has handed in something else as well")
            sources[student] = read(entry)
            one.print = _print_of(entry, sources[student])
            if deadline:
                one.days_late = deadline.days_late(student, entry)
                one.kept = deadline.kept(one.days_late)
            places.append(entry if entry.is_dir() else None)
            runs[student] = prints(places[-1], getattr(sheet.lab, "RUNS", ()))
        except (PillarboxError, OSError) as error:
            one.refused = f"refused: {error}"
    word, title = _word_of(lab, secret), f"Lab {sheet.number}, {sheet.lab.TITLE}"
    known = _known(before, title, word)
    work = partial(_grade, lab, secret=secret, unsealed=unsealed)
    to_grade = []
    for place, one in zip(places, (one for one in graded if not one.refused), strict=True):
        if one.print in known:
            one.marks, one.notes = known[one.print]
            on_graded(one)
        else:
            to_grade.append((one, sources[one.student], place))
    with ProcessPoolExecutor(jobs) as pool:
        answers = [pool.submit(work, one.student, source, place) for one, source, place in to_grade]
        for (one, *_), answer in zip(to_grade, answers, strict=True):
            one.marks, one.notes, one.refused = answer.result()
            on_graded(one)
    pairs = same_runs(runs) + alike(sources, engine.skeleton_of(sheet.lab), threshold)
    like = partners(pairs)
    for one in graded:
        one.like = like.get(one.student, []) if not one.refused else []
    return Class(title, sheet.lab.CHECKS, graded, pairs, threshold, bool(secret), word)


def _print_of(entry: Path, source: str) -> str:
    """Return what a submission is known by: its student, its text, and what lies beside it."""
    beside = sorted(
        (str(file.relative_to(entry)), file.lstat().st_size, file.lstat().st_mtime)
        for file in (entry.rglob("*") if entry.is_dir() else ())
    )
    return hashlib.sha256(repr((entry.name, source, beside)).encode()).hexdigest()


def _word_of(lab: str, secret: str) -> str:
    """Return a print of the secret that nobody reads it from."""
    return hashlib.pbkdf2_hmac("sha256", secret.encode(), lab.encode(), ROUNDS).hex()


def _known(before: Any, lab: str, word: str) -> dict[str, tuple[list[engine.Mark], list[str]]]:
    """Return marks and notes by print, of those that were graded in the same way."""
    if before is None:
        return {}
    require(
        (before.get("lab"), before.get("word"), before.get("pillarbox"))
        == (lab, word, manifest.versions()),
        "what is there was graded otherwise (another lab, another secret or another Pillarbox): "
        "grade all of them again, without --changed",
    )
    return {
        one["print"]: ([engine.Mark(**mark) for mark in one["marks"]], one["notes"])
        for one in before["submissions"]
        if one["marks"]
    }


def _grade(
    lab: str, student: str, source: str, beside: Path | None, *, secret: str, unsealed: bool
) -> tuple[list[engine.Mark], list[str], str]:
    """Return marks and notes, or why there are none; nothing that a file does ends the others."""
    try:
        sheet = sheet_of(lab, student)
        found = engine.grade(sheet, source, secret, unsealed=unsealed, beside=beside)
    except Exception as error:  # noqa: BLE001 - a grader's own fault is shown with its student
        return [], [], f"not graded: {type(error).__name__}: {error}"
    return found.marks, found.notes, ""


# -- writing --------------------------------------------------------------------------------------


def write(made: Class, folder: Path) -> None:
    """Write marks.csv, marks.json, class.html, and a page for each student."""
    pages = output_folder(output_folder(folder) / PAGES)
    store.write_text(folder / "marks.csv", as_csv(made))
    store.write_json(folder / "marks.json", as_plain(made))
    store.write_text(folder / "class.html", rendered("class.html", made=made, lost=lost(made)))
    for one in made.graded:
        if IDENTITY.fullmatch(one.student):
            page = rendered("student.html", made=made, one=one)
            store.write_text(pages / f"{one.student}.html", page)


def as_csv(made: Class) -> str:
    """Return a row for each submission."""
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
        ]
    )
    for one in made.graded:
        got = [mark.got for mark in one.marks] or [0.0] * len(made.checks)
        like = " ".join(f"{other} ({share:.0%})" for other, share in one.like)
        named = one.student if IDENTITY.fullmatch(one.student) else repr(one.student)
        cells = [named, repr(one.file)[1:-1], one.got, *got, one.days_late, like, one.remark]
        rows.writerow(cells)
    return text.getvalue()


def as_plain(made: Class) -> dict[str, Any]:
    """Return all of it as plain data."""
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
                "print": one.print,
            }
            for one in made.graded
        ],
    }


def lost(made: Class) -> list[tuple[str, float, float]]:
    """Return for each check its points, and how many of them the class lost on average."""
    marked = [one.marks for one in made.graded if one.marks]
    return [
        (check.name, check.points, sum(check.points - marks[i].got for marks in marked))
        for i, check in enumerate(made.checks)
        if marked
    ]
