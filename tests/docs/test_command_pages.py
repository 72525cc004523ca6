"""The guide's table of commands, man pages and completion: all from the commands' own texts."""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pillarbox.experiments.base.arguments import JsonOption, answer, json_option
from pillarbox.experiments.cli import commands
from pillarbox.experiments.cli.main import SECTIONS, cli
from pillarbox.experiments.cli.manual import as_man, entries
from pillarbox.experiments.runs.control.verbs import VERBS
from tests import commands as development

ROOT = Path(__file__).parents[2]
ENTRIES = {entry.name: entry for entry in entries(cli, "pillarbox")}


def test_page_is_made_of_the_commands_of_today() -> None:
    spec = importlib.util.spec_from_file_location("commands_page", ROOT / "docs" / "commands.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.PAGE.read_text() == made.page(), "make it: .venv/bin/python docs/commands.py"


def test_every_command_has_an_entry_and_its_own_text() -> None:
    names = {name.split()[1] for name in ENTRIES}
    assert names == set(cli.list_commands(click.Context(cli)))
    for entry in ENTRIES.values():
        assert entry.text.endswith((".", ":")), entry.name
        assert "  " not in entry.text


def test_help_has_every_command_in_one_section() -> None:
    names = [name for section in SECTIONS.values() for name in section]
    assert len(set(names)) == len(names)
    paths = [*commands.__path__, *development.__path__]
    files = {module.name.replace("_", "-") for module in pkgutil.iter_modules(paths)}
    assert files <= set(names)
    assert set(names) - files <= VERBS.keys()


# Commands without --json: their results are no data, or have a format of their own (grade).
WITHOUT_JSON = {
    *(
        "artifact",
        "class-network",
        "clean",
        "cluster down",
        "cluster up",
        "demo",
        "dissector",
        "down",
        "exec",
        "grade",
        "grade-all",
        "sheets autograder",
        "sheets release",
    ),
    *("page", "report", "setup completion", "setup man", "setup openflow", "setup mpi"),
    *("mpirun", "torchrun", "up", "metrics", "setup live", "setup tests", "test"),
}


def test_commands_that_tell_facts_tell_them_as_json() -> None:
    without = {name.partition(" ")[2] for name, entry in ENTRIES.items() if not entry.keys}
    assert without <= WITHOUT_JSON


def test_answer_has_its_version_and_no_key_that_is_not_named() -> None:
    @click.command()
    @json_option("there")
    @click.argument("key")
    def command(key: str, as_json: bool) -> None:
        answer(as_json, {key: 1}, "text")

    run = CliRunner().invoke
    assert run(command, ["there", "--json"]).output == '{"schema": 2, "there": 1}\n'
    assert run(command, ["there"]).output == "text\n"
    assert "does not name: {'other'}" in str(run(command, ["other", "--json"]).exception)
    assert isinstance(command.params[1], JsonOption) or isinstance(command.params[0], JsonOption)


def test_man_page_is_troff_that_holds_every_option() -> None:
    entry = ENTRIES["pillarbox path"]
    page = as_man(entry)
    assert page.startswith('.TH "PILLARBOX-PATH" 1 ')
    for option, _ in entry.options:
        assert f"\\fB{option.replace('-', chr(92) + '-')}\\fR" in page
    assert "\npillarbox path dcell,4,1 0.0 4.3\n" in page
    assert "\n'cut" not in page  # a quote at a line's beginning would be troff's


def test_files_are_installed_where_they_are_asked_for(tmp_path: Path) -> None:
    for what in ("completion", "man"):
        done = CliRunner().invoke(cli, ["setup", what, "--under", str(tmp_path)])
        assert done.exit_code == 0, done.output
    assert (
        "_PILLARBOX_COMPLETE=bash_complete"
        in (tmp_path / "bash-completion/completions/pillarbox").read_text()
    )
    assert (tmp_path / "zsh/site-functions/_pillarbox").read_text().startswith("#compdef pillarbox")
    assert "complete" in (tmp_path / "fish/vendor_completions.d/pillarbox.fish").read_text()
    assert len([*(tmp_path / "man/man1").iterdir()]) == len(ENTRIES)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("pa", {"path", "packaging", "page"}),
        ("path dcell,4", {"dcell,4,1", "dcell,4,2"}),
        ("path dcell,4,1 4.", {"4.0", "4.1", "4.2", "4.3"}),
        ("path dcell,4,1 0.0 4.3 --routing d", {"dcell", "dfr", "dor"}),
        ("run q", {"quick"}),
        ("bench rel", {"relay"}),
        ("reproduce dcell-fig7", {"dcell-fig7"}),
        ("kill --lab 7", set()),
    ],
)
def test_words_are_completed(line: str, offered: set[str]) -> None:
    words = f"pillarbox {line}"
    told = subprocess.run(
        [sys.executable, "-m", "pillarbox"],
        env={
            **os.environ,
            "_PILLARBOX_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    ).stdout
    assert {one.partition(",")[2] for one in told.split()} == offered


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["pat"], "there is no command 'pat': did you mean path?"),
        (["bench", "rely"], "there is no bench 'rely': did you mean relay?"),
        (["path", "bcub,4,1", "0.0", "1.0"], "there is no network 'bcub': did you mean bcube?"),
        (["path", "dcell,4,1", "0.0", "1.0", "--routing", "df"], "did you mean dfr?"),
    ],
)
def test_what_was_meant_is_said(words: list[str], sentence: str) -> None:
    assert sentence in str(CliRunner().invoke(cli, words).exception)
