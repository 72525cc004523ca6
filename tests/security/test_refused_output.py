"""Standard output that takes nothing: a full disk, a closed descriptor, a reader that has ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import click
import pytest

from pillarbox.experiments.base.files import CHECKOUT
from pillarbox.experiments.cli.main import cli

# One process imports all commands and forks for each command line. Each child ends as Python ends,
# with its last flush; gc.freeze makes that a quarter as long.
EACH = """
import click, gc, json, os, sys
from pillarbox.experiments.cli.main import cli, main
lines = json.loads(sys.argv[1])
for words in lines:
    cli.get_command(click.Context(cli), words[0])
gc.freeze()
for words in lines:
    child = os.fork()
    if child == 0:
        main(words)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(2, f"{code} {words}\\n".encode())
"""
HELP = [[name, "--help"] for name in cli.list_commands(click.Context(cli))]
OTHERS = [
    ["--version"],
    ["topo", "bcube,4,1"],
    ["topo", "bcube,4,1", "--json"],
    ["path", "bcube,4,1", "0.0", "1.1"],
    ["compare", "bcube,4,1", "tree,4,4"],
    ["run", "--list"],
    ["dissector"],
    ["doctor"],
    ["labs"],
]


def ended(redirection: str, *words: str) -> tuple[int, str]:
    """Return the exit code and standard error of a command of a shell's line."""
    line = f'"$0" "$@" {redirection}'
    done = subprocess.run(
        ["bash", "-c", line, sys.executable, *words],
        check=False,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT / "src")},
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("redirection", "why", "commands"),
    [
        (">/dev/full", "No space left on device", [*HELP, *OTHERS]),
        (">&-", "Bad file descriptor", OTHERS),
    ],
)
def test_every_command_says_so_in_one_sentence(
    redirection: str, why: str, commands: list[list[str]]
) -> None:
    _, said = ended(redirection, "-c", EACH, json.dumps(commands))
    sentence = f"pillarbox: standard output cannot be written ({why}): redirect it\n"
    assert said == "".join(f"{sentence}1 {words}\n" for words in commands)


def test_a_reader_that_ends_early_is_no_mistake() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "pillarbox", "topo", "bcube,4,1"],
        check=False,
        stdout=writing,
        stderr=subprocess.PIPE,
        cwd=CHECKOUT,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "<&- 2>&-"])
def test_an_error_that_nobody_reads_keeps_its_exit_code(redirection: str) -> None:
    assert ended(f"{redirection}", "-m", "pillarbox", "topo", "nonsense") == (2, "")
    assert ended(f">/dev/null {redirection}", "-m", "pillarbox", "topo", "tree,2,2") == (0, "")


def test_a_file_never_gets_the_number_of_a_closed_stream() -> None:
    """Or what another program prints would be written into it."""
    script = """if True:
        from pillarbox.experiments.base.output import standard_streams
        with standard_streams(), open("/dev/null") as file:
            raise SystemExit(40 + file.fileno())
    """
    assert ended("<&- >&- 2>&-", "-c", script) == (43, "")
