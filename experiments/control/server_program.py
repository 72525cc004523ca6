"""A program on a server of a running lab: it sees the server's network, and ends with the lab."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

import click

from experiments.linux.unprivileged import NOT_FOUND, Account, run_as
from hosts.linux.calls import close_files, die_with_parent, enter
from topos.base.errors import require

AS_USER = "--user"  # what `experiments.machines.part_program` is told, with the user's name


def run_within(
    namespaces: Sequence[int],
    words: Sequence[str],
    before: Callable[[], object] = lambda: None,
    account: Account | None = None,
) -> int:
    """Run a program on a server; return its exit code, negative where a signal ended it.

    As root it shares this process's terminal, and else has a session and a terminal of its own.

    Parameters
    ----------
    namespaces : sequence of int
        The server's network and host name, and the lab's mounts and processes, as
        `client.entrance` has them.
    words : sequence of str
        The program, and its arguments.
    before : callable
        What the child does first: there it is inside, and nothing else is changed by it.
    account : Account, optional
        The user who runs it, root by default.
    """
    network, host_name, mounts, processes = namespaces
    folder = os.getcwd()  # noqa: PTH109
    for kind in (mounts, network, host_name, processes):
        enter(kind, any_kind=True)
    if account and account.uid:
        return run_as(account, words, folder)
    os.chdir(folder)
    # Ctrl-C is for the program, which decides; a wait that it broke off could lose what came of it.
    at_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Only a child is in the lab's process namespace, and so ends with the lab.
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGINT, at_interrupt)
            die_with_parent(signal.SIGKILL)
            close_files(3)
            before()
            os.execvp(words[0], list(words))
        except OSError as error:
            click.echo(f"pillarbox: cannot run {words[0]}: {error.strerror}", err=True)
        finally:
            os._exit(NOT_FOUND)
    # SIGTERM is passed on, so that the program can clean up; SIGKILL reaches it by the kernel.
    at_end = signal.signal(signal.SIGTERM, lambda number, _: os.kill(child, number))
    status = os.waitpid(child, 0)[1]
    signal.signal(signal.SIGTERM, at_end)
    signal.signal(signal.SIGINT, at_interrupt)
    return os.waitstatus_to_exitcode(status)


def exit_code(code: int, killed: str) -> int:
    """Return what a shell would for `run_within`'s code; say `killed` where the lab ended it."""
    require(code != -signal.SIGKILL, killed)
    sys.stdout.flush()
    return code if code >= 0 else 128 - code


def end_as(code: int) -> NoReturn:
    """End this process as another has ended, by its exit code or less than 0 for a signal."""
    if code < 0:
        with suppress(OSError):  # of what cannot be caught
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
