"""Killed at any moment, a lab leaves nothing; what is not its own stays untouched."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pillarbox.experiments.lab.linux import sandbox

pytestmark = pytest.mark.root
# Runs on record have cgroups, and those are the machine's: a sandbox has none of its own.
on_record = pytest.mark.in_turn

ROOT = Path(__file__).parents[4]
BUILDER = """
import signal
import sys
from pillarbox import topos
{begin}
from mininet.log import setLogLevel
from pillarbox.experiments.lab.emulation.lab_network import LabNet
from pillarbox.experiments.lab.emulation.resizing import resize
setLogLevel("critical")
sys.stdout.write("begun\\n")
sys.stdout.flush()
while True:
    net = LabNet(topos.parse("dcell,2,1,servers=4"), rate_mbit=10)
    net.start()
    resize(net, topos.parse("dcell,2,1"))
    net["h0"].cmd("setsid sleep 1000 < /dev/null > /dev/null 2>&1 &")
    net["h1"].popen("sleep 1000")
    net.stop()
"""
SANDBOXED = BUILDER.format(
    begin="from pillarbox.experiments.lab.linux import sandbox; sandbox.enter()"
)
RECORDED = BUILDER.format(
    begin="from pillarbox.experiments.lab.linux import sweep; sweep.SweptLab.begin()"
)
EVERYTHING = "import sys; from pillarbox.experiments.cli.main import main; main(sys.argv[1:])"


def start(code: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment.pop(sandbox.INSIDE)  # the test's own is not the lab's
    begun = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert begun.stdout
    assert begun.stdout.readline() == "begun\n"
    return begun


def processes() -> dict[int, str]:
    """Return what runs in this sandbox, by its id; zombies are dead."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state == "Z":
                del found[int(entry.name)]
    return found


def links() -> set[str]:
    from pillarbox.experiments.lab.linux.namespaces import fabric

    return {link.name for link in fabric().netlink.links()}


def wait_until(condition: Any, what: str, limit_s: float = 30) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.fixture
def _no_cgroup_left() -> Iterator[None]:
    """Remove what a failed test leaves of the one thing that a sandbox does not clear."""
    before = cgroups()
    yield
    for group in cgroups() - before:
        group.rmdir()


def cgroups() -> set[Path]:
    return {path for path in Path("/sys/fs/cgroup").glob("**/pillarbox-*") if path.is_dir()}


FOREIGN = {"lo", "theirs", "s0-theirs"}


def make_foreign() -> None:
    """Make links and a namespace that no sweep may touch."""
    for command in (
        "ip link add theirs type bridge",
        "ip link add s0-theirs type bridge",
        "ip link set s0-theirs group 42",
        "ip netns add their-namespace",
        "ip -n their-namespace link set lo up",
    ):
        subprocess.run(command.split(), check=True)


def check_foreign() -> None:
    assert links() == FOREIGN
    said = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["their-namespace"]
    subprocess.run(
        ["ip", "netns", "exec", "their-namespace", "ping", "-c1", "127.0.0.1"], check=True
    )


def clean(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", EVERYTHING, "clean", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def descendants(process: int) -> list[int]:
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except FileNotFoundError:  # it has ended meanwhile
        return []
    return [int(children[0]), *descendants(int(children[0]))] if children else []


@pytest.mark.without_root
@pytest.mark.parametrize("seed", range(6))
def test_killed_in_the_sandbox_at_any_moment_nothing_is_left(seed: int) -> None:
    make_foreign()
    before = processes()
    draw = random.Random(seed)
    lab = start(SANDBOXED)
    time.sleep(draw.uniform(0, 0.6))
    outer_init_program = [lab.pid, *descendants(lab.pid)[:2]]
    os.kill(outer_init_program[seed % 3], signal.SIGKILL)
    assert lab.wait(30) in (-signal.SIGKILL, 128 + signal.SIGKILL)
    wait_until(lambda: processes().keys() <= before.keys(), f"left: {processes()}")
    check_foreign()


def mount_own_run() -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)
    Path("/run/netns").mkdir()


@on_record
@pytest.mark.usefixtures("_no_cgroup_left")
@pytest.mark.parametrize("seed", range(4))
def test_killed_on_record_at_any_moment_it_is_swept(seed: int) -> None:
    mount_own_run()
    make_foreign()
    before = processes()
    lab = start(RECORDED)
    time.sleep(random.Random(seed).uniform(0, 0.6))
    lab.kill()
    lab.wait()
    wait_until(lambda: processes().keys() <= before.keys(), f"left: {processes()}")
    wait_until(lambda: not list(Path("/run/pillarbox").iterdir()), "the record stays")
    check_foreign()
    said = clean()
    assert said.returncode == 0 and "is left" in said.stdout


@on_record
@pytest.mark.usefixtures("_no_cgroup_left")
def test_clean_removes_dead_runs_and_no_living_one() -> None:
    from pillarbox.experiments.lab.linux import sweep

    mount_own_run()
    make_foreign()
    dead = start(
        RECORDED.replace("while True", "for _ in [1]").replace("net.stop()", "signal.pause()")
    )
    wait_until(lambda: [*processes().values()].count("sleep 1000 ") == 2, "it does not come up")
    watcher = descendants(dead.pid)[0]
    os.kill(watcher, signal.SIGKILL)
    dead.kill()
    dead.wait()
    wait_until(lambda: "bash" not in str(processes()), "a shell outlives its terminal")
    shown = clean("--dry-run")
    assert shown.returncode == 1
    # The programs hold two servers' namespaces, and those the cables; the switches stay anyway.
    found = re.match(r"found run 1 \(-c\): 2 processes, (\d+) links\n", shown.stdout)
    assert found and 7 <= int(found[1]) <= 15, shown.stdout
    with sweep.registered_lab() as run:
        assert run.slot == 2
        subprocess.run(
            f"ip link add mine group {run_group(run.slot)} type bridge".split(), check=True
        )
        said = clean()
        assert said.returncode == 0, said.stdout
        assert "removed run 1 (-c)" in said.stdout
        assert "still running: run 2" in said.stdout
        assert links() == {*FOREIGN, "mine"}
    check_foreign()
    assert not list(Path("/run/pillarbox").iterdir())


def run_group(slot: int) -> int:
    from pillarbox.experiments.lab.linux.namespaces import FIRST_GROUP

    return FIRST_GROUP + slot


def test_clean_tells_of_what_it_cannot_explain() -> None:
    mount_own_run()
    make_foreign()
    subprocess.run(f"ip link add lost group {run_group(7)} type bridge".split(), check=True)
    said = clean()
    assert said.returncode == 1
    assert said.stdout == "left: link lost\n"
    assert links() == {*FOREIGN, "lost"}


@on_record
@pytest.mark.usefixtures("_no_cgroup_left")
def test_two_runs_at_once_have_different_indexes_and_groups() -> None:
    from pillarbox.experiments.lab.linux import sweep
    from pillarbox.experiments.lab.linux.namespaces import fabric

    mount_own_run()
    with sweep.registered_lab() as first:
        mine = fabric()
        with sweep.registered_lab() as second:
            assert (first.slot, second.slot) == (1, 2)
            assert mine.group != fabric().group
            assert fabric().new_index() - mine.new_index() > 1_000_000
            assert first.folder.stat().st_mode & 0o777 == 0o700
