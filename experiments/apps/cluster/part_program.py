"""Run a program on a server of this machine's part; the program ends with its parent process.

    python -m pillarbox.experiments.apps.cluster.part_program FOLDER SERVER WORDS...

The folder is the part's. Without words it is a shell that has no rights (`control.visitor`). The
words ``--user NAME`` run the program as that user, and ``--mpirun HOST:SLOTS,... NETWORK`` make it
Open MPI's start of what follows (`control.mpi`).
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pillarbox.experiments.lab.linux import unprivileged
from pillarbox.experiments.runs.control import mpi
from pillarbox.experiments.runs.control.client import entrance
from pillarbox.experiments.runs.control.server_program import AS_USER, end_as, run_within
from pillarbox.experiments.runs.control.visitor import SHELL, execute_shell
from pillarbox.hosts.linux.calls import die_with_parent
from pillarbox.topos.base.errors import PillarboxError


def main() -> None:
    """Run a program on a server of this machine's part of a lab; exit with its exit code."""
    folder, server, *words = sys.argv[1:]
    try:
        found = entrance(Path(folder), server)
        namespaces = found.files
        if words[:1] == [mpi.FAR_START]:
            hosts, network, *program = words[1:]
            end_as(mpi.run(Path(folder), namespaces, hosts.split(","), network, program))
        before: Callable[[], object] = partial(die_with_parent, signal.SIGKILL)
        if words[:1] == [AS_USER]:
            account = unprivileged.account_of(words[1])
            end_as(run_within(namespaces, words[2:], account=account))
        elif not words:
            before, words = partial(execute_shell, found.prompt), list(SHELL)
        end_as(run_within(namespaces, words, before))
    except PillarboxError as error:
        sys.exit(f"pillarbox: {error}")


if __name__ == "__main__":
    main()
