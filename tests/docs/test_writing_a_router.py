"""The router of docs/writing-a-router.md does what the page shows; page and test cannot drift."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "writing-a-router.md").read_text()
(SOURCE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
RIGHT, WRONG = "place = bcube.k - level ", "place = bcube.k - level + 1 "
BLOCKS = re.findall(r"```console(?: broken)?\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES = [
    part.partition("\n")[::2]
    for block in BLOCKS
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("student")
    (folder / "any_digit.py").write_text(SOURCE)
    assert SOURCE.count(RIGHT) == 1
    (folder / "broken.py").write_text(SOURCE.replace(RIGHT, WRONG))
    circles = "        return Step(0, self.neighbours.peers[0][0])\n"
    head = SOURCE.partition("        bcube =")[0]
    (folder / "circles.py").write_text(head + circles)
    return folder


def pillarbox(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(command)
    assert program == "pillarbox"
    return subprocess.run(
        [sys.executable, "-m", "pillarbox", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


def test_router_is_short() -> None:
    assert len(SOURCE.splitlines()) < 40
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize(("command", "output"), EXAMPLES)
def test_command_prints_what_the_page_shows(folder: Path, command: str, output: str) -> None:
    done = pillarbox(folder, command)
    assert done.stdout + done.stderr == output
    lost = re.search(r"^  lost:", output, re.MULTILINE)
    assert done.returncode == (2 if output.startswith("pillarbox:") else 1 if lost else 0)


def test_packet_that_goes_in_circles_is_dropped(folder: Path) -> None:
    done = pillarbox(folder, "pillarbox check-router bcube,4,1 circles.py --pairs 20")
    assert "(TTL expired)" in done.stdout
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "defines 0 routers"),
        ("x = (", "SyntaxError"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("1 / 0", "(line 1)"),
        (SOURCE + SOURCE.replace("class AnyDigit", "class Other"), "defines 2 routers"),
    ],
)
def test_file_that_is_no_router_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    for command in ("check-router bcube,4,1 mine.py", "path bcube,4,1 0.0 2.3 --routing mine.py"):
        done = pillarbox(tmp_path, f"pillarbox {command}")
        assert done.returncode == 2
        assert says in done.stderr
        assert done.stderr.count("\n") == 1


def test_unknown_routing_is_one_sentence_that_names_those_there_are(tmp_path: Path) -> None:
    done = pillarbox(tmp_path, "pillarbox check-router dcell,4,1 bsr")
    assert done.returncode == 2
    assert "dcell" in done.stderr
    assert "FILE.py" in done.stderr


def test_network_too_large_for_memory_is_refused(tmp_path: Path) -> None:
    done = pillarbox(tmp_path, "pillarbox check-router bcube,8,3 bcube")
    assert done.returncode == 2
    assert "2048" in done.stderr
