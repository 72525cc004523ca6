"""Figures of networks of today: their measures on small networks, worked out by hand."""

from __future__ import annotations

from typing import Any, cast

import pandas
import pytest

from pillarbox import topos
from pillarbox.experiments.apps.papers.shared import fault_effects
from pillarbox.experiments.apps.papers.shared.reordering import COUNTERS, LARGEST, counted_by_trial
from pillarbox.experiments.apps.papers.today import crossbars, mesh, multipath, rails
from pillarbox.experiments.runs.reporting.reproduced.result import Point
from pillarbox.hosts.base.algorithms import route


@pytest.mark.parametrize(("size", "domains"), [(2, 3), (4, 4), (8, 2)])
def test_time_of_all_to_all_by_level(size: int, domains: int) -> None:
    """A relay's domain port carries what arrives over its rail for the others of its domain."""
    of_domain, of_rail = rails._level_times((rails.RAIL, size, domains))
    assert of_rail == size * (domains - 1)
    assert of_domain == pytest.approx((size - 1) * domains / rails.NINE)


@pytest.mark.parametrize(("size", "domains"), [(2, 4), (4, 4), (4, 8)])
def test_with_a_spine_domains_carry_only_their_own(size: int, domains: int) -> None:
    of_domain, of_rail = rails._level_times((rails.SPINE, size, domains))
    assert of_domain == pytest.approx((size - 1) / rails.NINE)
    assert of_rail == size * (domains - 1)


def test_growth_of_diameters() -> None:
    points = [Point("any", order, hops) for order, hops in enumerate([1, 3, 7, 15])]
    assert [*crossbars._growth(points)] == [(1.0, 2.0), (2.0, 4.0), (3.0, 8.0)]
    assert all(claim.holds for claim in crossbars._exponential(points))
    assert not all(claim.holds for claim in crossbars._linear(points))
    points[3] = Point("any", 3, 14)
    assert not all(claim.holds for claim in crossbars._exponential(points))


def test_throughput_of_a_full_mesh_of_one_dimension_is_its_bandwidth() -> None:
    """17 servers send to the 16 others each, by a cable of its own."""
    assert mesh._found(("mesh,17", 0.0, 1, 0)) == [1.0, 0.0]


def test_failed_cables_cost_throughput_and_cut_off_who_has_one_cable() -> None:
    sent, cut_off = mesh._found(("fattree,6", 0.5, 1, 0))
    assert 0 < sent < 0.8
    assert cut_off > 10


def test_counters_of_reordering_are_per_thousand_segments() -> None:
    """Two flows of 1,000 segments in trial 0; in trial 1 a tool that does not report them."""
    row = {"trial": 0, "delivered_bytes": 1_448_000, "retransmits": 30, "reordering_events": 9}
    reported = [
        {**row, "dsack_duplicates": 2, "reordering": 4},
        {**row, "dsack_duplicates": 0, "reordering": 16},
    ]
    silent = {"trial": 1, "delivered_bytes": 1_448_000} | dict.fromkeys(COUNTERS.values())
    flows = pandas.DataFrame([*reported, silent])
    flows = flows.astype(dict.fromkeys(COUNTERS.values(), "Int64"))
    found = {name: counted_by_trial(flows, name, mtu=1500) for name in COUNTERS}
    assert {name: values[0] for name, values in found.items()} == {
        "retransmissions": 30,
        "reordering events": 9,
        "duplicates": 1,
        LARGEST: 16,
    }
    assert all(values.isna()[1] for values in found.values())


@pytest.mark.parametrize("pattern", multipath.CABLES)
def test_a_pattern_loads_all_its_senders_and_receivers_equally(pattern: str) -> None:
    network = topos.parse("bcube,5,2")
    found = multipath.pairs(network, pattern, seed=3)
    assert all(source != destination for source, destination in found)
    for ends in zip(*found, strict=True):
        counts = {ends.count(one) for one in set(ends)}
        assert counts == ({12} if pattern == multipath.NEIGHBOURS else {1})
    hops = {len(route(network, "bcube", *pair).paths[0]) for pair in found}
    assert (hops == {1}) == (pattern == multipath.NEIGHBOURS)


def test_more_paths_carry_more_of_sparse_traffic() -> None:
    single, coupled = (
        multipath.measure(("bcube,3,2", multipath.SPARSE, *multipath.SYSTEMS[name], 0.5, 1, 0))
        for name in (multipath.SINGLE, multipath.COUPLED)
    )
    goodput_mbit = multipath.RATE_BPS * 1448 / 1514 / 1e6
    assert 0.5 * goodput_mbit < single["throughput"] < 1.01 * goodput_mbit
    assert single["throughput"] < coupled["throughput"] < 3.01 * goodput_mbit


class FlowsWithCut:
    """Records of two trials: bytes by interval of half a second, and a cut from 1 s to 2 s."""

    intervals = pandas.DataFrame(
        [
            {"trial": trial, "flow": flow, "begin_s": at / 2, "end_s": at / 2 + 0.5}
            | {"delivered_bytes": octets}
            for trial, flow, sizes in (
                (0, 0, [0, 100, 0, 0, 50, 100]),
                (0, 1, [100, 100, 0, 50, 50, 100]),
                (1, 0, [0, 0, 100, 100, 100, 0]),
            )
            for at, octets in enumerate(sizes)
        ]
    )
    events = pandas.DataFrame(
        [{"trial": 0, "at_s": 1.0, "event": "cut"}, {"trial": 0, "at_s": 2.0, "event": "healed"}]
    )


def test_longest_gap_begins_after_the_first_byte() -> None:
    gaps = fault_effects.longest_gap_s(cast("Any", FlowsWithCut))
    assert gaps.to_dict() == {0: 1.0, 1: 0.5}


def test_goodput_during_a_fault_ends_with_the_repair() -> None:
    run: Any = FlowsWithCut
    assert fault_effects.goodput_during_bps(run, "cut").to_dict() == {0: 50 * 8}
    assert fault_effects.goodput_during_bps(run, "healed").to_dict() == {0: 300 * 8}
    assert fault_effects.goodput_during_bps(run, "kill").empty
