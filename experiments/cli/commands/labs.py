"""``pillarbox labs``: list of the labs that run on this machine."""

from __future__ import annotations

from typing import Any

import click

from pillarbox.experiments.base.arguments import answer, json_option

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
    from pillarbox.experiments.base.text import columns
    from pillarbox.experiments.lab.emulation import lab_registry
    from pillarbox.experiments.runs.control.client import ask
    from pillarbox.topos.base.errors import PillarboxError

    rows: list[dict[str, Any]] = []
    for number in lab_registry.living_labs():
        try:
            rows.append({"lab": number, **ask(lab_registry.LABS / str(number), ask="about")})
        except PillarboxError:  # a lab that is starting or ending has no control socket
            rows.append({"lab": number, "network": "starting or ending"})
    if processes:
        _show_processes(rows, as_json)
        return
    cells = [[str(row[key]) if key in row else "" for key in KEYS] for row in rows]
    answer(as_json, {"labs": rows}, columns([KEYS, *cells]) if rows else "no lab is running")


def _show_processes(labs: list[dict[str, Any]], as_json: bool) -> None:
    """Print the processes of labs and their rights."""
    from pillarbox.experiments.base.text import columns
    from pillarbox.experiments.lab.emulation import lab_registry
    from pillarbox.experiments.runs.control import process_rights

    head = ["lab", "count", *process_rights.KEYS, "open files"]
    cells: list[list[str]] = []
    for one in labs:
        one["processes"] = process_rights.processes_of(
            lab_registry.LABS / str(one["lab"]) / lab_registry.LOCK
        )
        cells += [[str(one["lab"]), *row] for row in process_rights.rights_table(one["processes"])]
    answer(as_json, {"labs": labs}, columns([head, *cells]) if labs else "no lab is running")
