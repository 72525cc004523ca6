"""``pillarbox torchrun``: a PyTorch program with a process on each server of a running lab."""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from pillarbox.experiments.base.arguments import lab, on_option

PYTHON_OPTIONS = ("--help", "--version")  # Python's own options with long names


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@lab
@on_option
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    help="Number of processes, on the first of these servers (default: one per server).",
)
@click.option(
    "--python",
    default="python3",
    show_default=True,
    metavar="PATH",
    help="Python interpreter with PyTorch.",
)
@click.option("--user", metavar="NAME", help="User to run the program as (default: root).")
@click.option(
    "--master-port",
    type=click.IntRange(1, 65535),
    default=29500,
    show_default=True,
    help="TCP port of rank 0 at which the processes meet.",
)
@click.argument(
    "program", metavar="SCRIPT [ARG...]", nargs=-1, required=True, type=click.UNPROCESSED
)
def command(
    number: int | None,
    chosen: str | None,
    ranks: int | None,
    python: str,
    user: str | None,
    master_port: int,
    program: tuple[str, ...],
) -> int:
    """Run a PyTorch program with a process on each server of a running lab.

    Words after -- are Python's: a script and its arguments, or -m and a module. The processes have
    the environment variables of PyTorch's torchrun (RANK, WORLD_SIZE, MASTER_ADDR, ...), and Gloo
    sends all traffic over the lab's cables. Lines of output begin with the server's address. If a
    process fails, the others are ended, and the exit code is that of the process. PyTorch is not a
    part of Pillarbox: name an interpreter that has PyTorch. On a cluster each computer needs the
    interpreter and the script.

    \b
    sudo ./pillarbox torchrun --python ~/torch/bin/python -- train.py --epochs 3
    sudo ./pillarbox torchrun --ranks 8 --user $USER --python ~/torch/bin/python -- train.py
    """
    import secrets

    from pillarbox.experiments.lab.emulation import lab_registry
    from pillarbox.experiments.runs.control.client import live_hosts
    from pillarbox.experiments.runs.control.server_program import exit_code
    from pillarbox.experiments.runs.control.server_ranks import Rank, run_ranks
    from pillarbox.topos.base.errors import require

    _refuse_option(program[0])
    folder = lab_registry.folder_of(number)
    hosts = live_hosts(folder, chosen)
    require(
        ranks is None or ranks <= len(hosts),
        f"--ranks {ranks} needs as many servers: {len(hosts)} are there",
    )
    hosts = hosts[:ranks]
    words = _command_line(folder, hosts[0]["server"], python, user, program)
    failure = run_ranks(
        folder,
        [
            Rank(rank, host["server"], _variables(rank, hosts, master_port))
            for rank, host in enumerate(hosts)
        ],
        words,
        user=user,
        mark=f"TORCHELASTIC_RUN_ID={secrets.token_hex(8)}",
    )
    if failure is None:
        return 0
    code = exit_code(failure.code, str(failure))
    click.echo(f"pillarbox: {failure}", err=True)
    return code


def _refuse_option(word: str) -> None:
    """Raise an error for a first word that is no option of Python, but a misspelt one of torchrun.

    Python would refuse the word on each server.
    """
    if word.startswith("--") and word not in PYTHON_OPTIONS:
        known = [name for option in command.params for name in option.opts]
        close = difflib.get_close_matches(word.partition("=")[0], known)
        raise click.NoSuchOption(word, possibilities=close, ctx=click.get_current_context())


def _command_line(
    folder: Path, server: str, python: str, user: str | None, program: Sequence[str]
) -> list[str]:
    """Return the command line of a process; check its words, if servers are on this computer."""
    from pillarbox.experiments.lab.linux.unprivileged import PATH, account_of
    from pillarbox.experiments.runs.control.client import ask
    from pillarbox.topos.base.errors import require

    if ask(folder, ask="enter", server=server).get("reach"):
        return [python, *program]
    if user:
        account_of(user)
    found = shutil.which(python, path=PATH if user else None)
    require(found is not None, f"there is no program {python}: name an interpreter with --python")
    assert found is not None
    script = program[0]
    require(
        script.startswith("-") or Path(script).is_file(),
        f"there is no file {script}: name a script, or -m and a module, after --",
    )
    return [str(Path(found).absolute()), *program]


def _variables(rank: int, hosts: Sequence[Mapping[str, Any]], port: int) -> dict[str, str]:
    """Return the environment variables of a rank, as torchrun sets them on machines of one rank."""
    own, interface = str(rank), hosts[rank]["interface"]
    world = str(len(hosts))
    return {
        "MASTER_ADDR": hosts[0]["ip"],
        "MASTER_PORT": str(port),
        "RANK": own,
        "WORLD_SIZE": world,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": own,
        "GROUP_WORLD_SIZE": world,
        "ROLE_RANK": own,
        "ROLE_WORLD_SIZE": world,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": interface,
        # All servers share the machine's cores.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "PYTHONUNBUFFERED": "1",
    }
