"""Rules: how their hops become paths, and how many paths a pair has."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import topos
from hosts.base.path import Path, Step
from hosts.base.rules import NONE, Rule, SwitchPath
from hosts.bcube.rules import RULES, is_large
from hosts.dcell.rules import DCellHop, choose, own_link
from hosts.dpillar.rules import DPILLAR_MP, DPILLAR_SP, FAR_SIDE
from hosts.dpillar.rules import RULES as DPILLAR_RULES
from hosts.fattree import TWO_LEVEL
from hosts.tree import BRIDGE


def hops_of(first: int, source: int, destination: int, choice: int) -> Iterator[tuple[int, int]]:
    """Yield one hop over a middle server; choices 0 and 1 are the same, choice 3 has no path."""
    if choice == 3:
        return
    middle = first + max(choice, 1)
    yield 0, middle
    yield 1, destination


def rule_of(**fields: Any) -> Rule:
    return Rule(hops_of, lambda _: (10,), lambda _: 2, lambda _: range(2), **fields)


TREE = topos.parse("tree,2,2")


def test_a_rule_has_one_path_unless_it_says_otherwise() -> None:
    assert rule_of().choices(TREE) == 1
    assert BRIDGE.choices(TREE) == TWO_LEVEL.choices(topos.parse("fattree,4")) == 1
    assert rule_of().paths(TREE, 0, 3) == [Path(0, (Step(0, 11), Step(1, 3)))]


def test_paths_are_distinct_and_not_empty() -> None:
    found = rule_of(choices=lambda _: 4).paths(TREE, 0, 3)
    assert [path.servers for path in found] == [(0, 11, 3), (0, 12, 3)]
    assert rule_of().first_step(TREE, 0, 3) == Step(0, 11)
    assert rule_of().path(TREE, 0, 3).steps[0] == Step(0, 11)
    assert rule_of().path(TREE, 0, 3, 2).servers == (0, 12, 3)
    assert rule_of().path(TREE, 0, 3, 3).steps == ()
    assert NONE == -1


def test_a_rule_without_hops_has_no_first_step() -> None:
    empty = Rule(lambda *_: iter(()), lambda _: (), lambda _: 2, lambda _: range(2))
    assert empty.first_step(TREE, 0, 3) is None
    assert empty.paths(TREE, 0, 3) == []


@pytest.mark.parametrize(("choice", "switches"), [(0, (4, 6, 5))])
def test_a_path_through_switches_lists_them(choice: int, switches: tuple[int, ...]) -> None:
    def links(*_: int) -> Iterator[tuple[int, int]]:
        yield 0, 0
        for switch in switches:
            yield switch, 1

    found = SwitchPath(links, lambda _: (), lambda _: 4).path(TREE, 0, 3, choice)
    assert found == Path(0, (Step(0, 3, switches),))
    assert BRIDGE.path(TREE, 0, 3).steps[0].via == switches


def test_numbers_of_paths_and_hops_of_bcube() -> None:
    bcube = topos.parse("bcube,4,2")
    assert [RULES[name].choices(bcube) for name in ("bcube", "parallel")] == [1, 3]
    assert [RULES[name].most(bcube) for name in ("bcube", "parallel")] == [3, 4]
    assert [*RULES["bcube"].arrivals(bcube)] == [*RULES["parallel"].arrivals(bcube)] == [0, 1, 2]


# Liao 2012, section 3: 2k - 1 hops of the single path, 2k + 1 of the paths over a tunnel.
DPILLAR_MOST = [(rule, -1) for rule in DPILLAR_SP.values()]
DPILLAR_MOST += [(rule, 1) for rule in (*DPILLAR_MP.values(), *FAR_SIDE.values())]


@pytest.mark.parametrize("spec", ["dpillar,4,2", "dpillar,4,3", "dpillar,6,2"])
@pytest.mark.parametrize(("rule", "more"), DPILLAR_MOST)
def test_hops_of_dpillar_are_within_the_papers_bound(spec: str, rule: Rule, more: int) -> None:
    dpillar = topos.parse(spec)
    assert rule.most(dpillar) == 2 * dpillar.k + more
    assert [*rule.arrivals(dpillar)] == [1, 0]
    numbers = rule.numbers(dpillar)
    for source, destination in itertools.permutations(range(dpillar.servers), 2):
        for choice in range(rule.choices(dpillar)):
            hops = [*rule.hops(*numbers, source, destination, choice)]
            assert len(hops) <= rule.most(dpillar)


def test_numbers_of_paths_of_dpillar() -> None:
    dpillar = topos.parse("dpillar,8,3")
    for rules, paths in ((DPILLAR_SP, 1), (DPILLAR_MP, 4), (FAR_SIDE, 3)):
        assert [rule.choices(dpillar) for rule in rules.values()] == [paths] * 2
    assert [DPILLAR_RULES[name].choices(dpillar) for name in ("mp-both", "mp-random")] == [8, 8]


def test_a_flow_of_a_twentieth_of_the_rate_over_a_tenth_of_a_second_is_large() -> None:
    assert is_large(5.0, 1000.0, 0.1)
    assert not is_large(4.99, 1000.0, 0.1)
    assert not is_large(5.0, 1000.0, 0.0999)


def test_no_hop_of_dcell_is_neither_to_a_proxy_nor_rerouted() -> None:
    works: Any = {(0, 1): False}
    assert own_link(works, 0, 7, NONE, (0, 5, 1)) == DCellHop(NONE, NONE, NONE, False)
    assert own_link({(0, 1): True}, 0, 7, NONE, (0, 5, 1)) == DCellHop(1, 5, 7, False)
    assert own_link({(0, 1): True}, 0, 0, NONE, (0, 5, 1)) == DCellHop(1, 5, NONE, False)


def test_a_destination_in_the_own_dcell_that_cannot_be_reached_has_no_hop() -> None:
    inside: Any = SimpleNamespace(ports=[NONE] * 4, peers=[NONE] * 4, nearest=[])
    net: Any = SimpleNamespace(sizes=[4, 20])
    works: Any = {}
    hop = choose(net, 0, works, inside, 0, 2, NONE, NONE, (2, 2, NONE))
    assert hop == DCellHop(NONE, NONE, NONE, False)
