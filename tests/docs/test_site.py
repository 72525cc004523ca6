"""The guide as a site: it builds without warnings, is complete, and loads nothing external."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("zensical", "mkdocstrings_handlers")
SOURCES = ("docs", "vagrant", "topos", "hosts", "experiments", "src", "zensical.toml")
CLIENT_SIDE = "__"  # anchors that begin so are made by the site's script


class Page(HTMLParser):
    """Links, loaded files and anchors of an HTML page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the attributes of an element."""
        for name, value in attrs:
            if value and name in ("id", "name"):
                self.anchors.add(value)
            elif value and name in ("href", "src"):
                (self.links if tag == "a" else self.loaded).append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not all(importlib.util.find_spec(name) for name in NEEDED):
        pytest.skip("the site needs what `pip install -e '.[docs]'` installs, and Python 3.11")
    folder = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:  # Zensical builds, and caches, in the folder of its settings
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder)
    built = subprocess.run(
        [sys.executable, "docs/site.py"],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert built.returncode == 0, built.stderr
    assert "No issues found" in built.stdout + built.stderr
    assert "griffe" not in built.stdout + built.stderr
    return folder / "build" / "site"


def test_every_page_is_there_and_in_the_navigation(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs") for page in (ROOT / "docs").glob("**/*.md")}
    made = {page.parent.relative_to(site) for page in site.glob("**/index.html")}
    assert {page.with_suffix("") for page in pages if page.name != "index.md"} <= made
    sheets = {Path("labs") / folder.parent.name for folder in ROOT.glob("vagrant/labs/*/README.md")}
    assert {Path("labs"), *sheets} <= made
    assert len(sheets) >= 4
    navigation = (ROOT / "zensical.toml").read_text()
    for page in made - {Path()}:
        assert any(f'"{page}{end}"' in navigation for end in (".md", "/README.md")), page


def test_links_pictures_and_anchors_exist_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    parsed = cache(Page)
    for file in site.glob("**/*.html"):
        for reference in parsed(file).links + parsed(file).loaded:
            path, _, anchor = unquote(reference).partition("#")
            if re.match("[a-z]+:", path):
                assert reference in parsed(file).links or path.startswith("data:"), reference
                continue
            target = site / path[1:] if path.startswith("/") else (file.parent / path).resolve()
            target = file if not path else target / "index.html" if target.is_dir() else target
            assert target.exists(), (file, reference)
            if anchor and not anchor.startswith(CLIENT_SIDE):
                assert anchor in parsed(target).anchors, (file, reference)


def test_notebook_is_a_page_with_its_figures(site: Path) -> None:
    notebook = json.loads((ROOT / "docs" / "notebook" / "cut.ipynb").read_text())
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    page = (site / "notebook" / "cut" / "index.html").read_text()
    figures = sum("image/png" in output.get("data", {}) for output in outputs)
    assert page.count('src="data:image/png;base64,') == figures >= 3
    assert page.count('class="dataframe"') >= 3


def test_authors_find_docstrings_signatures_and_examples(site: Path) -> None:
    topologies = (site / "api" / "topologies" / "index.html").read_text()
    for name in ("server_plug", "digits", "server_at", "diameter_bound"):
        assert f'id="pillarbox.topos.base.topology.Topology.{name}"' in topologies
    for page in site.glob("api/*/index.html"):
        text = page.read_text()
        assert "<blockquote>" not in text  # what Markdown makes of a doctest
        assert re.search(r'class="doc doc-heading"', text)
