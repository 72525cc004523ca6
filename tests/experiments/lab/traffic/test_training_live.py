"""The drawn trace on a live network: its time, within 5 % of the time by hand."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from pillarbox.experiments.lab.traffic.collective_tool import Collective
from pillarbox.experiments.models.fluid.iteration import simulated_moments
from pillarbox.experiments.models.workloads.flows import COMPLETED, Sending
from pillarbox.experiments.models.workloads.training.breakdown import Moments, iteration_times
from pillarbox.experiments.models.workloads.training.iteration_plan import iteration_plan
from tests.experiments.labs import WAIT_S, lab_of, wait_until
from tests.experiments.models.workloads.training.drawn_trace import drawn_trace

pytestmark = [pytest.mark.root, pytest.mark.alone]

RATE_MBIT = 40.0
MTU = 9000


def test_drawn_trace_takes_its_time(tmp_path: Path) -> None:
    with lab_of("tree,4,1", tmp_path, rate_mbit=RATE_MBIT, mtu=MTU) as lab:
        plan = iteration_plan(lab.topology, drawn_trace(), range(4))
        with closing(Collective(lab, plan, Sending(timeout_s=WAIT_S), 1)) as made:
            made.prepare()
            made.start(time.monotonic() + 0.1)
            wait_until(made.ended, "the iteration comes to an end")
            results, steps = made.results(), made.steps()
    assert {(one.status, one.reason) for one in results} == {(COMPLETED, "")}
    moments = [Moments(one.begin_s or 0.0, one.end_s or 0.0) for one in steps]
    found = iteration_times(plan, moments)
    simulated = simulated_moments(lab.topology, plan, "", RATE_MBIT * 1e6, MTU)
    assert found.total_s == pytest.approx(iteration_times(plan, simulated).total_s, rel=0.05)
    computing = [part.rank for part in found.path if part.label == "compute"]
    assert computing == [0, 1, 2, 3]
