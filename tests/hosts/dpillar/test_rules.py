"""DPillar's rules on single servers and flows, worked out by hand."""

from __future__ import annotations

import itertools

import pytest

from pillarbox import topos
from pillarbox.hosts.base.rules import NONE, Rule
from pillarbox.hosts.dpillar.rules import (
    DPILLAR_MP,
    DPILLAR_SP,
    FAR_SIDE,
    RULES,
    booked,
    neighbour,
    numbers,
    paired,
    sibling,
    symbol,
    symbol_set,
)
from pillarbox.topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE, DPillar

SMALL = 3, 3, 27  # k, n/2, servers per column of dpillar,6,3

# Liao 2012, section 3: 2k - 1 hops of the single path, 2k + 1 of the paths over a tunnel.
MOST = [(rule, -1) for rule in DPILLAR_SP.values()]
MOST += [(rule, 1) for rule in (*DPILLAR_MP.values(), *FAR_SIDE.values())]


@pytest.mark.parametrize("spec", ["dpillar,4,2", "dpillar,4,3", "dpillar,6,2"])
@pytest.mark.parametrize(("rule", "more"), MOST)
def test_hops_of_dpillar_are_within_the_papers_bound(spec: str, rule: Rule, more: int) -> None:
    dpillar = topos.parse(spec)
    assert rule.most(dpillar) == 2 * dpillar.k + more
    assert [*rule.arrivals(dpillar)] == [1, 0]
    given = rule.numbers(dpillar)
    for source, destination in itertools.permutations(range(dpillar.servers), 2):
        for choice in range(rule.choices(dpillar)):
            hops = [*itertools.islice(rule.hops(*given, source, destination, choice), 100)]
            assert len(hops) <= rule.most(dpillar)


def test_numbers_of_paths_of_dpillar() -> None:
    dpillar = topos.parse("dpillar,8,3")
    for rules, paths in ((DPILLAR_SP, 1), (DPILLAR_MP, 4), (FAR_SIDE, 3)):
        assert [rule.choices(dpillar) for rule in rules.values()] == [paths] * 2
    assert [RULES[name].choices(dpillar) for name in ("mp-both", "mp-random")] == [8, 8]


def test_a_flow_is_booked_on_its_new_path() -> None:
    free = [4.0, 8.0, 6.0]
    works, hops = [True] * 3, [3] * 3
    assert booked(free, works, hops, NONE, 0.0) == 1
    assert free == [4.0, 4.0, 6.0]  # half of the available bandwidth for a new flow
    assert booked(free, works, hops, 0, 1.0) == 2
    assert free == [5.0, 4.0, 5.0]  # the flow's rate is subtracted here and added there
    assert booked(free, works, hops, 0, 2.0) == 0
    assert booked(free, [False] * 3, hops, NONE, 1.0) == NONE
    assert free == [5.0, 4.0, 5.0]
    assert booked(free, [False, True, False], hops, 0, 9.0) == 1
    assert free == [14.0, 0.0, 5.0]


def test_symbols_and_neighbours() -> None:
    assert numbers(DPillar(6, 3)) == SMALL
    k, half, size = SMALL
    server = 27 + 7  # column 1, symbols 0 2 1: 0 x 9 + 2 x 3 + 1
    assert [symbol(half, size, server, position) for position in range(3)] == [1, 2, 0]
    for column, clockwise, counter_clockwise in ((0, 0, 2), (1, 1, 0), (2, 2, 1)):
        assert symbol_set(k, size, column * 27, CLOCKWISE) == clockwise
        assert symbol_set(k, size, column * 27, COUNTER_CLOCKWISE) == counter_clockwise
    clockwise = [neighbour(*SMALL, server, CLOCKWISE, value) for value in range(3)]
    assert clockwise == [54 + 1, 54 + 4, 54 + 7]
    back = [neighbour(*SMALL, server, COUNTER_CLOCKWISE, value) for value in range(3)]
    assert back == [6, 7, 8]
    assert neighbour(*SMALL, 7, COUNTER_CLOCKWISE, 1) == 54 + 9 + 7  # from column 0 to column 2
    assert neighbour(*SMALL, 54 + 7, CLOCKWISE, 2) == 18 + 7  # and from column 2 to column 0
    assert [sibling(*SMALL, server, CLOCKWISE, value) for value in range(3)] == [28, 31, 34]
    assert [sibling(*SMALL, server, COUNTER_CLOCKWISE, value) for value in range(3)] == [33, 34, 35]


def test_the_first_pair_of_symbols_is_the_special_one() -> None:
    found = [[paired(number, special) for number in range(3)] for special in range(3)]
    assert found == [[0, 1, 2], [1, 0, 2], [2, 0, 1]]
