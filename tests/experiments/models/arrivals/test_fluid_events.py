"""Flows that come and go, against slower ways to find the same, and against theory."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.models.arrivals.fluid_events import (
    delivered_bits_at,
    simulate_fluid_flows,
)
from pillarbox.experiments.models.fluid.completion import completed_s
from pillarbox.experiments.models.fluid.directed_links import Routes, link_count
from pillarbox.experiments.models.fluid.rates import MaxMin
from pillarbox.experiments.models.simulator.flow_arrays import random_flows
from pillarbox.experiments.models.simulator.paths import routes
from pillarbox.experiments.models.workloads.sizes import sizes_of
from pillarbox.topos.base.errors import PillarboxError

LINKS = 5
ONE_LINK = Routes(numpy.array([0, 1, 2, 3]), numpy.array([0, 0, 0]))

paths_of_flows = st.lists(st.lists(st.integers(0, LINKS - 1), max_size=4), min_size=1, max_size=12)


def routes_of(paths: list[list[int]]) -> Routes:
    starts = numpy.concatenate([[0], numpy.cumsum([len(path) for path in paths])])
    return Routes(starts, numpy.array([link for path in paths for link in path], numpy.int64))


def plainly(
    paths: list[list[int]],
    start_s: list[float],
    bits: list[float],
    capacity: list[float],
    after: list[set[int]],
) -> list[float]:
    """Return when flows end: all rates anew at each event, by filling all links with water."""
    ended, left, now = [numpy.nan] * len(paths), list(bits), 0.0
    while True:
        done = {flow for flow, end in enumerate(ended) if end == end}
        may = [f for f in range(len(paths)) if f not in done and after[f] <= done and paths[f]]
        active = [flow for flow in may if start_s[flow] <= now]
        rates = filled({flow: paths[flow] for flow in active}, capacity)
        due = [now + left[flow] / rates[flow] for flow in active if rates[flow] > 0]
        due += [start_s[flow] for flow in may if start_s[flow] > now]
        if not due:
            return ended
        for flow in active:
            left[flow] -= rates[flow] * (min(due) - now)
            if rates[flow] > 0 and left[flow] <= 1e-9 * bits[flow]:
                ended[flow] = min(due)
        now = min(due)


def filled(paths: dict[int, list[int]], capacity: list[float]) -> dict[int, float]:
    rates: dict[int, float] = {}
    while len(rates) < len(paths):
        levels = {}
        for link in range(LINKS):
            on_link = [flow for flow, path in paths.items() for one in path if one == link]
            free = capacity[link] - sum(rates.get(flow, 0.0) for flow in on_link)
            growing = sum(flow not in rates for flow in on_link)
            if growing:
                levels[link] = max(0.0, free) / growing
        fullest = min(levels, key=lambda link: levels[link])
        for flow, path in paths.items():
            if flow not in rates and fullest in path:
                rates[flow] = levels[fullest]
    return rates


@given(paths=paths_of_flows, data=st.data())
def test_the_same_as_by_filling_all_links_anew(paths: list[list[int]], data: st.DataObject) -> None:
    flows = len(paths)
    # Few values, so that much happens in the same moment; links without capacity among them.
    times, bits, capacity = (
        data.draw(st.lists(st.sampled_from(values), min_size=count, max_size=count))
        for values, count in (
            ([0.0, 0.5, 1.0, 3.7], flows),
            ([0.1, 1.0, 2.5], flows),
            ([0.0, 1.0, 1.5, 7.0], LINKS),
        )
    )
    after = [
        data.draw(st.sets(st.integers(0, flow - 1), max_size=2)) if flow else set()
        for flow in range(flows)
    ]
    found = simulate_fluid_flows(
        routes_of(paths),
        numpy.array(times),
        numpy.array(bits),
        numpy.array(capacity),
        after=routes_of([sorted(others) for others in after]),
    )
    expected = plainly(paths, times, bits, capacity, after)
    assert found.end_s.tolist() == pytest.approx(expected, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("spec", ["bcube,4,1", "dcell,4,1", "dpillar,4,2", "tree,4,4"])
@pytest.mark.parametrize("load", [0.3, 0.9])
def test_the_same_as_rates_of_all_flows_anew(spec: str, load: float) -> None:
    network, random = topos.parse(spec), numpy.random.default_rng(1)
    paths = routes(network, "", *random_flows(network.servers, 500, random))
    bits = sizes_of("web-search").draw(500, random) * 8.0
    last_s = (bits * numpy.diff(paths.starts)).sum() / (load * 2 * network.cables * 1e9)
    starts, capacity = random.random(500) * last_s, numpy.full(link_count(network), 1e9)
    found = simulate_fluid_flows(paths, starts, bits, capacity)
    shared = MaxMin(paths, len(capacity))
    expected = completed_s(bits, starts, lambda active: shared.rates(capacity, active))
    took, should = found.end_s - starts, expected - starts
    assert numpy.abs(took / should - 1).max() < 1e-9
    assert found.events <= 1000 and 0 < found.most_active <= 500


def test_a_batch_of_equal_flows_ends_as_fluids_do() -> None:
    bcube = topos.parse("bcube,4,1")
    pairs = numpy.array([(a, b) for a in range(16) for b in range(16) if a != b]).T
    paths, capacity = routes(bcube, "bcube", *pairs), numpy.full(link_count(bcube), 1e6)
    bits = numpy.full(paths.flows, 8e6)
    starts, shared = numpy.zeros(paths.flows), MaxMin(paths, len(capacity))
    found = simulate_fluid_flows(paths, starts, bits, capacity)
    expected = completed_s(bits, starts, lambda active: shared.rates(capacity, active))
    assert found.end_s.tolist() == pytest.approx(expected.tolist())
    assert found.events == 2  # all begin together, and end together


@given(st.floats(1e-3, 1e12), st.floats(1, 1e12), st.integers(1, 9), st.floats(0, 1e6))
def test_a_lone_flow_has_the_rate_of_its_slowest_link(
    bits: float, capacity: float, length: int, start_s: float
) -> None:
    capacities = capacity * numpy.arange(length, 0, -1.0)
    path = Routes(numpy.array([0, length]), numpy.arange(length))
    found = simulate_fluid_flows(path, numpy.array([start_s]), numpy.array([bits]), capacities)
    assert found.end_s[0] == pytest.approx(start_s + bits / capacity)


@pytest.mark.few
@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("name", ["1000", "web-search", "cache"])
def test_a_single_cable_is_a_queue_with_processor_sharing(name: str, load: float) -> None:
    """M/G/1-PS: the mean slowdown is 1 / (1 - load), whatever the sizes (Kleinrock 1967)."""
    flows, random = 400_000, numpy.random.default_rng(1)
    bits = sizes_of(name).draw(flows, random) * 8.0
    starts = numpy.sort(random.random(flows)) * bits.sum() / load
    paths = Routes(numpy.arange(flows + 1), numpy.zeros(flows, numpy.int64))
    found = simulate_fluid_flows(paths, starts, bits, numpy.ones(1))
    settled = slice(flows // 10, -flows // 10)
    slowdown = ((found.end_s - starts) / bits)[settled]
    assert slowdown.mean() == pytest.approx(1 / (1 - load), rel=0.05)
    # Each size by itself, too: in proportion, none waits longer than another.
    large = bits[settled] >= numpy.median(bits)
    assert slowdown[large].mean() == pytest.approx(1 / (1 - load), rel=0.05)


def test_what_was_delivered_is_what_was_asked_for() -> None:
    network, random = topos.parse("ficonn,4,1"), numpy.random.default_rng(2)
    paths = routes(network, "", *random_flows(network.servers, 300, random))
    bits, starts = random.uniform(1, 50, 300), random.random(300) * 20
    moments = numpy.linspace(0, 200, 400)
    found = simulate_fluid_flows(
        paths, starts, bits, numpy.full(link_count(network), 10.0), moments_s=moments
    )
    assert found.delivered_bits[-1] == pytest.approx(bits.sum())
    assert (numpy.diff(found.delivered_bits) >= -1e-9).all()
    assert delivered_bits_at(found, moments) == pytest.approx(found.delivered_bits, abs=1e-9)
    under_way = (starts[:, None] < moments) & (found.end_s[:, None] > moments)
    assert found.active.tolist() == under_way.sum(axis=0).tolist()
    assert found.active.max() == pytest.approx(found.most_active, abs=3)


def test_between_two_moments_as_much_is_delivered_as_the_rates_say() -> None:
    found = simulate_fluid_flows(
        ONE_LINK,
        numpy.array([0.0, 1.0, 9.0]),
        numpy.array([4.0, 9.0, 1.0]),
        numpy.array([2.0]),
        moments_s=numpy.array([1.0, 2.0, 3.5, 8.0, 100.0]),
    )
    assert found.end_s.tolist() == pytest.approx([3.0, 6.5, 9.5])
    assert found.delivered_bits.tolist() == pytest.approx([2.0, 4.0, 7.0, 13.0, 14.0])
    assert found.active.tolist() == [2, 2, 1, 0, 0]


def test_no_flows_deliver_nothing() -> None:
    none = Routes(numpy.zeros(1, numpy.int64), numpy.zeros(0, numpy.int64))
    found = simulate_fluid_flows(none, numpy.empty(0), numpy.empty(0), numpy.ones(1))
    assert delivered_bits_at(found, numpy.array([0.0, 1.0])).tolist() == [0.0, 0.0]


def test_of_several_paths_the_one_with_the_fewest_flows_is_taken() -> None:
    # Three flows of two paths each: over link 0, and over links 1 and 2.
    paths = routes_of([[0], [1, 2]] * 3)
    found = simulate_fluid_flows(
        paths, numpy.array([0.0, 0.1, 0.2]), numpy.ones(3), numpy.ones(3), choices=2
    )
    assert found.path.tolist() == [0, 1, 0]  # the short one first, and again when both have one
    assert simulate_fluid_flows(
        routes_of([[], [1, 2]]), numpy.zeros(1), numpy.ones(1), numpy.ones(3), choices=2
    ).path.tolist() == [1]


def test_waiting_flows_begin_when_the_last_of_those_before_them_has_ended() -> None:
    chain = routes_of([[], [0], [1], [0, 1]])
    found = simulate_fluid_flows(
        routes_of([[0], [1], [2], [0]]),
        numpy.array([0.0, 0.0, 0.0, 6.0]),
        numpy.array([1.0, 2.0, 3.0, 4.0]),
        numpy.ones(3),
        after=chain,
    )
    assert found.begin_s.tolist() == [0.0, 1.0, 3.0, 6.0]
    assert found.end_s.tolist() == [1.0, 3.0, 6.0, 10.0]


def test_what_waits_for_itself_never_begins() -> None:
    circle = Routes(numpy.array([0, 1, 2, 2]), numpy.array([1, 0]))
    ends = simulate_fluid_flows(
        ONE_LINK, numpy.zeros(3), numpy.ones(3), numpy.ones(1), after=circle
    ).end_s
    assert ends.tolist() == pytest.approx([numpy.nan, numpy.nan, 1.0], nan_ok=True)


def test_first_full_link_limits_the_flows_that_others_find() -> None:
    links = numpy.array([0, 1, 0, 1, 0, 1, 2, 1, 2])
    paths = Routes(numpy.array([0, 2, 4, 6, 7, 9]), links)
    capacity = numpy.array([1.0, 1.0, 0.5])
    starts = numpy.array([0.0, 1.0, 2.0, 3.0, 9.0])
    volumes = numpy.array([3.0, 3.0, 1.0, 9.0, 1.0])
    found = simulate_fluid_flows(paths, starts, volumes, capacity, records_limits=True)
    assert found.end_s[:3].max() < 9.0 < found.end_s[3]
    # The first three flows share links 0 and 1 exactly: link 0 limits them, not link 1.
    assert found.limits.tolist() == [0, 0, 1, 0, 1, 0, 0, 0, 1]
    assert not len(simulate_fluid_flows(paths, starts, volumes, capacity).limits)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"volume_bits": numpy.array([1.0, 0.0, 1.0])}, "a volume of more than 0 bits"),
        ({"volume_bits": numpy.ones(2)}, "as many volumes"),
        ({"start_s": numpy.array([0.0, numpy.nan, 1.0])}, "a finite earliest start time"),
        ({"choices": 2}, "2 paths each"),
        ({"after": Routes(numpy.array([0, 1, 1, 1]), numpy.array([3]))}, "0 to 2"),
        ({"after": Routes(numpy.array([0, 0]), numpy.array([0]))}, "as many lists"),
    ],
)
def test_what_cannot_be_simulated(changes: dict[str, Any], sentence: str) -> None:
    asked: dict[str, Any] = {
        "routes": ONE_LINK,
        "start_s": numpy.zeros(3),
        "volume_bits": numpy.ones(3),
        "capacity_bps": numpy.ones(1),
    }
    with pytest.raises(PillarboxError, match=sentence):
        simulate_fluid_flows(**{**asked, **changes})
