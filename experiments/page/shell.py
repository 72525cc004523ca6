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
from experiments.linux.namespaces import write_sysctl
from experiments.page.process import give_up_rights
from hosts.linux.calls import die_with_parent

SHELL = ("bash", "--norc")
# What the page's terminal understands (web/screen.js) is what the console of Linux does.
SETTINGS = {"TERM": "linux", "PS1": r"\h:\w\$ ", "LANG": "C.UTF-8"}
PINGS = "net/ipv4/ping_group_range"  # who may ping without rights
EVERYBODY = "0 2147483647"


def main() -> None:
    """Run the shell until its end."""
    die_with_parent(signal.SIGKILL)
    namespaces = [int(number) for number in sys.argv[1:4]]
    sys.exit(run_within(namespaces, SHELL, _settle) != 0)


def _settle() -> None:
    """Make the terminal this process's own, and renounce all rights."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    write_sysctl(PINGS, EVERYBODY)
    os.chdir("/tmp")
    give_up_rights()
    for name in [name for name in os.environ if name.startswith("SUDO_")]:
        del os.environ[name]
    os.environ.update(SETTINGS)


if __name__ == "__main__":
    main()
