"""An hour as a stranger: each line typed at the prompt ends, with an answer for users.

With ``-s`` the tests print a table of the lines, their seconds, and the answers.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pillarbox.experiments.lab.linux import cgroups
from pillarbox.experiments.runs.control.completion import traffic_patterns
from tests.experiments.labs import wait_until
from tests.experiments.runs.control import test_commands
from tests.experiments.runs.control.stranger import FAULTS, LINES, prompt_of
from tests.experiments.runs.control.test_commands import own_run

pytestmark = [pytest.mark.root, pytest.mark.long]
__all__ = ["own_run"]  # a fixture

SMALL = ("dcell,4,1", "bcube,4,1", "dpillar,4,2", "ficonn,4,1", "tree,4,4")
LARGE = ("dcell,7,1", "bcube,7,1", "dpillar,4,4", "ficonn,4,2", "tree,10,10")  # 48 to 100 servers
MOST_S = 150.0  # upper bound for one line in a large network or on a busy machine, in seconds
# The result of a workload, and on a machine that is too slow for it the reason.
DONE = r"\d+ flows, \d+ failed: [\d.]+ .?bit/s of .* ideal; (valid|not valid: \w+)"
# The result, or the reason for which there is none, of more flows than the machine can send.
DONE_OR_WHY = rf"{DONE}|did not end within .* the machine is too slow"
# A first look at a network.
LOOK = (
    ("pingall", r"% dropped \(\d+/\d+ received\)"),
    ("run one-to-one", DONE),
    ("run permutation", DONE_OR_WHY),
    ("cut A-s0", "A-s0 is cut"),
    ("why A B", r"in effect: cut A-s0 \(to repair: heal A-s0\)"),
    ("heal A-s0", "A-s0 repaired"),
    ("A ping -c 3 -W 5 B", "[123] received"),
    ("status", r"faults +none"),
)
MEMORY_BYTES = 2 << 30
HALF_TAKEN = """
import time
end = time.monotonic() + 280
while time.monotonic() < end:
    until = time.monotonic() + 0.01
    while time.monotonic() < until:
        pass
    time.sleep(0.01)
"""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_commands, "WAIT_S", MOST_S)


@pytest.mark.parametrize("spec", SMALL)
def test_whatever_is_typed_is_answered(
    spec: str, own_run: Callable[[], None], tmp_path: Path
) -> None:
    own_run()
    with prompt_of(spec, tmp_path) as prompt:
        for line, wanted in LINES:
            prompt.check(line, wanted)


@pytest.mark.parametrize("spec", SMALL)
def test_a_fault_of_each_kind_begins_is_explained_and_ends(
    spec: str, own_run: Callable[[], None], tmp_path: Path
) -> None:
    own_run()
    with prompt_of(spec, tmp_path) as prompt:
        for line, wanted in FAULTS:
            prompt.check(line, wanted)


@pytest.mark.parametrize("spec", SMALL)
def test_each_pattern_that_help_names_runs_as_it_is(
    spec: str, own_run: Callable[[], None], tmp_path: Path
) -> None:
    own_run()
    with prompt_of(spec, tmp_path) as prompt:
        for pattern in traffic_patterns():
            prompt.check(f"run {pattern}", DONE)


@pytest.mark.parametrize("spec", LARGE)
def test_a_large_network_is_used_broken_and_repaired(
    spec: str, own_run: Callable[[], None], tmp_path: Path
) -> None:
    own_run()
    with prompt_of(spec, tmp_path) as prompt:
        for line, wanted in LOOK:
            prompt.check(line, wanted)


def test_both_processors_are_half_taken(own_run: Callable[[], None], tmp_path: Path) -> None:
    own_run()
    with others_at_work(), prompt_of(SMALL[0], tmp_path) as prompt:
        for line, wanted in (*LINES, *LOOK):
            prompt.check(line, wanted)


@pytest.mark.parametrize("spec", [SMALL[0], LARGE[0]])
def test_two_gigabytes_of_memory_are_enough(
    spec: str, own_run: Callable[[], None], tmp_path: Path
) -> None:
    own_run()
    with little_memory(), prompt_of(spec, tmp_path) as prompt:
        for line, wanted in LOOK:
            prompt.check(line, wanted)


@contextmanager
def others_at_work() -> Iterator[None]:
    """Take half of each processor's time, with a program that is no part of the lab."""
    programs = [
        subprocess.Popen(["taskset", "-c", str(number), sys.executable, "-c", HALF_TAKEN])
        for number in sorted(os.sched_getaffinity(0))
    ]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


@contextmanager
def little_memory() -> Iterator[None]:
    """Run this test, and all that it starts, in a cgroup with `MEMORY_BYTES` of memory."""
    parent = cgroups.parent_of("memory")
    if parent is None:
        pytest.skip("the kernel has no control group for memory: neither version 1 nor 2")
    folder = parent / f"hour-{secrets.token_hex(4)}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made in {parent}: {error.strerror}")
    limits = [folder / name for name in ("memory.max", "memory.limit_in_bytes")]
    try:
        limit = next((one for one in limits if one.exists()), None)
        if limit is None:
            pytest.skip(f"control groups in {parent} do not limit memory")
        limit.write_text(str(MEMORY_BYTES))
        (folder / "cgroup.procs").write_text("0")
        yield
        assert killed_for_memory(folder) == 0
    finally:
        (parent / "cgroup.procs").write_text("0")
        wait_until(lambda: is_removed(folder), "a process is left")


def is_removed(folder: Path) -> bool:
    """Remove a control group and those in it; return False if one still has processes."""
    try:
        for nested in folder.glob("*/"):
            nested.rmdir()
        folder.rmdir()
    except OSError:
        return False
    return True


def killed_for_memory(folder: Path) -> int:
    """Return the number of processes that the kernel has killed for lack of memory."""
    for name in ("memory.events", "memory.oom_control"):
        if (folder / name).exists():
            rows = (line.split() for line in (folder / name).read_text().splitlines())
            return next(int(count) for name, count in rows if name == "oom_kill")
    return 0
