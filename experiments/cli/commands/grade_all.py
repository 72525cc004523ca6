"""``pillarbox grade-all``: grading of all submissions of a class."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pillarbox.experiments.base.arguments import NumberRange
from pillarbox.experiments.cli.commands.grade import secret_from_options, secret_options
from pillarbox.topos.base.errors import require

if TYPE_CHECKING:
    from pillarbox.experiments.apps.teaching.class_grading import ClassMarks, GradedSubmission


@click.command()
@click.argument("lab", metavar="LAB")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Output directory for marks.csv, marks.json, class.html and a page per student.",
)
@secret_options
@click.option("--practice", is_flag=True, help="Grade without a secret, for practice marks.")
@click.option(
    "--threshold",
    type=NumberRange(0.0, 1.0),
    help="Similarity from which two submissions are reported (default: 0.7).",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Number of submissions graded in parallel (default: one per processor).",
)
@click.option(
    "--due",
    metavar="MOMENT",
    help="Deadline, such as 2026-03-01T23:59; late submissions lose points.",
)
@click.option(
    "--per-day",
    type=NumberRange(0, 100),
    default=10.0,
    show_default=True,
    metavar="PERCENT",
    help="Percentage of the points lost per day late.",
)
@click.option(
    "--free-days",
    type=click.IntRange(0),
    default=0,
    help="Number of late days without a loss of points.",
)
@click.option(
    "--times",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Times of submission (columns student, handed_in; default: the files' times).",
)
@click.option(
    "--changed",
    is_flag=True,
    help="Grade only submissions that changed since the marks in --out.",
)
@click.option(
    "--unsealed",
    is_flag=True,
    help="Grade even if this machine cannot seal the processes; the pages list the accessible "
    "resources.",
)
def command(
    lab: str,
    folder: Path,
    out: Path,
    secret: str,
    secret_file: Path | None,
    practice: bool,
    threshold: float | None,
    jobs: int | None,
    due: str | None,
    per_day: float,
    free_days: int,
    times: Path | None,
    changed: bool,
    unsealed: bool,
) -> int:
    """Grade all submissions in a directory: ID.py, or a directory ID with one Python file.

    Each submission runs in its own sealed process. Links are refused, and similar submissions are
    reported. --changed continues an interrupted run. Exit code 1: a submission was refused or could
    not be graded. Lab 11 takes ID.bpf.c, needs root, and adds a leaderboard to class.html.

    \b
    pillarbox grade-all 3 handed-in --out marks --secret-file word
    pillarbox grade-all 3 handed-in --out marks --secret-file word --changed
    pillarbox grade-all 3 handed-in --out marks --secret-file word --due 2026-03-01T23:59
    """
    from pillarbox.experiments.apps.teaching import class_grading
    from pillarbox.experiments.apps.teaching.lateness import Deadline, time_of_text, times_of
    from pillarbox.experiments.apps.teaching.similarity import THRESHOLD
    from pillarbox.experiments.runs.trials.store import read_json

    word = secret_from_options(secret, secret_file)
    require(
        bool(word) != practice,
        "marks need the teacher's secret: give --secret-file, or --practice for practice marks",
    )

    require(due is not None or times is None, "--times needs a deadline: add --due")
    deadline = None
    if due is not None:
        handed_in = times_of(times) if times else {}
        deadline = Deadline(time_of_text(due), per_day, free_days, handed_in)
    before = read_json(out / "marks.json") if changed else None

    def on_graded(made: ClassMarks, one: GradedSubmission) -> None:
        class_grading.write_marks(made, out)
        click.echo(f"{one.got:6g}  {one.student}{one.remark and f'  {one.remark}'}", err=True)

    made = class_grading.grade_all(
        lab,
        folder,
        word,
        threshold=THRESHOLD if threshold is None else threshold,
        jobs=jobs or len(os.sched_getaffinity(0)),
        unsealed=unsealed,
        deadline=deadline,
        before=before,
        on_graded=on_graded,
    )
    class_grading.write_class_report(made, out)
    for pair in made.pairs:
        click.echo(f"similar: {pair.first} and {pair.second}, {pair.share:.0%}", err=True)
    click.echo(f"{out / 'class.html'}")
    return int(any(one.refused for one in made.graded))
