"""Dilation of trials: orders in the lab's time, measurements in the network's own time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.experiments.lab.traffic.collective_tool import TransferResult
from pillarbox.experiments.models.workloads.flows import COMPLETED, FlowResult, Interval
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, FaultAt, System
from pillarbox.experiments.runs.plans.trials import blocks
from pillarbox.experiments.runs.trials.dilation import lab_order, own_measurements
from pillarbox.experiments.runs.trials.experiment_run import order_of
from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder
from pillarbox.experiments.runs.trials.trial_process import TrialDisplay, measure

WORKLOAD = Workload(
    pattern="permutation", duration_s=0.2, congestion="reno", interval_s=0.01, timeout_s=2.0
)


def order_at(dilation: float, **settings: object) -> TrialOrder:
    system = System(
        *("bcube,2,1", "A"), rate_mbit=1000.0, delay="0.1ms", dilation=dilation, **settings
    )
    plan = Experiment("plan", "", (system,), WORKLOAD, (FaultAt("cut h0-s0 at 0.05 until 0.1"),))
    return order_of(plan, next(blocks(plan))[0])


@given(k=st.floats(1.5, 200))
def test_an_order_has_the_same_bits_per_packet_and_times_k_times_longer(k: float) -> None:
    own = order_at(k, catch_up="0.3ms", queue_length="10ms")
    lab = lab_order(own)
    system = lab.trial.system
    assert system.rate_mbit == pytest.approx(1000 / k)
    for text, own_ms in ((system.delay, 0.1), (system.catch_up, 0.3), (system.queue_length, 10.0)):
        assert text is not None
        assert float(text.removesuffix("ms")) == pytest.approx(own_ms * k, rel=1e-5)
    assert lab.workload.timeout_s == pytest.approx(2.0 * k)
    assert lab.workload.interval_s == pytest.approx(0.01 * k)
    assert [one.duration_s for one in lab.flows] == [pytest.approx(0.2 * k)] * len(own.flows)
    (fault,) = lab.faults
    assert (fault.at_s, fault.until_s) == (pytest.approx(0.05 * k), pytest.approx(0.1 * k))
    assert lab.limit_s - own.limit_s == pytest.approx(2.0 * (k - 1))


def test_volumes_and_lengths_in_packets_stay() -> None:
    own = order_at(20, queue_length="30 packets")
    own = replace(
        own, flows=tuple(replace(one, volume_bytes=9, duration_s=None) for one in own.flows)
    )
    lab = lab_order(own)
    assert lab.trial.system.queue_length == "30 packets"
    assert [one.volume_bytes for one in lab.flows] == [9] * len(own.flows)
    assert lab_order(order_at(1)) == order_at(1)


def test_measurements_return_to_the_networks_own_time(measured: TrialMeasurements) -> None:
    own = order_at(20)
    found = own_measurements(own, measured)
    (result,) = found.results
    assert result.flow == own.flows[0]
    assert (result.begin_s, result.end_s, result.connect_s) == (0.0, 0.2, None)
    assert result.goodput_bps == 1_000_000 * 8 / 0.2
    assert result.intervals == [Interval(0.0, 0.2, 1_000_000, 3, 200, 15_000)]
    assert found.events == ({"event": "cut", "at_s": 0.05, "detected_s": None},)
    assert found.steps[0][5:] == (None, 0.1, 0.2)
    assert own_measurements(order_at(1), measured) is measured


@pytest.fixture
def measured() -> TrialMeasurements:
    flow = lab_order(order_at(20)).flows[0]
    interval = Interval(0.0, 4.0, 1_000_000, 3, 4000, 15_000)
    result = FlowResult(flow, "generator", COMPLETED, "", 0.0, 4.0, 1_000_000, intervals=[interval])
    nothing: dict[str, object] = dict.fromkeys(TrialMeasurements.__dataclass_fields__)
    return TrialMeasurements(
        **{
            **nothing,
            "results": (result,),
            "events": ({"event": "cut", "at_s": 1.0, "detected_s": None},),
            "steps": (TransferResult(0, 0, 0, "copy", 9, None, 2.0, 4.0),),
            "sampled": (),
        }
    )


@pytest.mark.root
def test_a_dilated_lab_has_the_networks_goodput_and_scaled_sysctls(tmp_path: Path) -> None:
    own = order_at(20, plane="python")
    found = measure(own, TrialDisplay(), tmp_path / "log.txt")
    sysctls = found.lab["sysctls"]
    assert sysctls["net.ipv4.tcp_rto_min_us"] == "4000000"
    assert sysctls["net.ipv4.tcp_early_retrans"] == "0"
    assert sysctls["net.ipv4.tcp_min_tso_segs"] == "1"
    assert found.readings.rate_bps == 50e6
    assert [event["event"] for event in found.events] == ["cut", "healed"]
    assert all(0 < one.goodput_bps < 1e9 for one in found.results if one.goodput_bps is not None)
    # At most 60 MB fit into 0.2 s of the network; an undilated lab of 50 Mbit/s carries 1.25 MB.
    assert max(one.delivered_bytes for one in found.results) > 2_500_000
