"""Open MPI on the servers of a lab: process start on all servers, traffic over the lab's network.

``mpirun`` runs on one server and starts a daemon on every other server through its remote shell,
for which this file, run as a program, is configured. The program enters the server through the
lab's control socket, and needs neither ssh nor keys. Every daemon has its server's host name: Open
MPI treats daemons with the same host name as one machine, on which processes would share memory.

Traffic of MPI and of the daemons uses only TCP over the servers' own addresses.
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
# The servers' addresses, in networks where servers have no interface dcn0.
SERVERS_SUBNET = "10.0.0.0/8"
FAR_START = "--mpirun"  # option of `pillarbox.experiments.apps.cluster.part_program` for MPI


def mpirun() -> str | None:
    """Return the path of the mpirun program, None if Open MPI is not installed."""
    return next(filter(None, map(shutil.which, MPIRUN)), None)


def network_of(interfaces: Sequence[str]) -> str:
    """Return the servers' network for Open MPI: an interface name that all share, or a subnet."""
    return interfaces[0] if len(set(interfaces)) == 1 else SERVERS_SUBNET


def command(
    program: str,  # path returned by `mpirun`
    folder: Path,  # folder of the lab
    scratch: Path,  # folder for the session files of Open MPI
    hosts: Sequence[str],  # names of servers, each followed by a colon and its slots
    network: str,  # value of `network_of`
) -> list[str]:
    """Return the mpirun command line, to be followed by the user's arguments."""
    from pillarbox.experiments.base.files import IMPORT_FOLDER
    from pillarbox.experiments.base.interpreter import script_command

    start = script_command(Path(__file__).resolve())
    agent = " ".join([*start, str(IMPORT_FOLDER), str(folder)])
    settings = {
        "plm": "^slurm",  # launch by a remote shell: `rsh` in Open MPI 4, `ssh` in 5
        "plm_rsh_agent": agent,
        "plm_ssh_agent": agent,
        "plm_rsh_no_tree_spawn": "1",  # mpirun starts all servers' daemons itself
        "plm_ssh_no_tree_spawn": "1",
        "btl": "tcp,self",
        "pml": "ob1",
        "btl_tcp_if_include": network,
        "oob_tcp_if_include": network,
        # Seconds of silence after which mpirun probes a server; a server that does not answer
        # is declared dead. Rerouting takes much less time.
        "oob_tcp_keepalive_time": "10",
        "oob_tcp_keepalive_intvl": "5",
        "oob_tcp_keepalive_probes": "4",
        "orte_tmpdir_base": str(scratch),
        "prte_tmpdir_base": str(scratch),
        # All servers share the machine's cores: a waiting MPI process must yield its core.
        "mpi_yield_when_idle": "1",
    }
    words = [program, "--allow-run-as-root", "--bind-to", "none", "--host", ",".join(hosts)]
    for name, value in settings.items():
        words += ["--mca", name, value]
    return words


def run(
    folder: Path,
    namespaces: Sequence[int],
    hosts: Sequence[str],
    network: str,
    words: Sequence[str],
) -> int:
    """Run an Open MPI program, started on the first of the hosts; return its exit code."""
    import tempfile

    from pillarbox.experiments.runs.control.server_program import run_within
    from pillarbox.hosts.linux.calls import die_with_parent
    from pillarbox.topos.base.errors import require

    found = mpirun()
    require(found is not None, "Open MPI is not installed: sudo ./pillarbox setup mpi")
    assert found is not None
    scratch = Path(tempfile.mkdtemp(prefix="mpi-", dir=folder))
    try:
        start = command(found, folder, scratch, hosts, network)
        # The MPI program and Open MPI's daemons end with `pillarbox mpirun`.
        return run_within(namespaces, [*start, *words], partial(die_with_parent, signal.SIGTERM))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def main(words: Sequence[str]) -> NoReturn:
    """Act as Open MPI's remote shell: FOLDER HOST COMMAND... runs a line of sh on a server."""
    from pillarbox.experiments.runs.control.client import entrance_anywhere
    from pillarbox.hosts.linux.calls import die_with_parent, enter
    from pillarbox.topos.base.errors import PillarboxError

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
    for namespace in found.files[:2]:  # network and UTS; mpirun has entered the lab's others
        enter(namespace, any_kind=True)
    for namespace in found.files:
        os.close(namespace)
    os.execv("/bin/sh", shell)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])  # the folder from which Python imports Pillarbox
    main(sys.argv[2:])
