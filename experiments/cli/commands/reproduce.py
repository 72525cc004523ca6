"""``pillarbox reproduce``: reproductions of the papers' figures and tables."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pillarbox.experiments.base.arguments import (
    FOLDER,
    NumberRange,
    answer,
    complete,
    json_option,
    seed_option,
)
from pillarbox.experiments.base.files import only_writer, output_folder
from pillarbox.experiments.base.units import parsed_rate_mbit
from pillarbox.topos.base.errors import NotPermittedError, PillarboxError, require

if TYPE_CHECKING:
    from pillarbox.experiments.runs.reporting.reproduced.result import Reproduction

TASKS = "tasks"  # Folder of simulation results that several figures share.
FAILED = 1


@click.command()
@click.argument("names", shell_complete=complete("figures"), metavar="[NAME...]", nargs=-1)
@click.option(
    "--all", "every", is_flag=True, help="Reproduce all figures and tables of the papers."
)
@click.option("--list", "listed", is_flag=True, help="List the papers' figures and tables.")
@json_option("figures")
@click.option(
    "--out",
    type=FOLDER,
    default=Path("pillarbox-reproduced"),
    show_default=True,
    help="Output directory for the page, figures, data points and records.",
)
@click.option(
    "--again",
    is_flag=True,
    help="Compute again even if the directory has results of the same code and options.",
)
@click.option("--quick", is_flag=True, help="Use fewer and smaller data points, for a quick look.")
@seed_option
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    help="Number of repetitions of each measured or random data point.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    default=0,
    help="Number of simulator processes (0: one per processor).",
)
@click.option(
    "--scheduler",
    default="",
    metavar="ADDRESS|NAME",
    help="Dask scheduler, or name of a running cluster, to use instead of processes.",
)
@click.option(
    "--rate-mbit",
    type=NumberRange(min=0, min_open=True),
    help="Rate of each cable in a live lab (default: the rate that this machine can emulate).",
)
@click.option(
    "--as",
    "own_rate",
    metavar="RATE",
    help="Rate of the network's cables, such as 10Gbit: live labs run slower (docs/dilation.md).",
)
def command(
    names: tuple[str, ...],
    every: bool,
    listed: bool,
    as_json: bool,
    out: Path,
    again: bool,
    own_rate: str | None,
    **how: Any,
) -> None:
    """Reproduce figures of the papers and compare the numbers.

    NAME is one of --list, or the FILE.toml of a live figure. Results in the output directory of the
    same code and options are kept, so an interrupted call continues. report.html shows all figures,
    results.md their numbers.

    \b
    pillarbox reproduce --list
    sudo ./pillarbox reproduce dcell-fig11 bcube-fig10
    sudo ./pillarbox reproduce incast --as 1Gbit
    sudo ./pillarbox reproduce --all --out results
    """
    from pillarbox.experiments.apps import papers as reproductions

    if listed or not (names or every):
        rows = _figure_rows()
        known = [{"name": name, "live": bool(live), "about": about} for name, live, about in rows]
        answer(as_json, {"figures": known}, _figure_list_text(rows))
        return
    if how["scheduler"] and "://" not in how["scheduler"]:
        from pillarbox.experiments.apps.cluster.cluster_registry import scheduler_of

        how["scheduler"] = scheduler_of(how["scheduler"])
    wanted = reproductions.names() if every else names
    figures = {figure.name: figure for figure in map(reproductions.figure, wanted)}
    live = [name for name, figure in figures.items() if figure.live]
    require(
        os.geteuid() == 0 or not live,
        f"{', '.join(live)} need{'s' * (len(live) == 1)} a live lab, which needs root: use sudo",
        NotPermittedError,
    )
    how["own_mbit"] = parsed_rate_mbit(own_rate) if own_rate is not None else None
    simulated = [name for name, figure in figures.items() if not figure.live]
    require(
        own_rate is None or not simulated,
        f"--as is for live labs, and these figures are simulated: {', '.join(simulated)}",
    )
    from pillarbox.experiments.apps.papers.shared import figure_cache
    from pillarbox.experiments.runs.reporting.reproduced.page import write_page
    from pillarbox.experiments.runs.reporting.reproduced.result import Settings

    made, failed = [], []
    with only_writer(output_folder(out)):
        for name, figure in figures.items():
            settings = Settings(out / name, out / TASKS, say=partial(click.echo, err=True), **how)
            output_folder(settings.folder)
            try:
                made.append(figure_cache.made(figure, settings, out, again=again))
            except PillarboxError as error:
                if len(figures) == 1:
                    raise
                failed.append(f"{name} could not be made: {error}")
                continue
            # The page is written after each figure, so that an interrupted call leaves one.
            write_page(out, reproductions.names())
            if not as_json:
                click.echo(f"{figure_as_text(made[-1])}\n\nfigure and points: {settings.folder}\n")
        page, missing = write_page(out, reproductions.names())
    for sentence in (*missing, *failed):
        click.echo(f"pillarbox: {sentence}", err=True)
    click.echo(f"The page, for any browser: {page.resolve()}", err=as_json)
    if as_json:
        answer(True, {"figures": [found.as_json() for found in made]}, "", indent=2)
    if failed:
        raise SystemExit(FAILED)


def _figure_rows() -> list[tuple[str, str, str]]:
    from pillarbox.experiments.apps import papers as reproductions

    figures = reproductions.figures().values()
    return [(one.name, "live" if one.live else "", one.about) for one in figures]


def _figure_list_text(rows: list[tuple[str, str, str]]) -> str:
    from pillarbox.experiments.base.text import listing

    return listing([("NAME", "", "(live: measured in a lab on this machine, with sudo)"), *rows])


def figure_as_text(found: Reproduction) -> str:
    """Return a reproduced figure as text: table of values, verdict, reasons and notes."""
    from pillarbox.experiments.base.text import columns, paragraphs
    from pillarbox.experiments.runs.reporting.reproduced.drawing import table_of

    titles, rows = table_of(found, found.rows or found.points)
    table = columns([titles, *rows], range(2, len(titles)))
    lines = [f"{found.name}: {found.title}", "", table, ""]
    lines.append(f"verdict: {found.verdict}")
    if found.reasons:
        lines.append(paragraphs([f"- {reason}" for reason in found.reasons]))
    if found.notes:
        lines += ["", paragraphs(list(found.notes))]
    return "\n".join(lines)
