"""The network of docs/extending.md, put as one file beside the others, works everywhere.

The file and the commands with their output are taken from the page, so the two cannot drift.
"""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.docs.own import checkout, python

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()
(SOURCE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
RIGHT = "(switch + 1) % self.m, self.n + 1, RING_LEVEL"
WRONG = "(switch + 1) % self.m, self.n, RING_LEVEL"


def examples(fence: str) -> list[tuple[str, str]]:
    """Return (command, output) of the page's console blocks with that first line."""
    blocks = re.findall(rf"```{fence}\n(.*?)```", PAGE, re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


def pillarbox(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(command)
    assert program == "pillarbox"
    return python(folder, "-m", "pillarbox", *arguments)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout(tmp_path_factory.mktemp("ring"), "ring", topos=SOURCE)


@pytest.fixture(scope="module")
def miswired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert SOURCE.count(RIGHT) == 1
    assert f"`{WRONG}`" in PAGE
    wrong = SOURCE.replace(RIGHT, WRONG)
    return checkout(tmp_path_factory.mktemp("miswired"), "ring", topos=wrong)


def test_the_file_alone_is_a_network_that_keeps_the_contract(ring: Path) -> None:
    code = (
        "import json; from pillarbox import topos; "
        "from pillarbox.topos.base.check import problems; "
        "examples = topos.network('ring').examples; "
        "print(json.dumps([topos.__file__, topos.kinds(), "
        "{spec: problems(topos.parse(spec)) for spec in examples}]))"
    )
    done = python(ring, "-c", code)
    file, kinds, found = json.loads(done.stdout)
    assert Path(file).is_relative_to(ring)
    assert "ring" in kinds
    assert len(found) == 4
    assert not any(found.values())
    assert any("servers=" in spec for spec in found)


def test_its_doctest_and_the_contract_tests_take_it_up(ring: Path) -> None:
    tests = [str(ROOT / "tests" / "topos" / "test_contract.py"), "src/pillarbox/topos/ring.py"]
    options = ["-q", "-p", "no:cacheprovider", "--doctest-modules", "--import-mode=importlib"]
    done = python(ring, "-m", "pytest", *options, f"--rootdir={ring}", "-k", "ring", *tests)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) > 4 * 3


@pytest.mark.parametrize(("command", "output"), examples("console"))
def test_command_of_the_page_prints_what_the_page_shows(
    ring: Path, command: str, output: str
) -> None:
    done = pillarbox(ring, command)
    assert done.stdout + done.stderr == output
    assert done.returncode == (2 if output.startswith("pillarbox:") else 0)
    if "--draw" in command:
        drawing = (ring / command.rpartition(" ")[2]).read_text()
        assert "<svg" in drawing
        for address in ("0.0", "3.2"):
            assert address in drawing


def test_json_has_its_counts(ring: Path) -> None:
    told = json.loads(pillarbox(ring, "pillarbox topo ring,3,4,servers=10 --json").stdout)
    assert told["spec"] == "ring,3,4,servers=10"
    assert (told["servers"], told["switches"], told["cables"]) == (10, 4, 14)


def test_full_ring_has_one_spelling(ring: Path) -> None:
    told = json.loads(pillarbox(ring, "pillarbox topo ring,3,4,servers=12 --json").stdout)
    assert told["spec"] == "ring,3,4"


@pytest.mark.parametrize(
    "spec", ["ring,3,2", "ring,0,3", "ring,3,4,servers=9", "ring,3", "ring,3,x", "rin,3,4"]
)
def test_wrong_parameter_is_one_line_and_exit_code_2(ring: Path, spec: str) -> None:
    done = pillarbox(ring, f"pillarbox topo {spec}")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("pillarbox: ")
    assert done.stderr.count("\n") == 1
    assert "ring" in done.stderr


@pytest.mark.parametrize(("command", "output"), examples("console miswired"))
def test_miswired_ring_is_caught_by_the_check(miswired: Path, command: str, output: str) -> None:
    done = pillarbox(miswired, command)
    assert (done.stdout, done.stderr) == ("", output)
    assert done.returncode == 2


def test_ring_that_skips_a_switch_is_caught_too(tmp_path: Path) -> None:
    source = SOURCE.replace("(switch + 1) % self.m", "(switch + 2) % self.m")
    folder = checkout(tmp_path, "ring", topos=source)
    done = pillarbox(folder, "pillarbox topo ring,3,4 --check")
    assert done.returncode == 2
    assert done.stderr.startswith("pillarbox: ring,3,4 ")
    assert done.stderr.count("\n") == 1


def test_page_shows_every_kind_of_command() -> None:
    shown = " ".join(command for command, _ in examples("console"))
    assert all(option in shown for option in ("--check", "--cables", "--draw", "servers="))
    assert examples("console miswired")
