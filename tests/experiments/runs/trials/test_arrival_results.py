"""Runs of flows that arrive, without labs: slowdowns, loads, verdicts, what is shown of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pillarbox.experiments.cli.commands.run import command
from pillarbox.experiments.models.workloads.flows import COMPLETED, FlowResult, Interval
from pillarbox.experiments.models.workloads.traces import write_trace
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.drawn_arrivals import arrivals_of
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.plans.loading import under_loads
from pillarbox.experiments.runs.reporting import slowdown_figures as shown
from pillarbox.experiments.runs.reporting.drawing.network_figure import PAPER
from pillarbox.experiments.runs.reporting.report_page import write_report
from pillarbox.experiments.runs.reporting.run_reading import read
from pillarbox.experiments.runs.trials import manifest
from pillarbox.experiments.runs.trials.experiment_run import orders_of, run
from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder
from pillarbox.experiments.runs.trials.records import Run, typed
from pillarbox.experiments.runs.trials.slowdowns import burst_note, slowdowns, slowdowns_in
from pillarbox.experiments.runs.trials.summary import text_of
from pillarbox.experiments.runs.trials.trial_process import TrialDisplay
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.spec import parse
from tests.experiments.runs.seen import SEEN

RATE_BPS, SLOW = 20e6, 3.0
EXPERIMENT = Experiment(
    "arriving",
    "two networks that nobody starts",
    tuple(System(network, rate_mbit=20.0, mtu=1500) for network in ("bcube,2,1", "tree,2,2")),
    Workload(
        arrivals="poisson",
        load=0.5,
        load_of="busiest",
        duration_s=10.0,
        sizes="storage",
        warm_up_s=1.0,
    ),
    repeats=2,
)
READINGS = replace(SEEN, duration_s=14.0, rate_bps=RATE_BPS)


def measured(order: TrialOrder, late_s: float = 0.0) -> TrialMeasurements:
    """Return a trial whose flows took SLOW times as long as their bytes take a cable."""
    results = []
    for flow in order.flows:
        begin_s = flow.start_s + late_s
        end_s = flow.start_s + SLOW * (flow.volume_bytes or 0) * 8 / RATE_BPS
        rows = [Interval(begin_s, max(end_s, begin_s + 1e-6), flow.volume_bytes or 0)]
        results.append(
            FlowResult(
                flow,
                "fake",
                COMPLETED,
                "",
                begin_s,
                end_s,
                flow.volume_bytes or 0,
                0,
                1,
                intervals=rows,
            )
        )
    return TrialMeasurements(
        routing="shortest",
        plane="ebpf",
        tool="fake",
        tool_versions={},
        began={"wall": "2026-03-01T10:15:00+00:00", "monotonic_s": 5.0},
        results=tuple(results),
        paths=((),) * len(results),
        back=((),) * len(results),
        events=(),
        readings=READINGS,
        lab={},
    )


def fake(late_s: float = 0.0) -> Any:
    def measure(order: TrialOrder, live: TrialDisplay, log: Path) -> TrialMeasurements:
        return measured(order, late_s)

    return measure


@pytest.fixture(autouse=True)
def _one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "versions", lambda: {"version": "0"})
    monkeypatch.setattr(manifest, "machine", lambda: {"kernel": "6"})


@pytest.fixture(scope="module")
def on_time(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run whose flows all began when they should."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "versions", lambda: {"version": "0"})
        patch.setattr(manifest, "machine", lambda: {"kernel": "6"})
        return run(EXPERIMENT, tmp_path_factory.mktemp("on-time") / "run", measure=fake())


def test_what_was_measured_is_told_by_size_and_load(on_time: Run) -> None:
    found = on_time
    assert found.trials.valid.all()
    assert (abs(found.trials.offered_bps / found.trials.asked_bps - 1) < 0.02).all()
    flows = found.flows
    inside = flows.start_s.between(1.0, 11.0)
    assert (flows.measured == inside).all()
    assert (flows.slowdown - flows.completion_s / flows.alone_s).abs().max() < 1e-9
    large = flows[flows.volume_bytes > 200_000]
    assert large.slowdown.between(0.9 * SLOW, SLOW).all()  # headers and hops
    counted = found.classes[found.classes.sizes != "all"].groupby("trial").flows.sum()
    assert (counted == flows[inside].groupby("trial").size()).all()
    told = slowdowns(found)
    assert {one.system for one in told} == {"bcube,2,1", "tree,2,2"}
    assert json.loads(json.dumps([one.as_json() for one in told]))[0]["slowdown_p99"]["low"] > 0
    text = text_of(found)
    assert "tree,2,2, 10-100 kB" in text
    assert "tree,2,2 against bcube,2,1, slowdown" in text


@pytest.mark.parametrize(("size", "fits"), [(10_500, True), (10_501, False)])
def test_classes_with_flows_that_fit_into_the_burst_are_marked(
    tmp_path: Path, size: int, fits: bool
) -> None:
    workload = replace(EXPERIMENT.workload, sizes=f"{size}", duration_s=2.0)
    once = replace(EXPERIMENT, workload=workload, repeats=1)
    found = run(once, tmp_path / "run", measure=fake())
    assert (found.flows.burst_bytes == 10_500).all()  # 3 ms and a super-packet (port_bursts)
    assert (found.classes.burst_flows == (found.classes.flows if fits else 0)).all()
    ideal_s = (size + 8 * 66 + 1514) * 8 / RATE_BPS  # two cables: to a server of the same switch
    assert found.flows.alone_s.min() == pytest.approx(ideal_s, rel=0.03)
    text = " ".join(text_of(found).split())
    assert ("10-100 kB *" in text) == fits
    assert ("flows of at most 10.5 kB" in text) == fits
    page, _ = write_report(tmp_path / "run")
    assert ("10-100 kB *" in page.read_text()) == fits
    by_size = shown.by_size(read(tmp_path / "run").tables["classes"])
    figure = shown.size_figure(by_size, found.systems)
    assert figure is not None
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1].startswith("burst of")
    hollow = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == PAPER]
    assert any(len(line.get_xdata()) for line in hollow) == fits  # type: ignore[arg-type]


def test_records_without_bursts_have_no_mark(on_time: Run) -> None:
    classes = on_time.classes.drop(columns=["burst_bytes", "burst_flows"])
    older = slowdowns_in(typed("classes", classes), on_time.systems)
    assert {(one.burst_bytes, one.burst_flows) for one in older} == {(None, 0)}
    assert burst_note(older) == ""


def test_requests_have_a_time_and_a_deadline(tmp_path: Path) -> None:
    options = {"senders": 3, "deadline_s": SLOW * 20_000 * 8 / RATE_BPS + 1e-6}
    incast = replace(EXPERIMENT.workload, pattern="incast", sizes="20000", duration_s=4.0)
    workload = replace(incast, options=options)
    found = run(replace(EXPERIMENT, workload=workload), tmp_path / "run", measure=fake())
    flows = found.flows[found.flows.measured.astype(bool)]
    assert (found.trials.requests * 3 == flows.groupby("trial").size().to_numpy()).all()
    took = SLOW * 20_000 * 8 / RATE_BPS
    assert found.trials.request_p99_s.to_numpy() == pytest.approx(took)
    assert (found.trials.in_time_share == 1.0).all()
    assert "in time" in text_of(found)
    late = replace(workload, options={**options, "deadline_s": took / 2})
    found = run(replace(EXPERIMENT, workload=late), tmp_path / "late", measure=fake())
    assert (found.trials.in_time_share == 0.0).all()


def test_a_shuffle_is_told_as_so_many_times_its_busiest_port(tmp_path: Path) -> None:
    options = {"senders": 2, "receivers": 2}
    workload = replace(EXPERIMENT.workload, pattern="shuffle", sizes="200000", options=options)
    found = run(replace(EXPERIMENT, workload=workload), tmp_path / "run", measure=fake()).trials
    flows = 4 * found.requests
    assert (flows > 0).all()
    # BCube's servers have two ports for two flows, the tree's have one.
    bcube, tree = (
        found.shuffle_slowdown[found.system == name] for name in ("bcube,2,1", "tree,2,2")
    )
    assert bcube.to_numpy() == pytest.approx(2 * tree.to_numpy(), rel=0.05)


def test_requests_are_told_apart_from_their_background(tmp_path: Path) -> None:
    options = {"bytes": 2000, "per_s": 20, "deadline_s": 9.0}
    workload = replace(EXPERIMENT.workload, pattern="requests", options=options)
    found = run(replace(EXPERIMENT, workload=workload), tmp_path / "run", measure=fake())
    flows = found.flows[found.flows.measured.astype(bool)]
    small = flows[flows.volume_bytes == 2000].groupby("trial").size()
    assert (found.trials.requests == small.to_numpy()).all()
    assert found.trials.request_p99_s.to_numpy() == pytest.approx(SLOW * 2000 * 8 / RATE_BPS)
    assert (found.trials.in_time_share == 1.0).all()


def test_a_source_behind_its_schedule_is_not_valid(tmp_path: Path) -> None:
    found = run(EXPERIMENT, tmp_path / "run", measure=fake(late_s=0.004))
    assert not found.trials.valid.any()
    assert "the traffic generator fell behind its schedule" in " ".join(text_of(found).split())
    assert found.trials.late_p99_s.to_numpy() == pytest.approx(0.004)


def test_the_report_draws_slowdowns_by_size_and_by_load(tmp_path: Path) -> None:
    brief = replace(EXPERIMENT.workload, duration_s=4.0)
    experiment = under_loads(replace(EXPERIMENT, workload=brief, repeats=1), [0.3, 0.6])
    assert [one.name for one in experiment.systems][:2] == ["bcube,2,1 at 0.3", "bcube,2,1 at 0.6"]
    run(experiment, tmp_path / "run", measure=fake())
    page, missing = write_report(tmp_path / "run")
    assert not missing
    assert "bcube,2,1 at 0.6, 10-100 kB" in page.read_text()
    found = read(tmp_path / "run")
    names = shown.names_without_loads(experiment.systems)
    loads = shown.by_load(found.tables["trials"], names)
    assert list(loads.load) == [0.3, 0.3, 0.6, 0.6]
    figure = shown.load_figure(loads)
    assert figure is not None
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["median", "99th percentile"]
    assert shown.load_figure(loads[loads.load == 0.3]) is None
    for name in ("slowdown", "loads"):
        assert (tmp_path / "run" / "figures" / f"{name}.png").stat().st_size > 1000


def test_a_trace_brings_the_same_flows(tmp_path: Path) -> None:
    system, topology = EXPERIMENT.systems[0], parse("bcube,2,1")
    drawn = arrivals_of(system, EXPERIMENT.workload, 5)
    write_trace(topology, drawn, tmp_path / "flows.csv")
    workload = Workload(arrivals=str(tmp_path / "flows.csv"), warm_up_s=1.0)
    traced = Experiment("traced", "", (system,), workload, repeats=1)
    (order,) = orders_of(traced)
    assert [flow.volume_bytes for flow in order.flows] == drawn.volume_bytes.tolist()
    found = run(
        Experiment("t", "", (system,), workload, repeats=1), tmp_path / "run", measure=fake()
    )
    assert found.trials.load.isna().all()
    assert found.trials.offered_bps.iloc[0] > 0


@pytest.mark.parametrize(
    ("system", "workload", "told"),
    [
        ({"rate_mbit": None}, {}, "set rate_mbit"),
        ({}, {"tool": "iperf3"}, "cannot send flows that arrive"),
        ({}, {"options": {"distribute": True}}, "has no arrivals"),
        ({}, {"timeout_s": 5.0}, "choose a longer timeout_s"),
        ({}, {"pattern": "incast", "options": {"deadline_s": -1}}, "number of seconds above 0"),
        ({}, {"arrivals": "nowhere.csv", "load": None}, "cannot be read"),
    ],
)
def test_what_cannot_arrive_is_refused(
    system: dict[str, Any], workload: dict[str, Any], told: str
) -> None:
    changed = replace(EXPERIMENT.workload, **workload)
    with pytest.raises(PillarboxError, match=told):
        arrivals_of(replace(EXPERIMENT.systems[0], **system), changed, 1)


@pytest.mark.parametrize(
    ("arguments", "lasts_s"),
    [
        (["quick"], 2 * 4),
        (["fct", "--repeats", "1", "--set", "network=bcube,4,1"], 2 + 10 + 1),
        # 50 and 100 times slower
        (["fct", "--repeats", "1", "--set", "network=bcube,4,1", "--as", "1Gbit", "--set",
          "congestion=reno", "--duration", "2"], 150 * (2 + 2 + 1)),
        (["all-to-all"], None),  # as long as the volumes take
    ],
)  # fmt: skip
def test_a_dry_run_tells_how_long_the_trials_send(
    arguments: list[str], lasts_s: float | None
) -> None:
    done = CliRunner().invoke(command, [*arguments, "--dry-run", "--json"])
    assert json.loads(done.stdout)["sending_s"] == lasts_s


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["fct", "--load", "1.5"], "above 0 and below 1, not 1.5"),
        (["fct", "--load", "much"], "'much' is not a load"),
        (["quick", "--load", "0.5"], "quick has no arriving flows"),
        (["fct", "--set", "sizes=0"], "B, not 0"),
    ],
)
def test_a_bad_load_is_one_sentence(arguments: list[str], told: str) -> None:
    done = CliRunner().invoke(command, [*arguments, "--dry-run"])
    assert isinstance(done.exception, PillarboxError)
    assert told in str(done.exception)
