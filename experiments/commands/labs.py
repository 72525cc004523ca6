"""``pillarbox labs``: the lab sheets, as a teacher hands them out."""

from __future__ import annotations

from pathlib import Path

import click

from experiments.arguments import FOLDER


@click.group()
def command() -> None:
    """Hand out the lab sheets."""


@command.command("release")
@click.option("--out", type=FOLDER, required=True, help="A new folder.")
def release(out: Path) -> None:
    """Make what students get: sheets, skeletons, and Pillarbox without any solution.

    Model answers, wrong answers and their tests stay here. What is made is searched for them.

    \b
    pillarbox labs release --out for-students
    """
    from experiments.grading.release import release as made

    files = made(out)
    click.echo(f"{out}: {len(files)} files, and no solution among them")
