"""``pillarbox hosts``: the servers of a running lab as an Open MPI host file."""

from __future__ import annotations

import click

from pillarbox.experiments.base.arguments import answer, json_option, lab


@click.command()
@lab
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="MPI slots per server.",
)
@json_option("hosts")
def command(number: int | None, slots: int, as_json: bool) -> None:
    """Print the live servers of a running lab as an Open MPI host file.

    Each line has a server's IP address and slots, and its address and name as a comment; with port
    addresses also those of its ports.

    \b
    sudo ./pillarbox hosts > hosts
    """
    from pillarbox.experiments.lab.emulation import lab_registry
    from pillarbox.experiments.runs.control.client import ask

    found = [
        {**one, "slots": slots} for one in ask(lab_registry.folder_of(number), ask="hosts")["hosts"]
    ]
    lines = []
    for one in found:
        ports = (f" %{port} {ip}" for port, ip in enumerate(one.get("port_ips", [])))
        names = f"{one['server']} {one['name']}{''.join(ports)}"
        lines.append(f"{one['ip']} slots={slots} # {names}")
    answer(as_json, {"hosts": found}, "\n".join(lines))
