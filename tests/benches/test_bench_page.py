"""The bench of the live page: it measures, judges, and says why it skips."""

from __future__ import annotations

import pytest

from pillarbox import topos
from tests.benches import page
from tests.harness.chromium import CHROMIUM


@pytest.mark.long
@pytest.mark.root
@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium: apt-get install chromium")
def test_it_measures_flows_the_server_and_a_browser() -> None:
    rows = list(page.run(quick=True))
    assert {row["outcome"] for row in rows} == {"ok"}
    watched = {row["watched_by"]: row["goodput_mbit"] for row in rows if "watched_by" in row}
    assert list(watched) == [page.AGAIN, page.CLIENT, page.BROWSER]
    assert min(watched.values()) > 0
    assert rows[-1]["frames_a_second"] > 0 and rows[-1]["first_picture_s"] > 0


def test_the_server_of_a_pretended_lab_takes_little_and_samples_as_often() -> None:
    row = page.server_load("bcube,2,1", 0.5)
    assert row["samples_a_second"] > 0
    assert row["server_percent"] >= 0


def test_without_root_or_chromium_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.harness.chromium.CHROMIUM", None)
    assert page._drawn("bcube,2,1", opened=False, quick=True)["outcome"].startswith("skipped")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    [row] = page._goodput(quick=True)
    assert row["outcome"] == "skipped: network namespaces need root"


@pytest.mark.parametrize(
    ("watched", "outcome"),
    [(0.995, "ok"), (0.98, f"missed: {page.LEAST_GOODPUT} wanted")],
)
def test_goodput_is_judged_by_that_of_the_same_turn(watched: float, outcome: str) -> None:
    alone = [100e6, 90e6, 110e6]
    found = {page.ALONE: alone, page.CLIENT: [one * watched for one in alone]}
    row = page._goodput_row("bcube,2,1", page.CLIENT, found, "ok", judged=True)
    assert row["ratio"] == pytest.approx(watched)
    assert row["outcome"] == outcome


def test_where_chance_does_as_much_nothing_is_shown() -> None:
    found = {page.ALONE: [100e6, 100e6], page.AGAIN: [103e6, 103e6]}
    row = page._goodput_row("bcube,2,1", page.AGAIN, found, "ok", judged=True)
    assert row["outcome"].startswith("missed: random variation")


def test_a_pretended_lab_loads_every_cable_otherwise_each_time() -> None:
    lab = page.SimulatedPageLab("bcube,2,1")
    first = list(lab.ask("sample")["sent_bytes"])
    second = [new - old for new, old in zip(lab.ask("sample")["sent_bytes"], first, strict=True)]
    assert len(first) == 2 * topos.parse("bcube,2,1").cables
    assert all(old > 0 and new > 0 and old != new for old, new in zip(first, second, strict=True))
