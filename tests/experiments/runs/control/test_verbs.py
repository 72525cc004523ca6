"""What the lab's verbs do and say, on live networks."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.topos.base.errors import PillarboxError

pytestmark = pytest.mark.root


@contextmanager
def lab_of(spec: str, folder: Path, timers: str = "paper") -> Iterator[Any]:
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.hosts.live.settings import LabSettings

    settings = LabSettings(plane="python", timers=timers)
    with running(topos.parse(spec), settings, folder / "lab") as lab:
        lab.wait_converged()
        yield lab


def said(lab: Any, line: str) -> str:
    from pillarbox.experiments.runs.control.verbs import answer

    verb, *words = shlex.split(line)
    return answer(lab, verb, words).said


def test_a_path_holds_only_what_the_packet_came_to(tmp_path: Path) -> None:
    with lab_of("bcube,4,1", tmp_path) as lab:  # its timers notice the cut after 5 s
        from pillarbox.experiments.lab.emulation import packet_tracing

        said(lab, "path 0.0 0.3")
        packet_tracing.TRACE_S = 0.5  # in this sandbox alone; the next packet is lost
        assert "the carrier stays up; not noticed yet by 0.0 0.1 0.2 0.3" in said(
            lab, "cut 0.0-s0 silent"
        )
        assert said(lab, "why 0.0 0.3").splitlines() == [
            "a packet went 0.0 (lost on the way to 0.3)",
            "0.0-s0 has failed, and 0.0 has not noticed yet",
            "bsr has a path: the packet was lost before all servers knew: try again",
            "in effect: cut 0.0-s0 silent (to repair: heal 0.0-s0)",
        ]
        assert "\nfaults   cut 0.0-s0 silent\n" in said(lab, "status")
        assert said(lab, "path 0.0 1.3 all").splitlines() == ["1 disjoint, by bcube", "0.0 1.0 1.3"]
        assert said(lab, "heal 0.0-s0").startswith("0.0-s0 repaired")


def test_why_names_a_dead_end_first(tmp_path: Path) -> None:
    with lab_of("dcell,2,1", tmp_path, "fast") as lab:
        done = said(lab, "kill 2.1")
        assert re.match("2.1 is dead, with all its programs; noticed by 1.1 2.0 after", done), done
        assert said(lab, "why 0.0 2.1").splitlines()[0] == "2.1 is dead: revive 2.1"
        assert said(lab, "why 2.1 0.0") == "2.1 is dead: revive 2.1"
        assert said(lab, "ping 0.0 2.1") == "no answer from 2.1 to 0.0: why 0.0 2.1"
        everyone = said(lab, "pingall").splitlines()
        assert everyone[0] == "0.0 -> 0.1 1.0 1.1 2.0 X"
        assert everyone[-2:] == ["2.1 -> X X X X X", "33.3% dropped (20/30 received)"]
        with pytest.raises(PillarboxError, match="is dead: revive"):
            said(lab, "iperf 0.0 2.1")
        assert said(lab, "revive 2.1").startswith(
            "2.1 is alive again, without its programs; noticed by"
        )
        lab.wait_converged()  # its neighbours have noticed, whom they tell comes to know later
        assert "an answer from 2.1 to 0.0 after" in said(lab, "ping 0.0 2.1")
        assert said(lab, "path 0.0 2.1 all").splitlines() == [
            "2 disjoint, by dcell",
            "0.0 0.1 2.0 2.1",
            "0.0 1.0 1.1 2.1",
        ]
        assert " Mbit/s from 0.0 to 2.1, in " in said(lab, "iperf h0 2.1 0.5")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("cut 0.0", "is no cable: write its two ends, as 0.3-4.0"),
        ("cut 0.0-9.9", "'9.9' is not a server"),
        ("kil 0.0", "there is no 'kil': did you mean kill?"),
        ("heal s0", "nothing of s0 was cut or stopped"),
        ("path 0.0 0.0", "are the same server"),
        ("iperf 0.0 0.1 never", "'never' is not a number of seconds"),
        ("grow", "is complete"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(line: str, why: str, tmp_path: Path) -> None:
    from pillarbox.experiments.lab.emulation.lab import Lab
    from pillarbox.experiments.lab.emulation.local_fabric import LocalFabric
    from pillarbox.hosts.live.settings import LabSettings

    # The lab need not run.
    lab = Lab(topos.parse("dcell,2,1"), LabSettings(), tmp_path, fabric=LocalFabric())
    try:
        with pytest.raises(PillarboxError) as caught:
            said(lab, line)
        assert why in str(caught.value)
    finally:
        lab.stop()


def test_a_workload_is_followed_and_finished_early(tmp_path: Path) -> None:
    from pillarbox.experiments.runs.control.active_workload import finish, last_workload_progress

    with lab_of("bcube,2,1", tmp_path) as lab, ThreadPoolExecutor() as pool:
        assert last_workload_progress(lab, 0.0) is None
        with pytest.raises(PillarboxError, match="no `run` is under way"):
            said(lab, "finish")
        run = pool.submit(said, lab, "run one-to-one duration_s=60 tool=generator")
        look = partial(last_workload_progress, lab, 0.0)
        seen = until(look, lambda seen: seen and "ideal" in seen and "verdict" in seen)
        assert seen["flows"] == [["0.0", "1.1"]] * 2
        assert sum(seen["rows"][-1][1]) > 0
        assert seen["ideal"]["total_bps"] == sum(seen["ideal"]["flows_bps"]) > 0
        assert "flows" not in last_workload_progress(
            lab, seen["began_s"]
        )  # who knows of it already
        with pytest.raises(PillarboxError, match="is under way: `finish` ends it"):
            said(lab, "run permutation duration_s=1")
        assert finish(lab) == "one-to-one duration_s=60 tool=generator"
        assert run.result().startswith("2 flows, 0 failed: ")
        assert last_workload_progress(lab, 0.0)["said"] == run.result()


def test_a_training_iteration_runs_at_the_prompt(tmp_path: Path) -> None:
    with lab_of("bcube,2,1", tmp_path) as lab:
        line = "run training tp=2 pp=2 hidden=64 sequence=64 micro_batches=2 tflops=0.05"
        assert said(lab, line).startswith("8 flows, 0 failed: ")
        with pytest.raises(PillarboxError, match="no option 'tpp'"):
            said(lab, "run training tpp=2")
        jobs = "job='tp=2 pp=1' job='operation=all-reduce bytes=4000 name=sums'"
        told = said(lab, f"run training hidden=64 sequence=64 micro_batches=1 {jobs}")
        assert "\niteration: job 0 " in told
        assert "job sums " in told


def until(look: Callable[[], Any], is_there: Callable[[Any], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not is_there(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found
