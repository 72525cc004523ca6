"""Every link of a page leads to a file or a heading that is there, and every name to an object."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("vagrant/**/*.md")]
)
API = sorted(page.name for page in ROOT.glob("docs/api/*.md"))
# A block of code may show brackets that are no link.
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", PAGES)
def test_link_leads_to_what_is_there(name: str) -> None:
    page = ROOT / name
    text = CODE.sub("", page.read_text())
    for link in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text):
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in headings(target), link


def test_all_pages_were_found() -> None:
    assert {"README.md", "docs/index.md", "vagrant/labs/README.md"} <= set(PAGES)
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / "docs" / "index.md").read_text())
    assert len(links) > 10


@pytest.mark.parametrize("name", API)
def test_page_for_authors_names_what_there_is(name: str) -> None:
    text = (ROOT / "docs" / "api" / name).read_text()
    blocks = re.findall(r"^::: (\S+)\n((?:    .*\n)*)", text, re.MULTILINE)
    assert blocks
    for dotted, options in blocks:
        found = named(dotted)
        (members,) = re.findall(r"members: \[(.*)\]", options) or [""]
        for member in filter(None, members.split(", ")):
            assert getattr(found, member).__doc__, member


def named(dotted: str) -> object:
    """Return the module, or the object in a module, with that name."""
    try:
        return importlib.import_module(dotted)
    except ModuleNotFoundError:
        module, _, name = dotted.rpartition(".")
        return getattr(importlib.import_module(module), name)
