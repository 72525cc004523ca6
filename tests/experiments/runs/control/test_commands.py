"""`pillarbox up`, `exec`, `status`, `trace` as a user calls them, and what is left afterwards."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pillarbox.experiments.cli.commands.up import reason_for_python_plane
from pillarbox.experiments.lab.linux import sandbox
from pillarbox.experiments.runs.control.client import ask
from pillarbox.hosts.live import lab_programs
from tests.experiments.labs import WAIT_S, wait_until

pytestmark = pytest.mark.root

ROOT = Path(__file__).resolve().parents[4]
PILLARBOX = [sys.executable, "-m", "pillarbox"]
LABS = Path("/run/pillarbox/labs")


@pytest.fixture
def own_run() -> Callable[[], None]:
    """Return what gives this test's sandbox a /run of its own, so that no other lab is seen."""

    def mount() -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)

    return mount


def environment() -> dict[str, str]:
    # The test's own sandbox is not the lab's.
    return {name: value for name, value in os.environ.items() if name != sandbox.INSIDE}


def pillarbox(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PILLARBOX, *words],
        cwd=ROOT,
        env=environment(),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


class Terminal:
    """A command of Pillarbox at a terminal: what is typed, and what appears."""

    def __init__(self, *words: str, ready: str = "pillarbox> ") -> None:
        self.process, self._terminal = pty.fork()
        if self.process == 0:
            os.chdir(ROOT)
            # Whoever runs the tests in the background has Ctrl-C ignored.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(sys.executable, [*PILLARBOX, *words], environment())
        self.shown = self._new = ""
        self.shows(ready)

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def shows(self, what: str) -> None:
        """Wait until that appears, behind what was waited for before."""
        deadline = time.monotonic() + WAIT_S
        while what not in self._new:
            ready = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
            assert ready[0], f"{what!r} does not appear: {self._new}"
            try:
                new = os.read(self._terminal, 1 << 16)
            except OSError:  # nobody writes any more
                new = b""
            assert new, f"the end came before {what!r}: {self._new}"
            self._new += new.decode()
        end = self._new.index(what) + len(what)
        self.shown += self._new[:end]
        self._new = self._new[end:]

    def ended(self) -> int:
        """Wait for the end; return the exit code."""
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


@contextmanager
def up(*words: str) -> Iterator[Terminal]:
    terminal = Terminal("up", *words)
    try:
        yield terminal
    finally:
        try:
            os.kill(terminal.process, signal.SIGKILL)
            os.waitpid(terminal.process, 0)
        except (ProcessLookupError, ChildProcessError):  # it has ended as it should
            pass


def processes() -> set[int]:
    """Return what runs in this sandbox; zombies are dead."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if stat.rpartition(")")[2].split()[0] != "Z":
                found.add(int(entry.name))
    return found


def network_namespaces() -> set[int]:
    found = set()
    for process in processes():
        try:
            found.add(Path(f"/proc/{process}/ns/net").stat().st_ino)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


# The papers' timers do not take a busy machine for a failure; a death they notice in 3 s.
CALM = ("--timers", "paper")
SCRIPT = """
# lines of a prompt
path 0.0 4.3
0.0 ping -c 1 -W 2 4.3
cut 0.3-4.0
sh sleep 1
path 0.0 4.3
heal all
kill 0.3
sh sleep 6
path 0.0 4.3
why 0.0 0.3
0.3 true
status
revive 0.3
kill 9.9
nonsense
"""


def test_a_script_runs_at_the_prompt_and_ends(own_run: Callable[[], None], tmp_path: Path) -> None:
    own_run()
    script = tmp_path / "commands.txt"
    script.write_text(SCRIPT)
    before = processes()
    done = pillarbox("up", "dcell,4,1", *CALM, "--plane", "python", "--exec", str(script))
    assert done.returncode == 1, done.stderr  # three of its lines are wrong
    told = done.stdout
    assert "lab 1: dcell,4,1, 20 servers, 5 switches; routing dfr, plane python" in told
    ways = re.findall(r"computed: (.*)\ntaken:    (.*) \((.*)\)", told)
    assert len(ways) == 3
    assert all(way[0] == way[1] and way[2] == "arrived" for way in ways), ways
    assert ways[0][0] == "0.0 0.3 4.0 4.3"
    assert len({way[0] for way in ways}) == 2  # around the cable; the server is the same detour
    assert "1 received" in told
    assert "0.3 is dead: revive 0.3" in told
    assert "*** there is no command 'nonsense'" in told
    assert "*** '9.9' is not a server of dcell,4,1" in told
    assert "Traceback" not in told + done.stderr
    assert list(LABS.iterdir()) == []
    wait_until(lambda: processes() <= before, "a process is left")


def test_who_did_not_ask_for_python_is_told_why(
    own_run: Callable[[], None], tmp_path: Path
) -> None:
    own_run()
    broken, script = tmp_path / "broken.o", tmp_path / "nothing.txt"
    broken.write_text("no object")  # only here: this test has a mount namespace of its own
    script.touch()
    subprocess.run(["mount", "--bind", str(broken), str(lab_programs.build())], check=True)
    done = pillarbox("up", "bcube,2,1", "--exec", str(script))
    assert "plane python" in done.stdout
    assert re.search(
        r"since eBPF cannot be used here: forward-\w+.bpf.o cannot be read", done.stdout
    )
    asked = pillarbox("up", "bcube,2,1", "--plane", "python", "--exec", str(script))
    assert "eBPF" not in asked.stdout


def test_where_ebpf_works_the_reason_is_open_vswitch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_programs, "available", str)
    assert reason_for_python_plane().endswith(
        "here: Open vSwitch without its kernel module loses TCP packets"
    )


def test_a_running_lab_is_asked_from_outside(own_run: Callable[[], None]) -> None:
    own_run()
    with up("bcube,4,1", *CALM) as first:
        told = json.loads(pillarbox("status", "--json").stdout)
        assert (told["network"], told["servers"], told["routing"]) == ("bcube,4,1", 16, "bsr")
        state = json.loads(pillarbox("status", "0.3", "--json").stdout)
        assert state["server"] == "0.3"
        assert all(link["up"] for link in state["links"])

        traced = pillarbox("trace", "0.0", "3.3")
        assert traced.returncode == 0
        computed, taken = traced.stdout.splitlines()
        assert taken.split()[1:4] == computed.split()[1:] == ["0.0", "3.0", "3.3"]

        done = pillarbox("exec", "0.0", "ping", "-c", "1", "10.0.0.16")
        assert done.returncode == 0 and "1 received" in done.stdout
        named = pillarbox("exec", "0.0", "ping", "-c", "1", "3.3")
        assert named.returncode == 0 and "(10.0.0.16)" in named.stdout
        raw = pillarbox("exec", "--raw", "0.0", "ping", "-c", "1", "3.3")
        assert raw.returncode == 1 and "3.0.0.3" in raw.stdout and "Unreachable" in raw.stdout
        for name in ("h15", "3.3.bcube", "3-3.bcube", "s3-3", "10.0.0.16"):
            known = pillarbox("exec", "0.0", "getent", "hosts", name)
            names = ["3-3.bcube", "h15", "3.3.bcube", "s3-3"]
            assert known.stdout.split() == ["10.0.0.16", *names]
        unknown = ("timeout", "5", "getent", "hosts", "nosuch.example")
        assert pillarbox("exec", "0.0", *unknown).returncode == 2  # and not 124, at its end
        assert pillarbox("exec", "0.0", "sh", "-c", "cat; exit 7", stdin="x").returncode == 7
        assert "nosuch" in pillarbox("exec", "0.0", "nosuch").stderr
        assert pillarbox("exec", "--user", "nobody", "0.0", "id", "-un").stdout == "nobody\n"
        assert "no user x" in pillarbox("exec", "--user", "x", "0.0", "true").stderr

        with up("ficonn,4,1", *CALM) as second:
            unclear = pillarbox("status")
            assert unclear.returncode == 2
            assert unclear.stderr.strip().endswith(
                "labs 1, 2 are running: choose one with --lab NUMBER"
            )
            told = json.loads(pillarbox("status", "--lab", "2", "--json").stdout)
            assert told["network"] == "ficonn,4,1"
            assert pillarbox("trace", "0.0", "2.3", "--lab", "2").returncode == 0
            assert pillarbox("trace", "0.0", "3.3", "--lab", "1").returncode == 0
            second.type("exit\n")
            assert second.ended() == 0
        first.type("kill 3.0\n")
        first.shows("noticed")
        dead = pillarbox("exec", "--lab", "1", "3.0", "ls")
        assert dead.returncode == 2 and "3.0 is dead: revive 3.0" in dead.stderr
        first.type("exit\n")
        assert first.ended() == 0
    assert list(LABS.iterdir()) == []


def test_a_lab_left_to_itself_does_what_the_prompt_can(own_run: Callable[[], None]) -> None:
    own_run()
    before = processes()
    made = pillarbox("up", "dcell,2,1", "--detach", *CALM, "--plane", "python")
    assert made.returncode == 0 and made.stdout.startswith("lab 1: dcell,2,1"), made.stderr
    assert json.loads(pillarbox("labs", "--json").stdout)["labs"] == [
        {
            "lab": 1,
            "network": "dcell,2,1",
            "servers": 6,
            "routing": "dfr",
            "plane": "python",
            "transport": "tcp",
            "dead": 0,
            "faults": 0,
        }
    ]
    assert ask(LABS / "1", ask="protocol")["protocol"] == 1
    cut = json.loads(pillarbox("cut", "0.0-1.0", "--json").stdout)
    assert cut["did"] == "0.0-1.0 is cut"
    counted = pillarbox("metrics").stdout
    assert 'pillarbox_faults{kind="cut"} 1\n' in counted
    assert re.search(r'pillarbox_cable_sent_bytes_total{from="0.0",to="s0"} [1-9]', counted)
    assert set(cut["noticed_ms"]) | set(cut["not_noticed"]) == {"0.0", "1.0"}
    assert "in effect: cut 0.0-1.0" in pillarbox("why", "0.0", "1.0").stdout
    assert pillarbox("heal", "0.0-1.0").stdout.startswith("0.0-1.0 repaired")
    for line in ("kill 2.1", "revive 2.1", "stop s0", "heal s0", "rack s1", "heal all", "load"):
        done = pillarbox(*line.split())
        assert done.returncode == 0 and done.stdout, done.stderr
    refused = pillarbox("cut", "0.0-2.1")
    assert refused.returncode == 2
    assert "no cable joins 0.0 and 2.1 in dcell,2,1: 0.0's cables lead to 1.0" in refused.stderr
    assert pillarbox("down").returncode == 0
    assert "no lab is running" in pillarbox("labs").stdout
    assert list(LABS.iterdir()) == []
    wait_until(lambda: processes() <= before, "a process is left")
    wrong = pillarbox("up", "nosuch,2", "--detach")
    assert wrong.returncode == 2 and "there is no network 'nosuch'" in wrong.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["up", "nosuch,4"], "nosuch"),
        (["up", "bcube,4,1", "--routing", "nosuch"], "has no routing 'nosuch'"),
        (["up", "bcube,4,1", "--exec", "/nosuch"], "/nosuch"),
        (["status"], "no lab is running"),
        (["exec", "0.0", "true"], "no lab is running"),
        (["trace", "0.0", "1.1", "--lab", "7"], "lab 7 is not running: none is"),
    ],
)
def test_wrong_input_is_told_in_one_sentence(
    words: list[str], said: str, own_run: Callable[[], None]
) -> None:
    own_run()
    done = pillarbox(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert said in done.stderr
    assert not LABS.exists() or list(LABS.iterdir()) == []


def test_ctrl_c_ends_a_command_and_not_the_lab(own_run: Callable[[], None]) -> None:
    own_run()
    before = processes()
    with up("dcell,2,1", *CALM, "--plane", "python") as terminal:
        terminal.type("0.0 ping 10.0.0.6\n")
        terminal.shows("icmp_seq=2")
        terminal.type("\x03")
        terminal.shows("pillarbox> ")
        terminal.type("path 0.0 2.1\n")
        terminal.shows("(arrived)")
        terminal.shows("pillarbox> ")  # before it, Ctrl-D is for no one
        terminal.type("\x04")
        assert terminal.ended() == 0
    assert list(LABS.iterdir()) == []
    wait_until(lambda: processes() <= before, "a process is left")


def test_the_prompt_goes_on_when_a_server_dies(own_run: Callable[[], None]) -> None:
    own_run()
    with up("dcell,2,1", *CALM, "--plane", "python") as terminal:
        terminal.type("0.1 ls\n")
        terminal.shows("README.md")
        terminal.shows("pillarbox> ")
        terminal.type("kill 0.1\n")
        terminal.shows("0.1 is dead, with all its programs")
        terminal.shows("pillarbox> ")
        terminal.type("0.1 ls\n")
        terminal.shows("0.1 is dead: revive 0.1")
        terminal.type("revive 0.1\n")
        terminal.shows("0.1 is alive again")
        terminal.shows("pillarbox> ")
        terminal.type("0.1 echo back-$((40 + 2))\n")
        terminal.shows("back-42")
        terminal.type("0.1 ping 1.1\n")
        terminal.shows("icmp_seq=2")
        ask(LABS / "1", ask="kill", words=["0.1"])  # another terminal's
        terminal.shows("0.1 died, and the program with it")
        terminal.type("exit\n")
        assert terminal.ended() == 0


def test_what_is_typed_while_a_program_runs_is_for_that_program(
    own_run: Callable[[], None],
) -> None:
    own_run()
    with up("dcell,2,1", *CALM, "--plane", "python") as terminal:
        terminal.type("0.0 read -r x; echo got-$x; sleep 1\n")
        terminal.type("this\necho shell-$((40 + 2))\n0.0 echo next-$((40 + 2))\n")
        terminal.shows("got-this")
        # What it has not read is the prompt's, as in a shell; and never a shell's on the server.
        terminal.shows("*** there is no command 'echo'")
        terminal.shows("next-42")
        terminal.shows("pillarbox> ")
        assert "shell-42" not in terminal.shown
        terminal.type("exit\n")
        assert terminal.ended() == 0


@pytest.mark.parametrize("when", ["while it starts", "while it runs"])
def test_killed_it_leaves_nothing_and_the_next_takes_its_place(
    when: str, own_run: Callable[[], None]
) -> None:
    own_run()
    before, namespaces = processes(), network_namespaces()
    if when == "while it runs":
        with up("dcell,4,1") as lab:
            lab.type("0.0 sleep 1000 &\n")
            os.kill(lab.process, signal.SIGKILL)
    else:
        starting = subprocess.Popen(
            [*PILLARBOX, "up", "dcell,4,1"], cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL
        )
        wait_until(lambda: network_namespaces() > namespaces, "it makes no network")
        assert (LABS / "1").exists()
        starting.kill()
        starting.wait()
    wait_until(lambda: processes() <= before, "a process is left")
    assert network_namespaces() == namespaces
    assert [folder.name for folder in LABS.iterdir()] == ["1"]
    assert (LABS / "1").stat().st_mode & 0o777 == 0o700
    assert pillarbox("status").stderr.count("no lab is running") == 1
    with up("dcell,2,1") as lab:
        assert "lab 1: dcell,2,1" in lab.shown
        lab.type("exit\n")
        assert lab.ended() == 0
    assert list(LABS.iterdir()) == []
