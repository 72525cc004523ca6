"""A sandbox from outside: signals in, exit codes out, a terminal that works; and from inside."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pillarbox.experiments.lab.linux import sandbox

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[4]
ENTER = """
import os, signal, sys, time
from pillarbox.experiments.lab.linux import sandbox
sandbox.enter()
"""


def command(code: str) -> list[str]:
    return [sys.executable, "-c", ENTER + code]


def environment() -> dict[str, str]:
    return {
        name: value
        for name, value in (os.environ | {"PYTHONPATH": str(ROOT / "src")}).items()
        if name != sandbox.INSIDE  # the test's own is not the program's
    }


def started(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(command(code), stdout=subprocess.PIPE, text=True, env=environment())


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("", 0),
        ("sys.exit(7)", 7),
        ("raise ValueError", 1),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 128 + signal.SIGSEGV),
    ],
)
def test_the_programs_exit_code_comes_out(code: str, expected: int) -> None:
    ran = subprocess.run(command(code), env=environment(), stderr=subprocess.DEVNULL, check=False)
    assert ran.returncode == expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_program(number: int) -> None:
    code = f"signal.signal({number:d}, lambda *_: sys.exit(5)); print('ready', flush=True)\n"
    # Python's handler would wait for the end of a sleep that begins just as the signal comes.
    program = started(code + "while True: time.sleep(0.01)")
    assert program.stdout and program.stdout.readline() == "ready\n"
    program.send_signal(number)
    assert program.wait(30) == 5


def test_a_program_that_knows_no_signals_is_ended_by_them() -> None:
    program = started("print('ready', flush=True); time.sleep(100)")
    assert program.stdout and program.stdout.readline() == "ready\n"
    program.terminate()
    assert program.wait(30) == 128 + signal.SIGTERM


def test_output_is_written_once_and_in_order() -> None:
    code = "print('before')\n" + ENTER + "print('after')\nsandbox.enter()\nprint('again')"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["before", "after", "again"]


class Terminal:
    """A shell at a terminal of its own."""

    def __init__(self) -> None:
        self.pid, self.master = pty.fork()
        if not self.pid:
            # Whoever runs the tests in the background has Ctrl-C ignored.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            shell = ["bash", "--norc", "--noediting", "-i"]
            os.execvpe("bash", shell, environment() | {"PS1": "$ "})
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def wait_for(self, text: str, limit_s: float = 30) -> None:
        deadline = time.monotonic() + limit_s
        while text not in self.seen:
            left_s = deadline - time.monotonic()
            if left_s < 0 or not select.select([self.master], [], [], left_s)[0]:
                raise AssertionError(f"{text!r} does not come after {self.seen!r}")
            self.seen += os.read(self.master, 4096).decode(errors="replace")
        self.seen = self.seen.partition(text)[2]

    def interrupt(self, until: str) -> None:
        """Press Ctrl-C, again if Python was just about to read and does not look up."""
        for _ in range(10):
            self.type("\x03")
            with suppress(AssertionError):
                return self.wait_for(until, limit_s=3)
        raise AssertionError(f"{until!r} does not come after Ctrl-C: {self.seen!r}")


def test_the_keys_of_a_terminal_do_what_they_do(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        ENTER
        + """
signal.signal(signal.SIGINT, lambda *_: os.write(1, b"<interrupted>\\n"))
print("rea" + "dy", flush=True)
while (word := input()) != "end":
    print(f"<{word}>", flush=True)
sys.exit(9)
"""
    )
    shell = Terminal()
    shell.type(f"{sys.executable} {script}\n")
    shell.wait_for("ready")
    shell.type("one\n")
    shell.wait_for("<one>")
    shell.interrupt(until="<interrupted>")
    shell.type("\x1a")  # Ctrl-Z
    shell.wait_for("Stopped")
    shell.wait_for("$ ")
    # The shell saw the outer stop. The program may stop later, and take one character more.
    shell.type(" echo at the shell: $((6*7))\n")
    shell.wait_for("shell: 42")
    shell.type("fg\n")
    shell.wait_for("program.py")
    shell.type("two\n")
    shell.wait_for("two>")
    shell.type("end\n")
    shell.wait_for("$ ")
    shell.type("echo code $?\n")
    shell.wait_for("code 9")
    shell.type("exit\n")
    os.waitpid(shell.pid, 0)


def test_inside_only_its_own_is_seen() -> None:
    seen = subprocess.run(
        command(
            "print(os.listdir('/sys/class/net'), sandbox.inside(), os.getpid() < 10,"
            " os.path.exists('/sys/fs/cgroup/unified') or os.listdir('/sys/fs/cgroup') != [],"
            " len([p for p in os.listdir('/proc') if p.isdigit()]))"
        ),
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert seen.stdout.strip() == "['lo'] True True True 2"


def test_namespaces_and_mounts_made_inside_stay_inside() -> None:
    before = Path("/proc/self/mountinfo").read_text()
    code = "import subprocess\nsubprocess.run(['ip', 'netns', 'add', 'within'], check=True)\n"
    subprocess.run(command(code), env=environment(), check=True)
    assert not Path("/run/netns/within").exists()
    assert Path("/proc/self/mountinfo").read_text() == before


def test_a_mark_from_elsewhere_is_none() -> None:
    assert sandbox.inside()
    os.environ[sandbox.INSIDE] = "1"
    assert not sandbox.inside()


def test_a_function_runs_in_one_and_the_caller_stays_as_it_was(tmp_path: Path) -> None:
    network, told = Path("/proc/self/ns/net"), tmp_path / "network"
    before = network.readlink()

    def program() -> int:
        told.write_text(str(network.readlink()))
        return 3

    assert sandbox.run(program) == 3
    assert told.read_text() != str(before)
    assert network.readlink() == before


def test_root_without_the_right_to_make_namespaces_is_told_so() -> None:
    """Not to be root, as in a container without --privileged."""
    command = [*("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all", "--"), sys.executable]
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from pillarbox.hosts.linux.calls import unshare\n"
    )
    done = subprocess.run(
        [*command, "-I", "-c", f"{code}unshare(0x40000000)"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines()[-1].endswith(
        "root has no CAP_SYS_ADMIN here: start the container with --privileged, or see "
        "docs/install.md for what is enough"
    )
