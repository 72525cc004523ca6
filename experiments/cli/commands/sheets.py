"""``pillarbox sheets``: lab sheets packed for students and for other grading systems."""

from __future__ import annotations

from pathlib import Path

import click

from pillarbox.experiments.base.arguments import FILE, FOLDER, Group
from pillarbox.experiments.cli.commands.grade import secret_from_options, secret_options


@click.group(cls=Group)
def command() -> None:
    """Pack the lab sheets for students, or an autograder for another system.

    \b
    pillarbox sheets release --out for-students
    pillarbox sheets autograder 3 --form gradescope --out lab3.zip --secret-file word
    """


@command.command("release")
@click.option(
    "--out",
    type=FOLDER,
    required=True,
    help="Output directory for the students' files (must not exist).",
)
def release(out: Path) -> None:
    """Create a directory for students: sheets, skeletons, and Pillarbox without any solution.

    Model answers, wrong answers and their tests are left out, and the output is checked for them.

    \b
    pillarbox sheets release --out for-students
    """
    from pillarbox.experiments.apps.teaching.release import write_release as made

    files = made(out)
    click.echo(f"{out}: {len(files)} files, and no solution among them")


@command.command("autograder")
@click.argument("lab", metavar="LAB")
@click.option(
    "--form",
    metavar="[gradescope|classroom]",
    required=True,
    help="Autograder for Gradescope, or template for GitHub Classroom (a self-check, no marks).",
)
@click.option("--out", type=FILE, required=True, help="Output file: the autograder, as a zip.")
@secret_options
def autograder(lab: str, form: str, out: Path, secret: str, secret_file: Path | None) -> None:
    """Create an autograder for another system: a zip with Pillarbox and no solution.

    The zip for Gradescope holds the secret, which no student sees. The workflow for GitHub
    Classroom is a self-check without a secret; grade-all gives the marks.

    \b
    pillarbox sheets autograder 3 --form gradescope --out lab3.zip --secret-file word
    """
    from pillarbox.experiments.apps.teaching.autograder import write_autograder

    named = click.get_current_context().get_parameter_source("secret")
    in_environment = named is click.core.ParameterSource.ENVIRONMENT and secret_file is None
    word = (
        "" if in_environment and form != "gradescope" else secret_from_options(secret, secret_file)
    )
    write_autograder(form, lab, out, word)
    if form == "gradescope" and not word:
        click.echo("the autograder has no secret: its marks are for practice only", err=True)
    click.echo(f"{out}")
