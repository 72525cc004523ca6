"""``pillarbox mpirun``: an MPI program on the servers of a running lab."""

from __future__ import annotations

import os

import click

from pillarbox.experiments.base.arguments import lab, on_option


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@lab
@on_option
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="MPI slots per server.",
)
@click.argument("program", metavar="CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(number: int | None, chosen: str | None, slots: int, program: tuple[str, ...]) -> int:
    """Run an Open MPI program on the servers of a running lab.

    Words after -- are mpirun's: its options, then the program. mpirun starts on the first server,
    needs no ssh, and sends all traffic by TCP over the lab's cables. The exit code is mpirun's. On
    a cluster each computer needs Open MPI and the program.

    \b
    sudo ./pillarbox setup mpi
    sudo ./pillarbox mpirun -- hostname
    sudo ./pillarbox mpirun --on 0.0,0.1,1.0 -- -np 3 python3 mine.py
    """
    from pillarbox.experiments.lab.emulation import lab_registry
    from pillarbox.experiments.lab.linux import cgroups
    from pillarbox.experiments.runs.control import mpi
    from pillarbox.experiments.runs.control.client import entrance_anywhere, live_hosts
    from pillarbox.experiments.runs.control.server_program import exit_code

    folder = lab_registry.folder_of(number)
    hosts = live_hosts(folder, chosen)
    network = mpi.network_of([one["interface"] for one in hosts])
    named = [f"{one['name']}:{slots}" for one in hosts]
    first = entrance_anywhere(folder, hosts[0]["server"])
    if first.reach:
        command = [*first.reach, mpi.FAR_START, ",".join(named), network, *program]
        os.execv(command[0], command)
    cgroups.join(first.group)
    code = mpi.run(folder, first.files, named, network, program)
    return exit_code(code, "mpirun was killed: its server, or the lab, has died")
