"""A program of another user tries to get the terminal, files and rights of the root process."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pillarbox.experiments.base.processes import forked
from pillarbox.experiments.lab.linux import unprivileged
from pillarbox.experiments.runs.control.visitor import execute_shell
from pillarbox.hosts.linux.rights import CAPABILITIES

pytestmark = pytest.mark.root

WAIT_S = 60.0  # only a guard
PYTHON = "/usr/bin/python3"  # which every user may run
INJECTED = "touch pwned\n"
LEGACY = Path("/proc/sys/dev/tty/legacy_tiocsti")
# Types a line into every terminal that it can reach.
ATTACK = f"""
import fcntl, os, termios
terminals = [0, 1, 2]
for name in ("/dev/tty", f"/proc/{{os.getppid()}}/fd/0"):
    try:
        terminals.append(os.open(name, os.O_RDWR))
    except OSError:
        pass
for terminal in terminals:
    for letter in {INJECTED!r}:
        try:
            fcntl.ioctl(terminal, termios.TIOCSTI, letter.encode())
        except OSError:
            break
"""
REPORT = """
import json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
files = {}
for number in os.listdir("/proc/self/fd"):
    try:
        files[number] = os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        pass
try:
    os.close(os.open("/dev/tty", os.O_RDWR))
    controlled = True
except OSError:
    controlled = False
sets = ("NoNewPrivs", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
print(json.dumps({
    "files": files, "environment": dict(os.environ), "terminal": controlled,
    "session": os.getsid(0) == os.getpid(), "groups": os.getgroups(), "ids": os.getresuid(),
    "rights": [int(status[name], 16) for name in sets],
}))
"""
PATIENT = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"told\\n"), os._exit(0)))
os.write(1, b"on\\n")
while True:
    signal.pause()
"""


def nobody() -> unprivileged.Account:
    return unprivileged.account_of("nobody")


def at_terminal(run: Callable[[], object]) -> tuple[str, bytes]:
    """Call a function at a terminal; return what it showed, and what was typed there."""
    typed, types = os.pipe()
    child, terminal = pty.fork()
    if child == 0:
        try:
            run()
            modes = termios.tcgetattr(0)
            modes[3] &= ~termios.ICANON
            termios.tcsetattr(0, termios.TCSANOW, modes)
            os.set_blocking(0, False)
            with suppress(BlockingIOError):
                os.write(types, os.read(0, 1 << 12))
        finally:
            os._exit(0)
    os.close(types)
    shown = all_of(terminal)
    os.waitpid(child, 0)
    with os.fdopen(typed, "rb") as answer:
        return shown.decode(), answer.read()


def all_of(terminal: int, until: str = "") -> bytes:
    """Return what is shown on a terminal until a text appears, by default until its end."""
    shown, deadline = b"", time.monotonic() + WAIT_S
    while not until or until.encode() not in shown:
        ready = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]
        assert ready, f"nothing follows {shown!r}"
        try:
            more = os.read(terminal, 1 << 16)
        except OSError:  # EIO: nobody has it open any more
            more = b""
        if not more:
            break
        shown += more
    return shown


def run_python(code: str) -> int:
    return unprivileged.run_as(nobody(), [PYTHON, "-c", code], "/")


# -- the terminal ------------------------------------------------------------------------------


@pytest.mark.skipif(
    not LEGACY.exists() or LEGACY.read_text().strip() != "1", reason="TIOCSTI is off in this kernel"
)
def test_the_attack_works_where_the_terminal_is_shared() -> None:
    """The control: as `exec --user` did, and as su without --pty does."""

    def shared() -> None:
        subprocess.run([PYTHON, "-c", ATTACK], user="nobody", group="nogroup", check=True)

    assert INJECTED.encode() in at_terminal(shared)[1]


def test_nothing_is_typed_into_the_callers_terminal() -> None:
    assert at_terminal(lambda: run_python(ATTACK))[1] == b""


def test_nothing_is_typed_by_a_program_whose_input_is_no_terminal() -> None:
    """It still has the terminal as its output, which can be read from as well."""

    def run() -> None:
        with open(os.devnull) as nothing:  # noqa: PTH123
            kept = os.dup(0)
            os.dup2(nothing.fileno(), 0)
            run_python(ATTACK)
            os.dup2(kept, 0)

    assert at_terminal(run)[1] == b""


def test_a_shell_of_the_page_has_only_its_own_terminal() -> None:
    """Its process on the server inherits nothing of the session that started it."""
    near, far = pty.openpty()

    def run() -> None:
        child = os.fork()
        if child == 0:
            os.dup2(far, 0)
            execute_shell("$ ")
        os.waitpid(child, 0)

    attack = ATTACK.encode().hex()
    os.write(near, f"{PYTHON} -c 'exec(bytes.fromhex(\"{attack}\"))'; exit\n".encode())
    assert at_terminal(run)[1] == b""
    os.close(near)
    os.close(far)


# -- what it has -------------------------------------------------------------------------------


def report(**environment: str) -> dict[str, Any]:
    """Return what a program of nobody's has of its parent, whose input is no terminal."""
    read, write = os.pipe()
    leaked = os.open("/proc", os.O_RDONLY)
    os.set_inheritable(leaked, True)

    def run() -> None:
        os.environ.update(environment)
        os.setgroups([0, 4])
        os.dup2(write, 1)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(0, 2)
        run_python(REPORT)

    os.waitpid(forked(run), 0)
    os.close(write)
    os.close(leaked)
    with os.fdopen(read) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def test_it_has_no_rights_and_no_way_to_gain_any() -> None:
    found = report()
    no_new_rights, inherited, permitted, effective, bounds, ambient = found["rights"]
    assert no_new_rights == 1
    assert inherited == permitted == effective == ambient == 0
    assert (
        bounds & ~sum(1 << CAPABILITIES.index(name) for name in unprivileged.FILE_CAPABILITIES) == 0
    )
    assert found["ids"] == [nobody().uid] * 3
    assert found["groups"] == list(nobody().groups)


def test_a_program_with_rights_of_its_own_runs_without_them() -> None:
    """ping has cap_net_raw from its file; it works without, by `ping_group_range`."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    shown = at_terminal(lambda: unprivileged.run_as(nobody(), ["ping", "-c1", "127.0.0.1"], "/"))[0]
    assert "1 received" in shown


def test_it_has_no_open_file_of_its_parent() -> None:
    """Neither namespaces nor a directory of procfs, through which one leaves a mount namespace."""
    files = report()["files"]
    more = {number: place for number, place in files.items() if int(number) > 2}
    assert len(files) >= 3
    assert all(place.endswith("/fd") for place in more.values()), more  # the listing itself


def test_it_has_a_session_of_its_own_without_a_terminal() -> None:
    found = report()
    assert found["session"] and not found["terminal"]


def test_it_has_no_variables_of_its_parent() -> None:
    found = report(
        LD_PRELOAD="/nosuch.so",
        PYTHONPATH="/root",
        SSH_AUTH_SOCK="/root/agent",
        SUDO_COMMAND="secret",
        TERM="vt220",
        LC_ALL="C.UTF-8",
    )["environment"]
    assert found["TERM"] == "vt220" and found["LC_ALL"] == "C.UTF-8"
    assert found["HOME"] == nobody().home and found["USER"] == found["LOGNAME"] == "nobody"
    assert found["PATH"] == unprivileged.PATH
    own = {"HOME", "SHELL", "PATH", "USER", "LOGNAME", *unprivileged.KEPT_VARIABLES}
    assert {name for name in found if not name.startswith("LC_")} <= own


def test_it_begins_in_no_directory_that_its_user_may_not_enter(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    shown = at_terminal(lambda: unprivileged.run_as(nobody(), ["pwd"], str(tmp_path / "open")))[0]
    assert shown.strip() == "/"


# -- what works as before ----------------------------------------------------------------------


def test_its_terminal_is_as_large_and_what_is_typed_arrives() -> None:
    child, terminal = pty.fork()
    if child == 0:
        code = 1
        try:
            code = unprivileged.run_as(
                nobody(), ["sh", "-c", "echo ready; read line; stty size; exit $line"], "/"
            )
        finally:
            os._exit(code)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("=4H", 33, 77, 0, 0))
    all_of(terminal, "ready")
    os.write(terminal, b"7\n")
    assert b"33 77" in all_of(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_control_c_ends_it_and_restores_the_terminal() -> None:
    def run() -> None:
        before = termios.tcgetattr(0)
        assert (
            unprivileged.run_as(nobody(), ["sh", "-c", "echo ready; exec cat"], "/")
            == -signal.SIGINT
        )
        assert termios.tcgetattr(0) == before
        os.write(1, b"restored")

    child, terminal = pty.fork()
    if child == 0:
        try:
            run()
        finally:
            os._exit(0)
    all_of(terminal, "ready")
    os.write(terminal, b"\x03")
    assert b"restored" in all_of(terminal)
    os.waitpid(child, 0)


def started() -> tuple[int, int]:
    """Run a program as nobody, away from terminals; return its parent and its output."""
    read, write = os.pipe()

    def run() -> None:
        os.dup2(write, 1)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(0, 2)
        run_python(PATIENT)

    parent = forked(run)
    os.close(write)
    assert os.read(read, 3) == b"on\n"
    return parent, read


def rest_of(output: int) -> bytes:
    """Return what is written until no program has the output open any more."""
    with os.fdopen(output, "rb") as answer:
        return answer.read()


def test_a_signal_is_passed_on() -> None:
    parent, output = started()
    os.kill(parent, signal.SIGTERM)
    assert rest_of(output) == b"told\n"
    os.waitpid(parent, 0)


def test_it_ends_with_its_parent() -> None:
    parent, output = started()
    os.kill(parent, signal.SIGKILL)
    assert rest_of(output) == b""
    os.waitpid(parent, 0)


def test_a_program_that_does_not_exist_is_one_sentence() -> None:
    shown = at_terminal(lambda: unprivileged.run_as(nobody(), ["nosuch"], "/"))[0]
    assert shown.strip() == "pillarbox: cannot run nosuch: No such file or directory"
