"""Daemons and the page, started at the prompt: they run until the lab ends."""

from __future__ import annotations

import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest

from tests.experiments.labs import wait_until
from tests.experiments.runs.control.test_commands import Terminal, own_run, processes, up

pytestmark = pytest.mark.root
__all__ = ["own_run"]  # a fixture

PROMPT = "pillarbox> "


def answer(terminal: Terminal, line: str) -> str:
    before = len(terminal.shown)
    terminal.type(f"{line}\n")
    terminal.shows(PROMPT)
    return terminal.shown[before + len(line) :]


def test_a_daemon_started_at_the_prompt_runs_until_the_lab_ends(
    own_run: Callable[[], None],
) -> None:
    own_run()
    before = processes()
    with up("bcube,2,1", "--quiet") as terminal:
        for port in range(5300, 5310):  # each is a race between the daemon and its terminal's end
            answer(terminal, f"0.0 iperf3 -s -D -p {port}")
        answer(terminal, "0.0 python3 -m http.server 8099 >/dev/null 2>&1 & sleep 0")
        assert "10" in answer(terminal, "0.0 pgrep -c iperf3").split()
        received = answer(terminal, "1.1 iperf3 -c h0 -p 5305 -n 10K")
        assert "receiver" in received, received
        fetched = answer(
            terminal,
            "1.1 until curl -s -o /dev/null -w '%{http_code}' h0:8099; do sleep 0.1; done",
        )
        assert "200" in fetched, fetched
        terminal.type("exit\n")
        assert terminal.ended() == 0
    wait_until(lambda: processes() <= before, "a process is left")


def test_a_program_that_is_stopped_goes_on_and_its_exit_code_is_kept() -> None:
    with up("bcube,2,1", "--quiet") as terminal:
        shown = answer(terminal, "0.0 kill -TSTP $$; echo goes on")
        assert "goes on" in shown
        assert "Stopped" not in shown
        terminal.type("0.0 echo begun; sleep 600\n")
        terminal.shows("\nbegun")
        terminal.type("\x1a\x03")  # Ctrl-Z, Ctrl-C
        terminal.shows(PROMPT)
        terminal.type("exit\n")
        assert terminal.ended() == 0


def test_the_page_is_opened_at_the_prompt_and_closed_with_the_lab(
    own_run: Callable[[], None],
) -> None:
    own_run()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    before = processes()
    with up("bcube,2,1", "--quiet") as terminal:
        shown = answer(terminal, "page")
        found = re.search(r"page: (http://127\.0\.0\.1:\d+/\S+)", shown)
        assert found, shown
        with urllib.request.urlopen(found[1]) as page:
            assert "<title>" in page.read().decode()
        assert found[1] in answer(terminal, "page")  # it is open, and its address is shown again
        assert "another terminal" in answer(terminal, "page --listen 192.0.2.1")
        terminal.type("exit\n")
        assert terminal.ended() == 0
    wait_until(lambda: processes() <= before, "a process is left")
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(found[1])
