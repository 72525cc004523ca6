"""Rates, delays and prices for each level of cables: specs, errors, and what keeps them."""

from __future__ import annotations

import pytest

from pillarbox import topos
from pillarbox.topos.base.levels import MOST_FACTOR, network_with_rates

EVERY = [spec for kind in topos.kinds() for spec in topos.network(kind).examples]


@pytest.mark.parametrize("spec", EVERY)
def test_the_number_of_levels_is_that_of_the_cables(spec: str) -> None:
    network = topos.parse(spec)
    assert network.levels == 1 + max(cable.level for cable in network.whole.links())


@pytest.mark.parametrize("spec", EVERY)
def test_every_network_with_levels_takes_a_rate_for_each(spec: str) -> None:
    levels = topos.parse(spec).levels
    rates = ":".join(str(level + 2) for level in range(levels))
    if levels == 1:
        with pytest.raises(topos.PillarboxError, match="has one level of cables"):
            topos.parse(f"{spec},rates={rates}")
        return
    network = topos.parse(f"{spec},rates={rates}")
    assert network.spec == f"{spec},rates={rates}"
    assert topos.parse(network.spec) == network != topos.parse(spec)
    assert hash(topos.parse(network.spec)) == hash(network)
    assert network.whole.factors == network.factors
    for cable in network.links():
        assert network.rate_of_level(cable.level) == cable.level + 2
        assert network.rate_of_port(cable.a, cable.a_port) == cable.level + 2
        assert network.rate_of_port(cable.b, cable.b_port) == cable.level + 2


def test_options_may_be_combined_and_survive_growth() -> None:
    options = "rates=9:3:1,delays=1:2:3,prices=4:1:1"
    network = topos.parse(f"bcube,4,2,servers=32,{options}")
    assert network.spec == f"bcube,4,2,servers=32,{options}"
    assert network.resized(48).spec == f"bcube,4,2,servers=48,{options}"
    assert network.whole.spec == f"bcube,4,2,{options}"
    assert (network.delay_of_level(2), network.price_of_level(0)) == (3, 4)
    assert (
        topos.parse("bcube,4,2,rates=9:3:1,servers=32").spec == "bcube,4,2,servers=32,rates=9:3:1"
    )


def test_without_factors_every_level_counts_once() -> None:
    network = topos.parse("bcube,4,1,rates=1:1")
    assert network == topos.parse("bcube,4,1")  # factors that are all 1 change nothing
    assert network.factors == ((), (), ())
    assert network.rate_of_level(1) == network.delay_of_level(1) == network.price_of_level(1) == 1
    assert topos.parse("bcube,4,1,rates=2:2") != network  # twice the rate of the lab


def test_a_port_without_a_cable_has_the_rate_1() -> None:
    tree = topos.parse("tree,4,5,servers=17,rates=3:2")
    last_leaf = tree.servers + 4
    assert [tree.rate_of_port(last_leaf, port) for port in range(5)] == [3, 1, 1, 1, 2]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("rates=9", "has 2 levels of cables, and rates=9 gives 1"),
        ("rates=9:1:1", "gives 3"),
        ("rates=0:1", "'0' in rates= is not a whole number from 1"),
        ("rates=-1:1", "'-1' in rates="),
        ("rates=1.5:1", "'1.5' in rates="),
        ("rates=:1", "'' in rates="),
        (f"rates={MOST_FACTOR + 1}:1", f"from 1 to {MOST_FACTOR}"),
        (f"rates={'9' * 10**6}:1", "in rates= is not a whole number"),
        ("rates=9:1,rates=9:1", "unknown or repeated"),
        ("delays=5", "has 2 levels of cables, and delays=5"),
        ("prices=x:1", "'x' in prices="),
    ],
)
def test_wrong_factors_are_one_sentence(options: str, says: str) -> None:
    with pytest.raises(topos.PillarboxError) as refused:
        topos.parse(f"bcube,4,1,{options}")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_largest_factor_is_accepted() -> None:
    assert topos.parse(f"bcube,4,1,rates={MOST_FACTOR}:1").rate_of_level(0) == MOST_FACTOR


def test_numbers_come_before_the_options() -> None:
    with pytest.raises(topos.PillarboxError, match="must come before the options"):
        topos.parse("bcube,rates=9:1,4,1")


@pytest.mark.parametrize(
    ("rates_mbit", "expected"),
    [
        ([180, 20], ("n,rates=9:1", 20.0)),
        ([20, 20], ("n,rates=1:1", 20.0)),
        ([0.3, 0.1], ("n,rates=3:1", 0.1)),
        ([7.0, 3], ("n,rates=7:3", 1.0)),
    ],
)
def test_rates_in_mbit_become_a_rate_and_factors(
    rates_mbit: list[float], expected: tuple[str, float]
) -> None:
    assert network_with_rates("n", rates_mbit) == expected


@pytest.mark.parametrize("rates_mbit", [[], [10, 0], [-1, 1], [float("nan"), 1], [float("inf"), 1]])
def test_rates_in_mbit_are_above_0(rates_mbit: list[float]) -> None:
    with pytest.raises(topos.PillarboxError, match="rates_mbit has the rate of each level"):
        network_with_rates("bcube,4,1", rates_mbit)
