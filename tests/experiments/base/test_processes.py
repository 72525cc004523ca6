"""Commands with further environment variables, and processors that a program may use."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pillarbox.experiments.base import processes
from pillarbox.experiments.base.processes import idle_processors, processors, with_variables


def test_program_with_an_equals_sign_in_its_path(tmp_path: Path) -> None:
    program = tmp_path / "a=b" / "program"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$RANK $1 $2"\n')
    program.chmod(0o755)
    command = with_variables(["RANK=3"], [str(program), "C=4", "two words"])
    assert subprocess.check_output(command, text=True) == "3 C=4 two words\n"


@pytest.mark.parametrize(
    ("running", "usable", "idle"),
    [
        ([1], 8, 8),
        ([3, 2, 4], 8, 7),  # the lowest load counts; one of the threads is this program's
        ([3], 4, 4),  # others may run on processors that this process may not use
        ([6], 4, 3),
        ([50], 8, 1),
    ],
)
def test_idle_processors_are_those_on_which_no_other_thread_runs(
    running: list[int], usable: int, idle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = iter(running * processes.LOADS)
    monkeypatch.setattr(processes, "_running_threads", lambda: next(loads))
    monkeypatch.setattr(processes, "processors", lambda: usable)
    monkeypatch.setattr(processes.os, "cpu_count", lambda: 8)
    assert idle_processors() == idle


@pytest.mark.parametrize(
    ("files", "usable"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "250000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "1600000 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "30000\n", "cpu/cpu.cfs_period_us": "10000\n"}, 3),
    ],
)
def test_control_groups_limit_processors(
    files: dict[str, str], usable: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(processes, "CGROUPS", tmp_path)
    monkeypatch.setattr(processes.os, "sched_getaffinity", lambda _: set(range(8)))
    assert processors() == usable
