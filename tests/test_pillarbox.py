"""The Python API: a lab as a process of its own, typed answers, and nothing left behind."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import pillarbox
from pillarbox import AllToAll, PillarboxError, Traffic
from pillarbox.experiments.cli.commands.up import command
from pillarbox.experiments.lab.linux import sandbox
from tests.experiments.runs.control.test_commands import LABS, processes, wait_until

ROOT = Path(__file__).parents[1]


PROGRAM = """
import subprocess
import pillarbox
from pillarbox import AllToAll, Lab, OneToOne, PillarboxError

def measure(lab: Lab) -> float:
    done: subprocess.CompletedProcess[str] = lab["0.0"].run("ping -c 1 4.3", timeout=5.0)
    if done.returncode:
        raise PillarboxError(done.stderr)
    with lab["4.3"].popen(["iperf3", "-s"]) as program, lab.capture("x.pcapng") as capture:
        program.terminate()
    print(capture.wait().frames, lab.load()[0].mbit, lab.grow(2).servers)
    lab.run(AllToAll(volume="1MB"))
    lab.run(OneToOne(seconds=1.0, flows=2))
    return lab.iperf("0.0", "4.3").mbit

with pillarbox.lab("dcell,4,1", rate_mbit=100, plane="ebpf", queue="codel") as lab:
    print(measure(lab), [server.ip for server in lab])
print(pillarbox.load("run").valid().systems)
"""
WRONG = """import pillarbox
pillarbox.lab("dcell,4,1", rate=100)
pillarbox.lab("dcell,4,1", plane="warp")
pillarbox.nosuch
pillarbox.AllToAll(volume=1, flows=3)
reveal_type(pillarbox.lab("dcell,4,1")["0.0"].run("true").stdout)
"""


def own_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no other lab be seen, and the test's own sandbox not be the lab's."""
    monkeypatch.delenv(sandbox.INSIDE)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)


@pytest.mark.root
def test_a_lab_in_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    own_run(monkeypatch)
    before = processes()
    options = {"rate_mbit": 20, "mtu": 9000, "plane": "python"}
    with pillarbox.lab("dcell,2,1", **options) as lab:
        assert [folder.name for folder in LABS.iterdir()] == ["1"]
        change = lab.cut("0.1", "2.0")
        assert change.did == "0.1-2.0 is cut"
        assert {*change.noticed_ms, *change.not_noticed} == {"0.1", "2.0"}
        path = lab.path("0.0", "2.1")
        assert (path.delivered, path.servers[0], path.servers[-1]) == (True, "0.0", "2.1")
        assert str(path) == " ".join(path.servers)
        assert (lab.ping("0.0", "2.1").ms or 0) > 0
        assert 1 < lab.iperf("0.0", "2.1", seconds=0.5).mbit < 21
        assert lab.heal().did == "0.1-2.0 repaired"
        flows = lab.run(AllToAll(volume="20kB"))
        assert len(flows) == 30
        assert set(flows["status"]) == {"completed"}
        assert set(flows["delivered_bytes"]) == {20_000}
        assert flows.attrs["ideal_bps"] > 0 and "verdict" in flows.attrs
        assert bool(flows["valid"][0]) == flows.attrs["valid"]
        with pytest.raises(pillarbox.UnknownNameError, match="no cable joins"):
            lab.cut("0.0", "2.1")
        assert lab.kill("2.1").did.startswith("2.1 is dead")
        assert lab.ping("0.0", "2.1").ms is None
        assert lab.why("0.0", "2.1")[0] == "2.1 is dead: revive 2.1"
        assert lab.status()["dead"] == ["2.1"]
    assert list(LABS.iterdir()) == []
    wait_until(lambda: processes() <= before, "a process is left")
    with pytest.raises(pillarbox.LabEndedError, match="this lab has ended"):
        lab.path("0.0", "2.1")


@pytest.mark.root
def test_what_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    own_run(monkeypatch)
    with pytest.raises(PillarboxError, match="there is no network 'nosuch'"):
        pillarbox.lab("nosuch,4")
    with pytest.raises(PillarboxError, match=r"value for mtu: 5 is not in the range \S+\.$"):
        pillarbox.lab("dcell,2,1", mtu=5)
    with pytest.raises(PillarboxError, match=r"^machines cannot be combined with gateways$"):
        pillarbox.lab("dcell,2,1", machines=2, gateways=["0.0"])
    with pytest.raises(TypeError, match="unexpected keyword argument 'rate'"):
        pillarbox.lab("dcell,2,1", rate=1)


@pytest.mark.root
def test_programs_on_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    own_run(monkeypatch)
    with pillarbox.lab("dcell,2,1") as lab:
        assert (len(lab), [one.address for one in lab][:2]) == (6, ["0.0", "0.1"])
        assert lab["0.1"] == lab["h1"] == lab["0.1.dcell"]
        pinged = lab["0.0"].run("ping -c 1 2.1 | grep -c '1 received'")
        assert (pinged.returncode, pinged.stdout) == (0, "1\n")
        assert lab["0.0"].run(["echo", "0.1"]).stdout == f"{lab['0.1'].ip}\n"
        assert lab["0.0"].run("cat; exit 3", stdin="'0.1'").args == "cat; exit 3"
        with pytest.raises(subprocess.CalledProcessError):
            lab["0.0"].run("exit 3", check=True)
        with pytest.raises(subprocess.TimeoutExpired, match=r"'sleep 1000 [|] cat' timed"):
            lab["0.0"].run("sleep 1000 | cat", timeout=0.5)
        assert lab["0.0"].run("ps ax | grep -c '[s]leep 1000'").stdout == "0\n"
        line = "trap 'echo end; exit 0' TERM; echo begun; while :; do sleep 0.1; done"
        with lab["0.0"].popen(line, stdout=subprocess.PIPE) as program:
            assert program.stdout and program.stdout.readline() == "begun\n"
            program.terminate()
            assert "end\n" in program.stdout.read()
        lab.kill("0.1")
        with pytest.raises(PillarboxError, match=r"0\.1 is dead"):
            lab["0.1"].run("true")
        with pytest.raises(PillarboxError, match="is a switch"):
            lab["s0"]


@pytest.mark.root
def test_a_lab_grows_and_its_frames_are_captured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own_run(monkeypatch)
    with pillarbox.lab("bcube,2,1,servers=2") as lab:
        assert lab.grow() == ("bcube,2,1", 4, 4) and len(lab) == 4
        assert lab.shrink(2).servers == len(lab) == 2
        with pytest.raises(PillarboxError, match="number of servers must be above 0"):
            lab.grow(0)
        with lab.capture(tmp_path / "x.pcapng", ["0.0"], heartbeats=False) as capture:
            assert lab.ping("0.0", "0.1").ms
        assert capture.wait().frames >= 2
        with pytest.raises(PillarboxError, match="exists: name another file, or set overwrite"):
            lab.capture(tmp_path / "x.pcapng")
        with pytest.raises(PillarboxError, match="cannot be written"):
            lab.capture(tmp_path / "none" / "x.pcapng")
        with pytest.raises(PillarboxError, match="no port '7'"):
            lab.capture(tmp_path / "y.pcapng", ["0.0:7"])
        link = lab.load()[0]
        assert (link.source, link.destination, link.port) == ("0.0", "s0", 0)
        flows = lab.run(pillarbox.OneToOne(volume="20kB", source="0.0", destination="0.1"))
        assert list(flows["path"]) == ["0.0.bcube 0.1.bcube"] * len(flows)


def test_public_names() -> None:
    assert dir(pillarbox) == sorted(pillarbox.__all__)
    assert all(hasattr(pillarbox, name) for name in pillarbox.__all__)


def test_keyword_parameters_are_the_options_of_up() -> None:
    parameters = inspect.signature(pillarbox.lab).parameters
    options = {one.name: one for one in command.params if isinstance(one, click.Option)}
    only_there = {"script", "detach", "hold", "page", "listen", "plain_http", "terminals"}
    assert {*options} - only_there - {"no_sandbox", "quiet"} == (
        {*parameters} - {"network", "rates_mbit"}
    )
    for name in {*parameters} & {*options}:
        default = options[name].default
        wanted = default if isinstance(default, str | int | float) else None
        assert (parameters[name].default or None) == (wanted or None), name


def test_types_hold_in_a_program_of_a_user(tmp_path: Path) -> None:
    def mypy(program: str) -> str:
        (tmp_path / "program.py").write_text(program)
        words = ["-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "program.py"]
        done = subprocess.run(
            [sys.executable, "-I", *words],
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
        )
        return done.stdout

    assert "Success" in mypy(PROGRAM)
    wrong = mypy(WRONG)
    assert [int(line) for line in re.findall(r":(\d+): error", wrong)] == [2, 3, 4, 5], wrong
    assert 'Revealed type is "str"' in wrong.replace("builtins.", "")


def test_a_run_is_loaded_at_the_same_door() -> None:
    run = pillarbox.load(ROOT / "docs/notebook/run")
    assert run.flows["source"].str.fullmatch(r"(\d+\.)+[a-z]+").all()


@pytest.mark.root
def test_a_lab_ends_with_the_program_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own_run(monkeypatch)
    before = processes()
    program = "import os, pillarbox; lab = pillarbox.lab('dcell,2,1'); os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert done.returncode == -9
    wait_until(lambda: processes() <= before, "a process is left")
    wait_until(lambda: list(LABS.iterdir()) == [], "its folder is left")


def test_traffic_is_words() -> None:
    assert AllToAll(volume="1MB").words == [
        *("all-to-all", "tool=generator", "volume_bytes=1000000", "congestion=cubic"),
    ]
    words = Traffic("burst", seconds=2, tool="iperf3", flows=3).words
    assert words == ["burst", "tool=iperf3", "duration_s=2", "congestion=cubic", "flows=3"]
    words = pillarbox.Burst(volume=9, senders=["0.0", "0.1"], receivers=2).words
    assert words[-2:] == ["senders=0.0,0.1", "receivers=2"]
    for wrong in ({}, {"volume": 1, "seconds": 1}, {"volume": "much"}):
        with pytest.raises(PillarboxError):
            AllToAll(**wrong)
