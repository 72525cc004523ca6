"""``pillarbox labs``: the labs that run on this machine."""

from __future__ import annotations

from typing import Any

import click

from experiments.arguments import answer, json_option

KEYS = ["lab", "network", "servers", "routing", "plane", "dead", "faults"]


@click.command
@click.option("--processes", is_flag=True, help="List the processes of each lab and their rights.")
@json_option("labs")
def command(processes: bool, as_json: bool) -> None:
    """List the labs that are running on this machine.

    \b
    sudo ./pillarbox labs
    sudo ./pillarbox labs --processes
    """
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
