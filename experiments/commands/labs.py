"""``pillarbox labs``: the labs that run on this machine; and the sheets, handed out to others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from experiments.arguments import FOLDER, Group, answer, json_option
from experiments.commands.grade import secret_of, secret_options

KEYS = ["lab", "network", "servers", "routing", "plane", "dead", "faults"]


@click.group(cls=Group, invoke_without_command=True)
@click.option("--processes", is_flag=True, help="List the processes of each lab and their rights.")
@json_option("labs")
@click.pass_context
def command(ctx: click.Context, processes: bool, as_json: bool) -> None:
    """List the labs that are running on this machine; or hand out sheets: release, autograder.

    \b
    sudo ./pillarbox labs
    sudo ./pillarbox labs --processes
    """
    if ctx.invoked_subcommand is not None:
        return
    from experiments.control.client import ask
    from experiments.emulation import registry
    from experiments.text import columns
    from topos.base.errors import PillarboxError, require

    require(registry.may_look(), "only root can see labs: use sudo")
    rows: list[dict[str, Any]] = []
    for number in registry.living_labs():
        try:
            rows.append({"lab": number, **ask(registry.LABS / str(number), ask="about")})
        except PillarboxError:  # it has no socket yet, or not any more
            rows.append({"lab": number, "network": "starting or ending"})
    if processes:
        _show_processes(rows, as_json)
        return
    cells = [[str(row[key]) if key in row else "" for key in KEYS] for row in rows]
    answer(as_json, {"labs": rows}, columns([KEYS, *cells]) if rows else "no lab is running")


def _show_processes(labs: list[dict[str, Any]], as_json: bool) -> None:
    """Print the processes of labs and their rights."""
    from experiments.control import processes
    from experiments.emulation import registry
    from experiments.text import columns

    head = ["lab", "count", *processes.KEYS, "open files"]
    cells: list[list[str]] = []
    for one in labs:
        one["processes"] = processes.processes_of(registry.LABS / str(one["lab"]) / registry.LOCK)
        cells += [[str(one["lab"]), *row] for row in processes.rows(one["processes"])]
    answer(as_json, {"labs": labs}, columns([head, *cells]) if labs else "no lab is running")


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


@command.command("autograder")
@click.argument("lab", metavar="LAB")
@click.option(
    "--form",
    metavar="[gradescope|classroom]",
    required=True,
    help="Gradescope's autograder, or a template for GitHub Classroom (a self-check, no marks).",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
@secret_options
def autograder(lab: str, form: str, out: Path, secret: str, secret_file: Path | None) -> None:
    """Make a zip with which others grade a lab, with Pillarbox in it and no solution.

    The zip for Gradescope holds the secret, and no student sees it. A repository of GitHub
    Classroom belongs to the student: its workflow is a self-check, and grade-all gives the marks.

    \b
    pillarbox labs autograder 3 --form gradescope --out lab3.zip --secret-file word
    """
    from experiments.grading.autograder import make

    named = click.get_current_context().get_parameter_source("secret")
    in_environment = named is click.core.ParameterSource.ENVIRONMENT and secret_file is None
    word = "" if in_environment and form != "gradescope" else secret_of(secret, secret_file)
    make(form, lab, out, word)
    if form == "gradescope" and not word:
        click.echo("no secret is in it: its marks are practice, and count for nothing", err=True)
    click.echo(f"{out}")
