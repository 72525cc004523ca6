"""A program on a server of this machine's part; it ends with whoever started it.

    python -m experiments.machines.within FOLDER SERVER WORDS...

The folder is the part's. Without words it is a shell that has no rights (`control.visitor`); the
words ``--named NAME`` give a program a host name of its own, and ``--mpirun HOST:SLOTS,...`` make
it Open MPI's start of what follows (`control.mpi`).
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from experiments.control import mpi
from experiments.control.client import entrance
from experiments.control.entering import end_as, run_within
from experiments.control.visitor import SHELL, settle
from hosts.linux.calls import die_with_parent
from topos.base.errors import PillarboxError, require


def main() -> None:
    """Run it, and end as it does."""
    folder, server, *words = sys.argv[1:]
    try:
        if words[:1] == [mpi.FAR_START]:
            _mpirun(Path(folder), server, words[1].split(","), words[2:])
        before: Callable[[], object] = partial(die_with_parent, signal.SIGKILL)
        if words[:1] == [mpi.FAR_DAEMON]:
            before = partial(mpi.go_on_as, words[1], signal.SIGKILL)
            words = words[2:]
        elif not words:
            before, words = settle, list(SHELL)
        end_as(run_within(entrance(Path(folder), server).files, words, before))
    except PillarboxError as error:
        sys.exit(f"pillarbox: {error}")


def _mpirun(folder: Path, server: str, hosts: list[str], program: list[str]) -> None:
    """Start Open MPI on its first host, and end as it does."""
    found = mpi.mpirun()
    require(found is not None, f"Open MPI is not installed on the computer of {server}")
    assert found
    namespaces = entrance(folder, server).files
    scratch = Path(tempfile.mkdtemp(prefix="mpi-", dir=folder))
    try:
        words = mpi.command(found, folder, scratch, hosts)
        before = partial(mpi.go_on_as, hosts[0].partition(":")[0])
        code = run_within(namespaces, [*words, *program], before)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    end_as(code)


if __name__ == "__main__":
    main()
