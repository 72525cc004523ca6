"""The package as others install it: an sdist, the wheel made of it, and a fresh environment."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import setuptools

from pillarbox.experiments.cli.main import EXTRAS, SECTIONS

CHECKOUT = Path(__file__).resolve().parents[2]
LEFT_OUT = (".*", "__pycache__", "build", "dist", "*.egg-info", "results", "site")
# Distributions by the module that they install, if the names differ.
DISTRIBUTIONS = {"google": "protobuf"}
BUILD = (
    "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])('.'))"
)


def told() -> dict[str, Any]:
    """Return what setup.py says."""
    said: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setuptools, "setup", said.update)
        runpy.run_path(str(CHECKOUT / "setup.py"))
    return said


def names(extra: str) -> set[str]:
    """Return what an extra brings; what everybody gets, for an empty one."""
    said = told()
    lines = said["extras_require"][extra] if extra else said["install_requires"]
    return {re.split(r"[^a-zA-Z0-9_-]", line)[0] for line in lines}


def test_what_is_missing_is_told_with_its_extra() -> None:
    sim, live = ({DISTRIBUTIONS.get(one, one) for one in EXTRAS[name]} for name in ("sim", "live"))
    assert names("") <= {"click", "numpy", "tomli"}
    assert names("sim") == sim
    assert names("live") == sim | live
    assert names("live") <= names("test")


def test_version_is_the_one_that_is_cited() -> None:
    cited = re.search(r"^version: (.+)$", (CHECKOUT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert told()["version"] == cited[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build an sdist of the checkout, and the wheel of the sdist."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(
        CHECKOUT, folder / "source", symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT)
    )
    sdist = built("build_sdist", folder / "source")
    subprocess.run(["tar", "-xf", sdist, "-C", folder], check=True)
    return built("build_wheel", folder / sdist.name.removesuffix(".tar.gz"))


@pytest.mark.long
def test_the_same_sources_give_the_same_sdist(tmp_path: Path) -> None:
    made = []
    for umask in (0o022, 0o077):
        folder = tmp_path / f"{umask:o}" / "source"
        ignored = shutil.ignore_patterns(*LEFT_OUT)
        shutil.copytree(CHECKOUT, folder, symlinks=True, ignore=ignored, copy_function=shutil.copy)
        made.append(built("build_sdist", folder, umask).read_bytes())
    assert made[0] == made[1]


def built(what: str, folder: Path, umask: int = -1) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, what],
        cwd=folder,
        umask=umask,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a fresh environment's console script: the wheel, and what everybody gets with it."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    done = subprocess.run(
        [*pip, "--quiet", "--no-index", "--no-deps", "--no-compile", str(wheel)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # What it requires is linked, and not fetched.
    own = names("") - ({"tomli"} if sys.version_info >= (3, 11) else set())
    for name in own:
        for file in {Path(str(file)).parts[0] for file in distribution(name).files or []}:
            if file != ".." and not (site / file).exists():
                (site / file).symlink_to(distribution(name).locate_file(file))
    return folder / "bin" / "pillarbox"


def run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *words],
        cwd=program.parent,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_wheel_has_what_is_no_python(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        found = set(packed.namelist())
    assert {name.partition("/")[0] for name in found} == {
        *("pillarbox", "pillarbox-old-names.pth", f"pillarbox-{told()['version']}.dist-info")
    }
    assert {"pillarbox/py.typed", "pillarbox/old_names.py"} <= found
    assert "pillarbox/hosts/live/forward.bpf.c" in found
    assert "pillarbox/experiments/apps/page/web/page.html" in found
    assert "pillarbox/experiments/apps/papers/dcell/dcell-fig11.toml" in found
    for file in (CHECKOUT / "vagrant" / "labs").rglob("*.md"):
        within = file.relative_to(CHECKOUT / "vagrant" / "labs")
        assert f"pillarbox/experiments/apps/teaching/sheets/{within}" in found


def test_questions_are_answered_in_a_fresh_environment(environment: Path) -> None:
    assert run(environment, "--version").stdout.startswith("pillarbox, version ")
    assert "16" in run(environment, "topo", "bcube,4,1").stdout
    assert "to 4.3" in run(environment, "path", "dcell,4,1", "0.0", "4.3", "--all").stdout
    assert "380 of 380" in run(environment, "check-router", "dcell,4,1", "dfr").stdout
    graded = run(environment, "grade", "1", "--student", "ada", "--show")
    assert graded.returncode == 0, graded.stderr


def test_a_project_keeps_packages_of_the_old_names(environment: Path, tmp_path: Path) -> None:
    for name in ("experiments", "hosts", "topos"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("VALUE = 'own'\n")
    own = (
        "import pillarbox, experiments, hosts, topos; "
        "print(experiments.VALUE, hosts.VALUE, topos.VALUE, pillarbox.PillarboxError.__module__)"
    )
    old = "from topos.bcube import BCube; print(BCube(4, 1).servers)"
    python = environment.with_name("python")
    assert output(python, own, tmp_path, "-W", "error") == "own own own pillarbox.topos.base.errors"
    assert output(python, old, Path("/"), "-W", "ignore") == "16"


def output(python: Path, code: str, folder: Path, *options: str) -> str:
    command = [python, *options, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs Debian's packages")
def test_setup_live_installs_packages_and_links_mininet(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n')
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert run(environment, "setup", "live").returncode == 0
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith("update\ninstall -y ") and " mininet " in asked
    (link,) = environment.parents[1].glob("lib/python3*/site-packages/mininet")
    assert str(link.readlink()) == "/usr/lib/python3/dist-packages/mininet"
    link.unlink()  # which other tests do without
    apt.write_text("#!/bin/sh\nexit 100\n")
    assert run(environment, "setup", "live").returncode == 100
    assert not link.is_symlink()


def test_every_command_has_its_help_without_extras(environment: Path) -> None:
    names = [*chain(*SECTIONS.values())]
    names = [name for name in names if name not in SECTIONS["Development"]]
    script = (
        "import sys\nfrom pillarbox.experiments.cli.main import cli\nfor name in sys.argv[1:]:\n"
    )
    script += "    cli([name, '--help'], 'pillarbox', standalone_mode=False)"
    done = run(environment.with_name("python"), "-I", "-c", script, *names)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Usage: pillarbox") == len(names)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["up", "dcell,4,1"], "Debian's Mininet|needs root"),
        (["test"], "no command 'test'"),
        (["compare", "bcube,4,1"], r"pip install 'pillarbox\[sim\]'"),
        (["report", "."], r"pip install 'pillarbox\[live\]'"),
    ],
)
def test_what_is_missing_is_one_sentence(
    environment: Path, words: list[str], sentence: str
) -> None:
    done = run(environment, *words)
    assert done.returncode == 2
    assert re.search(sentence, done.stderr) and done.stderr.count("\n") == 1
