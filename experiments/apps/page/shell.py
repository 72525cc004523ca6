"""The process of one of a page's shells: it enters a server, and runs there without rights.

Its terminal is standard input. The command line has the shell's prompt, the file descriptors of the
server's namespaces, and the process lists of the control group to join.
"""

from __future__ import annotations

import signal
import sys
from functools import partial

from pillarbox.experiments.lab.linux import cgroups
from pillarbox.experiments.runs.control.client import MOST_FILES
from pillarbox.experiments.runs.control.server_program import run_within
from pillarbox.experiments.runs.control.visitor import SHELL, execute_shell
from pillarbox.hosts.linux.calls import die_with_parent


def main() -> None:
    """Run a shell on a server until the shell ends."""
    die_with_parent(signal.SIGKILL)
    prompt, *numbers = sys.argv[1 : 2 + MOST_FILES]
    cgroups.join(sys.argv[2 + MOST_FILES :])
    sys.exit(run_within(list(map(int, numbers)), SHELL, partial(execute_shell, prompt)) != 0)


if __name__ == "__main__":
    main()
