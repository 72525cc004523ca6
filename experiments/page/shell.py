"""The process of one shell of a page: it enters a server, and is nobody's there.

Its terminal is its standard input; the command line numbers the open files of the server's
namespaces, and then names the lists of the control group to join.
"""

from __future__ import annotations

import signal
import sys

from experiments.control.entering import run_within
from experiments.control.visitor import SHELL, execute_shell
from experiments.linux import cgroups
from hosts.linux.calls import die_with_parent


def main() -> None:
    """Run the shell until its end."""
    die_with_parent(signal.SIGKILL)
    namespaces = [int(number) for number in sys.argv[1:4]]
    cgroups.join(sys.argv[4:])
    sys.exit(run_within(namespaces, SHELL, execute_shell) != 0)


if __name__ == "__main__":
    main()
