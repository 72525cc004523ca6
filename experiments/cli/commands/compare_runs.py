"""``pillarbox compare-runs``: differences of two runs in settings and results."""

from __future__ import annotations

from pathlib import Path

import click

from pillarbox.experiments.base.arguments import MORE, answer, json_option

RUN = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.argument("first", type=RUN)
@click.argument("second", type=RUN)
@json_option(MORE)
def command(first: Path, second: Path, as_json: bool) -> None:
    """Compare two runs: their settings and their results.

    \b
    pillarbox compare-runs quick-20260301-101500-seed1 quick-20260302-090000-seed1
    """
    from pillarbox.experiments.runs.trials.diff import as_plain, difference, text_of
    from pillarbox.experiments.runs.trials.records import load

    found = difference(load(first), load(second))
    answer(as_json, as_plain(found), text_of(found), indent=2)
