"""``pillarbox bench``: benchmarks of Pillarbox, compared with goals and other programs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click

from pillarbox.experiments.base.arguments import answer, json_option
from pillarbox.experiments.cli.completing import completes


@completes
def benches(_ctx: click.Context) -> Iterable[str]:
    """Return the names of the benchmarks."""
    from tests.benches._frame import titles

    return titles()


@click.command()
@click.argument("name", shell_complete=benches, required=False)
@json_option("benches", "bench", "quick", "machine", "rows")
@click.option(
    "--quick", is_flag=True, help="Run the benchmark with small sizes only (about two seconds)."
)
def command(name: str | None, as_json: bool, quick: bool) -> int:
    """Run a benchmark, or list the benchmarks.

    Exit code 1: a case failed or missed its goal. Ctrl-C, or `timeout`, ends it with the
    rows so far.

    \b
    pillarbox bench
    pillarbox bench cables
    pillarbox bench cables --json > cables.json
    """
    from pillarbox.experiments.base.interpreter import require_modules
    from pillarbox.experiments.base.text import columns, records
    from tests.benches import _frame as frame

    if name is None:
        found = frame.titles()
        answer(as_json, {"benches": found}, columns(found.items()))
        return 0
    bench = frame.find(name)
    require_modules("pytest", "numba", "distributed")
    machine = frame.machine()
    # SIGTERM, as sent by timeout(1), ends the benchmark as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rows = _StreamedRows(bench.run(quick))
    if as_json:
        every = list(rows)
        answer(True, {"bench": name, "quick": quick, "machine": machine, "rows": every}, "")
        failed = frame.failed(every)
    else:
        click.echo(", ".join(f"{key} {value}" for key, value in machine.items()))
        failed = False
        for group in frame.groups(rows):
            failed |= frame.failed(group)
            click.echo(f"\n{records(group)}")
        if bench.notes:
            click.echo(f"\n{bench.notes.strip()}")
    if rows.stopped:
        raise KeyboardInterrupt
    return int(failed)


class _StreamedRows:
    """Result rows of a benchmark until Ctrl-C; a terminal shows the number of finished cases."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self._rows = rows
        self.stopped = False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        try:
            for row in self._rows:
                if sys.stderr.isatty():
                    words = (value for value in row.values() if isinstance(value, str) and value)
                    click.echo(f"  done: {', '.join(words)}", err=True)
                yield row
        except KeyboardInterrupt:
            self.stopped = True
