"""Sentences of testbed papers, tested with made-up records on both sides of each."""

from __future__ import annotations

import pandas
import pytest

from pillarbox.experiments.runs.reporting import long_flows
from pillarbox.experiments.runs.reporting.reproduced.result import (
    CLAIM_HOLDS,
    DIFFERS,
    Reproduction,
)
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


# -- DCTCP (Alizadeh 2010, 4.1) --------------------------------------------------------------------

PACKET = 1514  # bytes of a full frame
OTHERS = ("Reno", "delay", "Scalable")
HELD = {"queue": 70.0, "cubic_queue": 380.0, "goodput": 1.0, "fairness": 0.99, "peak": 1.2}


def eight_into_one(monkeypatch: pytest.MonkeyPatch, kind: str, **changes: float) -> Reproduction:
    """Return the figure of made-up records; `changes` are those of the live or simulated DCTCP."""
    value = HELD | changes
    queues = {"DCTCP": value["queue"], "CUBIC": value["cubic_queue"], **dict.fromkeys(OTHERS, 50.0)}
    usual = {"DCTCP": 70.0, "CUBIC": 380.0, **dict.fromkeys(OTHERS, 50.0)}

    def of_system(name: str, live: bool) -> dict[str, float]:
        own = live == (kind == "live")
        packets = (queues if own else usual)[name]
        is_dctcp = own and name == "DCTCP"
        return {
            "goodput_bps": 48e6 * (value["goodput"] if is_dctcp else 1.0),
            "fairness": value["fairness"] if is_dctcp else 0.99,
            "queue_median_bytes": packets * PACKET,
            "queue_p99_bytes": packets * PACKET * (value["peak"] if is_dctcp else 1.2),
        }

    trials, links, tables = [], [], {}
    for name in queues:
        live = of_system(name, True)
        own = {column: live[column] for column in ("goodput_bps", "fairness")}
        trials.append(row(name, **own))
        own = {column: live[column] for column in ("queue_median_bytes", "queue_p99_bytes")}
        links += [
            row(name, **{"from": "s0", "to": "0.0"}, **own),
            row(name, **{"from": "0.1", "to": "s0"}, queue_median_bytes=9.0, queue_p99_bytes=1e9),
        ]
        tables[name] = pandas.DataFrame([of_system(name, False)] * 2)
    monkeypatch.setattr(long_flows, "simulated_trials", lambda run: tables[run.systems[0]])
    made_up = MadeUp([*queues], {"trials": twice(trials), "links": twice(links)})
    return reproduced("controls", made_up)


def test_queues_of_the_figure_are_those_of_the_bottleneck(monkeypatch: pytest.MonkeyPatch) -> None:
    found = eight_into_one(monkeypatch, "live", queue=65.0)
    assert found.verdict == CLAIM_HOLDS
    for series, packets in (
        ("live, median", 65.0),
        ("live, 99th percentile", 78.0),
        ("simulated, median", 70.0),
        ("simulated, 99th percentile", 84.0),
        ("DCTCP's median, live", 65.0),
        ("DCTCP's queue, live / simulated", 65 / 70),
    ):
        assert of(found, series, "DCTCP").ours == pytest.approx(packets)


@pytest.mark.parametrize("kind", ["live", "simulated"])
@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, CLAIM_HOLDS),
        ({"queue": 63.1}, CLAIM_HOLDS),
        ({"queue": 62.9}, DIFFERS),
        ({"peak": 1.25}, CLAIM_HOLDS),
        ({"peak": 1.26}, DIFFERS),
        ({"cubic_queue": 400.0}, CLAIM_HOLDS),
        ({"cubic_queue": 139.0}, DIFFERS),
        ({"cubic_queue": 310.0}, CLAIM_HOLDS),
        ({"cubic_queue": 280.0}, DIFFERS),  # a quarter from the other
        ({"goodput": 0.96}, CLAIM_HOLDS),
        ({"goodput": 0.94}, DIFFERS),
        ({"fairness": 0.96}, CLAIM_HOLDS),
        ({"fairness": 0.94}, DIFFERS),
    ],
)
def test_dctcp_is_judged_by_its_sentences(
    monkeypatch: pytest.MonkeyPatch, kind: str, changes: dict[str, float], word: str
) -> None:
    assert eight_into_one(monkeypatch, kind, **changes).verdict == word


def one_connection_sprayed(equal: float, unequal: float) -> Reproduction:
    """Return the figure of made-up records: times the goodput of one path, by kind of paths."""

    def records(names: tuple[str, ...], times: float) -> MadeUp:
        trials = [row(name, goodput_bps=1e7 * (times if "spray" in name else 1)) for name in names]
        return MadeUp([*names], {"trials": twice(trials)})

    bcube, dpillar = ("BCube, bsr", "BCube, spray"), ("DPillar, mp-both", "DPillar, spray")
    parts = {"equal": records(bcube + dpillar, equal), "unequal": records(bcube, unequal)}
    return reproduced("spraying", parts)


@pytest.mark.parametrize(
    ("equal", "unequal", "word"),
    [(1.81, 0.99, CLAIM_HOLDS), (1.79, 0.99, DIFFERS), (1.81, 1.01, DIFFERS)],
)
def test_spraying_is_judged_by_equal_and_unequal_paths(
    equal: float, unequal: float, word: str
) -> None:
    assert one_connection_sprayed(equal, unequal).verdict == word
