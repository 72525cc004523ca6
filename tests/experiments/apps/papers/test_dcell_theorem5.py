"""All-to-all traffic on the levels of a DCell, against what can be worked out by hand."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from pillarbox.experiments.apps.papers.dcell import theorem5 as dcell_theorem5
from pillarbox.experiments.apps.papers.dcell.theorem5 import LevelLoads, Theorem5Task, measure
from pillarbox.experiments.apps.papers.shared.figure import find
from pillarbox.experiments.runs.reporting.reproduced.result import CLAIM_HOLDS, DIFFERS, Settings
from pillarbox.topos.dcell import DCell


def worked_out(n: int, k: int) -> list[int]:
    """Return the flows on a link of each level.

    Of t_l servers of a DCell_l, t_{l-1}^2 are reached from any one over a link of level l: each of
    the t_{l-1} links out of its DCell_{l-1} leads to t_{l-1} servers. One level up, the way to a
    server of another DCell_l has two ways inside DCell_ls, so a level below is taken 1 + 2 t_l
    times as often. A level has one directed link for each server, so this is a link's load, too.
    """
    sizes = DCell(n, k).sizes
    return [
        (sizes[level - 1] ** 2 if level else n - 1) * prod(1 + 2 * t for t in sizes[level:k])
        for level in range(k + 1)
    ]


@pytest.mark.parametrize(("n", "k"), [(4, 1), (2, 2), (3, 2), (5, 0)])
def test_all_links_of_a_level_have_the_same_load(n: int, k: int) -> None:
    found = measure(Theorem5Task(f"dcell,{n},{k}", 0, 1))
    assert found.least == found.mean == found.most == worked_out(n, k)


def test_a_sample_of_senders_has_the_mean() -> None:
    assert measure(Theorem5Task("dcell,3,2", 5, 1)).mean == worked_out(3, 2)


def test_the_bound_holds_where_the_paper_says_so(tmp_path: Path) -> None:
    settings = Settings(tmp_path, workers=1, quick=True, say=lambda _: None)
    found = dcell_theorem5.theorem5.reproduce(settings)
    assert found.verdict == CLAIM_HOLDS
    assert len(found.reasons) == 2  # sentences, not values
    last = find(found.rows, "dcell,4,2", "level 2")
    assert (last.ours, last.paper) == (20**2, 420)
    assert find(found.points, "dcell,4,2", 2).ours == pytest.approx(400 / 420)
    ratio = find(found.rows, "dcell,4,2", "fullest over emptiest")
    assert (ratio.ours, ratio.paper) == (pytest.approx(3 * 9 * 41 / 400), 4)


def test_a_link_with_as_many_flows_as_the_bound_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = LevelLoads([8.0, 4.0], [8.0, 4.0], [12.0, 4.0])  # the bounds are 12 and 6
    monkeypatch.setattr(dcell_theorem5, "QUICK_NETWORKS", {"dcell,2,1": 0})
    monkeypatch.setattr(dcell_theorem5, "task_results", lambda *_: [full])
    settings = Settings(tmp_path, workers=1, quick=True, say=lambda _: None)
    found = dcell_theorem5.theorem5.reproduce(settings)
    assert found.verdict == DIFFERS
    assert [reason.partition("): ")[2].partition(":")[0] for reason in found.reasons[:2]] == [
        "dcell,2,1, level 0",
        "dcell,2,1, fullest over emptiest",
    ]
