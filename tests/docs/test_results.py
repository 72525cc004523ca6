"""docs/results.md is the output of `reproduce --all` by the present code, without paths."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pillarbox.experiments.apps import papers as reproductions
from pillarbox.experiments.apps.papers.shared.figure_cache import CODE_DIGITS, code_of
from pillarbox.experiments.runs.reporting.reproduced.markdown import HEAD
from pillarbox.experiments.runs.reporting.reproduced.result import AGREES, VERDICTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "results.md").read_text()
SECTIONS = dict(re.findall(r"^## (\S+)\n\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


OF_PAPERS = [
    name for name in reproductions.names() if re.match("(bcube|dcell|dpillar|ficonn)-", name)
]


LEFT = re.findall(r"[\w-]+", "".join(re.findall(r"^Not made yet: (.*)\.$", PAGE, re.MULTILINE)))


def test_what_is_not_there_is_named() -> None:
    assert set(OF_PAPERS) <= {*SECTIONS, *LEFT}
    assert not {*SECTIONS} & {*LEFT}


@pytest.mark.parametrize("name", SECTIONS)
def test_every_figure_has_a_verdict_and_a_reason(name: str) -> None:
    (verdict,) = re.findall(r"^.*\*\*(.+)\*\*$", SECTIONS[name], re.MULTILINE)
    assert verdict in VERDICTS
    assert f"](#{name})" in PAGE
    if verdict != AGREES:
        assert re.search(r"^- .", SECTIONS[name], re.MULTILINE)


def test_there_is_no_figure_that_nothing_makes() -> None:
    assert set(SECTIONS) <= set(reproductions.names())


CODE = re.compile(rf"^\| \[(\S+)\]\(.* \| ([0-9a-f]{{{CODE_DIGITS}}}) \|$", re.MULTILINE)


@pytest.mark.long  # not minutes, but a release's: making all figures again takes hours
def test_it_is_as_new_as_the_code() -> None:
    """Each figure was made by the code of today, but for comments and docstrings."""
    by = dict(CODE.findall(PAGE))
    stale = [name for name in SECTIONS if by.get(name) != code_of(reproductions.figure(name))]
    assert not stale, (
        "docs/results.md is older than the code. Make these figures again in the folder of the "
        "others, and copy its results.md to docs: "
        f"sudo ./pillarbox reproduce {' '.join(stale)} --out results"
    )
    assert PAGE.startswith(HEAD)


def test_it_says_where_and_in_what_size_all_were_made() -> None:
    assert re.search(r"^Made on: \d+ processors", PAGE, re.MULTILINE)
    made = re.findall(r"^\| \[.*\| full size, [\d.]+ (?:s|min), [\d-]+ \| \w+ \|$", PAGE, re.M)
    assert len(made) == len(SECTIONS)
    assert not re.search(r"/(?:tmp|home|root|work)/", PAGE)
