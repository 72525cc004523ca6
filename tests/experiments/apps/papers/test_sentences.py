"""Sentences of Guo 2009 on its testbed, tested with made-up records on both sides of each."""

from __future__ import annotations

import pytest

from experiments.runs.reporting.reproduced.result import CLAIM_HOLDS, DIFFERS, Reproduction
from tests.experiments.apps.papers.test_reproductions import (
    MadeUp,
    of,
    reproduced,
    row,
    time_scale,
    twice,
)

LOCAL = "below one switch done, of the others' median"


def test_fig_11_of_bcube_tells_local_connections_apart() -> None:
    def found(local_s: float) -> Reproduction:
        flows = [
            row("tree", source="0.0", destination="0.3", end_s=local_s),
            row("tree", source="0.0", destination="3.0", end_s=9.0),
        ]
        tables = {"flows": twice(flows), "trials": twice([row("tree")])}
        return reproduced("bcube-fig11", MadeUp(["tree"], tables))

    first = found(1.0)
    local = of(first, "tree", "below one switch done, s")
    assert local.ours == pytest.approx(time_scale("bcube-fig11"))
    assert of(first, "tree", LOCAL).ours == pytest.approx(1 / 9)
    (held,) = [reason for reason in first.reasons if LOCAL in reason]
    assert held.startswith('"After these connections terminate at around 39 seconds, all the')
    assert found(10.0).verdict == DIFFERS


def all_to_all_of_bcube(times: float, spread: float) -> Reproduction:
    """Return Fig. 11 of made-up records: the tree takes so many times as long as BCube."""
    trials = [
        row("BCube", completion_s=1.0, link_spread=spread),
        row("tree", completion_s=times, link_spread=0.0),
    ]
    flows = [
        row("tree", source="0.0", destination="0.3", end_s=0.1),
        row("tree", source="0.0", destination="3.0", end_s=1.0),
    ]
    tables = {"trials": twice(trials), "flows": twice(flows)}
    return reproduced("bcube-fig11", MadeUp(["BCube", "tree"], tables))


@pytest.mark.parametrize(
    ("times", "spread", "word"),
    [
        (2.95, 0.03, CLAIM_HOLDS),
        (3.9, 0.03, CLAIM_HOLDS),
        (2.88, 0.03, DIFFERS),
        (3.9, 0.04, DIFFERS),
    ],
)
def test_fig_11_of_bcube_is_judged_by_its_sentences(times: float, spread: float, word: str) -> None:
    assert all_to_all_of_bcube(times, spread).verdict == word


def all_patterns_of_bcube(speedup: float) -> Reproduction:
    """Return Fig. 10 of made-up records: BCube is so many times as fast as the tree."""
    rates = {"BCube": speedup, "tree": 1.0}
    trials = [
        row(name, goodput_bps=1e9 * rate, completion_s=1 / rate) for name, rate in rates.items()
    ]
    intervals = [
        row(name, flow=0, begin_s=14.0, end_s=20.0, delivered_bytes=int(1e6 * rate))
        for name, rate in rates.items()
    ]
    tables = {"trials": twice(trials), "intervals": twice(intervals)}
    return reproduced("bcube-fig10", MadeUp([*rates], tables))


def test_fig_10_of_bcube_is_judged_by_speedups_alone() -> None:
    found = all_patterns_of_bcube(2.9)
    assert found.verdict == CLAIM_HOLDS
    assert [reason.partition(": BCube / tree, ")[0] for reason in found.reasons] == [
        '"BCube achieves near 2 times speedup for the one-to-x traffic" (Guo 2009, 7.5)',
        '"This is 1.9 times speedup." (Guo 2009, 7.5)',
        '"and 3 times higher throughput for the all-to-all traffic" (Guo 2009, 7.5)',
    ]
    less = all_patterns_of_bcube(1.9)
    assert less.verdict == DIFFERS
    assert "one-to-one: ours is 1.9, the paper's at least 1.94949" in less.reasons[0]
    assert "all-to-all: ours is 1.9, the paper's at least 2.88462" in less.reasons[1]
    assert all_patterns_of_bcube(2.8).verdict == DIFFERS
