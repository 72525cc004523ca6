"""The page of the papers' errata: its commands print what the page says."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from pillarbox.experiments.cli.main import cli

PAGE = (Path(__file__).parents[2] / "docs" / "errata.md").read_text()
CHECKS = re.findall(r"^- check: `pillarbox (.+)`\n((?:- shows: `.+`\n)*)", PAGE, re.MULTILINE)
SHOWN = [(words, text) for words, shows in CHECKS for text in re.findall(r"`(.+)`", shows)]


@cache
def output(words: str) -> str:
    done = CliRunner().invoke(cli, shlex.split(words), prog_name="pillarbox")
    assert done.exit_code == 0, done.output
    return done.output


def test_every_check_is_found() -> None:
    assert len(CHECKS) == PAGE.count("- check:") and len(SHOWN) == PAGE.count("- shows:")


@pytest.mark.parametrize(("words", "text"), SHOWN)
def test_command_shows_what_the_page_says(words: str, text: str) -> None:
    assert text in output(words)


def test_errata_of_tables_have_an_entry() -> None:
    from pillarbox.experiments.models.comparison.papers import checked_paper_tables

    errata = {one.erratum for table in checked_paper_tables(20.0) for one in table.checks}
    entries = {erratum.entry for erratum in errata if erratum}
    assert len(entries) >= 9
    assert entries <= set(re.findall(r"^### (.+)$", PAGE, re.MULTILINE))


def test_figures_of_checks_without_a_text_can_be_made() -> None:
    from pillarbox.experiments.apps import papers

    named = {words.split()[1] for words, shows in CHECKS if not shows}
    assert named == {"dpillar-fig12"}
    assert named <= set(papers.names())
