"""Experiments on real labs, as a user runs them; and what is left when somebody kills them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pillarbox.experiments.runs.trials import records
from pillarbox.experiments.runs.trials.experiment_run import order_of
from pillarbox.experiments.runs.trials.trial_process import TrialDisplay, TrialError, measure

ROOT = Path(__file__).parents[4]
DEADLINE_S = 150.0
SMALL = """
about = "small"
repeats = 2
[[systems]]
network = "bcube,2,1"
rate_mbit = 10
[workload]
pattern = "permutation"
tool = "generator"
volume_bytes = 300000
timeout_s = 60
[[faults]]
fault = "cut 0.0-s0 at 0.1 until 0.2"
"""


def pillarbox(*words: str, folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    environment.pop("PILLARBOX_SANDBOX", None)  # trials have sandboxes of their own, as ever
    return subprocess.Popen(
        [sys.executable, "-m", "pillarbox", "run", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def descendants(process: int) -> set[int]:
    found, waiting = set(), [process]
    while waiting:
        file = Path(f"/proc/{waiting.pop()}/task")
        for task in file.iterdir() if file.exists() else ():
            children = [int(word) for word in (task / "children").read_text().split()]
            found.update(children)
            waiting += children
    return found


def wait_for(condition, what: str):
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never saw {what}"
        time.sleep(0.02)
    return found


@pytest.mark.root
def test_a_killed_run_goes_on_and_leaves_nothing_running(tmp_path: Path):
    (tmp_path / "small.toml").write_text(SMALL)
    folder = tmp_path / "run"
    process = pillarbox("small.toml", "--out", "run", folder=tmp_path)
    second = wait_for(
        lambda: (
            records.finished_trials(folder)
            and len(descendants(process.pid)) > 5
            and descendants(process.pid)
        ),
        "the second trial's lab",
    )
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in second), "the lab's end")
    first = (folder / "trials" / "0000" / "flows.parquet").read_bytes()

    process = pillarbox("--resume", "run", folder=tmp_path)
    printed, _ = process.communicate(timeout=DEADLINE_S)
    found = records.load(folder)
    assert len(found.records) == 2, printed
    assert (folder / "trials" / "0000" / "flows.parquet").read_bytes() == first
    assert set(found.trials.status) == {"completed"}, printed
    assert set(found.flows.status) == {"completed"}
    assert set(found.flows.delivered_bytes) == {300_000}
    assert found.flows.path.str.count(" ").between(1, 4).all()
    assert list(found.of("bcube,2,1").events.event) == ["cut", "healed"] * 2
    assert len(found.links) == 2 * 2 * 8
    assert found.manifest["resumed"]
    lab = found.manifest["systems"]["bcube,2,1"]
    assert lab["sysctls"]["net.ipv4.tcp_rmem"] == "4096 131072 6291456"
    assert any("htb" in queue for queue in lab["qdiscs"])
    assert process.returncode == int(not found.trials.valid.all())


@pytest.mark.root
def test_a_trial_that_cannot_be_ends_as_failed_with_its_reason(tmp_path: Path):
    text = SMALL.replace("rate_mbit = 10", 'rate_mbit = 10\nrouting = "none-such.py"')
    (tmp_path / "small.toml").write_text(text.replace("repeats = 2", "repeats = 1"))
    process = pillarbox("small.toml", "--out", "run", folder=tmp_path)
    printed, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    (told,) = records.load(tmp_path / "run").records
    assert told["status"] == "failed" and "none-such" in told["reason"], json.dumps(told)
    assert "none-such" in printed


@pytest.mark.root
def test_a_trial_has_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from pillarbox.experiments.runs.plans.loading import load
    from pillarbox.experiments.runs.plans.trials import blocks
    from pillarbox.experiments.runs.trials import order

    (tmp_path / "small.toml").write_text(SMALL)
    endless = ["workload.volume_bytes=1000000000"]
    experiment = load(str(tmp_path / "small.toml"), endless)
    monkeypatch.setattr(order, "SETUP_S", -59.0)
    wanted = order_of(experiment, next(blocks(experiment))[0])
    assert wanted.limit_s < 2
    with pytest.raises(TrialError, match="did not end within 1 s"):
        measure(wanted, TrialDisplay(), tmp_path / "log")
