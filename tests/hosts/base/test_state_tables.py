"""State machines do what the tables in their modules say, row by row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from pillarbox import topos
from pillarbox.hosts.base import neighbours, probing
from pillarbox.hosts.base.neighbours import Neighbours
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.probing import Candidate, PathState, Probing
from pillarbox.hosts.base.timers import FAST


def rows(module: ModuleType) -> Iterator[tuple[str, str, str]]:
    """Yield each (state, event, next state) of a module's table."""
    assert module.__doc__
    table = re.search(r"^    state  .*(?:\n    .*)+", module.__doc__, re.MULTILINE)
    assert table
    head, *lines = (re.split(r" {2,}", line.strip()) for line in table[0].splitlines())
    for state, *following in lines:
        for event, after in zip(head[1:], following, strict=True):
            yield state, event, after


# -- paths and their probes ------------------------------------------------------------------------


def name_of(one: Candidate) -> str:
    return "silent" if one.silent else one.state.value + "*" * one.waiting


PROBE_EVENTS: dict[str, Callable[[Probing], object]] = {
    "begin": lambda rounds: rounds.begin(),
    "answer": lambda rounds: rounds.answer(rounds.round, 0, 1e9),
    "fail": lambda rounds: rounds.fail(0),
    "give up": lambda rounds: rounds.fail_unanswered(),
}


@pytest.mark.parametrize(("state", "event", "after"), list(rows(probing)))
def test_a_path_and_its_probes(state: str, event: str, after: str) -> None:
    rounds = Probing([Path(0, ())])
    rounds.begin()
    known = PathState("failed" if state == "silent" else state.rstrip("*"))
    one = Candidate(Path(0, ()), known, waiting=state.endswith("*"), silent=state == "silent")
    rounds.candidates = [one]
    assert name_of(one) == state
    PROBE_EVENTS[event](rounds)
    assert name_of(one) == after


# -- links -----------------------------------------------------------------------------------------

LINK = Step(1, 4)  # of server [0,0] of DCell_1: the cable to [1,0]
NOW_S = 10.0
LINK_EVENTS: dict[str, Callable[[Neighbours, float], object]] = {
    "hears me": lambda known, now: known.hear(LINK, True, now),
    "hears not": lambda known, now: known.hear(LINK, False, now),
    "silence": lambda known, now: known.time_out(now + 2 * FAST.neighbour_timeout_s),
    "no carrier": lambda known, now: known.set_carrier(1, False, now),
    "carrier": lambda known, now: known.set_carrier(1, True, now),
    "cut": lambda known, now: known.lose(LINK, now),
}
# How a link comes into each state.
BEFORE = {"up": "hears me", "deaf": "hears not", "silent": "cut", "unplugged": "no carrier"}


def state_of(known: Neighbours) -> str:
    """Return the state that can be seen: by routing, by the port, in the own heartbeats."""
    if not known.carrier(LINK.port):
        return "unplugged"
    beat = known.heartbeat(LINK.port)
    assert beat is not None
    heard = LINK.peer in beat.heard
    assert heard or not known.works(LINK)
    return "up" if known.works(LINK) else "deaf" if heard else "silent"


@pytest.mark.parametrize(("state", "event", "after"), list(rows(neighbours)))
def test_a_link(state: str, event: str, after: str) -> None:
    known = Neighbours(topos.parse("dcell,4,1"), 0, FAST, now=NOW_S)
    LINK_EVENTS[BEFORE[state]](known, NOW_S)
    now = NOW_S + 1.5 * FAST.heartbeat_s  # a cut is believed for one heartbeat
    assert state_of(known) == state
    LINK_EVENTS[event](known, now)
    assert state_of(known) == after


@pytest.mark.parametrize("module", [probing, neighbours])
def test_tables_are_whole(module: ModuleType) -> None:
    found = list(rows(module))
    events = PROBE_EVENTS if module is probing else LINK_EVENTS
    assert {event for _, event, _ in found} == set(events)
    assert {after for *_, after in found} <= {state for state, *_ in found}
