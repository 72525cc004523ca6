"""A shell that may be given to others: it has the rights of who called sudo, or nobody's."""

from __future__ import annotations

import os
import resource
from typing import NoReturn

from experiments.linux import unprivileged

SHELL = ("bash", "--norc")
# What the page's terminal understands (web/screen.js) is what the console of Linux does.
SETTINGS = {"TERM": "linux", "LANG": "C.UTF-8"}
MOST_OPEN_FILES = 512


def give_up_rights() -> None:
    """Become the user who called sudo, or nobody, for ever: no capability, few open files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_OPEN_FILES, MOST_OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    unprivileged.give_up_rights(unprivileged.least_account())


def execute_shell(prompt: str) -> NoReturn:
    """Replace this child process, on a server, by a visitor's shell at its standard input.

    Its session's terminal is that input, if it is a terminal.
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_OPEN_FILES, MOST_OPEN_FILES))
    unprivileged.let_everybody_ping()
    account = unprivileged.least_account()
    terminal = 0 if os.isatty(0) else None
    unprivileged.execute_as(
        account, SHELL, terminal=terminal, folder="/tmp", settings={**SETTINGS, "PS1": prompt}
    )
