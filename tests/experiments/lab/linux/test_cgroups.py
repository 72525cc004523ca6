"""Programs on servers have a control group, and the network goes on whatever they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pillarbox.experiments.lab.linux import cgroups
from tests.experiments.labs import PLANES, lab_of, wait_until
from tests.experiments.users import as_ordinary_user

MOST = 150  # processes, in these tests
FORKS = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.1)
"""
JOINED = "import os; print(open('/proc/self/cgroup').read())"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "MOST_PROCESSES", MOST)


@contextmanager
def group_of(name: str) -> Iterator[cgroups.ProgramGroup]:
    made = cgroups.ProgramGroup(f"{cgroups.NAME}{name}-{os.getpid()}")
    try:
        yield made
    finally:
        made.kill()
        made.remove()


def proc_of(folder: Path, mounts: str, own: str) -> Path:
    """Return a /proc that says these things of control groups."""
    (folder / "self").mkdir(parents=True)
    (folder / "self/mounts").write_text(mounts)
    (folder / "self/cgroup").write_text(own)
    (folder / "meminfo").write_text("MemTotal:  1000000 kB\n")
    return folder


def test_of_version_1_each_controller_has_a_place_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "pids/lab").mkdir(parents=True)
    mounts = f"cgroup {tmp_path}/pids cgroup rw,pids 0 0\ncgroup {tmp_path}/cpu cgroup rw,cpu 0 0\n"
    proc = proc_of(tmp_path / "proc", mounts, "4:pids:/lab\n3:cpu:/elsewhere\n")
    assert cgroups.parent_of("pids", proc) == tmp_path / "pids/lab"
    assert cgroups.parent_of("cpu", proc) == tmp_path / "cpu"  # a container shows no more
    assert cgroups.parent_of("memory", proc) is None


def test_of_version_2_all_are_at_the_top_where_they_are_handed_down(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    proc = proc_of(tmp_path / "proc", f"cgroup2 {tmp_path} cgroup2 rw 0 0\n", "0::/user.slice\n")
    assert cgroups.parent_of("cpu", proc) == tmp_path
    assert cgroups.parent_of("pids", proc) is None
    (tmp_path / "cgroup.subtree_control").touch()
    made = cgroups.ProgramGroup("one", proc)  # files in a folder, and no kernel behind them
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
    assert "has no controller" in made.missing["cpu"]


def test_what_is_missing_is_said_and_programs_are_nicer_instead(tmp_path: Path) -> None:
    proc = proc_of(tmp_path / "proc", "", "")
    group = cgroups.ProgramGroup("none", proc)
    assert list(group.missing) == list(cgroups.CONTROLLERS)
    said = subprocess.run(group.command(["nice"]), capture_output=True, text=True, check=True)
    assert int(said.stdout) == os.getpriority(os.PRIO_PROCESS, 0) + cgroups.NICE
    assert group.processes() == set()


def test_a_program_that_there_is_not_is_left_to_whoever_starts_it(tmp_path: Path) -> None:
    group = cgroups.ProgramGroup("none", proc_of(tmp_path / "proc", "", ""))
    assert group.command(["no-such-program"]) == ["no-such-program"]


@pytest.mark.root
def test_a_program_is_in_the_group_from_its_first_instruction() -> None:
    with group_of("joins") as group:
        command = group.command([sys.executable, "-c", JOINED])
        said = subprocess.run(command, capture_output=True, text=True, check=True)
        lists = {Path(each).parent.name for each in group.procs_files}
        assert len(lists) == 1
        assert said.stdout.count(lists.pop()) == len(group.procs_files)


@pytest.mark.root
@pytest.mark.usefixtures("few")
def test_who_forks_without_end_is_refused_and_killed_as_a_whole() -> None:
    with group_of("forks") as group:
        if "pids" in group.missing:
            pytest.skip("this machine does not limit the number of processes")
        with subprocess.Popen(group.command([sys.executable, "-c", FORKS])):
            wait_until(lambda: len(group.processes()) == MOST, "as many processes as there may be")
            group.kill()
            assert not group.processes()
        assert group.remove()


@pytest.mark.root
def test_a_group_is_removed_once_its_owner_is_dead() -> None:
    name = f"{cgroups.NAME}owner-{os.getpid()}"
    parent = cgroups.parent_of("pids")
    if parent is None:
        pytest.skip("this machine has no such control group")
    child = os.fork()
    if not child:
        cgroups.ProgramGroup(name)
        signal.pause()
    try:
        wait_until((parent / name).is_dir, "a group")
        wait_until(lambda: is_locked(parent / name), "its lock")
        cgroups.remove_dead([parent])
        assert (parent / name).is_dir()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    cgroups.remove_dead([parent])
    assert not (parent / name).is_dir()


@pytest.mark.root
def test_a_group_of_another_user_is_left_alone() -> None:
    """Names come from numbers of namespaces, which the kernel uses again."""
    parent = cgroups.parent_of("pids")
    if parent is None:
        pytest.skip("the kernel offers no control group for pids")
    folder = parent / f"{cgroups.NAME}roots-{os.getpid()}"
    folder.mkdir()
    try:
        program = f"""
from pillarbox.experiments.lab.linux import cgroups
group = cgroups.ProgramGroup({folder.name!r})
print(group.missing["pids"], group.procs_files)
group.remove()
"""
        done = as_ordinary_user("-c", program)
        assert (done.returncode, folder.is_dir()) == (0, True), done.stderr
        assert done.stdout == "another user's control group has its name []\n"
    finally:
        folder.rmdir()


def is_locked(folder: Path) -> bool:
    try:
        os.close(cgroups._locked(folder))
    except BlockingIOError:
        return True
    return False


@pytest.mark.root
@pytest.mark.alone  # a machine that is busy with other tests may miss heartbeats
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("plane", PLANES)
def test_a_network_goes_on_beside_a_workload_that_forks_without_end(
    plane: str, tmp_path: Path
) -> None:
    from pillarbox.experiments.runs.trust.watch import Watch

    with lab_of("dcell,4,1", tmp_path, plane=plane) as lab, closing(Watch(lab)) as watch:
        assert lab.forwarders
        group = cgroups.programs()
        if "pids" in group.missing:
            pytest.skip("this machine does not limit the number of processes")
        network = {*lab.forwarders.pids.values(), lab.forwarders.pacer, lab.forwarders.nursery}
        lab.host(0).popen([sys.executable, "-c", FORKS])
        wait_until(lambda: len(group.processes()) == MOST, "as many processes as there may be")
        assert not group.processes() & {*network, watch._process.pid}
        assert lab.trace(1, 19)["delivered"]
        assert lab.status()["link_losses"] == 0
        assert watch._process.poll() is None
        lab.kill(0)
        wait_until(lambda: not group.processes(), "the end of all its programs with a server")
        assert {*lab.forwarders.pids.values()} - network == {0}
        lab.revive(0)
    assert not any(Path(each).exists() for each in group.procs_files)
