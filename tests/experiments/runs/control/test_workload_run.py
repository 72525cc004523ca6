"""`run` at the prompt: it shows how far it is, ends in time and at Ctrl-C, and leaves nothing."""

from __future__ import annotations

import re
import time

import pytest

from pillarbox.experiments.lab.traffic import tools
from pillarbox.experiments.runs.control.workload_run import _workload, goodput_line
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.runs.control import test_commands
from tests.experiments.runs.control.test_commands import Terminal, up

pytestmark = pytest.mark.root

TOOLS = ["iperf3", "generator"]
NETWORKS = {"bcube,4,1": 240, "dcell,4,1": 380}  # and how many flows there are, all to all
# Connecting, sending and the deadline behind it, on a machine that is busy with something else.
MOST_S = 180.0
LEFT = "sh ps -e -o comm= | grep -c iperf3"


def nothing_is_left_of_iperf3(terminal: Terminal) -> None:
    terminal.type(f"{LEFT}\n")
    terminal.shows(LEFT)
    terminal.shows("\n0")
    terminal.shows("pillarbox> ")


def every_ping_is_answered(terminal: Terminal) -> None:
    """Ping until nothing is lost: a machine that pauses loses packets too."""
    deadline = time.monotonic() + MOST_S
    while not re.search(r"[^\d]0\.0% dropped$", terminal.shown):
        assert time.monotonic() < deadline, terminal.shown
        terminal.type("pingall\n")
        terminal.shows("% dropped")
    terminal.shows("pillarbox> ")


@pytest.mark.alone
@pytest.mark.few
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("network", NETWORKS)
def test_all_to_all_ends_and_the_network_goes_on(
    network: str, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_commands, "WAIT_S", MOST_S)
    with up(network, "--quiet") as terminal:
        terminal.type(f"run all-to-all duration_s=2 tool={tool}\n")
        terminal.shows("(Ctrl-C ends it)")
        terminal.shows(" failed: ")
        assert f"{NETWORKS[network]} flows, " in terminal.shown
        terminal.shows("pillarbox> ")
        every_ping_is_answered(terminal)
        nothing_is_left_of_iperf3(terminal)
        terminal.type("exit\n")
        assert terminal.ended() == 0
    assert "***" not in terminal.shown


@pytest.mark.parametrize("tool", TOOLS)
def test_ctrl_c_ends_a_workload_and_all_of_its_programs(tool: str) -> None:
    with up("bcube,2,1", "--quiet") as terminal:
        terminal.type(f"run all-to-all duration_s=600 tool={tool}\n")
        terminal.shows("flows have ended (Ctrl-C ends it)")
        terminal.type("\x03\x03")  # whoever is impatient breaks nothing off
        terminal.shows("Interrupt")
        terminal.shows("pillarbox> ")
        nothing_is_left_of_iperf3(terminal)
        every_ping_is_answered(terminal)
        terminal.type(f"run all-to-all duration_s=0.5 tool={tool}\n")
        terminal.shows("12 flows, 0 failed: ")
        terminal.shows("pillarbox> ")
        terminal.type("exit\n")
        assert terminal.ended() == 0


def test_ctrl_c_ends_a_workload_that_connects() -> None:
    with up("bcube,4,1", "--quiet") as terminal:
        terminal.type("run all-to-all duration_s=600 tool=iperf3\n")
        terminal.shows("connecting 240 flows")
        terminal.type("\x03")
        terminal.shows("Interrupt")
        terminal.shows("pillarbox> ")
        nothing_is_left_of_iperf3(terminal)


def test_the_tool_goes_by_the_processors_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.shutil, "which", lambda _: "/usr/bin/iperf3")
    for processors in (1, 2, 64):
        monkeypatch.setattr(tools, "processors", lambda here=processors: here)
        most = tools.IPERF3_FLOWS * processors
        assert tools.chosen_tool("auto", most) == "iperf3"
        assert tools.chosen_tool("auto", most + 1) == "generator"
        assert tools.chosen_tool("iperf3", 100 * most) == "iperf3"


def test_a_result_that_is_not_valid_names_the_first_reason() -> None:
    record = {
        "flows": 2, "failed_flows": 0, "goodput_bps": 5e6, "ideal_bps": 1e7,
        "valid": False, "verdict": {"reasons": ["processors were idle 1%", "foreign programs"]},
    }  # fmt: skip
    line = "2 flows, 0 failed: 5.00 Mbit/s of 10.0 Mbit/s ideal; not valid: processors were idle 1%"
    assert goodput_line(record) == f"{line} (and 1 more)"
    assert goodput_line(record | {"valid": True}).endswith("ideal; valid")


def test_an_option_that_is_given_twice_is_refused() -> None:
    with pytest.raises(PillarboxError, match="duration_s is given twice"):
        _workload(["all-to-all", "duration_s=1", "duration_s=2"])
    with pytest.raises(PillarboxError, match="tp is given twice"):
        _workload(["training", "tp=2", "tp=4"])
    jobs = _workload(["training", "job=tp=2", "job=tp=4"]).options["jobs"]
    assert jobs == [{"tp": 2}, {"tp": 4}]
