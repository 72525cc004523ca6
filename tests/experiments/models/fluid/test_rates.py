"""Rates against a slow textbook version in exact fractions, and what makes them max-min fair."""

import subprocess
import sys
from fractions import Fraction

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillarbox.experiments.models.fluid import rates
from pillarbox.experiments.models.fluid.directed_links import Routes
from pillarbox.experiments.models.fluid.rates import (
    MaxMin,
    bottleneck_throughput,
    equal_share_rates_bps,
    link_loads,
    max_min,
)

LINKS = 6
flows = st.lists(st.lists(st.integers(0, LINKS - 1), max_size=4), min_size=1, max_size=12)
capacities = st.lists(st.integers(0, 20), min_size=LINKS, max_size=LINKS)


def routes_from(paths: list[list[int]]) -> Routes:
    starts = numpy.cumsum([0, *map(len, paths)])
    return Routes(starts, numpy.array([link for path in paths for link in path], numpy.int64))


def progressive_filling(paths: list[list[int]], capacity: list[int]) -> list[Fraction | None]:
    """All flows grow until some link is full; its flows stop, the others grow on."""
    rates = [Fraction(0) if path else None for path in paths]
    growing = {flow for flow, path in enumerate(paths) if path}
    left = [Fraction(c) for c in capacity]
    while growing:
        count = [sum(paths[flow].count(link) for flow in growing) for link in range(LINKS)]
        more = min(left[link] / count[link] for link in range(LINKS) if count[link])
        for link in range(LINKS):
            left[link] -= more * count[link]
        for flow in growing:
            rates[flow] += more
        full = {link for link in range(LINKS) if count[link] and not left[link]}
        growing = {flow for flow in growing if not full & set(paths[flow])}
    return rates


@given(flows, capacities)
@settings(max_examples=5 * settings.default.max_examples)
def test_water_filling_is_progressive_filling(paths: list[list[int]], capacity: list[int]) -> None:
    rates = max_min(routes_from(paths), numpy.array(capacity, float))
    wanted = [numpy.nan if r is None else float(r) for r in progressive_filling(paths, capacity)]
    assert rates == pytest.approx(wanted, rel=1e-9, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("seed", range(3))
def test_every_flow_has_a_full_link_on_which_none_is_faster(seed: int) -> None:
    draw = numpy.random.default_rng(seed)
    count, links = 20_000, 3_000
    starts = numpy.concatenate([[0], numpy.cumsum(draw.integers(1, 9, count))])
    routes = Routes(starts, draw.integers(0, links, starts[-1]))
    capacity = draw.choice([1e8, 1e9, 1e10], links)
    rates = max_min(routes, capacity)
    loads = link_loads(routes, rates, links)
    assert (loads <= capacity * (1 + 1e-9)).all()
    fastest = numpy.zeros(links)
    of_entry = numpy.repeat(rates, numpy.diff(starts))
    numpy.maximum.at(fastest, routes.links, of_entry)
    full = loads >= capacity * (1 - 1e-9)
    bottleneck = full[routes.links] & (of_entry >= fastest[routes.links] * (1 - 1e-9))
    assert numpy.logical_or.reduceat(bottleneck, starts[:-1]).all()


@given(flows, capacities)
@settings(max_examples=2 * settings.default.max_examples)
def test_equal_shares_are_never_larger(paths: list[list[int]], capacity: list[int]) -> None:
    routes, each = routes_from(paths), numpy.array(capacity, float)
    shares = equal_share_rates_bps(routes, each)
    for flow, path in enumerate(paths):
        on = [sum(other.count(link) for other in paths) for link in path]
        wanted = min((capacity[ln] / n for ln, n in zip(path, on, strict=True)), default=numpy.nan)
        assert shares[flow] == pytest.approx(wanted, nan_ok=True)
    fair = max_min(routes, each)
    assert (numpy.isnan(fair) == numpy.isnan(shares)).all()
    assert not (shares > fair + 1e-9).any()


def test_only_active_flows_share() -> None:
    chain = routes_from([[0, 1], [0], [1]])
    shared = MaxMin(chain, 2)
    rates = shared.rates(6.0, numpy.array([True, False, True]))
    assert rates == pytest.approx([3.0, numpy.nan, 3.0], nan_ok=True)


def test_aggregate_bottleneck_throughput_counts_flows_that_have_a_path() -> None:
    assert bottleneck_throughput(numpy.array([2.0, numpy.nan, 5.0])) == 4.0
    assert bottleneck_throughput(numpy.array([numpy.nan])) == 0.0


def test_few_flows_need_no_numba() -> None:
    """Loading Numba takes a process a second."""
    code = (
        "import sys, numpy\n"
        "from pillarbox.experiments.models.fluid import rates\n"
        "from pillarbox.experiments.models.fluid.directed_links import Routes\n"
        "routes = Routes(numpy.array([0, 2, 3, 5]), numpy.array([0, 1, 1, 1, 2]))\n"
        "print(rates.MaxMin(routes, 3).rates(numpy.array([4.0, 9.0, 2.0])).tolist())\n"
        "assert 'numba' not in sys.modules"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert found == "[3.5, 3.5, 2.0]\n"


def test_many_entries_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    total = rates.CompiledForMany(sum)
    total.__dict__["compiled"] = lambda values: -1
    assert total(numpy.ones(rates.PLAIN_ENTRIES)) == rates.PLAIN_ENTRIES
    assert total([1]) == -1
    monkeypatch.setitem(sys.modules, "numba", None)
    assert rates.CompiledForMany(sum).compiled is sum


@pytest.mark.parametrize(("entries", "is_compiled"), [(10, False), (11, True)])
def test_the_largest_array_of_a_call_counts(
    entries: int, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "PLAIN_ENTRIES", 15)
    plain = rates.CompiledForMany(lambda *_: "plain")
    plain.__dict__["compiled"] = lambda *_: "compiled"
    routes = Routes(numpy.zeros(3, int), numpy.zeros(entries, int))
    assert plain(1.0, numpy.ones(5)) == "plain"
    assert plain(routes, 1.0, numpy.ones(2)) == ("compiled" if is_compiled else "plain")
    assert plain(1.0) == "compiled"  # each call counts


@given(seed=st.integers(0, 1000))
def test_compiled_rates_are_the_plain_ones(seed: int) -> None:
    chance = numpy.random.default_rng(seed)
    lengths = chance.integers(0, 5, 12)
    starts = numpy.concatenate([[0], numpy.cumsum(lengths)])
    routes = Routes(starts, chance.integers(0, 6, starts[-1]))
    by_link = Routes(*rates._flows_by_link.plain(routes, 6))
    flows_on = rates._flows_on.plain(routes.links, 6)
    capacity, active = chance.random(6), chance.random(12) < 0.8
    arguments = routes, by_link, capacity, active, 1 + chance.random(12)
    for function, given_ in (
        (rates._flows_on, (routes.links, 6)),
        (rates._flows_by_link, (routes, 6)),
        (rates._max_min_rates, arguments),
        (rates._smallest_equal_share, (routes, flows_on, capacity)),
    ):
        # _max_min_rates changes the capacities that are left.
        compiled, plain = (
            f(*(a.copy() if isinstance(a, numpy.ndarray) else a for a in given_))
            for f in (function.compiled, function.plain)
        )
        numpy.testing.assert_equal(compiled, plain)
