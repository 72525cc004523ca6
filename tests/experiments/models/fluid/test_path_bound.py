"""The bound of what flows deliver over their paths: whatever the shares, cables allow no more."""

from __future__ import annotations

import itertools

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid.ideal import header_efficiency, ideal, static_paths
from pillarbox.experiments.models.fluid.path_bound import PathBound
from pillarbox.experiments.models.workloads.flows import Flow
from pillarbox.hosts.base.path import Path

SPEC, ROUTING = "bcube,2,1", "bsr"
CUBE = topos.parse(SPEC)
PAIRS = [*itertools.permutations(range(CUBE.servers), 2)]
PATHS = static_paths(CUBE, ROUTING, PAIRS)
CABLE_BPS = 1e8 * header_efficiency(36)


def shares(short: float) -> numpy.ndarray:
    """Return rates that fill all cables, if flows over two cables get so much of them."""
    long = [path is not None and len(path.steps) > 1 for path in PATHS]
    return numpy.where(long, CABLE_BPS - short, short)


def test_shares_that_are_not_fair_carry_more_than_fair_ones_and_never_more_than_the_bound() -> None:
    flows = [Flow(number, *pair, duration_s=1.0) for number, pair in enumerate(PAIRS)]
    fair_bps = ideal(CUBE, ROUTING, flows, 1e8, segments_per_ack=1e9).total_bps
    bound = PathBound(CUBE, ROUTING, PATHS, 1e8)
    assert bound.rates_bps(shares(CABLE_BPS / 2)).sum() == pytest.approx(fair_bps, rel=1e-6)
    unfair = shares(0.7 * CABLE_BPS)
    assert unfair.sum() > 1.1 * fair_bps
    found = bound.rates_bps(unfair)
    assert found == pytest.approx(unfair)  # every flow fills a cable: nothing is left


@pytest.mark.parametrize("seed", range(5))
def test_nothing_that_cables_carry_exceeds_the_bound(seed: int) -> None:
    draw = numpy.random.default_rng(seed)
    bound = PathBound(CUBE, ROUTING, PATHS, 1e8)
    wish = draw.exponential(1.0, len(PAIRS))
    delivered = wish * draw.uniform(0.5, 1.0) / bound.least_s(wish)  # fits, and fills at most one
    found = bound.rates_bps(delivered)
    assert (found >= delivered * (1 - 1e-9)).all()
    assert bound.least_s(found) == pytest.approx(1.0)  # some cable is full, and none is too full


def test_a_flow_that_got_nothing_leaves_its_cables_unused() -> None:
    bound = PathBound(CUBE, ROUTING, PATHS[:1], 1e8)
    assert bound.rates_bps(numpy.zeros(1)).tolist() == pytest.approx([CABLE_BPS])
    both = PathBound(CUBE, ROUTING, [PATHS[0], PATHS[-1]], 1e8)
    assert both.rates_bps(numpy.array([1e6, 0.0])) == pytest.approx([CABLE_BPS] * 2)


def test_the_busiest_cable_sets_the_time() -> None:
    bound = PathBound(CUBE, ROUTING, [PATHS[0], PATHS[0], PATHS[-1]], 1e8)
    assert bound.least_s(numpy.zeros(3)) == 0
    assert bound.least_s(numpy.array([0.1, 0.2, 0.25])) == pytest.approx(0.3 / CABLE_BPS)
    assert PathBound(CUBE, ROUTING, [None], 1e8).least_s(numpy.ones(1)) == 0


def test_an_idle_flow_has_a_thousandth_of_the_mean() -> None:
    bound = PathBound(CUBE, ROUTING, [PATHS[0]] * 2, 1e8)
    found = bound.rates_bps(numpy.array([2e6, 0.0]))
    assert found == pytest.approx([CABLE_BPS * 2 / 2.001, CABLE_BPS * 0.001 / 2.001])


def test_a_flow_that_moved_is_limited_by_shared_cables_in_their_order() -> None:
    [one], [other] = ([path_over(middle)] for middle in (1, 2))
    back = PathBound(CUBE, ROUTING, [one, None], 1e8, later=[one, other])
    assert back.rates_bps(numpy.array([1.0, 3.0])) == pytest.approx([CABLE_BPS, 3.0])
    assert back.rates_bps(numpy.array([1.0, 3.0]), numpy.array([False, False])).tolist() == [0, 0]


def test_who_has_ended_takes_nothing() -> None:
    bound = PathBound(CUBE, ROUTING, [PATHS[0]] * 2, 1e8)
    equal = numpy.full(2, 1e6)
    assert bound.rates_bps(equal) == pytest.approx([CABLE_BPS / 2] * 2)
    assert bound.rates_bps(equal, numpy.array([True, False])) == pytest.approx([CABLE_BPS, 0.0])


def test_a_flow_that_moved_is_bound_by_the_cables_of_both_paths_alone() -> None:
    [one], [other] = ([path_over(middle)] for middle in (1, 2))
    delivered = numpy.array([2.5 * CABLE_BPS])
    moved = PathBound(CUBE, ROUTING, [one], 1e8, later=[other])
    assert moved.rates_bps(delivered).tolist() == delivered.tolist()  # they share no cable
    stayed = PathBound(CUBE, ROUTING, [one], 1e8, later=[one])
    assert stayed.rates_bps(delivered) == pytest.approx([CABLE_BPS])
    gone = PathBound(CUBE, ROUTING, [one], 1e8, later=[None])
    assert gone.rates_bps(numpy.array([5.0])).tolist() == [5.0]


def path_over(middle: int) -> Path:
    from pillarbox.experiments.runs.trials.recorded_paths import path_of

    found = path_of(CUBE, [CUBE.address(server) for server in (0, middle, 3)])
    assert found is not None
    return found


@pytest.mark.parametrize(("routing", "bound_bps"), [("hashed", 1e8), ("two-level", 0.5e8)])
def test_paths_that_switches_choose_are_bound_by_the_cables_of_servers(
    routing: str, bound_bps: float
) -> None:
    fattree = topos.parse("fattree,4")
    pairs = [(0, 8), (1, 12)]  # from one edge switch, so that both may use the same cable up
    one = static_paths(fattree, "two-level", pairs)
    assert one[0].steps[0].via[:2] == one[1].steps[0].via[:2]  # type: ignore[union-attr]
    bound = PathBound(fattree, routing, one, 1e8)
    share = bound.capacity_bps / 1e8
    assert bound.rates_bps(numpy.ones(2)).tolist() == pytest.approx([bound_bps * share] * 2)
