"""Every file that a page names in backticks exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/adr/*.md")]
    if page.name != "CHANGELOG.md"  # it names files of its time
)
SUFFIXES = "bpf.c|c|cfg|css|h|html|ipynb|js|json|md|py|pyi|rb|sh|svg|toml|txt|webp|yaml|yml"
FILE = re.compile(rf"`([^`\s]+/[^`\s]*\.(?:{SUFFIXES}))`")
# folders to which the pages' paths are relative
FOLDERS = ["", "docs", "experiments", "experiments/models", "experiments/runs"]
# files that readers or programs make, and placeholders in capitals
EXAMPLES = re.compile(
    r"(topos|hosts)/(ring|necklace)\.py|results/.*|pillarbox-reproduced/.*|~/.*|.*/[A-Z]{2,}[/.].*"
)


def exists(name: str, page: Path) -> bool:
    """Return True if a page's file exists, or is an example."""
    folders = [page.parent, *(ROOT / folder for folder in FOLDERS)]
    return bool(EXAMPLES.fullmatch(name)) or any((folder / name).is_file() for folder in folders)


@pytest.mark.parametrize("name", PAGES)
def test_named_files_exist(name: str) -> None:
    page = ROOT / name
    assert [file for file in FILE.findall(page.read_text()) if not exists(file, page)] == []


def test_a_file_that_does_not_exist_is_found() -> None:
    text = "See `experiments/lab/linux/graces.py`, `trust/verdict.py` and `hosts/NETWORK/rules.py`."
    missing = [file for file in FILE.findall(text) if not exists(file, ROOT / "docs/adr/x.md")]
    assert missing == ["experiments/lab/linux/graces.py"]
