"""docs/papers.md has a row for each part of the papers, and what its rows name is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from pillarbox.experiments.apps import papers as reproductions
from pillarbox.experiments.cli.main import cli
from pillarbox.experiments.runs.plans import loading

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if re.match(r"\| ([PCBF]\d+|-) \|", line)
]
PARTS = {"P": 15, "C": 14, "B": 16, "F": 7}  # DPillar, DCell, BCube, FiConn
COMMANDS = sorted({command for row in ROWS for command in re.findall(r"`([^`]+)`", row[5])})


def test_every_part_has_a_row() -> None:
    numbers = [row[0] for row in ROWS if row[0] != "-"]
    assert numbers == [f"{letter}{n}" for letter, most in PARTS.items() for n in range(1, most + 1)]
    assert all(len(row) == 6 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1][:20]}")
def test_row_names_code_and_tests_that_are_there(row: list[str]) -> None:
    for cell in row[3:5]:
        files = re.findall(r"`([\w/-]+(?:\.py|\.toml|/))`", cell)
        folder = ROOT
        for file in files:  # the second of a folder stands without it
            path = ROOT / file if "/" in file else folder / file
            assert path.exists(), file
            folder = path if path.is_dir() else path.parent
    assert "tests/" in row[4]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_one(command: str) -> None:
    if command.startswith("BSR("):  # Python's, and run by the row's own test
        assert command in (ROOT / "tests" / "hosts" / "bcube" / "test_gateways.py").read_text()
        return
    name, *arguments = shlex.split(command)
    found = cli.get_command(click.Context(cli), name)
    assert found is not None, name
    if name == "capture":  # of the cables of a lab that runs
        arguments += ["-o", "lab.pcapng"]
    given = found.make_context(name, arguments).params
    if name == "reproduce":
        assert set(given["names"]) <= set(reproductions.names())
    if name == "run":
        assert given["name"] in loading.names()
