"""The doctor: every probe tells, and what is lacking comes with its costs and its mending."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from pillarbox.experiments.cli.main import cli
from pillarbox.experiments.lab.doctor import computer, kernel, programs
from pillarbox.experiments.lab.doctor.finding import LESS, MISSING, OK, UNKNOWN, Finding, Probe
from pillarbox.experiments.lab.traffic.iperf3 import version
from pillarbox.hosts.linux import user_namespace
from pillarbox.topos.base.errors import PillarboxError


def check(probe: Probe) -> None:
    told = probe()
    assert told.state in (OK, LESS, MISSING, UNKNOWN)
    assert told.name and told.found
    assert bool(told.costs) == bool(told.mend) == (told.state in (LESS, MISSING))
    assert told.state != UNKNOWN or os.geteuid() != 0


@pytest.mark.parametrize("probe", programs.probes() + computer.probes(), ids=lambda p: p.__name__)
def test_every_probe_tells_and_explains_what_is_lacking(probe: Probe) -> None:
    check(probe)


@pytest.mark.root  # in namespaces of their own, and in a sandbox
def test_so_does_every_probe_of_the_kernel() -> None:
    for probe in kernel.probes():
        check(probe)


def test_a_kernel_that_refuses_is_told_with_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def refuse() -> None:
        raise PillarboxError("make the switch s0: Operation not supported")

    told = kernel._finding_by_attempt(
        "bridge", "works", refuse, "no switches", "modprobe bridge", MISSING
    )
    assert told == Finding(
        "bridge",
        MISSING,
        "tried, and refused: make the switch s0: Operation not supported",
        "no switches",
        "modprobe bridge",
    )


@pytest.mark.parametrize(
    ("mitigation", "state"),
    [("Vulnerable: Safe RET, no microcode", LESS), ("Not affected", OK), (None, OK)],
)
def test_a_processor_on_which_controls_lose_calls_is_reported(
    mitigation: str | None, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        kernel, "_finding_by_attempt", lambda *_: Finding("TCP controls", OK, "yes")
    )
    monkeypatch.setattr(kernel, "is_machine_root", lambda: True)
    monkeypatch.setattr(kernel, "RETURN_MITIGATION", tmp_path / "spec_rstack_overflow")
    if mitigation is not None:
        kernel.RETURN_MITIGATION.write_text(mitigation)
    assert kernel.controls().state == state


def test_what_only_root_can_try_is_unknown_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(user_namespace, "refusal", lambda: "no user namespaces")
    states = {probe.__name__: probe().state for probe in kernel.probes()}
    assert states.pop("root") == MISSING
    del states["tun"], states["labs_of_users"]  # anybody can look for their files
    assert set(states.values()) == {UNKNOWN}


def test_a_small_computer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096}.get(name, 2**18))
    assert (computer.processors().state, computer.processors().found) == (LESS, "1 processor")
    assert (computer.memory().state, computer.memory().found) == (LESS, "1.0 GiB")


def test_a_report_port_that_is_taken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(computer, "REPORT_PORT", taken.getsockname()[1])
        told = computer.report_port()
    assert told.state == LESS and "is taken" in told.found


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no ip tc ping" in programs.tools().found
    version.cache_clear()
    assert programs.iperf3().state == LESS
    assert programs.tshark().found == "it is not installed"


def test_the_command_ends_with_1_only_where_no_lab_can_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = Finding("TUN", MISSING, "there is none", "no server can relay", "modprobe tun")
    less = Finding("netem", LESS, "there is none", "delays by a process", "modprobe sch_netem")
    for module in (kernel, programs, computer):
        monkeypatch.setattr(module, "probes", list)
    monkeypatch.setattr(kernel, "probes", lambda: [lambda: less])
    told = CliRunner().invoke(cli, ["doctor"], standalone_mode=False)
    assert told.return_value == 0
    assert "Labs run here, with limits: netem." in told.output
    monkeypatch.setattr(kernel, "probes", lambda: [lambda: less, lambda: missing])
    told = CliRunner().invoke(cli, ["doctor"], standalone_mode=False)
    assert told.return_value == 1
    assert "Labs cannot run here; missing: TUN." in told.output
    told = CliRunner().invoke(cli, ["doctor", "--json"], standalone_mode=False)
    assert [one["name"] for one in json.loads(told.output)["findings"]] == ["netem", "TUN"]
