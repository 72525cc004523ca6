"""Routing that adapts to traffic while servers or switches fail, in small."""

from pathlib import Path

from pillarbox.experiments.apps.papers.ours import adaptive
from pillarbox.experiments.apps.papers.shared.degradation import SERVERS, SWITCHES
from pillarbox.experiments.apps.papers.shared.draws import Runs
from pillarbox.experiments.apps.papers.shared.figure import find, verdict
from pillarbox.experiments.runs.reporting.reproduced.result import (
    AGREES,
    DIFFERS,
    UNDECIDED,
    Settings,
)


def test_tar_finds_ways_that_tor_has_not() -> None:
    for kind in (SERVERS, SWITCHES):
        found = adaptive.measure(("ficonn,4,2", "tar", "tor", kind, 0.2, 1, 0))
        assert 0 < found["lost"] < found["plain_lost"]
    whole = adaptive.measure(("ficonn,4,2", "tar", "tor", SERVERS, 0.0, 1, 0))
    assert whole["lost"] == whole["plain_lost"] == 0


def test_what_adapts_loses_no_pair_that_other_flows_keep() -> None:
    found = adaptive.measure(("bcube,4,1", "bsr", "bsr", SWITCHES, 0.2, 1, 0))
    assert found["lost"] == found["plain_lost"]
    assert found["abt"] > found["plain_abt"]  # shortest paths first


def test_every_network_is_there_with_adapting_and_without(tmp_path: Path) -> None:
    settings = Settings(tmp_path, workers=1, quick=True, repeats=1, say=lambda _: None)
    found = adaptive.adaptive.reproduce(settings)
    assert {point.series for point in found.points} == {
        f"{name}, {label}, {SWITCHES}"
        for name in adaptive.NETWORKS
        for label in adaptive.LABELS[name]
    }
    assert find(found.rows, "FiConn, TAR, servers: pairs cut off, %", 20).draws == 1
    assert found.verdict == UNDECIDED  # by one draw


def test_chance_turns_no_verdict() -> None:
    draws = [
        {"abt": 2.0 + i / 10, "plain_abt": 1.0, "lost": 0.1, "plain_lost": 0.2} for i in range(5)
    ]
    worse = [{**one, "abt": 0.5, "lost": 0.3} for one in draws]
    for runs, word in ((draws, AGREES), (worse, DIFFERS), (draws[:2] + worse[:2], UNDECIDED)):
        assert verdict([adaptive._throughput_claim("BCube", Runs(None, runs))])[0] == word
        assert verdict([adaptive._reachability_claim(Runs(None, runs), SERVERS)])[0] == word
