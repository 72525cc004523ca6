"""Open MPI on the servers of a lab: how its processes come to all servers, and keep to the network.

``mpirun`` runs on one server and starts a daemon on every other, by what it takes for a remote
shell: this file, as a program. It enters the server by the lab's control socket, and needs neither
ssh nor keys. Every daemon has its server's host name: Open MPI takes daemons with the same host
name for one machine, on which processes would share memory.

Traffic, of MPI and of the daemons, goes by TCP over the servers' own addresses alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

MPIRUN = ("mpirun.openmpi", "mpirun")
INTERFACE = "dcn0"
FAR_START = "--mpirun"  # what `experiments.machines.part_program` is told
WAY = Path(__file__).parents[2]  # what imports of this package begin from


def mpirun() -> str | None:
    """Return the program, None where Open MPI is not installed."""
    return next(filter(None, map(shutil.which, MPIRUN)), None)


def command(
    program: str,  # what `mpirun` returns
    folder: Path,  # the lab's
    scratch: Path,  # where Open MPI keeps its files
    hosts: Sequence[str],  # names of servers, each with its slots behind a colon
) -> list[str]:
    """Return what starts Open MPI: the user's own words follow."""
    from experiments.interpreter import script_command

    agent = " ".join(script_command(Path(__file__).resolve())) + f" {folder}"
    settings = {
        "plm": "^slurm",  # by a remote shell: `rsh` in Open MPI 4, `ssh` in 5
        "plm_rsh_agent": agent,
        "plm_ssh_agent": agent,
        "plm_rsh_no_tree_spawn": "1",  # all servers are one step away
        "plm_ssh_no_tree_spawn": "1",
        "btl": "tcp,self",
        "pml": "ob1",
        "btl_tcp_if_include": INTERFACE,
        "oob_tcp_if_include": INTERFACE,
        # A server that died says nothing any more: mpirun asks after so many seconds of silence,
        # and takes it for dead when nothing answers. A new path is found long before.
        "oob_tcp_keepalive_time": "10",
        "oob_tcp_keepalive_intvl": "5",
        "oob_tcp_keepalive_probes": "4",
        "orte_tmpdir_base": str(scratch),
        "prte_tmpdir_base": str(scratch),
        # All servers have the same processors: no process may keep one, waiting or not.
        "mpi_yield_when_idle": "1",
    }
    words = [program, "--allow-run-as-root", "--bind-to", "none", "--host", ",".join(hosts)]
    for name, value in settings.items():
        words += ["--mca", name, value]
    return words


def run(folder: Path, namespaces: Sequence[int], hosts: Sequence[str], words: Sequence[str]) -> int:
    """Run a program of Open MPI's, from the first of the hosts; return its exit code."""
    import tempfile

    from experiments.control.server_program import run_within
    from hosts.linux.calls import die_with_parent
    from topos.base.errors import require

    found = mpirun()
    require(found is not None, "Open MPI is not installed: sudo ./pillarbox setup mpi")
    assert found is not None
    scratch = Path(tempfile.mkdtemp(prefix="mpi-", dir=folder))
    try:
        start = command(found, folder, scratch, hosts)
        # It ends, and all its daemons, with the command that started it.
        return run_within(namespaces, [*start, *words], partial(die_with_parent, signal.SIGTERM))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def main(words: Sequence[str]) -> NoReturn:
    """Be the remote shell: FOLDER HOST COMMAND..., the last of which is a line for sh."""
    from experiments.control.client import entrance_anywhere
    from hosts.linux.calls import die_with_parent, enter
    from topos.base.errors import PillarboxError

    folder, host, *line = words
    shell = ["sh", "-c", " ".join(line)]
    die_with_parent(signal.SIGKILL)
    try:
        found = entrance_anywhere(Path(folder), host)
    except PillarboxError as error:
        sys.exit(f"pillarbox: {error}")
    if found.reach:
        command = [*found.reach, *shell]
        os.execv(command[0], command)
    for namespace in found.files[:2]:  # this is inside the lab already
        enter(namespace, any_kind=True)
    for namespace in found.files:
        os.close(namespace)
    os.execv("/bin/sh", shell)


if __name__ == "__main__":
    sys.path.insert(0, str(WAY))
    main(sys.argv[1:])
