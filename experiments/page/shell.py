"""The process of one shell of a page: it enters a server, and is nobody's there.

Its terminal is its standard input; the command line numbers the open files of the server's
namespaces.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios

from experiments.control.entering import run_within
from experiments.control.visitor import SHELL, settle
from hosts.linux.calls import die_with_parent


def main() -> None:
    """Run the shell until its end."""
    die_with_parent(signal.SIGKILL)
    namespaces = [int(number) for number in sys.argv[1:4]]
    sys.exit(run_within(namespaces, SHELL, _settle) != 0)


def _settle() -> None:
    """Make the terminal this process's own, and renounce all rights."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    settle()


if __name__ == "__main__":
    main()
