"""A live figure is a file without code, such as the one in docs/papers.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from pillarbox.experiments.apps import papers as reproductions
from pillarbox.experiments.apps.papers.shared import live_experiments, live_figure
from pillarbox.experiments.cli.main import cli
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.plans.values import made, plain
from pillarbox.experiments.runs.reporting.reproduced.result import (
    CLAIM_HOLDS,
    DIFFERS,
    Reproduction,
    Settings,
)
from pillarbox.experiments.runs.trials.records import Run
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.apps.papers.test_reproductions import (
    LIVE,
    MadeUp,
    of,
    reproduced,
    row,
    twice,
)

PAGE = (Path(__file__).parents[4] / "docs" / "papers.md").read_text()
(FILE,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "two-servers.toml"
    found.write_text(FILE)
    return found


def figure_of(file: Path, monkeypatch: pytest.MonkeyPatch, bcube_bps: float) -> Reproduction:
    """Return what comes of made-up records of the file's experiment."""
    figure = reproductions.figure(str(file))
    assert (figure.name, figure.live) == ("two-servers", True)
    monkeypatch.setattr(reproductions, "figure", lambda _: figure)
    trials = [
        row(name, goodput_bps=bps, ideal_bps=4e8)
        for name, bps in (("BCube", bcube_bps), ("tree", 1.2e8))
    ]
    return reproduced(figure.name, MadeUp(["BCube", "tree"], {"trials": twice(trials)}))


def test_a_new_figure_is_a_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = figure_of(file, monkeypatch, bcube_bps=3.6e8)
    assert found.verdict == CLAIM_HOLDS
    assert found.reasons == (
        '"Tree provides the lowest aggregate bottleneck throughput" (Guo 2009, 8): both: ours is '
        "3, wanted is at least 1.",
    )
    assert of(found, "a server", "BCube").ours == pytest.approx(0.9)  # of cables of 100 Mbit/s
    assert of(found, "a server", "BCube").ideal == pytest.approx(1.0)
    assert of(found, "a server", "tree").paper is None
    assert of(found, "both", "").ours == pytest.approx(3)


def test_slower_cables_and_more_repeats_are_a_parts_own() -> None:
    (plan,) = [made(live_figure.LiveFigure, reproductions.figure("bcube-fig10").data or {}, "")]
    parts = live_figure.experiments(plan, Settings(Path(), rate_mbit=100.0), "bcube-fig10")
    rates = {name: one.systems[0].rate_mbit for name, one in parts.items()}
    assert rates == {
        "one-to-one": 100, "one-to-several": 100, "one-to-all": 40, "all-to-all": 100
    }  # fmt: skip
    assert {name: one.repeats for name, one in parts.items() if one.repeats != 3} == {
        "one-to-all": 10
    }
    slow = parts["one-to-all"]
    assert slow.workload.volume_bytes == 4 * 40 * 125_000
    assert live_figure.scale_of(plan, slow).rate == 25


def test_its_claims_are_judged(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = figure_of(file, monkeypatch, bcube_bps=1e8)
    assert found.verdict == DIFFERS
    assert len(found.reasons) == 2


@pytest.mark.root
def test_it_runs(file: Path, tmp_path: Path) -> None:
    options = ["reproduce", str(file), "--quick", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, options, catch_exceptions=False)
    assert "two-servers: BCube and a tree" in done.stdout
    found = (tmp_path / "out" / "two-servers" / "two-servers.json").read_text()
    assert '"series": "both"' in found


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("trial-values", "trial-valus", "unknown reducer 'trial-valus': did you mean trial-values"),
        ("goodput of a server", "godput", "unknown quantity 'godput': did you mean goodput"),
        ("unit = ", "units = ", "unknown key points.0.units: did you mean unit"),
        ("Gbit/s", "Gbps", "unknown unit 'Gbps'"),
        ('"at least"', '"above"', "unknown bound 'above'"),
        ('["BCube", "tree"], series', '["BCube"], series', "a pair is two systems"),
        ('"tree"], series', '"treee"], series', "unknown system 'treee': did you mean tree"),
        ("bcube,2,1", "bcube,1,1", "BCube needs switches of n >= 2 ports"),
        ("volume_s = 0.2", "", "a workload has either volume_bytes"),
        ('about = "', "about = 7 #", "about is a text, not 7"),
        ("[quick]", "[quick", "is not TOML"),
        ('"both"', '"{both}"', "has other braces than {system} and {part}"),
        ("paper.BCube = 0.9", "paper.BCube = 'x'", "numbers, or lists of two, not 'x'"),
        ("[quick]", "[[parts]]\n[quick]", "each of parts needs a name"),
        (', source = "Guo 2009, 8"', "", "sentence and source belong together"),
        (', bound = "at least", wanted = 1', "", "throughput' needs a bound, or within"),
        ('"trial-values"', '"relay-by-load"', "relay-by-load needs a table relay"),
        ("kind = ", "trials = 'some'\nkind = ", "unknown trials 'some'"),
    ],
)
def test_mistakes_in_a_file_are_named(file: Path, old: str, new: str, sentence: str) -> None:
    file.write_text(FILE.replace(old, new))
    with pytest.raises(PillarboxError, match=str(file)) as found:
        reproductions.figure(str(file))
    assert sentence in str(found.value)


@pytest.mark.parametrize("name", sorted(LIVE))
def test_no_figures_file_has_a_mistake(name: str) -> None:
    (file,) = Path(reproductions.__path__[0]).glob(f"*/{name}.toml")
    assert reproductions.figure(str(file)) is not None


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(PillarboxError, match=r"none\.toml cannot be read"):
        reproductions.figure(str(tmp_path / "none.toml"))


def test_other_data_makes_a_figure_again(file: Path) -> None:
    from pillarbox.experiments.apps.papers.shared import figure_cache

    settings = Settings(Path())
    before = figure_cache.inputs_of(reproductions.figure(str(file)), settings)
    file.write_text(FILE.replace("BCube = 0.9", "BCube = 0.8"))
    assert figure_cache.inputs_of(reproductions.figure(str(file)), settings) != before


def test_a_dilated_figure_has_each_system_once_and_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    systems = (
        System("bcube,2,1", label="A", rate_mbit=10),
        System("bcube,2,1", label="B", rate_mbit=10, tcp="cubic"),
    )
    plan = Experiment("figure", "", systems, Workload(duration_s=1.0, congestion="reno"))
    monkeypatch.setattr(live_experiments, "run", invalid_trials)
    found, notes = live_experiments.run_at_rate(Settings(Path(), own_mbit=100.0), plan)
    assert [(one.name, one.rate_mbit) for one in found.plan.systems] == [("A", 100.0)]
    assert [one["system"] for one in found.records] == ["A"]
    assert notes[0].startswith("Time dilation: cables of 100 Mbit/s")
    assert notes[1].startswith("systems left out: B (the congestion control cubic")
    assert notes[2].startswith("not decided whether results are free") and notes[2].endswith(
        "systems A"
    )
    assert live_experiments.run_at_rate(Settings(Path()), plan)[0].systems == ["A", "B"]


def invalid_trials(_: Settings, experiment: Experiment) -> Run:
    trials = tuple(
        {"trial": at, "system": one.name, "repeat": 0, "valid": False, "status": "failed"}
        | {"seed": 1, "flows": 1, "failed_flows": 1, "reason": "made up"}
        for at, one in enumerate(experiment.systems)
    )
    return Run(Path(), {"plan": plain(experiment)}, trials, experiment)
