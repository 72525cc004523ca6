"""The page about the house: its picture is the code's, and imports never go round in a circle."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import networkx as nx
import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def drawn() -> ModuleType:
    spec = importlib.util.spec_from_file_location("architecture", DOCS / "architecture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_folder_is_in_a_circle(drawn: ModuleType) -> None:
    assert nx.is_directed_acyclic_graph(drawn.rooms())


def test_picture_is_the_codes(drawn: ModuleType, tmp_path: Path) -> None:
    drawn.draw(tmp_path / "now.svg")
    # Text and arrows: how wide letters are differs between versions of matplotlib.
    shown = [
        re.findall(r"<text[^>]*>([^<]*)</text>|FancyArrowPatch", path.read_text())
        for path in (DOCS / "architecture.svg", tmp_path / "now.svg")
    ]
    assert shown[0] == shown[1], "draw it again: .venv/bin/python docs/architecture.py"


def test_page_names_files_that_are_there() -> None:
    text = (DOCS / "architecture.md").read_text()
    for name in re.findall(r"`((?:[\w-]+/)+[\w.]*)`", text):
        if not re.search(r"NETWORK|PAPER", name):
            homes = (ROOT, ROOT / "experiments", ROOT / "experiments" / "runs")
            assert any((home / name).exists() for home in homes), name
