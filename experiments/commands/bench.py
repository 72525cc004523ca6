"""``pillarbox bench``: how fast, how large, beside what."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
@click.option("--quick", is_flag=True, help="Small sizes, done in two seconds.")
def command(name: str | None, as_json: bool, quick: bool) -> int:
    """Run a benchmark, or list those there are.

    Exit code 1 says that a case failed or missed its goal.

    \b
    pillarbox bench
    pillarbox bench cables
    pillarbox bench cables --json > cables.json
    """
    from experiments.benches import _frame as frame
    from experiments.text import columns, records

    if name is None:
        found = frame.titles()
        if as_json:
            click.echo(json.dumps(found))
        else:
            click.echo(columns(found.items()))
        return 0
    bench = frame.find(name)
    machine = frame.machine()
    if as_json:
        rows = list(_as_they_come(bench.run(quick)))
        click.echo(json.dumps({"bench": name, "quick": quick, "machine": machine, "rows": rows}))
        return int(frame.failed(rows))
    click.echo(", ".join(f"{key} {value}" for key, value in machine.items()))
    failed = False
    for rows in frame.groups(_as_they_come(bench.run(quick))):
        failed |= frame.failed(rows)
        click.echo(f"\n{records(rows)}")
    if bench.notes:
        click.echo(f"\n{bench.notes.strip()}")
    return int(failed)


def _as_they_come(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Pass rows on, and show on a terminal which ones are done: tables come when whole."""
    for row in rows:
        if sys.stderr.isatty():
            words = (value for value in row.values() if isinstance(value, str) and value)
            click.echo(f"  done: {', '.join(words)}", err=True)
        yield row
