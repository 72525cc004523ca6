"""An unprivileged shell for visitors, with the rights of the `unprivileged.least_account`."""

from __future__ import annotations

import os
import resource
from typing import NoReturn

from pillarbox.experiments.lab.linux import unprivileged

SHELL = ("bash", "--norc")
# The lab's page (web/screen.js) displays control sequences of the Linux console.
SETTINGS = {"TERM": "linux", "LANG": "C.UTF-8"}
MOST_OPEN_FILES = 512


def give_up_rights() -> None:
    """Reduce this process's rights for a web visitor: no capabilities, few open files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_OPEN_FILES, MOST_OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    unprivileged.give_up_rights(unprivileged.least_account())


def execute_shell(prompt: str) -> NoReturn:
    """Replace this child process by a shell on a server, for a visitor of the lab's page.

    The standard input becomes the terminal of the shell's session, if it is a terminal.
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_OPEN_FILES, MOST_OPEN_FILES))
    unprivileged.let_everybody_ping()
    account = unprivileged.least_account()
    terminal = 0 if os.isatty(0) else None
    unprivileged.execute_as(
        account, SHELL, terminal=terminal, folder="/tmp", settings={**SETTINGS, "PS1": prompt}
    )
