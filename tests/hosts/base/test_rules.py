"""Rules: how their hops become paths, and how many paths a pair has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.rules import NONE, Rule, SwitchPath
from pillarbox.hosts.fattree import TWO_LEVEL
from pillarbox.hosts.tree import BRIDGE


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
