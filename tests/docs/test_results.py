"""docs/results.md is the output of `reproduce --all`, without data of a machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.apps import papers as reproductions
from experiments.runs.reporting.reproduced.result import AGREES, VERDICTS

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
    assert verdict in (*VERDICTS, "paper ambiguous")
    assert f"](#{name})" in PAGE
    if verdict != AGREES:
        assert re.search(r"^- .", SECTIONS[name], re.MULTILINE)


def test_there_is_no_figure_that_nothing_makes() -> None:
    assert set(SECTIONS) <= set(reproductions.names())


def test_it_says_where_and_in_what_size_all_were_made() -> None:
    assert re.search(r"^Made on: \d+ processors", PAGE, re.MULTILINE)
    made = re.findall(r"^\| \[.*\| full size, [\d.]+ (?:s|min), [\d-]+ \|$", PAGE, re.M)
    assert len(made) == len(SECTIONS)
    assert not re.search(r"/(?:tmp|home|root|work)/", PAGE)
