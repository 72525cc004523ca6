"""Collective operations as fluids, beside what they can take at best."""

from __future__ import annotations

import pytest

import topos
from experiments.analysis.arrivals.collective import collective
from experiments.traffic.collectives.bound import least_s
from experiments.traffic.collectives.plan import plan_for
from experiments.traffic.workload import Workload

BPS = 8e6


def seconds(spec: str, operation: str, algorithm: str, **options: object) -> tuple[float, float]:
    """Return how long it takes, and the least that any could take."""
    network = topos.parse(spec)
    workload = Workload(operation, 7_200_000, options=options)
    plan = plan_for(network, workload, algorithm, seed=1)
    found = collective(network, "", plan, BPS)
    begun = found.begin_s.tolist()
    for one, begin_s in zip(plan.graph.transfers, begun, strict=True):
        assert begin_s == max((found.end_s[other] for other in one.after), default=0.0)
    return float(found.end_s.max()), least_s(network, plan, BPS)


def test_bml_keeps_all_ports_of_bcube_busy() -> None:
    took, least = seconds("bcube,3,1", "all-reduce", "bml")
    assert took == pytest.approx(least)
    assert took == pytest.approx(2 * 8 / 9 * 7.2 / 2)  # two ports (Wang et al. 2018)


@pytest.mark.parametrize("ranks", [2, 5, 9])
def test_a_ring_on_one_switch_sends_the_least(ranks: int) -> None:
    took, least = seconds("bcube,9,0", "all-reduce", "ring", ranks=ranks)
    assert took == pytest.approx(least, rel=1e-5)  # parts of the data are not all equal
    assert took == pytest.approx(2 * (ranks - 1) / ranks * 7.2, rel=1e-5)


@pytest.mark.parametrize(
    ("spec", "algorithm"),
    [("bcube,4,1", "bcube"), ("dcell,4,1", "ring"), ("tree,4,4", "halving-doubling")],
)
def test_none_takes_less_than_the_least(spec: str, algorithm: str) -> None:
    took, least = seconds(spec, "all-reduce", algorithm)
    assert took >= least * (1 - 1e-9)


def test_one_server_of_parameters_is_the_bottleneck() -> None:
    took, _ = seconds("bcube,4,0", "all-reduce", "parameter-server")
    assert took == pytest.approx(2 * 3 * 7.2)
