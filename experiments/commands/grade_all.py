"""``pillarbox grade-all``: a class's submissions, side by side."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from experiments.commands.grade import secret_of, secret_options
from topos.base.errors import require

if TYPE_CHECKING:
    from experiments.grading.together import Graded


@click.command()
@click.argument("lab", metavar="LAB")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder for marks.csv, marks.json, class.html and a page for each student.",
)
@secret_options
@click.option("--practice", is_flag=True, help="Grade without a secret: marks that do not count.")
@click.option(
    "--threshold",
    type=click.FloatRange(0.0, 1.0),
    help="From which part in common on two submissions are named as alike; 0.7 by default.",
)
@click.option("--jobs", type=click.IntRange(1), help="How many at a time; one a processor.")
@click.option(
    "--unsealed",
    is_flag=True,
    help="Grade even where this machine cannot seal the files; the pages say what they could do.",
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
    unsealed: bool,
) -> int:
    """Grade all submissions in a folder: ID.py, or a folder ID with one Python file.

    Each is graded in a process of its own, sealed as ever. Links are refused. Submissions that are
    alike are named. Exit code 1 says that one was refused or could not be graded.

    \b
    pillarbox grade-all 3 handed-in --out marks --secret-file word
    """
    from experiments.grading import together
    from experiments.grading.similarity import THRESHOLD

    word = secret_of(secret, secret_file)
    require(
        bool(word) != practice,
        "marks that count need the teacher's secret: name it by --secret-file; or --practice",
    )

    def told(one: Graded) -> None:
        click.echo(f"{one.got:6g}  {one.student}{one.refused and f'  {one.refused}'}", err=True)

    made = together.grade_all(
        lab,
        folder,
        word,
        threshold=THRESHOLD if threshold is None else threshold,
        jobs=jobs or len(os.sched_getaffinity(0)),
        unsealed=unsealed,
        told=told,
    )
    together.write(made, out)
    for pair in made.pairs:
        click.echo(f"alike: {pair.first} and {pair.second}, {pair.share:.0%}", err=True)
    click.echo(f"{out / 'class.html'}")
    return int(any(one.refused for one in made.graded))
