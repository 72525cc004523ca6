"""What setup.py installs: every package there is, and the sources that are compiled later."""

from __future__ import annotations

import importlib
import runpy
from pathlib import Path
from typing import Any

import pytest
import setuptools

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
    packages = [".".join(file.parent.relative_to(CHECKOUT).parts) for file in files]
    assert sorted(settings["packages"]) == sorted(packages)


def test_every_source_of_the_kernels_programs_is_installed(settings: dict[str, Any]) -> None:
    for root in ROOTS:
        for source in [*(CHECKOUT / root).rglob("*.c"), *(CHECKOUT / root).rglob("*.h")]:
            package = ".".join(source.parent.relative_to(CHECKOUT).parts)
            patterns = settings["package_data"].get(package, [])
            assert any(source.match(pattern) for pattern in patterns), source


def test_pytest_finds_the_plugin(settings: dict[str, Any]) -> None:
    (told,) = settings["entry_points"]["pytest11"]
    name, _, module = told.partition(" = ")
    assert name == "pillarbox"
    assert hasattr(importlib.import_module(module), "pillarbox_lab")
