"""A collective operation as an experiment: its flows, its ideal and bound, its rows, its report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pillarbox.experiments.cli.commands.run import command
from pillarbox.experiments.lab.traffic.collective_tool import TransferResult
from pillarbox.experiments.models.fluid.ideal import header_bytes, header_efficiency
from pillarbox.experiments.models.workloads.collectives import plan as collective_plans
from pillarbox.experiments.models.workloads.collectives.plan import CollectivePlan
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.plans.loading import load
from pillarbox.experiments.runs.plans.trials import Trial
from pillarbox.experiments.runs.reporting.collective_section import operations
from pillarbox.experiments.runs.reporting.run_reading import read
from pillarbox.experiments.runs.trials.experiment_run import order_of, run
from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder
from pillarbox.experiments.runs.trials.trial_process import TrialDisplay
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology
from tests.experiments.runs.trials.test_experiment_run import FakeTrials

SIZE = 1_920_000
SUMS = Experiment(
    "sums",
    "nobody starts it",
    (
        System("bcube,2,1", routing="bcube", algorithm="bml", rate_mbit=20.0, label="BML"),
        System("tree,2,2", algorithm="ring", rate_mbit=20.0, label="ring"),
    ),
    Workload("all-reduce", SIZE),
    repeats=2,
)


class FakeSums(FakeTrials):
    """Measures sums: every transfer takes half a second from the moment at which it could begin."""

    def __call__(self, order: TrialOrder, live: TrialDisplay, log: Path) -> TrialMeasurements:
        plan = order.collective
        assert plan
        steps = tuple(
            TransferResult(
                at, flow, one.step, "reduce", plan.volumes[at], *(one.step + m for m in MOMENTS)
            )
            for at, (one, flow) in enumerate(zip(plan.graph.transfers, plan.flow_of, strict=True))
        )
        routing = order.trial.system.routing or "bridge"
        return replace(super().__call__(order, live, log), steps=steps, routing=routing)


MOMENTS = (0.0, 0.1, 0.5)


def test_records_have_every_transfer_and_the_bound(tmp_path: Path) -> None:
    found = run(SUMS, tmp_path / "run", measure=FakeSums())
    assert len(found.flows) == 2 * (8 + 4)  # BML's pairs of neighbours, and the ring
    assert len(found.transfers) == 2 * (2 * 2 * 2 * 4 + 2 * 3 * 4)
    assert (tmp_path / "run" / "transfers.csv").exists()
    assert found.flows.ideal_bps.isna().all()  # they are not under way at once
    for system, ports in (("BML", 2), ("ring", 1)):
        planned = next(one for one in SUMS.systems if one.name == system)
        header = header_bytes(planned.topology, planned.routing)
        port_bps = 20e6 * header_efficiency(header, planned.mtu)
        least_s = 2 * 3 / 4 * SIZE * 8 / (ports * port_bps)
        for _, trial in found.of(system).trials.iterrows():
            assert trial.bound_bps == pytest.approx(2 * 3 * SIZE * 8 / least_s)
            # Acknowledgements are all that the ideal has above the bound.
            assert least_s < trial.ideal_s < 1.02 * least_s
            assert trial.goodput_bps == pytest.approx(2 * 3 * SIZE * 8 / trial.completion_s)


def test_each_trial_is_planned_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[str] = []
    plan_for = collective_plans.plan_for

    def counted(topology: Topology, *rest: Any) -> CollectivePlan:
        made.append(topology.spec)
        return plan_for(topology, *rest)

    monkeypatch.setattr(collective_plans, "plan_for", counted)
    run(SUMS, tmp_path / "run", measure=FakeSums())
    assert sorted(made) == ["bcube,2,1"] * 2 + ["tree,2,2"] * 2


def test_the_report_tells_how_near_each_came(tmp_path: Path) -> None:
    run(SUMS, tmp_path / "run", measure=FakeSums())
    table = operations(read(tmp_path / "run"))
    titles = table.columns
    rows = [dict(zip(titles, row.cells, strict=True)) for row in table.rows]
    assert [(one["system"], one["steps"], one["transfers"]) for one in rows] == [
        ("BML", "4", "32"),
        ("ring", "6", "24"),
    ]
    assert {one["step time"] for one in rows} == {"500 ms"}
    assert {one["waiting time"] for one in rows} == {"0 s"}
    assert all(float(one["time / bound"].split()[0]) > 1 for one in rows)
    assert not any(row.doubtful for row in table.rows)


def test_other_runs_have_no_such_table(tmp_path: Path) -> None:
    plain = replace(SUMS, systems=(System("tree,2,2", rate_mbit=20.0),), repeats=1)
    plain = replace(plain, workload=Workload(volume_bytes=1000))
    run(plain, tmp_path / "run", measure=FakeTrials())
    assert not (tmp_path / "run" / "transfers.csv").exists()
    assert operations(read(tmp_path / "run")).rows == []


def test_the_catalogues_experiment_is_laid_out() -> None:
    told = CliRunner().invoke(command, ["all-reduce", "--dry-run"])
    assert told.exit_code == 0
    assert "BCube, BML, repeat 1: 96 flows" in told.output
    assert load("all-reduce").workload.pattern == "all-reduce"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["algorithm=bml"], "BML needs a BCube, or "),
        (["workload.volume_bytes=0"], "volume_bytes must be 64 or more, not 0"),
        (["workload.options.ranks=99"], "takes 2 to 16 ranks, not 99"),
        (["workload.pattern=all-to-all"], "is for collective operations"),
    ],
)
def test_nothing_begins_that_cannot_be(changes: list[str], words: str) -> None:
    options = [word for change in changes for word in ("--set", change)]
    told = CliRunner().invoke(command, ["all-reduce", "--dry-run", *options])
    assert isinstance(told.exception, PillarboxError)
    assert words in str(told.exception)


@pytest.mark.parametrize(("pattern", "tool"), [("all-reduce", "auto"), ("all-to-all", "generator")])
def test_collectives_keep_their_tool_next_to_multipath_tcp(pattern: str, tool: str) -> None:
    systems = (System("bcube,2,1", transport="mptcp"), System("bcube,2,1"))
    experiment = replace(SUMS, systems=systems, workload=Workload(pattern, SIZE))
    for system in systems:
        order = order_of(experiment, Trial(0, system, 0, 1))
        assert order.workload.tool == tool
