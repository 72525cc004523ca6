"""What setup.py installs: every package there is, and the sources that are compiled later."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import setuptools
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pillarbox.experiments.cli.commands.setup import LIVE_PACKAGES

CHECKOUT = Path(__file__).resolve().parents[2]
ROOTS = ("topos", "hosts", "experiments")


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    told: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", told.update)
    runpy.run_path(str(CHECKOUT / "setup.py"))
    return told


def test_every_package_is_named(settings: dict[str, Any]) -> None:
    files = [file for root in ROOTS for file in (CHECKOUT / root).rglob("__init__.py")]
    packages = [".".join(("pillarbox", *file.parent.relative_to(CHECKOUT).parts)) for file in files]
    assert sorted(settings["packages"]) == sorted(["pillarbox", *packages])


def test_every_source_of_the_kernels_programs_is_installed(settings: dict[str, Any]) -> None:
    for root in ROOTS:
        for source in [*(CHECKOUT / root).rglob("*.c"), *(CHECKOUT / root).rglob("*.h")]:
            package = "pillarbox." + ".".join(source.parent.relative_to(CHECKOUT).parts)
            patterns = settings["package_data"].get(package, [])
            assert any(source.match(pattern) for pattern in patterns), source


def requirements(settings: dict[str, Any]) -> list[Requirement]:
    extras = settings["extras_require"]
    texts = {*settings["install_requires"], *extras["test"], *extras["bench"], *extras["ovs"]}
    return [*map(Requirement, sorted(texts))]


def test_every_dependency_has_an_upper_bound_that_was_tested(settings: dict[str, Any]) -> None:
    for wanted in requirements(settings):
        assert any(one.operator == "<" for one in wanted.specifier), wanted
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            assert importlib.metadata.version(wanted.name) in wanted.specifier


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_the_lock_is_what_setup_asks_for(settings: dict[str, Any], python: str) -> None:
    lines = (CHECKOUT / "vagrant/requirements.lock").read_text().splitlines()
    assert f" {python}" in next(line for line in lines if line.startswith("# Python:"))
    locked = {}
    for line in lines:
        text, *hashes = line.partition("#")[0].split(" --hash=sha256:")
        if text:
            assert hashes and all(re.fullmatch("[0-9a-f]{64}", one.strip()) for one in hashes)
            one = Requirement(text)
            if one.marker is None or one.marker.evaluate({"python_version": python}):
                (exact,) = one.specifier
                assert (exact.operator, locked.setdefault(one.name, exact)) == ("==", exact)
    for wanted in requirements(settings):
        needed = wanted.marker is None or wanted.marker.evaluate({"python_version": python})
        if needed and wanted.name != "os-ken":  # comes with the kits of OpenFlow controllers
            assert locked[wanted.name].version in wanted.specifier, wanted
    assert {"pip", "packaging", "setuptools", "wheel"} <= locked.keys()
    assert not any("//" in line for line in lines), "the lock names no index"


def test_setup_live_installs_the_packages_of_the_provision_script() -> None:
    script = (CHECKOUT / "vagrant" / "provision.sh").read_text()
    (packages,) = re.findall(r'^packages="(bridge-utils[^"]*)"$', script, re.MULTILINE)
    assert {*packages.split()} - {"python3", "python3-venv"} == {*LIVE_PACKAGES}


def test_pytest_finds_the_plugin(settings: dict[str, Any]) -> None:
    (told,) = settings["entry_points"]["pytest11"]
    name, _, module = told.partition(" = ")
    assert name == "pillarbox"
    assert hasattr(importlib.import_module(module), "pillarbox_lab")


def test_each_part_of_the_lock_has_what_its_packages_need(settings: dict[str, Any]) -> None:
    """Parts are installed without looking for dependencies."""
    there = {"pillarbox"}
    extras = {"lab": "lab", "simulator": "sim", "machines": "dask", "tests": "test"}
    lock = (CHECKOUT / "vagrant/requirements.lock").read_text()
    for text in lock.split("# Part: ")[1:]:
        part, *lines = text.splitlines()
        there |= {canonicalize_name(line.partition("==")[0]) for line in lines}
        todo = [Requirement(line) for line in settings["extras_require"][extras[part]]]
        seen: set[str] = set()
        while todo:
            wanted = todo.pop()
            if str(wanted) in seen:
                continue
            seen.add(str(wanted))
            assert canonicalize_name(wanted.name) in there, (part, wanted)
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                for line in importlib.metadata.distribution(wanted.name).requires or []:
                    further = Requirement(line)
                    chosen = [{"extra": extra} for extra in (*wanted.extras, "")]
                    if further.marker is None or any(map(further.marker.evaluate, chosen)):
                        todo.append(further)
