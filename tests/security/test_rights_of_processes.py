"""Processes of a running lab have the rights that their roles list, and no others.

A process that routes, measures or draws is what an attacker reaches first: by a frame, a student's
router, a record. None of them may own the machine then.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from pillarbox.experiments.apps.page.process import Page, opened
from pillarbox.experiments.base.files import CHECKOUT
from pillarbox.experiments.lab.linux import sandbox
from pillarbox.experiments.lab.traffic.tools import tool_for
from pillarbox.experiments.models.workloads.flows import Flow, Sending
from pillarbox.experiments.runs.control import process_rights
from pillarbox.experiments.runs.control.client import ask
from pillarbox.experiments.runs.control.service import Service
from pillarbox.experiments.runs.trust import Watch
from pillarbox.hosts.linux.rights import MACHINE, ROLES, ruleset_for_reading
from tests.experiments.labs import PLANES, WAIT_S, lab_of, wait_until

pytestmark = pytest.mark.root

PILLARBOX = [sys.executable, "-m", "pillarbox"]


def check(found: list[dict[str, Any]]) -> set[str]:
    """Check that each process has its role's rights in each thread; return all roles."""
    for one in found:
        assert one["process"] in ROLES, f"a process without a role: {one}"
        role = ROLES[one["process"]]
        for kind in ("effective", "permitted", "bounding"):
            assert set(one[kind]) <= set(role.capabilities), one
        assert one["no_new_privs"], one
        assert (one["user"] == 0) == (role.user == "root"), one
        for thread in Path(f"/proc/{one['pid']}/task").iterdir():
            status = (thread / "status").read_text()
            assert "NoNewPrivs:\t1" in status
            held = next(line for line in status.splitlines() if line.startswith("CapPrm"))
            assert set(process_rights.capabilities(held.split()[1])) <= set(role.capabilities)
    return {one["process"] for one in found}


@pytest.mark.parametrize("plane", PLANES)
def test_a_lab_also_after_it_has_grown_shrunk_and_revived_a_server(
    plane: str, tmp_path: Path
) -> None:
    usual = {"nursery", "heartbeats", "forwarder", "delays"}
    with lab_of("dcell,2,1,servers=4", tmp_path, plane=plane, delay="2ms") as lab:
        assert check(process_rights.processes_below(os.getpid())) == usual
        lab.kill(1)
        lab.revive(1)
        lab.grow()
        lab.wait_converged()
        assert check(process_rights.processes_below(os.getpid())) == usual
        lab.shrink(4)
        lab.wait_converged()
        assert check(process_rights.processes_below(os.getpid())) == usual


@pytest.mark.parametrize("tool", ["generator", "iperf3"])
def test_a_trial_while_it_sends(tool: str, tmp_path: Path) -> None:
    if tool == "iperf3" and not shutil.which(tool):
        pytest.skip("iperf3 is missing")
    flows = [Flow(number, number, 3 - number, duration_s=WAIT_S) for number in range(2)]
    with ExitStack() as stack:
        lab = stack.enter_context(lab_of("bcube,2,1", tmp_path, rate_mbit=5.0))
        sending = stack.enter_context(closing(tool_for(tool, lab, flows, Sending())))
        sending.prepare()
        watch = stack.enter_context(Watch(lab))
        watch.begin(time.monotonic())
        sending.start(time.monotonic())
        wait_until(lambda: any(one.delivered_bytes for one in sending.progress()), "bytes")
        roles = check(process_rights.processes_below(os.getpid()))
    assert roles == {"nursery", "heartbeats", "forwarder", "watcher", "canary", tool}


def test_the_server_of_a_page(tmp_path: Path) -> None:
    with lab_of("bcube,2,1", tmp_path / "lab", plane="python") as lab, closing(Service(lab)):
        page = Page(opened(), partial(ask, lab.folder), lab.folder)
        with closing(page):
            found = process_rights.processes_below(os.getpid())
            assert "page" in check(found)
    (one,) = [one for one in found if one["process"] == "page"]
    assert not (one["effective"] or one["permitted"] or one["bounding"])


def test_a_capture(tmp_path: Path) -> None:
    """It has no right left but to write into the file that it opened."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)
    environment = {name: value for name, value in os.environ.items() if name != sandbox.INSIDE}
    run = partial(subprocess.Popen, cwd=CHECKOUT, env=environment, stderr=PIPE, stdout=PIPE)
    with run([*PILLARBOX, "up", "bcube,2,1", "--hold", "--plane", "python"], stdin=PIPE) as lab:
        assert lab.stdout and lab.stdin
        while b"try: " not in lab.stdout.readline():
            assert lab.poll() is None
        with run([*PILLARBOX, "capture", "-o", str(tmp_path / "lab.pcapng")]) as capture:
            assert capture.stderr
            assert capture.stderr.readline().startswith(b"capturing at")
            found = process_rights.processes_below(os.getpid())
            (one,) = [one for one in found if one["pid"] == capture.pid]
            assert check([one]) == {"capture"}
            capture.send_signal(signal.SIGINT)
            assert capture.wait(WAIT_S) == 0
        lab.stdin.close()
        assert lab.wait(WAIT_S) == 0


def test_a_router_that_is_only_checked(tmp_path: Path) -> None:
    """`check-router` runs a user's file, with the rights of a command that needs no lab."""
    file = tmp_path / "router.py"
    file.write_text("raise ValueError(open('/proc/self/status').read().replace('\\n', ';'))\n")
    words = [*PILLARBOX, "check-router", "bcube,2,1", str(file)]
    said = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=False).stderr
    assert "NoNewPrivs: 1" in " ".join(said.split()), said
    held = re.search(r"CapPrm:\s*([0-9a-f]{16})", said)
    assert held and set(process_rights.capabilities(held[1])) <= set(ROLES["command"].capabilities)


ROUTER = """
import ctypes, os
from pillarbox.hosts.base.hop_by_hop import HopByHop

def tried(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return type(error).__name__
    return "done"

class Curious(HopByHop):
    def next_step(self, destination, came_by):
        return None

    def state(self):
        return {**super().state(), "tried": {
            "write": tried(open, "/etc/cron.d/pillarbox", "w"),
            "secret": tried(open, "/etc/shadow"),
            "setting": tried(open, "/proc/sys/kernel/core_pattern", "w"),
            "program": tried(os.execv, "/bin/true", ["true"]),
            "own file": tried(open, __file__),
            "namespace": ctypes.CDLL(None).unshare(0x40000000),
        }}
"""


def test_a_router_of_a_lab_that_is_the_attackers(tmp_path: Path) -> None:
    if ruleset_for_reading() is None:
        pytest.skip("this kernel has no Landlock")
    file = tmp_path / "curious.py"
    file.write_text(ROUTER)
    with lab_of("bcube,2,1", tmp_path / "lab", plane="python", routing=str(file)) as lab:
        assert lab.forwarders
        tried = lab.forwarders.ask(0, "state")["tried"]
    refused = ("write", "secret", "setting", "program")
    assert {name: tried[name] for name in refused} == dict.fromkeys(refused, "PermissionError")
    assert tried["own file"] == "done"
    assert tried["namespace"] == -1
    assert not Path("/etc/cron.d/pillarbox").exists()


def test_the_first_process_of_a_sandbox_only_waits() -> None:
    first = Path("/proc/1/status")
    wait_until(lambda: "Name:\tpb-sandbox" in first.read_text(), "the role of process 1")
    wait_until(lambda: "NoNewPrivs:\t1" in first.read_text(), "its rights")
    status = first.read_text()
    assert "CapPrm:\t0000000000000000" in status and "CapBnd:\t0000000000000000" in status


def test_nothing_in_a_sandbox_can_load_modules_or_set_the_clock() -> None:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(("CapPrm", "CapBnd")):
            held = set(process_rights.capabilities(line.split()[1]))
            assert "all" not in held or "-machine" in held
            assert not held & set(MACHINE)


def test_a_process_that_gives_itself_a_name_for_the_terminal() -> None:
    """The list of processes shows names that anybody on the machine may choose."""
    script = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'\\x1b]0;\\xff: x\\n'); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=PIPE, text=True) as named:
        comm = Path(f"/proc/{named.pid}/comm")
        wait_until(lambda: b"\x1b" in comm.read_bytes(), "the name")
        (found,) = process_rights.processes_below(os.getpid())
        named.communicate("\n")
    assert found["process"].isprintable() and "x" in found["process"]
    assert "\x1b" not in str(process_rights.rights_table([found]))
