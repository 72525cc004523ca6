"""``pillarbox bench``: how fast, how large, beside what."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click

from experiments.arguments import answer, complete, json_option


@click.command()
@click.argument("name", shell_complete=complete("benches"), required=False)
@json_option("benches", "bench", "quick", "machine", "rows")
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
        answer(as_json, {"benches": found}, columns(found.items()))
        return 0
    bench = frame.find(name)
    machine = frame.machine()
    if as_json:
        rows = list(_as_they_come(bench.run(quick)))
        answer(True, {"bench": name, "quick": quick, "machine": machine, "rows": rows}, "")
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
