"""Flows that arrive in a live lab: each begins on its own, and all arrive whole."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.traffic.open_loop import OpenLoop, lateness_s
from pillarbox.experiments.models.workloads.arrivals import poisson_arrivals
from pillarbox.experiments.models.workloads.flows import COMPLETED, Sending
from pillarbox.experiments.models.workloads.workload import Workload
from tests.experiments.labs import WAIT_S, lab_of, wait_until

pytestmark = pytest.mark.root


def test_flows_that_arrive_begin_at_their_moments_and_are_delivered(tmp_path: Path) -> None:
    topology = topos.parse("tree,2,2")
    workload = Workload(
        arrivals="poisson", load=0.5, duration_s=0.6, warm_up_s=0, cool_down_s=0, sizes="20000"
    )
    flows = poisson_arrivals(topology, workload, 1, capacity_bps=2e7).flows()
    with (
        lab_of("tree,2,2", tmp_path, rate_mbit=20.0) as lab,
        closing(OpenLoop(lab, flows, Sending(timeout_s=WAIT_S))) as tool,
    ):
        tool.prepare()
        tool.start(time.monotonic() + 0.05)
        moved = {one.number for one in tool.progress()}
        wait_until(tool.ended, "every flow's end")
        moved |= {one.number for one in tool.progress()}
        assert not list(tool.progress())  # nothing has moved since
        results = tool.results()
    assert moved == set(range(len(flows)))
    assert {result.status for result in results} == {COMPLETED}
    assert [result.delivered_bytes for result in results] == [20_000] * len(flows)
    assert len(lateness_s(results)) == len(flows)
    for result in results:
        assert result.begin_s is not None and result.begin_s >= round(result.flow.start_s, 6)
        assert result.end_s is not None and result.end_s > result.begin_s
