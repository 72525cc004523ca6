"""MPI programs on the servers of a lab, by a user's commands; and what they are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pillarbox.experiments.runs.control import mpi
from tests.experiments.labs import WAIT_S
from tests.experiments.runs.control.test_commands import ROOT, environment, own_run, pillarbox, up

pytestmark = pytest.mark.root
__all__ = ["own_run"]  # a fixture

SUM = """
import socket, sys
from array import array
from mpi4py import MPI
everyone, count, rounds = MPI.COMM_WORLD, int(sys.argv[1]), int(sys.argv[2])
mine = array("i", [everyone.rank + 1] * count)
for number in range(rounds):
    total = array("i", [0] * count)
    everyone.Allreduce(mine, total)
    assert set(total) == {everyone.size * (everyone.size + 1) // 2}, set(total)
    if everyone.rank == 0:
        print("round", number, flush=True)
names = everyone.gather(socket.gethostname())
if everyone.rank == 0:
    print("sum", total[0], *sorted(names))
"""


def debians_python() -> str:
    """Return the Python that has mpi4py."""
    for python in ("/usr/bin/python3", sys.executable):
        tried = subprocess.run(
            [python, "-c", "import mpi4py.MPI"], capture_output=True, check=False
        )
        if not tried.returncode:
            return python
    pytest.skip("there is no mpi4py: sudo ./pillarbox setup mpi")


@pytest.fixture
def python() -> str:
    if mpi.mpirun() is None:
        pytest.skip("Open MPI is not installed: sudo ./pillarbox setup mpi")
    return debians_python()


def mpirun(*words: str) -> list[str]:
    return [sys.executable, "-m", "pillarbox", "mpirun", *words]


def test_all_servers_have_the_right_sum(
    own_run: Callable[[], None], python: str, tmp_path: Path
) -> None:
    own_run()
    program = tmp_path / "sum.py"
    program.write_text(SUM)
    with up("bcube,4,1", "--rate-mbit", "100") as terminal:
        done = pillarbox("mpirun", "--", python, str(program), "1000", "1")
        assert done.returncode == 0, done.stderr
        names = sorted(f"h{number}" for number in range(16))
        assert f"sum 136 {' '.join(names)}\n" in done.stdout
        assert not list(Path("/run/pillarbox/labs/1").glob("mpi-*"))
        terminal.type("exit\n")
        assert terminal.ended() == 0


def test_who_takes_part(own_run: Callable[[], None], python: str) -> None:
    own_run()
    with up("tree,2,2"):  # its servers have no interface dcn0
        hosts = json.loads(pillarbox("hosts", "--slots", "2", "--json").stdout)["hosts"]
        assert [one["ip"] for one in hosts] == [f"10.0.0.{number + 1}" for number in range(4)]
        assert pillarbox("hosts").stdout.splitlines()[3] == "10.0.0.4 slots=1 # 1.1 h3"
        some = pillarbox("mpirun", "--on", "0.1,h3", "--", "hostname")
        assert sorted(some.stdout.split()) == ["h1", "h3"]
        assert pillarbox("mpirun", "--on", "1.1", "--", "sh", "-c", "exit 7").returncode == 7
        refused = pillarbox("mpirun", "--on", "9.9", "--", "hostname")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert (
            refused.stderr
            == "pillarbox: server '9.9' is dead or not in the lab: choose other servers with --on\n"
        )
        pillarbox("kill", "0.1")
        assert "10.0.0.2 " not in pillarbox("hosts").stdout


@pytest.mark.long
def test_a_cable_that_is_cut_does_not_end_a_program(
    own_run: Callable[[], None], python: str, tmp_path: Path
) -> None:
    own_run()
    program = tmp_path / "sum.py"
    program.write_text(SUM)
    line = mpirun("--", python, str(program), "100000", "12")
    with (
        up("bcube,4,1", "--rate-mbit", "100"),
        subprocess.Popen(
            line, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True
        ) as running,
    ):
        assert running.stdout is not None
        assert "round 0" in running.stdout.readline()
        assert pillarbox("cut", "0.0-s0").returncode == 0
        said = running.stdout.read()
        assert running.wait(WAIT_S) == 0
    assert "round 11" in said
    assert "sum 136" in said


def test_without_open_mpi_or_a_lab_it_is_a_sentence(own_run: Callable[[], None]) -> None:
    own_run()
    told = pillarbox("mpirun", "--", "hostname")
    assert (told.returncode, told.stdout) == (2, "")
    assert "no lab is running" in told.stderr


def test_what_starts_it_keeps_to_the_servers_addresses(tmp_path: Path) -> None:
    words = mpi.command("mpirun", Path("/run/lab"), tmp_path, ["h0:2", "h3:2"], "dcn0")
    line = " ".join(words)
    assert "--host h0:2,h3:2" in line
    for setting in (
        "oob_tcp_keepalive_time 10",
        "btl tcp,self",
        "btl_tcp_if_include dcn0",
        "oob_tcp_if_include dcn0",
    ):
        assert f"--mca {setting}" in line
    agent = words[words.index("plm_rsh_agent") + 1].split()
    assert agent[:2] == [sys.executable, "-I"]
    script, packages, folder = agent[-3:]
    assert Path(script).is_file()
    assert (Path(packages) / "pillarbox").is_dir()
    assert folder == "/run/lab"
