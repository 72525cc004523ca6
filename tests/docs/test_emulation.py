"""What docs/emulation.md shows at the prompt and in Python happens so: the two cannot drift."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "emulation.md").read_text()
(TRANSCRIPT,) = re.findall(r"```\n(lab 1: .*?)```", PAGE, re.DOTALL)
(API, PROGRAM) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^pillarbox> (.*)$", TRANSCRIPT, re.MULTILINE)
LOOKS = 5  # at the same path, one after another


def run(*words: str) -> str:
    ran = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.root
def test_transcript(tmp_path: Path) -> None:
    script = tmp_path / "commands"
    # A script is faster than a reader: servers get time to notice. On a busy machine heartbeats
    # wait for a processor, and the papers' timers bear it.
    for line in COMMANDS:
        looks = f"0.0 sleep 0.3\n{line}\n" * LOOKS
        with script.open("a") as lines:
            lines.write(looks if line.startswith("path") else f"{line}\n")
    up = ["-m", "pillarbox", "up", "dcell,4,1", "--timers", "paper"]
    told = run(*up, "--exec", str(script))
    network = re.compile(r"^lab \d+: (.*); routing dfr", re.MULTILINE)
    assert network.findall(told) == network.findall(TRANSCRIPT)
    computed = re.compile(r"^computed: (.*)$", re.MULTILINE)
    assert computed.findall(told)[::LOOKS] == computed.findall(TRANSCRIPT)
    taken = re.findall(r"^taken: .*$", told, re.MULTILINE)
    assert taken[LOOKS - 1 :: LOOKS] == re.findall(r"^taken: .*$", TRANSCRIPT, re.MULTILINE)


@pytest.mark.root
def test_program(tmp_path: Path) -> None:
    place = '"/run/mylab"'
    assert PROGRAM.count(place) == 1
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace(place, repr(str(tmp_path / "lab"))))
    told = run(str(program))
    assert "3 packets transmitted, " in told
    last = told.splitlines()[-1]
    assert re.fullmatch(r"\['0.0', .*'3.3'\]", last), last
    assert "'3.0'" not in last


def commands_of(head: str) -> set[str]:
    """Return the commands in the first column of the page's table with this head."""
    (table,) = re.findall(rf"^{re.escape(head)}\n(.*?)\n\n", PAGE, re.MULTILINE | re.DOTALL)
    return {
        word for row in table.splitlines() for word in re.findall(r"`([a-z]+)", row.split("|")[1])
    }


def test_prompt_has_every_command_of_the_page() -> None:
    from pillarbox.experiments.runs.control.prompt import Prompt
    from pillarbox.experiments.runs.control.verbs import VERBS
    from pillarbox.hosts.base import fault_kinds

    faults = commands_of("| at the prompt | action | detection |")
    assert faults == {*fault_kinds.VERBS, "heal", "revive"}
    known = {*VERBS, "trace", *(name[3:] for name in dir(Prompt) if name.startswith("do_"))}
    commands = commands_of("| at the prompt | |")
    assert {"path", "why", "status", "load", "run"} <= commands
    assert faults | commands <= known
