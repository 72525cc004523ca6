"""Import names of version 1.0: the same modules with a warning, unless a project has the name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox.experiments.apps.teaching.child import ChildKeeper

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "writing-a-router.md"
SAME = """
import hosts.base.path
import topos.bcube
from experiments.runs.plans.experiment import System

import pillarbox.experiments.runs.plans.experiment as experiment
import pillarbox.hosts.base.path
import pillarbox.topos.bcube

assert hosts.base.path is pillarbox.hosts.base.path
assert topos.bcube.BCube is pillarbox.topos.bcube.BCube
assert System is experiment.System
assert topos.__spec__.name == "pillarbox.topos" and topos.bcube.__name__ == "pillarbox.topos.bcube"
"""
OWN = """
import pillarbox
import experiments.mine, hosts, topos

assert experiments.mine.VALUE == 7
assert "pillarbox" not in (hosts.__file__ or "") and hosts.__name__ == "hosts"
assert topos.__path__ and topos.__name__ == "topos"
assert pillarbox.Lab.__module__ == "pillarbox.experiments.apps.api.labs"
try:
    import topos.bcube
except ModuleNotFoundError:
    print("own")
"""


def python(folder: Path, code: str, *options: str, **variables: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": "", **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with packages of these names, one of them without __init__.py."""
    for name in ("experiments", "hosts", "topos"):
        (tmp_path / name).mkdir()
    (tmp_path / "experiments" / "__init__.py").touch()
    (tmp_path / "experiments" / "mine.py").write_text("VALUE = 7\n")
    (tmp_path / "hosts" / "__init__.py").touch()
    return tmp_path


def test_old_names_are_the_same_modules(tmp_path: Path) -> None:
    python(tmp_path, SAME, "-W", "ignore")
    python(ROOT, SAME, "-W", "ignore")  # where the folders have these names


def test_an_old_name_warns_where_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "router.py").write_text("\nfrom hosts.base.path import Step\n")
    _, said = python(tmp_path, "import router", "-W", "default")
    assert "router.py:2: DeprecationWarning: import pillarbox.hosts instead of hosts:" in said
    assert said.count("DeprecationWarning") == 1


@pytest.mark.parametrize("place", ["current directory", "end of the path"])
def test_packages_of_a_project_win(project: Path, place: str) -> None:
    code, folder = OWN, project
    if place == "end of the path":
        code, folder = f"import pillarbox, sys\nsys.path.append({str(project)!r})\n{OWN}", Path("/")
    assert python(folder, code, "-W", "error") == ("own\n", "")


def test_packages_of_a_project_that_a_finder_has_win(project: Path, tmp_path: Path) -> None:
    """Editable installs of some projects add a finder, after the one for the path."""
    code = f"""
import sys
from importlib.machinery import PathFinder
import pillarbox
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, path if '.' in name else [{str(project)!r}])
sys.meta_path.append(Finder)
"""
    assert python(Path("/"), code + OWN, "-W", "error") == ("own\n", "")


def test_importing_pillarbox_imports_nothing_else(tmp_path: Path) -> None:
    code = "import sys; before = {*sys.modules}; import pillarbox; print(*{*sys.modules} - before)"
    assert python(tmp_path, code, "-I")[0] == "pillarbox\n"


def test_routers_of_version_1_0_run(tmp_path: Path) -> None:
    (router,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert router.count("from pillarbox.hosts.") == 2
    (tmp_path / "mine.py").write_text(router.replace("from pillarbox.", "from "))
    command = [sys.executable, "-m", "pillarbox", "check-router", "bcube,2,1", "mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "12 of 12 packets arrived" in done.stdout, done.stdout + done.stderr


def test_sealed_files_of_version_1_0_run() -> None:
    source = """
from hosts.base.path import Step
from topos.bcube import BCube
import pillarbox.topos.bcube as new
def answer(): return [new.BCube is BCube, Step(1, 2).peer]
"""
    modules = ("pillarbox.topos.bcube", "pillarbox.hosts.base.path")
    with ChildKeeper(source, modules, [], unsealed=True) as keeper:
        assert keeper.child().ask({"call": "answer", "arguments": []}) == [True, 2]
