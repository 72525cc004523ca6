"""Figures that are made once, and go on where they were stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pillarbox.experiments.apps import papers as reproductions
from pillarbox.experiments.apps.papers.shared import degradation, figure_cache, live_experiments
from pillarbox.experiments.apps.papers.shared.figure import Claim, Figure, Made
from pillarbox.experiments.base import source_code
from pillarbox.experiments.base.files import only_writer
from pillarbox.experiments.base.source_code import imported_names, python_code
from pillarbox.experiments.cli.main import cli
from pillarbox.experiments.models.simulator.sweeps import NOT_SIMULATED
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.plans.values import plain
from pillarbox.experiments.runs.reporting import style
from pillarbox.experiments.runs.reporting.reproduced.page import kept
from pillarbox.experiments.runs.reporting.reproduced.result import AGREES, Point, Settings
from pillarbox.experiments.runs.trials.records import MANIFEST
from pillarbox.experiments.runs.trials.store import write_json
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.users import ROOT

PAPERS = "experiments/apps/papers"


class Counted:
    """Figures that count how often each was made; one may be stopped, or fail."""

    def __init__(self) -> None:
        self.times: dict[str, int] = {}
        self.error: dict[str, BaseException] = {}

    def figure(self, name: str) -> Figure:
        def make(_: Settings) -> Made:
            self.times[name] = self.times.get(name, 0) + 1
            if name in self.error:
                raise self.error.pop(name)
            row = Point("a <b>", "x|y", 2.0, 2.0, draws=3)
            return Made([row], [Claim(row, 0.1)], notes=("a note",))

        make.__module__ = figure_cache.__name__  # whose code is there to be hashed
        return Figure(name, "about", f"Title of {name}", "x", "y", make)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    found = Counted()
    # Figures are drawn, but not made into pixels, which takes longest.
    monkeypatch.setattr(style, "rendered", lambda *_: b'<svg viewBox="0 0 1 1"></svg>')
    monkeypatch.setattr(reproductions, "names", lambda: ["first", "second", "third"])
    monkeypatch.setattr(reproductions, "figure", found.figure)
    return found


def reproduce(out: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["reproduce", "--all", "--out", str(out), *options])


def test_what_is_there_is_not_made_again(tmp_path: Path, counted: Counted) -> None:
    assert reproduce(tmp_path).exit_code == 0
    assert reproduce(tmp_path).exit_code == 0
    assert counted.times == {"first": 1, "second": 1, "third": 1}
    reproduce(tmp_path, "--again")
    assert set(counted.times.values()) == {2}
    reproduce(tmp_path, "--seed", "2")
    assert set(counted.times.values()) == {3}


def test_two_do_not_write_to_one_folder(tmp_path: Path, counted: Counted) -> None:
    with only_writer(tmp_path):
        found = reproduce(tmp_path)
    assert isinstance(found.exception, PillarboxError)
    assert f"{tmp_path} is being written by another process: wait" in str(found.exception)
    assert not counted.times
    assert reproduce(tmp_path).exit_code == 0


def test_other_code_makes_it_again(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    reproduce(tmp_path)
    monkeypatch.setattr(figure_cache, "simulation_digest", lambda _: "another")
    reproduce(tmp_path)
    assert set(counted.times.values()) == {2}


def files_of(name: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the names of the files on which a figure depends, relative to the checkout."""
    found: set[str] = set()

    def keep_name(file: Path, _changed_ns: int) -> bytes:
        found.add(file.relative_to(ROOT).as_posix())
        return b""

    with monkeypatch.context() as patch:
        patch.setattr(source_code, "_file_hash", keep_name)
        source_code.code_digest.cache_clear()
        figure_cache.code_of(reproductions.figure(name))
        source_code.code_digest.cache_clear()
    return found


def test_a_figure_depends_on_what_it_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    failures, packets, live = (
        files_of(name, monkeypatch) for name in ("dcell-fig7", "tcp-at-scale", "dcell-fig11")
    )
    for found in (failures, packets, live):
        assert {"topos/dcell.py", "hosts/dcell/rules.py"} <= found
        assert {"experiments/runs/trials/statistics.py", f"{PAPERS}/shared/figure.py"} <= found
    assert {"hosts/live/forwarder.py", "experiments/lab/emulation/nodes.py"} <= live
    for one in failures | packets:
        assert not f"pillarbox.{one.replace('/', '.')}".startswith(NOT_SIMULATED)
        for name in imported_names((ROOT / one).read_text()):
            assert not name.startswith(("pillarbox.hosts.li", "pillarbox.experiments.lab")), one
    assert "experiments/models/packets/sender.py" in packets - failures
    assert f"{PAPERS}/dcell/failures.py" in failures - packets


def test_packages_that_are_passed_through_have_no_code() -> None:
    """Only what is imported by name belongs to a figure's code."""
    for file in (ROOT / "experiments" / "models").rglob("__init__.py"):
        if "simulator" not in file.parts:
            assert not python_code(file.read_text()), file
    for file in (ROOT / PAPERS).glob("*/__init__.py"):
        assert not python_code(file.read_text()), file


def test_the_rate_of_cables_makes_live_figures_alone_again() -> None:
    for name in ("dcell-fig7", "dcell-fig11"):
        figure = reproductions.figure(name)
        slow, fast = (
            figure_cache.inputs_of(figure, Settings(Path(), rate_mbit=rate))
            for rate in (10.0, 20.0)
        )
        assert (slow != fast) == figure.live


def test_what_was_stopped_goes_on(tmp_path: Path, counted: Counted) -> None:
    counted.error["second"] = KeyboardInterrupt()
    assert reproduce(tmp_path).exit_code != 0
    assert counted.times == {"first": 1, "second": 1}
    page = (tmp_path / "results.md").read_text()
    assert "## first" in page
    assert "Not made yet: second, third." in page
    assert reproduce(tmp_path).exit_code == 0
    assert counted.times == {"first": 1, "second": 2, "third": 1}


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path, counted: Counted) -> None:
    counted.error["second"] = PillarboxError("there is no lab")
    done = reproduce(tmp_path)
    assert done.exit_code == 1
    assert "second could not be made: there is no lab" in done.output
    assert counted.times == {"first": 1, "second": 1, "third": 1}
    assert reproduce(tmp_path).exit_code == 0
    assert counted.times == {"first": 1, "second": 2, "third": 1}


def test_the_page_says_what_when_and_where(tmp_path: Path, counted: Counted) -> None:
    reproduce(tmp_path, "--quick")
    found = kept(tmp_path, "first")
    assert found is not None
    assert found.verdict == AGREES
    assert found.made["quick"] and found.made["seed"] == 1
    page = (tmp_path / "results.md").read_text()
    assert "Of 3 figures and tables, agrees: 3." in page
    assert f"{found.made['machine']['processors']} processors" in page
    (line,) = (line for line in page.splitlines() if line.startswith("| [first]"))
    assert "agrees | --quick, 0.0 s, " in line
    assert line.endswith(f" | {found.made['code']} |")
    assert "| a \\<b\\> | x\\|y | 2 | 2 |" in page
    assert "a note" in page
    assert "--quick, 0.0 s" in (tmp_path / "report.html").read_text()


def test_figures_share_their_tasks(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def figure(name: str) -> Figure:
        def make(settings: Settings) -> Made:
            small = {"B": ("bcube,2,1", "bsr")}
            runs = degradation.runs_of(settings, small, (0.0,), 2)
            return Made([one.throughput() for one in runs])

        make.__module__ = figure_cache.__name__
        return replace(counted.figure(name), make=make)

    monkeypatch.setattr(reproductions, "figure", figure)
    assert "tasks were done before" in reproduce(tmp_path, "--workers", "1").output
    assert len(list((tmp_path / "tasks").iterdir())) == 2
    assert not (tmp_path / "second" / "tasks").exists()


def test_a_live_run_goes_on_in_its_folder(tmp_path: Path) -> None:
    systems = (System("tree,2,2", rate_mbit=10.0),)
    experiment = Experiment("some", "about", systems, Workload("all-to-all", 1000))
    settings = Settings(tmp_path, inputs="0123456789abcdef")
    same = live_experiments._records_folder(settings, experiment)
    assert same == tmp_path / "some-0123456789ab"
    same.mkdir()
    write_json(same / MANIFEST, {"plan": plain(experiment)})
    assert live_experiments._records_folder(settings, experiment) == same
    # The machine's rate is another one by now: trials of both are not compared.
    other = replace(experiment, systems=(replace(systems[0], rate_mbit=20.0),))
    assert live_experiments._records_folder(settings, other) != same
    assert live_experiments._records_folder(replace(settings, inputs=""), experiment) != same
