"""BCube's rules on single servers and flows, worked out by hand."""

from __future__ import annotations

import pytest

from pillarbox import topos
from pillarbox.hosts.bcube import rules
from pillarbox.hosts.bcube.rules import RULES, crowded, equal_share, is_large


def test_numbers_of_paths_and_hops() -> None:
    bcube = topos.parse("bcube,4,2")
    assert [RULES[name].choices(bcube) for name in ("bcube", "parallel")] == [1, 3]
    assert [RULES[name].most(bcube) for name in ("bcube", "parallel")] == [3, 4]
    assert [*RULES["bcube"].arrivals(bcube)] == [*RULES["parallel"].arrivals(bcube)] == [0, 1, 2]


def test_digits() -> None:
    # Server 39 of n = 4 is 213: 2 x 16 + 1 x 4 + 3.
    weights = (1, 4, 16, 64)
    assert [rules.digit(weights, 39, level) for level in range(3)] == [3, 1, 2]
    assert [rules.with_digit(weights, 39, level, 0) for level in range(3)] == [36, 35, 7]
    assert [rules.with_digit(weights, 39, level, 3) for level in range(3)] == [39, 47, 55]
    assert [rules.corrected(weights, 39, 58, level) for level in range(3)] == [38, 43, 55]  # to 322
    assert rules.numbers(topos.parse("bcube,4,2,servers=48")) == ((1, 4, 16, 48),)
    assert [rules.width((1, 4, 16, 48), level) for level in range(3)] == [4, 4, 3]


def test_digits_of_unequal_radices() -> None:
    # Server 17 of the radices 3, 2, 4 (level 0 first) is 2.1.2: 2 x 6 + 1 x 3 + 2.
    weights = (1, 3, 6, 24)
    assert [rules.width(weights, level) for level in range(3)] == [3, 2, 4]
    assert [rules.digit(weights, 17, level) for level in range(3)] == [2, 1, 2]
    assert [rules.with_digit(weights, 17, level, 0) for level in range(3)] == [15, 14, 5]
    assert [rules.corrected(weights, 17, 21, level) for level in range(3)] == [15, 17, 23]  # 3.1.0


def test_a_flow_of_a_twentieth_of_the_rate_over_a_tenth_of_a_second_is_large() -> None:
    assert is_large(5.0, 1000.0, 0.1)
    assert not is_large(4.99, 1000.0, 0.1)
    assert not is_large(5.0, 1000.0, 0.0999)
    assert is_large(100.0, 1000.0, 2.0)
    assert not is_large(99.9, 1000.0, 2.0)


@pytest.mark.parametrize(
    ("large_flows", "works", "here", "is_crowded"),
    [
        ([2, 1], [True, True], 2, True),
        ([2, 2], [True, True], 2, False),
        ([2, 3], [True, True], 2, False),
        ([2, 1], [True, False], 2, False),
        ([1, 3, 0], [True, True, False], 2, True),
        ([], [], 2, False),
    ],
)
def test_a_path_is_crowded_if_a_working_one_has_fewer_flows(
    large_flows: list[int], works: list[bool], here: int, is_crowded: bool
) -> None:
    assert crowded(large_flows, works, here) == is_crowded


def test_an_equal_share_is_less_the_own_rate_and_never_below_0() -> None:
    assert [equal_share(12.0, others, 0.0) for others in range(4)] == [12, 6, 4, 3]
    assert equal_share(12.0, 1, 2.0) == 4
    assert equal_share(12.0, 2, 4.5) == 0
