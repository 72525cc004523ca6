"""BML and the collective operations of ours: what is made of records, and of paths alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pillarbox import topos
from pillarbox.experiments.apps.papers.ours import collectives
from pillarbox.experiments.apps.papers.shared import live_figure
from pillarbox.experiments.models.fluid.collective import phases_duration_s, transfer_end_times_s
from pillarbox.experiments.models.fluid.directed_links import link_count, routes_of
from pillarbox.experiments.models.fluid.ideal import header_bytes, header_efficiency, static_paths
from pillarbox.experiments.models.fluid.rates import MaxMin
from pillarbox.experiments.models.workloads.collectives.bound import all_reduce_share
from pillarbox.experiments.models.workloads.collectives.phases import Phase, of_digits, of_ring
from pillarbox.experiments.models.workloads.collectives.plan import plan_for
from pillarbox.experiments.models.workloads.collectives.schedules import (
    bml_threads,
    halving_schedule,
)
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment
from pillarbox.experiments.runs.reporting.reproduced.result import (
    AGREES,
    DIFFERS,
    Reproduction,
    Settings,
)
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.apps.papers.test_reproductions import (
    MadeUp,
    of,
    plan_of,
    reproduced,
    row,
    twice,
)

BML, SERVERS = "BML, BCube", "parameter servers, fat-tree"


def experiment(name: str, *, rate_mbit: float = 100.0) -> Experiment:
    """Return the experiment of a live figure."""
    settings = Settings(Path(), rate_mbit=rate_mbit)
    (found,) = live_figure.experiments(plan_of(name), settings, name).values()
    return found


def nine(bml: float, others: float = 16 / 9) -> Reproduction:
    """Return what comes of BML's time, and that of all others, in that of all data over a cable."""
    trials, one = [], experiment("bml")
    for system in one.systems:
        network = topos.parse(system.network)
        efficiency = header_efficiency(header_bytes(network, system.routing), system.mtu)
        unit_s = (one.workload.volume_bytes or 0) * 8 / (100e6 * efficiency)
        units = bml if system.name == BML else others
        trials.append(row(system.name, completion_s=units * unit_s, ideal_s=8 / 9 * unit_s))
    names = [system.name for system in one.systems]
    return reproduced("bml", MadeUp(names, {"trials": twice(trials)}))


def test_bml_takes_half_the_time_of_parameter_servers() -> None:
    found = nine(8 / 9)
    assert found.verdict == AGREES
    assert of(found, "all-reduce", BML).ours == pytest.approx(8 / 9, rel=0.02)
    ratio = of(found, f"{BML} / {SERVERS}", "time")
    assert ratio.paper == 0.5
    assert ratio.ours == pytest.approx(0.5, rel=0.02)
    saved = of(found, ratio.series, "less time, % (of jobs, at most)")
    assert saved.paper == 56.4
    assert saved.ours == pytest.approx(50, rel=0.02)
    for k, spec in {2: "bcube,8,1", 3: "bcube,8,2", 4: "bcube,4,3"}.items():
        assert of(found, f"BML, {spec}, by paths alone", "time, of a fat-tree's").ours == (
            pytest.approx(1 / k)
        )
        assert of(found, f"BCube, {spec}", "switches a server, of a fat-tree's").ours == (
            pytest.approx(k / 5)
        )


def test_bml_that_is_no_faster_differs_and_says_why() -> None:
    found = nine(16 / 9)
    assert found.verdict == DIFFERS
    assert any("the slowest" in reason for reason in found.reasons)


def test_bml_sends_no_more_than_there_is_room_for() -> None:
    little, twice_as_fast, much = (
        experiment("bml", rate_mbit=mbit).workload.volume_bytes or 0 for mbit in (100.0, 200.0, 1e5)
    )
    assert twice_as_fast == pytest.approx(2 * little, rel=1e-6)
    # A ring, which sends 16/9 of the volume from each server, is busy for six seconds.
    assert little * 16 / 9 == pytest.approx(6 * 100e6 / 8)
    options = experiment("bml").workload.options
    network = topos.parse("tree,9,1")
    assert plan_for(network, Workload("all-reduce", much, options=options), "ring", seed=1)
    more = Workload("all-reduce", much + 1, options=options)
    with pytest.raises(PillarboxError, match="of memory"):
        plan_for(network, more, "ring", seed=1)


def graph_s(network: str, algorithm: str, routing: str = "") -> float:
    """Return the time of an all-reduce by its graph, in that of all data over a cable."""
    topology = topos.parse(network)
    elements = 6 * topology.servers**2  # so that all chunks are alike
    plan = plan_for(topology, Workload("all-reduce", 4 * elements), algorithm, 1)
    pairs = [(flow.source, flow.destination) for flow in plan.flows()]
    routes = routes_of(topology, static_paths(topology, routing, pairs))
    shared = MaxMin(routes, link_count(topology))
    found = transfer_end_times_s(plan, lambda active: shared.rates(1.0, active))
    return float(found.max()) / (32 * elements)


@pytest.mark.parametrize(
    ("network", "algorithm", "routing", "phases"),
    [
        ("tree,3,3", "ring", "", of_ring(9)),
        ("bcube,3,1", "ring", "bcube", of_ring(9)),
        ("bcube,3,1", "bml", "bcube", of_digits(bml_threads([3, 3]))),
        ("bcube,2,2", "bml", "bcube", of_digits(bml_threads([2, 2, 2]))),
        ("tree,4,4", "halving-doubling", "", of_digits([halving_schedule(16)])),
    ],
)
def test_phases_take_as_long_as_the_graph(
    network: str, algorithm: str, routing: str, phases: list[Phase]
) -> None:
    topology = topos.parse(network)
    together = phases_duration_s(topology, phases, range(topology.servers), routing)
    graph = graph_s(network, algorithm, routing)
    least = all_reduce_share(topology, range(topology.servers))
    # Whoever need not wait for all is sooner or as soon.
    assert least - 1e-9 <= graph <= together + 1e-9
    if algorithm == "bml" or network == "tree,3,3":
        assert graph == pytest.approx(together) == pytest.approx(least)


def test_six_of_a_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"BCube": "bcube,4,1", "tree": "tree,4,4", "DCell": "dcell,4,1"}
    monkeypatch.setattr(collectives, "PRICED", small)
    made = collectives.collectives.reproduce(Settings(tmp_path, repeats=2))
    assert made.verdict == AGREES
    assert of(made, collectives.BML, "BCube").ours == pytest.approx(1)
    assert of(made, collectives.RING, "tree").ours == pytest.approx(1)
    ring, drawn = of(made, collectives.RING, "DCell"), of(made, collectives.RANDOM, "DCell")
    assert 1 < (ring.ours or 0) < (drawn.ours or 0)
    assert (ring.draws, drawn.draws) == (0, 2)


def live(over: float) -> Reproduction:
    names = [system.name for system in experiment("collectives-live").systems]
    trials = [row(name, bound_bps=1e9, goodput_bps=1e9 / over, ideal_bps=1e9) for name in names]
    return reproduced("collectives-live", MadeUp(names, {"trials": twice(trials)}))


def test_what_runs_is_near_its_bound_or_differs() -> None:
    found = live(1.04)
    assert found.verdict == AGREES
    assert of(found, "all-reduce", "tree, ring").ours == pytest.approx(1.04)
    assert of(found, "all-reduce", "tree, ring").ideal == 1.0
    assert live(1.3).verdict == DIFFERS
