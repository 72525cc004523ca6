"""The guide as a site: it builds, without a warning, and nothing of it is missing."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("mkdocs", "material", "mkdocstrings_handlers")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not all(importlib.util.find_spec(name) for name in NEEDED):
        pytest.skip("the site needs what `pip install -e '.[docs]'` brings")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # its makers' news, no fault of ours
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs") for page in (ROOT / "docs").glob("**/*.md")}
    made = {page.parent.relative_to(site) for page in site.glob("**/index.html")}
    assert {page.with_suffix("") for page in pages if page.name != "index.md"} <= made
    sheets = {Path("labs") / folder.parent.name for folder in ROOT.glob("vagrant/labs/*/README.md")}
    assert {Path("labs"), *sheets} <= made
    assert len(sheets) >= 4


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
        assert f'id="topos.base.topology.Topology.{name}"' in topologies
    for page in site.glob("api/*/index.html"):
        text = page.read_text()
        assert "<blockquote>" not in text  # what Markdown makes of a doctest
        assert re.search(r'class="doc doc-heading"', text)
