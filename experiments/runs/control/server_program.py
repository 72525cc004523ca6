"""Programs on a server of a running lab, inside the server's network; they end with the lab."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

import click

from pillarbox.experiments.lab.linux import cgroups
from pillarbox.experiments.lab.linux.unprivileged import NOT_FOUND, Account, account_of, run_as
from pillarbox.experiments.runs.control.client import LabEntrance
from pillarbox.hosts.linux.calls import close_files, die_with_parent, enter
from pillarbox.topos.base.errors import require

AS_USER = (
    "--user"  # option of `pillarbox.experiments.apps.cluster.part_program`; a user name follows
)


def run_on_server(entrance: LabEntrance, words: Sequence[str], user: str | None = None) -> int:
    """Run a program on a server as `run_within` does; return its exit code.

    For a server on another computer, this process becomes the program that starts it there.
    """
    if entrance.reach:
        become = [AS_USER, user] if user else []
        os.execv(entrance.reach[0], [*entrance.reach, *become, *words])
    account = account_of(user) if user else None
    cgroups.join(entrance.group)
    return run_within(entrance.files, words, account=account)


def run_within(
    namespaces: Sequence[int],
    words: Sequence[str],
    before: Callable[[], object] = lambda: None,
    account: Account | None = None,
) -> int:
    """Run a program on a server; return its exit code, negative if a signal ended it.

    As root, the program shares this process's terminal; as another user, it has a separate session
    and terminal.

    Parameters
    ----------
    namespaces : sequence of int
        Open namespaces: the server's network and host name, and the lab's mounts and processes,
        in the order of `client.entrance`.
    words : sequence of str
        Program and its arguments.
    before : callable
        First action of the child process: runs inside the namespaces and affects only the child.
    account : Account, optional
        User to run the program as (default: root).
    """
    network, host_name, mounts, processes = namespaces
    folder = os.getcwd()  # noqa: PTH109
    for kind in (mounts, network, host_name, processes):
        enter(kind, any_kind=True)
    if account and account.uid:
        return run_as(account, words, folder)
    os.chdir(folder)
    # Only the program handles Ctrl-C: an interrupted wait could lose its exit code.
    at_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Only a child process is in the lab's process namespace, and therefore ends with the lab.
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
    # SIGTERM is passed on, so that the program can clean up; the kernel passes on SIGKILL.
    at_end = signal.signal(signal.SIGTERM, lambda number, _: os.kill(child, number))
    # Until it is reaped, an ended program keeps its number: no other process gets the signal.
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    signal.signal(signal.SIGTERM, at_end)
    status = os.waitpid(child, 0)[1]
    signal.signal(signal.SIGINT, at_interrupt)
    return os.waitstatus_to_exitcode(status)


def exit_code(code: int, killed: str) -> int:
    """Return a program's exit code, 128 + N after signal N; raise an error if its lab has ended."""
    require(code != -signal.SIGKILL, killed)
    sys.stdout.flush()
    return code if code >= 0 else 128 - code


def end_as(code: int) -> NoReturn:
    """End this process as a program ended: with its exit code, or with its signal (negative)."""
    if code < 0:
        with suppress(OSError):  # SIGKILL and SIGSTOP have no handlers to reset
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
