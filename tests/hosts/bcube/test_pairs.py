"""Large flows of a BCube source between the same two servers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.hosts.base.bandwidth import Bandwidth
from pillarbox.hosts.bcube.pairs import PairFlow, Pairs
from pillarbox.hosts.bcube.paths import path_set

BCUBE = topos.parse("bcube,4,1")
ONE, OTHER = path_set(BCUBE, 0, 5)
RATE_BPS = 1e6


def flow_on(path: Any, **fields: Any) -> PairFlow:
    selection: Any = SimpleNamespace(path=path, rate_bps=0.0)
    return PairFlow(selection, targets=(5,), **({"since_s": 0.0, "sent_bytes": 10**6} | fields))


def pairs_of(**flows: PairFlow) -> Any:
    known: Any = flows
    return Pairs(known, Bandwidth(2, RATE_BPS))


@pytest.mark.parametrize(("idle_s", "others"), [(0.0, 1), (1.99, 1), (2.0, 0), (3.0, 0)])
def test_a_flow_counts_as_large_for_two_seconds(idle_s: float, others: int) -> None:
    flows = {"first": flow_on(ONE), "second": flow_on(ONE)}
    pairs = pairs_of(**flows)
    assert pairs.is_large("first", flows["first"], 1.0)
    share = pairs.left_bps("second", flows["second"], OTHER, 2 * RATE_BPS, 1.0 + idle_s)
    assert share == RATE_BPS
    share = pairs.left_bps("second", flows["second"], ONE, 2 * RATE_BPS, 1.0 + idle_s)
    assert share == RATE_BPS / (1 + others)


def test_only_large_flows_to_the_same_destination_share() -> None:
    flows = {"small": flow_on(ONE, sent_bytes=100), "far": flow_on(ONE), "own": flow_on(ONE)}
    flows["far"].targets = (6,)
    pairs = pairs_of(**flows)
    assert not pairs.is_large("small", flows["small"], 1.0)
    assert pairs.is_large("far", flows["far"], 1.0)
    assert pairs.is_large("own", flows["own"], 1.0)
    assert pairs.left_bps("own", flows["own"], ONE, 2 * RATE_BPS, 1.0) == RATE_BPS
    assert pairs.left_bps("own", flows["own"], ONE, 0.3 * RATE_BPS, 1.0) == 0.3 * RATE_BPS


def test_the_own_rate_is_not_left_over_on_the_own_path() -> None:
    flow = flow_on(ONE)
    flow.selection.rate_bps = 0.25 * RATE_BPS
    pairs = pairs_of(own=flow)
    assert pairs.left_bps("own", flow, ONE, 2 * RATE_BPS, 1.0) == 0.75 * RATE_BPS
    assert pairs.left_bps("own", flow, OTHER, 2 * RATE_BPS, 1.0) == RATE_BPS
