"""``pillarbox exec``: run a program on a server of a running lab."""

from __future__ import annotations

import os
import sys

import click


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--lab", "number", type=int, help="Which lab, where several are running.")
@click.argument("server", metavar="ADDR")
@click.argument("program", metavar="CMD", nargs=-1, required=True, type=click.UNPROCESSED)
def command(number: int | None, server: str, program: tuple[str, ...]) -> int:
    """Run a program on a server of a running lab; its exit code is the program's.

    The program sees the server's network and ends with the lab.

    \b
    sudo ./pillarbox exec 0.0 ping -c 3 10.0.0.20
    sudo ./pillarbox exec 4.3 iperf3 -s
    """
    from experiments.emulation import registry
    from experiments.emulation.service import namespaces
    from hosts.linux.calls import enter
    from topos.base.errors import PillarboxError

    network, mounts, processes = namespaces(registry.folder_of(number), server)
    folder = os.getcwd()  # noqa: PTH109
    for kind in (mounts, network, processes):
        enter(kind, any_kind=True)
    os.chdir(folder)
    # Only a child is in the lab's process namespace, and so ends with the lab.
    child = os.fork()
    if child == 0:
        try:
            os.execvp(program[0], program)
        except OSError as error:
            click.echo(f"pillarbox: cannot run {program[0]}: {error.strerror}", err=True)
            os._exit(127)
    code = os.waitstatus_to_exitcode(_wait(child))
    if code == -9:
        raise PillarboxError(f"{program[0]} was killed: the server, or the lab, has died")
    sys.stdout.flush()
    return code if code >= 0 else 128 - code


def _wait(child: int) -> int:
    while True:
        try:
            return os.waitpid(child, 0)[1]
        except KeyboardInterrupt:
            continue  # the program got it as well, and decides
