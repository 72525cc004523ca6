"""Programs that a root process starts as an unprivileged user.

An untrusted program inherits nothing of the process that starts it:

- no terminal: the program has a session and a terminal of its own, and bytes are copied between
  the two terminals (as by ``runuser --pty``), so TIOCSTI types into the program's terminal only;
- no open file but standard input, output and error, and none of these is a terminal;
- no environment variables but those that describe the terminal and the language;
- neither capabilities, nor the session keyring, nor the right to gain privileges by a set-user-ID
  program.

`execute_as` ensures this for every such program: `exec --user` here and on other machines, and the
shells of a page.
"""

from __future__ import annotations

import fcntl
import os
import pty
import pwd
import resource
import signal
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple, NoReturn

from pillarbox.experiments.base.text import printable
from pillarbox.experiments.lab.linux.namespaces import write_sysctl
from pillarbox.experiments.lab.linux.terminals import copy, raw, same_size
from pillarbox.hosts.base.file_ownership import is_machine_root
from pillarbox.hosts.linux import user_namespace
from pillarbox.hosts.linux.calls import (
    close_files,
    die_with_parent,
    forbid_new_rights,
    leave_session_keyring,
)
from pillarbox.hosts.linux.rights import drop_capabilities, limit_capabilities
from pillarbox.topos.base.errors import NotPermittedError, UnknownNameError, require

NOT_FOUND = 127  # exit code for a program that cannot be run, as in a shell
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
KEPT_VARIABLES = ("TERM", "COLORTERM", "LANG", "LANGUAGE", "TZ")
# sysctl for unprivileged ICMP sockets: first and last group that may ping; largest groups of a
# machine, of a user namespace with subordinate IDs, and of one without
PINGS, LAST_GROUPS = "net/ipv4/ping_group_range", (2147483647, 65535, 0)
# Capabilities of programs' files, such as ping's, stay in the bounding set: Linux does not run a
# file with capabilities out of bounds. The program does not gain them, since PR_SET_NO_NEW_PRIVS
# disables file capabilities.
FILE_CAPABILITIES = ("net_bind_service", "net_admin", "net_raw")
PASSED_ON = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
OWN_TERMINAL = 0o600  # file mode of a user's terminal


class Account(NamedTuple):
    """User account under which a program runs."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str


def account_of(name: str) -> Account:
    """Return a user's account with all groups; raise PillarboxError if no such user exists."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise UnknownNameError(f"there is no user {name}") from None
    require(
        user_namespace.has_user(found.pw_uid),
        f"a lab without root has no user {name}: use sudo, or install newuidmap (package uidmap) "
        "and assign IDs in /etc/subuid and /etc/subgid",
        NotPermittedError,
    )
    groups = tuple(os.getgrouplist(name, found.pw_gid))
    return Account(name, found.pw_uid, found.pw_gid, groups, found.pw_dir, found.pw_shell)


def least_account() -> Account:
    """Return the account of the user who called sudo, or of `nobody`, with its main group only.

    In a lab without root it is the caller's own.
    """
    if not is_machine_root():
        own = pwd.getpwuid(0)
        return Account(own.pw_name, 0, 0, (), "/", "/bin/sh")
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    try:
        if uid.isdecimal() and gid.isdecimal() and int(uid):
            caller = pwd.getpwuid(int(uid))
            return Account(caller.pw_name, int(uid), int(gid), (), caller.pw_dir, caller.pw_shell)
    except KeyError:
        return Account(uid, int(uid), int(gid), (), "/", "/bin/sh")
    return account_of("nobody")._replace(groups=())


def let_everybody_ping() -> None:
    """Allow users without privileges to ping on this server."""
    for last in LAST_GROUPS:
        # EINVAL: the user namespace has fewer groups. /proc does not tell how many, since it may
        # be the lab's, in which this process does not exist.
        with suppress(OSError):
            write_sysctl(PINGS, f"0 {last}")
            return


def give_up_rights(account: Account) -> None:
    """Change this process to a user for good; open files stay open."""
    leave_session_keyring()
    if os.geteuid() == 0:
        limit_capabilities(FILE_CAPABILITIES)
        if account.uid:
            os.setgroups(account.groups)
            os.setresgid(account.gid, account.gid, account.gid)
            os.setresuid(account.uid, account.uid, account.uid)
    drop_capabilities()
    forbid_new_rights()
    die_with_parent(signal.SIGKILL)  # the change of user has cleared the parent-death signal


def environment_of(account: Account) -> dict[str, str]:
    """Return the environment variables of a user's program."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT_VARIABLES or name.startswith("LC_")
    }
    own = {"HOME": account.home, "SHELL": account.shell, "PATH": PATH}
    return {**kept, **own, "USER": account.name, "LOGNAME": account.name}


def execute_as(
    account: Account,
    words: Sequence[str],
    *,
    terminal: int | None = None,
    folder: str = "/",
    settings: Mapping[str, str] | None = None,
) -> NoReturn:
    """Replace this child process by a program that runs as another user, in a new session.

    Parameters
    ----------
    account : Account
        Account of the user.
    words : sequence of str
        The program and its arguments.
    terminal : int, optional
        Controlling terminal of the session: an open file that no other process reads.
    folder : str
        Working directory, if the user may enter it.
    settings : mapping, optional
        Environment variables in addition to those of `environment_of`.
    """
    os.setsid()
    if terminal is not None:
        # 1: take the terminal from the session that has it (TIOCSCTTY)
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 1)
        for descriptor in filter(os.isatty, range(3)):
            os.dup2(terminal, descriptor)
    close_files(3)
    variables = {**environment_of(account), **(settings or {})}
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    give_up_rights(account)
    os.chdir("/")
    with suppress(OSError):
        os.chdir(folder)
    for number in (*PASSED_ON, *IGNORED_BY_PYTHON):
        if signal.getsignal(number) != signal.SIG_IGN or number in IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        os.execvpe(words[0], list(words), variables)
    except OSError as error:
        os.write(2, f"pillarbox: cannot run {printable(words[0])}: {error.strerror}\n".encode())
    os._exit(NOT_FOUND)


def run_as(account: Account, words: Sequence[str], folder: str) -> int:
    """Run a user's program on this server; return its exit code, negative for a signal.

    If this process has a terminal, the program gets a terminal of its own.
    """
    let_everybody_ping()
    own = list(filter(os.isatty, range(3)))
    if not own:
        with _running_program(account, words, folder) as child:
            copy(child, {})
            return _exit_code_of(child)
    typed = 0 if 0 in own and _in_foreground(0) else None
    local_end, program_end = pty.openpty()
    moves: dict[int, int] = {local_end: next(one for one in (1, 2, 0) if one in own)}
    try:
        os.set_blocking(local_end, False)
        os.fchown(program_end, account.uid, account.gid)
        os.fchmod(program_end, OWN_TERMINAL)
        _set_modes(program_end, typed)
        with _running_program(account, words, folder, program_end) as child, ExitStack() as stack:
            os.close(program_end)
            program_end = -1
            stack.enter_context(same_size(own[0], local_end))
            if typed is not None:
                stack.enter_context(raw(typed))
                moves[typed] = local_end
            copy(child, moves)
            return _exit_code_of(child)
    finally:
        os.close(local_end)
        if program_end >= 0:
            os.close(program_end)


@contextmanager
def _running_program(
    account: Account, words: Sequence[str], folder: str, terminal: int | None = None
) -> Iterator[int]:
    """Start a program as another user, and forward this process's signals to its session.

    Signals are blocked until their handler is set, so that none is lost.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    before = {}
    try:
        child = _forked_program(account, words, folder, terminal)

        def forward(number: int, _: object) -> None:
            with suppress(ProcessLookupError):
                try:
                    os.killpg(child, number)
                except ProcessLookupError:  # the child process has not called setsid yet
                    os.kill(child, number)

        for number in PASSED_ON:
            # a signal that is ignored stays ignored, as after nohup
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, forward)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        yield child
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _forked_program(
    account: Account, words: Sequence[str], folder: str, terminal: int | None
) -> int:
    child = os.fork()
    if child:
        return child
    try:
        execute_as(account, words, terminal=terminal, folder=folder)
    except BaseException:  # noqa: BLE001 - the child must not continue in the parent's program
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(NOT_FOUND)


def _exit_code_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _in_foreground(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    # the terminal belongs to another session: no job control applies to this process
    except OSError:
        return True


def _set_modes(terminal: int, model: int | None) -> None:
    """Copy a terminal's modes to another; without a model, switch output processing off."""
    if model is None:
        modes = termios.tcgetattr(terminal)
        modes[1] &= ~termios.OPOST  # leaves output processing to the user's own terminal
    else:
        modes = termios.tcgetattr(model)
    termios.tcsetattr(terminal, termios.TCSANOW, modes)
