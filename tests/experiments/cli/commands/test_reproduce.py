"""The command ``reproduce``: what it prints and the files that it makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import pillarbox.experiments.cli.commands.reproduce as command_module
from pillarbox.experiments.apps import papers as reproductions
from pillarbox.experiments.apps.papers.shared import live_experiments
from pillarbox.experiments.apps.papers.shared.figure import Figure, Made
from pillarbox.experiments.cli.main import cli
from pillarbox.experiments.runs.reporting.reproduced.result import (
    AGREES,
    DIFFERS,
    Point,
    Reproduction,
    Settings,
)
from pillarbox.topos.base.errors import PillarboxError


def test_the_list_names_all() -> None:
    told = CliRunner().invoke(cli, ["reproduce", "--list"]).output
    assert all(name in told for name in reproductions.names())


def test_a_live_one_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(PillarboxError, match="dcell-fig11 needs a live lab, which needs root"):
        CliRunner().invoke(cli, ["reproduce", "dcell-fig11"], catch_exceptions=False)


def simulated(settings: Settings) -> Made:
    settings.say("on its way")
    points = (Point("a", 1.0, 2.0, 2.1), Point("a", 2.0, float("nan"), 4.0))
    return Made(points, rows=(), judged=(DIFFERS, ("a reason",)))


simulated.__module__ = live_experiments.__name__  # whose code is there to be hashed
SIMULATED = Figure("made-up", "about", "Made up", "x", "y", simulated)


@pytest.mark.parametrize("as_json", [False, True])
def test_what_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, as_json: bool) -> None:
    monkeypatch.setattr(reproductions, "figure", lambda _: SIMULATED)
    options = ["reproduce", "made-up", "--out", str(tmp_path), *(["--json"] if as_json else [])]
    done = CliRunner().invoke(cli, options, catch_exceptions=False)
    points = json.loads((tmp_path / "made-up" / "made-up.json").read_text())
    assert points["points"][0] == {
        "series": "a",
        "x": 1.0,
        "ours": 2.0,
        "paper": 2.1,
        "low": None,
        "high": None,
        "ideal": None,
        "draws": 0,
    }
    assert points["points"][1]["ours"] is None
    assert {file.suffix for file in (tmp_path / "made-up").iterdir()} == {".json", ".svg", ".png"}
    page = tmp_path / "report.html"
    assert "made-up: differs" in page.read_text() and str(page) in done.output
    if as_json:
        assert json.loads(done.stdout)["figures"] == [points]
    else:
        assert "verdict: differs\n- a reason" in done.stdout
        assert "on its way" not in done.stdout
        assert "on its way" in done.stderr


def test_numbers_have_digits_that_matter() -> None:
    told = command_module.figure_as_text(
        Reproduction("n", "t", "x", "y", (Point("s", 1500, 0.2438, 2270.0, ideal=0.0),), AGREES)
    )
    assert "s  1500   2270  0.244      0" in told
