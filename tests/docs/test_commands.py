"""Every command that a page shows is one: its name, its options and its arguments are taken.

Nothing is run here. What README, the networks and lab 1 show is run by test_newcomer.py, and other
pages have tests of their own.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from pillarbox.experiments.cli.main import cli
from pillarbox.topos.base.spec import kinds

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("vagrant/labs/**/*.md")]
BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"^(?:\$ )?(?:sudo )?(?:[A-Z_]+=\S+ )?(?:\./)?pillarbox (\S.*)$", re.MULTILINE)
INLINE = re.compile(r"`(?:sudo )?(?:\./)?pillarbox ([a-z][^`\n]*)`")
STANDS_FOR = {
    "SPEC": "bcube,4,1",
    "RUN": ".",
    "RUN.pillarbox.zip": "README.md",
    "A": ".",
    "B": ".",
    "LAB": "1",
    "NAME": "quick",
}
# A reader's own network, as the page has him write it: tested where it is written.
OWN = re.compile(r"\b(?:(?:ring|mine|necklace),\d|net\.graphml)")


def block_commands() -> dict[str, str]:
    """Return the commands of all blocks, and the page of each."""
    found = {}
    for page in PAGES:
        for block in BLOCK.findall(page.read_text()):
            for line in TYPED.findall(block.replace("\\\n", " ")):
                command = re.split(r" +[#>|&] ?", line)[0].strip()
                if not OWN.search(command):
                    found[command] = str(page.relative_to(ROOT))
    return found


def inline_commands() -> dict[str, str]:
    """Return the commands in the lines of all pages, and the page of each."""
    proses = {page: BLOCK.sub("", page.read_text()) for page in PAGES}
    return {
        command: str(page.relative_to(ROOT))
        for page, prose in proses.items()
        for command in INLINE.findall(prose)
    }


BLOCKS, INLINES = block_commands(), inline_commands()


def command_of(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None, f"there is no command {name}"
    return found


@pytest.mark.parametrize("command", BLOCKS, ids=lambda command: f"{BLOCKS[command]} {command}")
def test_command_is_taken(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    name, *arguments = [STANDS_FOR.get(word, word) for word in shlex.split(command)]
    assert command_of(name).make_context(name, arguments).params


@pytest.mark.parametrize("command", INLINES, ids=lambda command: f"{INLINES[command]} {command}")
def test_command_in_a_line_has_these_options(command: str) -> None:
    name, *words = command.split()
    found = command_of(name)
    if isinstance(found, click.Group) and words[:1] and words[0] in found.commands:
        found = found.commands[words[0]]
    known = {option for parameter in found.params for option in parameter.opts}
    known |= {option for p in found.params for option in p.secondary_opts}
    assert {word for word in words if word.startswith("--")} <= known | {"--help"}


def test_pages_show_every_command_and_network() -> None:
    assert len(BLOCKS) > 50
    shown = {command.split()[0] for command in [*BLOCKS, *INLINES]}
    assert set(cli.list_commands(click.Context(cli))) <= shown
    specs = re.findall(r" \| `(\w+),[a-zN]", (ROOT / "docs" / "networks.md").read_text())
    assert sorted(specs) == kinds()


@pytest.mark.parametrize("name", cli.list_commands(click.Context(cli)))
def test_help_says_nothing_to_its_formatter(name: str) -> None:
    command = command_of(name)
    shown = command.get_help(click.Context(command, info_name=name, parent=click.Context(cli)))
    assert r"\b" not in shown
