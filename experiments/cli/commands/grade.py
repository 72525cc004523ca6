"""``pillarbox grade``: grading of a student's file, with the reasons for the points."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from pillarbox.topos.base.errors import PillarboxError, require


def secret_options(command: Any) -> Any:
    """Add the options ``--secret`` and ``--secret-file`` to a command."""
    word = click.option(
        "--secret",
        default="",
        envvar="PILLARBOX_GRADE_SECRET",
        metavar="TEXT",
        help="Secret seed of the hidden test cases. Safer in the environment, as "
        "PILLARBOX_GRADE_SECRET, or in a file.",
    )
    file = click.option(
        "--secret-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="File with the secret (sudo does not pass the environment on).",
    )
    return word(file(command))


def secret_from_options(word: str, file: Path | None) -> str:
    """Return the grading secret from --secret or its file, or raise PillarboxError."""
    if file is None:
        return word
    try:
        found = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise PillarboxError(f"{file} cannot be read: {error}") from None
    require(bool(found), f"{file} is empty: write the secret into it")
    return found


@click.command()
@click.argument("lab", metavar="LAB")
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option(
    "--student",
    required=True,
    metavar="ID",
    help="Identifier of the student; the values of the lab sheet are drawn from it.",
)
@click.option(
    "--show", is_flag=True, help="Print the student's values of the lab sheet, without grading."
)
@click.option(
    "--live",
    is_flag=True,
    help="Run the router in the student's file on a live network as well.",
)
@click.option(
    "--partner",
    type=(str, click.Path(path_type=Path)),
    metavar="ID FILE.py",
    help="Second student, whose router runs on half of the servers (sheet 9: lab 2 with --live).",
)
@secret_options
@click.option(
    "--unsealed",
    is_flag=True,
    help="Grade even if this machine cannot seal the process; the report lists the accessible "
    "resources.",
)
@click.option(
    "--case",
    metavar="PART.CASE",
    help="Run one test case again, by its number in the report, and print it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the marks as JSON for Gradescope.")
def command(
    lab: str,
    file: Path | None,
    student: str,
    show: bool,
    live: bool,
    partner: tuple[str, Path] | None,
    secret: str,
    secret_file: Path | None,
    unsealed: bool,
    case: str | None,
    as_json: bool,
) -> None:
    """Grade a student's file for a lab sheet.

    The file runs in sealed processes without network and files, with bounded memory and time.
    FILE may be a directory with one such file, or - for standard input; links are not followed.
    Lab 11 takes a congestion control in C, which the kernel runs on a live network (root).

    \b
    pillarbox grade 2 --student ada --show
    pillarbox grade 2 --student ada my_router.py
    pillarbox grade 2 --student ada my_router.py --case 1.7
    sudo pillarbox grade 2 --student ada my_router.py --live
    sudo pillarbox grade 2 --student ada my_router.py --live --partner bob his_router.py
    sudo pillarbox grade 11 --student ada mine.bpf.c
    """
    from pillarbox.experiments.apps.teaching import (
        grade_report,
        grading_engine,
        judge,
        marking,
        submissions,
    )
    from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of

    sheet = sheet_of(lab, student)
    if show:
        click.echo(grade_report.sheet_text(sheet))
        return
    require(file is not None, "give the file to grade, or --show to see the student's values")
    assert file is not None
    require(live or partner is None, "--partner runs both routers in a live network: add --live")
    word = secret_from_options(secret, secret_file)
    control = grading_engine.is_control(sheet.lab)
    require(not (control and live), f"lab {sheet.number} always runs live: leave out --live")
    suffix = grading_engine.suffix_of(sheet.lab)
    read = submissions.submission_reader(file, marking.further_file_limits(sheet), suffix)
    task = marking.GradingTask(sheet, read, word, unsealed)
    if case is not None:
        one = marking.validated_replay(judge.run_judge(partial(marking.replay_case, task, case)))
        click.echo(grade_report.replayed_text(one))
        return
    if control:
        from pillarbox.experiments.apps.teaching.control_grading import (
            check_machine,
            with_measurements,
        )

        check_machine()
    marks = judge.run_judge(partial(marking.grade_submission, task))
    if control:
        marks = with_measurements(task, marks)
    found = marking.validated_marks(marks, sheet.lab).report(task)
    if live:
        from pillarbox.experiments.apps.teaching.live_grading import PartnerStudent, add_live

        other = None
        if partner is not None:
            other = PartnerStudent(
                sheet_of(lab, partner[0]), submissions.submission_reader(partner[1])().source
            )
        add_live(found, read().source, word, unsealed=unsealed, partner=other)
    click.echo(grade_report.as_json(found) if as_json else grade_report.as_text(found))
