"""A class network: seats, faults of the teacher, and live networks with hostile files."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from pillarbox import topos
from pillarbox.experiments.apps.teaching.class_network import (
    PAGE,
    POINTS,
    ClassNetwork,
    assigned_seats,
    packet_format,
    read_faults,
    standard_routing,
)
from pillarbox.experiments.apps.teaching.class_router import MOST_VISITS
from pillarbox.experiments.base.interpreter import module_command
from pillarbox.experiments.cli.commands.class_network import command
from pillarbox.experiments.lab.emulation.packet_tracing import MOST_PAIRS
from pillarbox.experiments.runs.control import verbs
from pillarbox.hosts.live.forwarder import TRACES
from pillarbox.topos.base.errors import PillarboxError

NETWORK = topos.parse("bcube,2,1")
BCUBE = """
from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.path import Step

class Mine(HopByHop):
    def next_step(self, destination, came_by):
        bcube = self.topology
        here, there = bcube.digits(self.server), bcube.digits(destination)
        for level in range(bcube.k + 1):
            place = bcube.k - level
            if here[place] != there[place]:
                digits = [*here[:place], there[place], *here[place + 1 :]]
                step = Step(level, bcube.server_at(digits))
                if self.neighbours.works(step):
                    return step
        return None
"""
HOSTILE = {
    "crashes": "raise RuntimeError('<b>no wish</b>')",
    "loops": BCUBE + "        \n    def outgoing(self, *_):\n        while True: pass\n",
    "hoards": BCUBE + "\n    def send(self, *_):\n        return [bytes(1000)] + [*range(10**9)]\n",
    "floods": BCUBE.replace(
        "class",
        "from pillarbox.hosts.base.actions import Send\n"
        "from pillarbox.hosts.wire.frame import Frame\nclass",
        1,
    )
    + """
    def poll(self, now):
        self.agenda.set("again", now, lambda now: [])
        return [Send(0, peer, Frame(0x88B5, bytes(1400))) for peer in self.neighbours.peers[0]] * 99
""",
}


def class_folder(folder: Path, **files: str) -> Path:
    folder.mkdir()
    for name, source in files.items():
        (folder / f"{name}.py").write_text(source)
    return folder


def results(out: Path) -> dict[str, dict[str, str]]:
    with (out / POINTS).open() as table:
        return {row["student"]: row for row in csv.DictReader(table)}


# -- seats and faults ----------------------------------------------------------------------------


def test_students_sit_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "in", bob="b = 1", ada="a = 1")
    seats = assigned_seats(NETWORK, folder)
    assert [(one.server, one.student, one.source) for one in seats] == [
        (0, "ada", "a = 1"),
        (1, "bob", "b = 1"),
        (2, "", ""),
        (3, "", ""),
    ]


def test_seed_draws_the_seats_again(tmp_path: Path) -> None:
    large = topos.parse("bcube,4,1")
    folder = class_folder(tmp_path / "in", **{f"s{number}": "" for number in range(10)})
    first, second, other = (assigned_seats(large, folder, seed) for seed in (1, 1, 2))
    assert first == second != other
    assert {one.student for one in first} == {one.student for one in other}


def test_submission_that_cannot_be_read_is_a_refused_seat(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "in", ada=BCUBE)
    (folder / "link.py").symlink_to(folder / "ada.py")
    (folder / "=1.py").write_text(BCUBE)
    refused = {one.student: one.refused for one in assigned_seats(NETWORK, folder)}
    assert not refused["ada"]
    assert "links are not followed" in refused["link"]
    assert "not a valid student ID" in refused["=1"]


def test_class_has_to_fit(tmp_path: Path) -> None:
    fits = {f"s{number}": "" for number in range(4)}
    folder = class_folder(tmp_path / "in", **fits)
    assert all(one.student for one in assigned_seats(NETWORK, folder))
    (folder / "s4.py").touch()
    with pytest.raises(PillarboxError, match="5 submissions do not fit"):
        assigned_seats(NETWORK, folder)
    with pytest.raises(PillarboxError, match="has no submissions"):
        assigned_seats(NETWORK, class_folder(tmp_path / "empty"))


def test_faults_are_read_by_round(tmp_path: Path) -> None:
    file = tmp_path / "faults.txt"
    file.write_text("# a comment\n2 cut 0.0-s0 silent\n\n3 heal all # again\n3 kill 1.0\n")
    assert read_faults(NETWORK, file) == {
        2: ["cut 0.0-s0 silent"],
        3: ["heal all", "kill 1.0"],
    }


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("cut 0.0-s0", "begins with no round"),
        ("0 cut 0.0-s0", "begins with no round"),
        ("1" * 5000 + " cut 0.0-s0", "begins with no round"),
        ("1", "no command of faults"),
        ("1 ping 0.0 1.0", "no command of faults"),
        ("1 kill 7.7", "line 1 of"),
        ("1 cut 0.0-1.1", "line 1 of"),
    ],
)
def test_wrong_fault_is_refused_before_the_lab_starts(tmp_path: Path, line: str, says: str) -> None:
    file = tmp_path / "faults.txt"
    file.write_text(line)
    with pytest.raises(PillarboxError, match=says):
        read_faults(NETWORK, file)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--faults", "FAULTS"], "--faults needs --rounds"),
        (["--faults", "FAULTS", "--rounds", "1"], "round 2 of"),
        (["--routing", "bsr2"], "no routing 'bsr2'"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, arguments: list[str], says: str) -> None:
    folder = class_folder(tmp_path / "in", ada=BCUBE)
    (tmp_path / "faults.txt").write_text("2 kill 0.0")
    given = [word.replace("FAULTS", str(tmp_path / "faults.txt")) for word in arguments]
    found = CliRunner().invoke(command, [NETWORK.spec, str(folder), *given])
    assert says in str(found.exception)


@pytest.mark.parametrize(
    ("spec", "routing", "packets"),
    [
        ("bcube,2,1", "bcube", "with the header of bcube"),
        ("dcell,4,1", "dcell", "with the header of dcell"),
        ("ficonn,4,1", "tor", "plain IP (plain_ip = True)"),
        ("dpillar,4,2", "sp-cw", "plain IP (plain_ip = True)"),
    ],
)
def test_standard_routing_has_the_header_of_students(spec: str, routing: str, packets: str) -> None:
    assert standard_routing(topos.parse(spec)) == routing
    assert packet_format(topos.parse(spec), routing) == packets


def test_trace_records_of_a_round_are_complete() -> None:
    assert MOST_PAIRS * MOST_VISITS <= TRACES


def test_refused_fault_does_not_end_the_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PillarboxError("0.0 is dead: revive it first (revive 0.0)")

    def run_round(network: ClassNetwork) -> None:
        network.rounds += 1

    lab: Any = SimpleNamespace(topology=NETWORK)
    monkeypatch.setattr(verbs, "answer", refused)
    monkeypatch.setattr(ClassNetwork, "run_round", run_round)
    monkeypatch.setattr(ClassNetwork, "write", lambda *_, **__: None)
    lines = [*ClassNetwork(lab, [], tmp_path).run_rounds(2, {1: ["kill 0.0"]})]
    assert lines == [
        "round 1: kill 0.0 failed: 0.0 is dead: revive it first (revive 0.0)",
        "round 1: 0 of 0 packets arrived",
        "round 2: 0 of 0 packets arrived",
    ]


def test_command_has_one_thread_before_it_creates_a_user_namespace() -> None:
    module = "pillarbox.experiments.apps.teaching.class_network"
    count = f"import os, {module}; print(len(os.listdir('/proc/self/task')))"
    ran = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, check=True)
    assert ran.stdout == "1\n"


# -- live ----------------------------------------------------------------------------------------


def run_class(
    spec: str, folder: Path, out: Path, *options: str, lines: str = ""
) -> subprocess.CompletedProcess[str]:
    words = ["class-network", spec, str(folder), "--out", str(out), *options]
    ran = subprocess.run(
        module_command("pillarbox", *words),
        input=lines,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran


@pytest.mark.root
def test_small_class(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "in", ada=BCUBE, bob=BCUBE, eve=HOSTILE["crashes"])
    faults = tmp_path / "faults.txt"
    faults.write_text("2 kill 0.0\n")
    options = "--rounds", "2", "--faults", str(faults)
    ran = run_class(NETWORK.spec, folder, tmp_path / "out", *options)
    found = results(tmp_path / "out")
    assert float(found["ada"]["points"]) > 0
    assert found["eve"]["points"] == "0.0"
    assert "RuntimeError" in found["eve"]["remark"]
    assert "0.0 is dead" in ran.stdout
    assert found["ada"]["remark"] == "killed"
    page = (tmp_path / "out" / PAGE).read_text()
    assert "&lt;b&gt;no wish" in page
    assert "<b>no wish" not in page
    assert 'http-equiv="refresh"' not in page


@pytest.mark.long
@pytest.mark.root
def test_prompt_of_a_class(tmp_path: Path) -> None:
    folder = class_folder(tmp_path / "in", ada=BCUBE, eve=HOSTILE["crashes"])
    lines = "kill 0.0\nrevive 0.0\npath 0.0 1.0\ngrow\nexit\n"
    ran = run_class(NETWORK.spec, folder, tmp_path / "out", lines=lines)
    for part in ("0.0 is dead", "0.0 is alive again", "(arrived)", "rank"):
        assert part in ran.stdout
    assert "Traceback" not in ran.stderr
    assert (tmp_path / "out" / PAGE).exists()


@pytest.mark.long
@pytest.mark.root
def test_hostile_files_are_dead_servers_and_nothing_else(tmp_path: Path) -> None:
    honest = {f"s{number}": BCUBE for number in range(16)}
    folder = class_folder(tmp_path / "in", **honest, **HOSTILE)
    run_class("bcube,5,1", folder, tmp_path / "out", "--rounds", "3", "--seed", "1")
    found = results(tmp_path / "out")
    assert found["crashes"]["remark"].startswith("RuntimeError")
    assert "loops or waits" in found["loops"]["remark"]
    assert "memory" in found["hoards"]["remark"]
    for name in ("crashes", "loops", "hoards"):
        assert float(found[name]["points"]) < 20
    assert all(float(found[name]["points"]) > 80 for name in honest)
