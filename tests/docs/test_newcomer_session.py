"""A session of a newcomer at a real terminal: README's network, a dead server, a report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.experiments.runs.control.test_commands import (
    ROOT,
    Terminal,
    own_run,  # noqa: F401 # a fixture
    pillarbox,
    processes,
    up,
    wait_until,
)

README = (ROOT / "README.md").read_text()
TYPED = re.findall(r"^pillarbox> (.*)$", README, re.MULTILINE)


def says(terminal: Terminal, line: str, *expected: str) -> None:
    """Type a line; wait for what it says, and for the prompt."""
    terminal.type(f"{line}\n")
    for what in (*expected, "pillarbox> "):
        terminal.shows(what)


@pytest.mark.long
@pytest.mark.root
def test_session_of_a_newcomer(
    own_run: Callable[[], None],  # noqa: F811
    tmp_path: Path,
) -> None:
    own_run()
    before = processes()
    (network,) = re.findall(r"^sudo \./pillarbox up (\S+)$", README, re.MULTILINE)
    with up(network, "--timers", "paper") as terminal:
        for line in TYPED:
            says(terminal, line, "\n")
        assert "there is no" not in terminal.shown
        says(terminal, "help", "kill A", "Ctrl-D, ends the lab")
        says(terminal, "ping 4.3", "write: ping A B")
        says(terminal, "ping 0.0 4.3", "an answer from 4.3 to 0.0 after")
        says(terminal, "0.0 ping -c 1 -W 5 4.3", "1 received")
        says(terminal, "kil 1.3", "did you mean kill")
        says(terminal, "kill 1.3", "1.3 is dead, with all its programs")
        says(terminal, "1.3 ls", "1.3 is dead: revive 1.3")
        refused = pillarbox("exec", "1.3", "ls")
        assert refused.returncode == 2 and "1.3 is dead: revive 1.3" in refused.stderr
        assert json.loads(pillarbox("status", "--json").stdout)["dead"] == ["1.3"]
        assert 'pillarbox_server_up{server="1.3"} 0' in pillarbox("metrics").stdout
        says(terminal, "revive 1.3", "1.3 is alive again, without its programs")
        says(terminal, "1.3 echo it is $((40 + 2))", "it is 42")
        says(terminal, "cut 0.3 4.0", "a cable is one word: cut 0.3-4.0")
        terminal.type("exit\n")
        assert terminal.ended() == 0
    wait_until(lambda: processes() <= before, "a process is left")
    out = tmp_path / "first"
    ran = pillarbox("run", "quick", "--repeats", "1", "--duration", "0.5", "--out", str(out))
    assert ran.returncode in (0, 1), (
        ran.stderr
    )  # 1: not valid, on a machine with other things to do
    page = Path(pillarbox("report", str(out)).stdout.strip())
    assert page == out / "report.html" and "<svg" in page.read_text()
