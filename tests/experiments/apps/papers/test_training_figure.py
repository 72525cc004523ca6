"""The figure `training`: equal prices, whole tensor groups, and failed cables."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.apps.papers.shared import live_figure
from pillarbox.experiments.apps.papers.today.training import (
    BUDGET_USD,
    FAILED,
    NETWORKS,
    OFF,
    PIPELINE,
    QUICK_NETWORKS,
    TENSOR,
    connected_servers,
    failures_of,
    measured,
    servers_of_groups,
)
from pillarbox.experiments.models.comparison.prices import LIAO, network_bill
from pillarbox.experiments.models.simulator.failure_sets import FailedNodes
from pillarbox.experiments.runs.reporting.reproduced.result import AGREES, DIFFERS, Settings
from tests.experiments.apps.papers.test_reproductions import (
    MadeUp,
    of,
    plan_of,
    reproduced,
    row,
    twice,
)


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_networks_have_the_same_price(network: tuple[str, str, int]) -> None:
    price = network_bill(topos.parse(network[0]), LIAO).network_usd
    assert price == pytest.approx(BUDGET_USD, rel=OFF)


def test_quick_networks_have_servers_for_a_replica_after_failures() -> None:
    assert list(QUICK_NETWORKS) == list(NETWORKS)
    for spec, *_ in QUICK_NETWORKS.values():
        network = topos.parse(spec)
        whole = len(servers_of_groups(network, range(network.servers)))
        # Each failed cable disconnects at most one server with a single port.
        lost = round(FAILED[-1] * network.cables) if network.ports == 1 else 0
        assert whole - lost * TENSOR >= TENSOR * PIPELINE


def failed(network: topos.Topology, *cables: int) -> FailedNodes:
    found = FailedNodes(
        numpy.zeros(network.servers, bool),
        numpy.zeros(network.switches, bool),
        numpy.zeros(network.cables, bool),
    )
    found.cables[list(cables)] = True
    return found


def test_a_job_leaves_out_servers_that_are_cut_off() -> None:
    tree = topos.parse("tree,4,2")
    cables = tree.cable_arrays()
    (of_server,) = numpy.flatnonzero((cables.a == 1) | (cables.b == 1)).tolist()
    broken = failed(tree, of_server)
    assert connected_servers(tree, broken) == [0, 2, 3, 4, 5, 6, 7]
    assert failures_of(tree, broken).links == {frozenset((1, 8))}
    assert servers_of_groups(tree, connected_servers(tree, broken)) == [4, 5, 6, 7]


def test_an_iteration_without_and_with_failed_cables() -> None:
    whole, broken = (measured(("bcube,4,1", "bsr", 2, share, 1, 0)) for share in (0.0, 0.1))
    for found in (whole, broken):
        assert found["ranks"] == TENSOR * PIPELINE
        assert found["ended"] == 100.0
    assert 1.0 <= whole["over_bound"] < broken["over_bound"]
    assert whole["sequences_per_s"] > broken["sequences_per_s"]


@pytest.mark.parametrize(("over", "verdict"), [(1.0, AGREES), (0.96, AGREES), (0.94, DIFFERS)])
def test_no_live_iteration_is_faster_than_its_bound(over: float, verdict: str) -> None:
    experiments = live_figure.experiments(
        plan_of("training-live"), Settings(Path(), rate_mbit=100.0), "training-live"
    )
    (experiment,) = experiments.values()
    names = [system.name for system in experiment.systems]
    trials = [row(name, bound_bps=1e9, goodput_bps=1e9 / over, ideal_bps=1e9) for name in names]
    found = reproduced("training-live", MadeUp(names, {"trials": twice(trials)}))
    assert found.verdict == verdict
    assert of(found, "training", "tree").ours == pytest.approx(over)
