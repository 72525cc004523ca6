"""The command: sheets, reports, secrets, and what it says to wrong input."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from pillarbox.experiments.apps.teaching import grading_engine, live_grading
from pillarbox.experiments.apps.teaching.sheet_catalogue import numbers, sheet_of
from pillarbox.experiments.cli.commands.grade import command
from pillarbox.topos.base.errors import PillarboxError

ROOT = Path(__file__).parents[4]
ANSWERS = ROOT / "tests" / "vagrant" / "labs" / "answers"
MODEL = str(ANSWERS / "lab4" / "model.py")


@pytest.fixture(scope="module")
def wrong() -> Iterator[str]:
    """A file that drops where the link that leaves has failed; every user can read it."""
    way = "            return (*found[near], proxy)\n"
    source = Path(MODEL).read_text()
    assert source.count(way) == 1
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder) / "wrong.py"
        file.write_text(source.replace(way, f"{way}    return None\n"))
        yield str(file)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_text_report_has_a_line_for_each_check_and_an_example_to_try(wrong: str) -> None:
    lines = run("4", "--student", "s1", wrong).splitlines()
    assert lines[0] == "Lab 4, Link state and local reroute in DCell: s1"
    assert lines[-1].split() == ["60", "of", "100"]
    (example,) = (line for line in lines if "packet from 3.1.0 to 0.0.1" in line)
    assert "--fail 'cut 0.1.0-3.0.0': at 3.1.0 it drops the packet" in example


def test_case_is_asked_again_with_what_the_file_prints(wrong: str, tmp_path: Path) -> None:
    told = run("4", "--student", "s1", wrong)
    asked, number = re.findall(r"(dcell,.*?): at .* \(--case (5\.\d+)\)", told)[0]
    loud = tmp_path / "loud.py"
    source = Path(wrong).read_text()
    first = "def choose(dcell, server, destination, proxy, came_by, links):\n"
    assert source.count(first) == 1
    loud.write_text(source.replace(first, f"{first}    print('at', server)\n"))
    again = run("4", "--student", "s1", str(loud), "--case", number)
    assert again.startswith(f"asked: {asked.split('first ')[-1]}\n  | at ")
    assert "worth 0%: at " in again
    assert run("4", "--student", "s1", MODEL, "--case", number).endswith("\nright\n")
    for case in ("0.1", "9.1", "1.99", "x"):
        with pytest.raises(PillarboxError, match=r"name a test case|part 1 of the lab has"):
            run("4", "--student", "s1", MODEL, "--case", case)


def test_json_is_what_gradescope_reads(wrong: str) -> None:
    told = json.loads(run("4-dcell-reroute", "--student", "s1", wrong, "--json"))
    assert told["score"] == sum(test["score"] for test in told["tests"]) == 60
    assert sum(test["max_score"] for test in told["tests"]) == 100
    assert {"name", "score", "max_score", "output"} == set(told["tests"][0])


def test_sheet_is_the_students_own_and_always_the_same() -> None:
    shown = [run("1", "--student", f"s{i}", "--show") for i in range(12)]
    assert run("1", "--student", "s3", "--show") == shown[3]
    assert len({text.partition("\n")[2] for text in shown}) > 8
    kinds = {sheet_of("1", f"s{i}").values["network"].partition(",")[0] for i in range(20)}
    assert len(kinds) == 4


def test_secret_draws_other_cases_and_not_another_sheet(wrong: str) -> None:
    told = {run("4", "--student", "s1", wrong, "--secret", word) for word in ("", "a", "b")}
    assert len(told) == 3
    assert run("4", "--student", "s1", MODEL, "--secret", "a").split()[-3:] == ["100", "of", "100"]


@pytest.mark.parametrize("number", numbers())
def test_lab_is_whole(number: int) -> None:
    lab = sheet_of(str(number), "ada").lab
    assert sum(check.points for check in lab.CHECKS) == grading_engine.WHOLE
    assert len({check.name for check in lab.CHECKS}) == len(lab.CHECKS)
    folder = ROOT / "vagrant" / "labs" / lab.FOLDER
    assert lab.FOLDER.startswith(f"{number}-")
    assert f"]({lab.FOLDER}/README.md)" in (folder.parent / "README.md").read_text()
    assert (folder / f"skeleton{grading_engine.suffix_of(lab)}").is_file()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["99", "--show"], "there is no lab '99'"),
        (["x", "--show"], "there is no lab 'x'"),
        (["2"], "give the file to grade"),
        (["2", "nothing.py"], "there is no file"),
        (["1", MODEL, "--live"], "no live checks"),
    ],
)
def test_wrong_input_is_one_sentence(arguments: list[str], says: str) -> None:
    with pytest.raises(PillarboxError, match=says):
        CliRunner().invoke(command, [*arguments, "--student", "s"], catch_exceptions=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="is root's way to be somebody else")
def test_marks_are_the_same_without_root(wrong: str) -> None:
    code = (
        "import os, sys; os.setgroups([]); os.setgid(65533); os.setuid(65533);"
        "from pillarbox.experiments.cli.main import main; main(sys.argv[1:])"
    )
    arguments = ["grade", "4", "--student", "s1", wrong, "--json"]
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": "/"},
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.stderr == ""
    assert json.loads(done.stdout)["score"] == 60


@pytest.mark.root
def test_file_without_points_is_not_tried_live(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("x = [")
    told = run("2", "--student", "s0", str(tmp_path / "mine.py"), "--live")
    assert "not tried: the file gets no points in memory" in told
    assert told.endswith("0 of 120\n")


@pytest.mark.alone  # a ping that is late while a cable is cut is a ping lost
@pytest.mark.root
def test_live(monkeypatch: pytest.MonkeyPatch) -> None:
    # The papers' timers do not take a busy machine for a failure. The rest only guards, where all
    # answers are right.
    monkeypatch.setattr(
        live_grading, "LabSettings", partial(live_grading.LabSettings, timers="paper")
    )
    monkeypatch.setattr(live_grading, "PING_S", 3)
    monkeypatch.setattr(live_grading, "RECOVERED_S", 30.0)
    model = str(ANSWERS / "lab2" / "model.py")
    told = json.loads(run("2", "--student", "s0", model, "--live", "--json"))
    assert told["score"] == 120, told


CHOOSE = """
from pillarbox.hosts.base.path import Step

def choose(source, paths, failed):
    for number, path in enumerate(paths):
        at, links = source, set()
        for step in path:
            links.add((at, step.port, step.peer))
            at = step.peer
        for port, peer in path:
            assert isinstance(port, int)
        if not links.intersection(failed):
            return number
    return None
"""


@pytest.mark.parametrize("student", ["ada", "bob", "carol"])
def test_a_right_choose_alone_has_its_points(tmp_path: Path, student: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(CHOOSE)
    told = json.loads(run("3", "--student", student, str(file), "--json"))
    got = {test["name"]: (test["score"], test["max_score"]) for test in told["tests"]}
    assert got["another path after a failure"] == (20, 20)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def choose(:\n", "the file fails when it is loaded: SyntaxError: .*line 1"),
        ("x = 1\n\nif x\n", "the file fails when it is loaded: SyntaxError: .*line 3"),
        ("", "the file is empty: begin with the skeleton of the lab"),
        ("# later\n\n", "the file is empty"),
    ],
)
def test_a_file_without_code_and_one_with_a_mistake_differ(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    told = json.loads(run("3", "--student", "ada", str(file), "--json"))
    assert all(re.match(said, test["output"]) for test in told["tests"])
