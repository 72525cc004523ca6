"""docs/simulator.md: its sweep runs as it stands, and its figures exist."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox.experiments.apps import papers as reproductions
from pillarbox.experiments.apps.papers.shared.draws import FOLDER

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_sweep_runs_as_written(tmp_path: Path) -> None:
    measure, program, *_ = PROGRAMS
    assert measure.startswith("# degrade.py\n")
    (tmp_path / "degrade.py").write_text(measure)
    (tmp_path / "sweep.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "sweep.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    *said, last = done.stdout.splitlines()
    found = ast.literal_eval(last)
    assert len(found) == 10 and max(found[:5]) < min(found[5:])
    assert said[-1].startswith("peak memory of a task: ")
    assert len(list((tmp_path / "degraded").iterdir())) == 10


def test_flows_adapt_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    *_, program, _ = PROGRAMS
    exec(compile(program, "simulator.md", "exec"), {})
    first, *_, last = map(int, capsys.readouterr().out.split())
    assert first < last, "they get more and more"


def test_a_shuffle_runs_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    *_, program = PROGRAMS
    exec(compile(program, "simulator.md", "exec"), {})
    # Each of 32 servers receives 8 flows of 8 Mbit, by one port: 64 ms and no less at 1 Gbit/s.
    (took_s,) = map(float, re.findall(r"[\d.]+", capsys.readouterr().out))
    assert took_s >= 0.064


def test_figures_and_folders_are_there() -> None:
    named = set(re.findall(r"\bdpillar-\w+", TEXT))
    assert named and named <= set(reproductions.names())
    assert f"`{FOLDER}/`" in TEXT
