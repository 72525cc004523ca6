"""Labs 7 and 8 have commands that need the student's own files: here with a model answer's."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from pillarbox import topos
from pillarbox.experiments.apps.teaching.labs import lab7
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from pillarbox.experiments.cli.main import cli
from pillarbox.experiments.runs.plans.loading import load

LABS = Path(__file__).parents[3] / "vagrant" / "labs"
MODEL = Path(__file__).parent / "answers" / "lab8" / "model.py"
ALL_TO_ALL = (LABS / "7-all-to-all" / "README.md").read_text()
OWN = (LABS / "8-own-network" / "README.md").read_text()
MINE = re.findall(r"^pillarbox ((?:topo|compare|path|check-router) mine.*)$", OWN, re.MULTILINE)


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let Pillarbox find the model answer as the sheet says, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topos").mkdir()
    (tmp_path / "mine.py").write_bytes(MODEL.read_bytes())
    ((target, link),) = re.findall(r"^ln -s (\S+) (\S+)$", OWN, re.MULTILINE)
    Path(link).symlink_to(target)
    monkeypatch.setattr(topos, "__path__", [*topos.__path__, str(tmp_path / "topos")])
    yield
    sys.modules.pop("pillarbox.topos.mine", None)


def output(command: str) -> str:
    result = CliRunner().invoke(cli, shlex.split(command), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("command", MINE)
def test_command_on_the_students_own_network(found: None, command: str) -> None:
    told = output(command)
    if "--draw" in command:
        assert "12.1" in Path(shlex.split(command)[-1]).read_text()
    elif "--check" in command:
        assert told == "mine,13: 52 cables checked from both ends, all agree\n"
    elif "check-router" in command:
        assert "400 of 400 packets arrived, 400 had a path" in told
    else:
        assert "mine,13" in told


def test_sheet_tries_all_that_it_speaks_of() -> None:
    assert {command.split()[0] for command in MINE} == {"topo", "compare", "path", "check-router"}
    assert any("--fail" in command for command in MINE)


def test_experiment_of_lab_7_is_that_of_the_sheet_that_is_shown() -> None:
    written = load(str(LABS / "7-all-to-all" / "experiment.toml"))
    values = sheet_of("7", "ada").values
    mine, tree = written.systems
    assert [mine.network, mine.routing] == [values["network"], values["routing"]]
    assert tree.network == values["tree"]
    assert mine.rate_mbit == tree.rate_mbit == values["rate_mbit"]
    assert mine.mtu == tree.mtu == lab7.MTU
    assert written.workload.volume_bytes == values["volume_bytes"]


def test_runs_of_lab_7_can_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(LABS / "7-all-to-all")
    text = ALL_TO_ALL.replace("\\\n", " ")
    runs = re.findall(r"pillarbox (run experiment.toml.*)$", text, re.MULTILINE)
    trials = [output(run + " --dry-run").count("240 flows") for run in runs]
    assert trials == [6, 6, 2]
