"""The fifth network of docs/extending-routing.md: two files, and everything knows it.

The files and the commands with their output are taken from the page, so the two cannot drift.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.docs.own import checkout, python
from tests.experiments.lab.observe.tshark import needs_tshark, tshark

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending-routing.md").read_text()
TOPOLOGY, ROUTING = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(CONSOLE,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES = [
    part.partition("\n")[::2] for part in re.split(r"^\$ ", CONSOLE, flags=re.MULTILINE)[1:]
]
CONTRACTS = {  # and how many tests of the network each has at least
    "topos/test_contract.py": 12,
    "topos/test_arrays.py": 3,
    "hosts/test_routers.py": 9,
    "hosts/base/test_algorithms.py": 2,
    "hosts/live/test_decisions.py": 2,
    "experiments/models/simulator/test_uncompiled.py": 2,
    "experiments/models/simulator/test_breadth_first.py": 1,
    "experiments/cli/commands/test_compare.py": 1,
    "experiments/runs/reporting/test_drawing.py": 1,
}
DOCTESTS = """
import doctest, pillarbox.hosts.necklace, pillarbox.topos.necklace
for module in pillarbox.topos.necklace, pillarbox.hosts.necklace:
    print(*doctest.testmod(module))
"""
# It counts what went through routers: all but a few packets are the planes'.
LIVE = "experiments/lab/emulation/test_lab.py"
PLAN = """
repeats = 1
systems = [{network = "necklace,4"}]
workload = {pattern = "one-to-one", duration_s = 1.0}
"""
FRAME = """
from pillarbox.experiments.lab.observe.pcapng import Interface, Writer
from pillarbox.hosts.necklace import BACK, NecklaceHeader
from pillarbox.hosts.wire.ipv4 import UDP, Ipv4Header
inside = Ipv4Header(0x0A000001, 0x0A000007, UDP).pack(bytes(20))
with open("frames.pcapng", "wb") as file:
    writer = Writer(file, [Interface("port", 65535)])
    for header in (NecklaceHeader(0, 6, BACK), NecklaceHeader(0, 6, BACK, ttl=3)):
        writer.write(0, 0, bytes(12) + b"\\x88\\xb5" + header.pack(inside), outgoing=True)
    damaged = bytearray(NecklaceHeader(0, 6, BACK).pack(inside))
    damaged[4] ^= 1
    writer.write(0, 0, bytes(12) + b"\\x88\\xb5" + damaged, outgoing=True)
"""


@pytest.fixture(scope="module")
def necklace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that holds topos/ and hosts/ with one more file each, and nothing else."""
    return checkout(tmp_path_factory.mktemp("necklace"), "necklace", topos=TOPOLOGY, hosts=ROUTING)


def passed(necklace: Path, *tests: str) -> list[str]:
    """Return the names of this project's tests of the network that passed; none may fail."""
    files = [str(ROOT / "tests" / file) for file in tests]
    which = "necklace and not (test_every_routing_carries_programs_traffic and shortest)"
    options = ["-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}", "-rp", "-k", which]
    done = python(necklace, "-m", "pytest", *options, *files)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"^PASSED (.*)$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(("command", "output"), EXAMPLES)
def test_command_of_the_page_prints_what_the_page_shows(
    necklace: Path, command: str, output: str
) -> None:
    program, *arguments = shlex.split(command)
    assert program == "pillarbox"
    done = python(necklace, "-m", "pillarbox", *arguments)
    assert done.stdout + done.stderr == output
    assert done.returncode == 0


def test_its_doctests_pass(necklace: Path) -> None:
    done = python(necklace, "-c", DOCTESTS)
    found = [[int(count) for count in line.split()] for line in done.stdout.splitlines()]
    assert [failed for failed, _ in found] == [0, 0], done.stdout + done.stderr
    assert all(tried for _, tried in found)


def test_contract_tests_take_it_up(necklace: Path) -> None:
    names = passed(necklace, *CONTRACTS)
    counts = {file: sum(f"tests/{file}::" in one for one in names) for file in CONTRACTS}
    assert all(counts[file] >= least for file, least in CONTRACTS.items()), counts


def test_simulator_and_gap_know_its_routing(necklace: Path) -> None:
    done = python(necklace, "-m", "pillarbox", "gap", "necklace,4", "--json")
    found = json.loads(done.stdout)
    ours = next(one for one in found["reached"] if one["routing"] == "round")
    # All turn the shorter way round, and those that are opposite turn onward: of 56 flows with
    # 128 hops, servers 1 to 4 steps onward put 10 on each link, those back 6.
    assert (ours["flows"], ours["worst_flows"]) == (56, 10)
    assert ours["throughput"] == pytest.approx(56 / 10)


@needs_tshark
def test_dissector_knows_its_header(necklace: Path) -> None:
    assert python(necklace, "-c", FRAME).returncode == 0
    script = python(necklace, "-m", "pillarbox", "dissector").stdout
    names = ["necklace.turn", "necklace.destination", "necklace.ttl", "ip.dst", "pillarbox.bad"]
    options = ["-T", "fields", *(word for name in names for word in ("-e", name))]
    said = tshark(necklace / "frames.pcapng", script, *options)
    right, later, damaged = (line.split("\t") for line in said.splitlines())
    assert right == ["1", "6", "255", "10.0.0.7", ""]
    assert later == ["1", "6", "3", "10.0.0.7", ""]
    assert damaged[4] != ""


@pytest.mark.root
def test_live_servers_carry_its_header_on_both_planes(necklace: Path) -> None:
    live = [re.findall(r"-round-(\w+)", one) for one in passed(necklace, LIVE)]
    assert sorted(live) == [["ebpf"], ["python"]]


@pytest.mark.long
@pytest.mark.root
def test_a_run_of_it_has_a_report(necklace: Path) -> None:
    (necklace / "plan.toml").write_text(PLAN)
    done = python(necklace, "-m", "pillarbox", "run", "plan.toml", "--out", "run")
    # Whether a trial is valid is up to the machine.
    assert done.returncode in (0, 1), done.stdout + done.stderr
    told = [json.loads(file.read_text()) for file in necklace.glob("run/trials/*/trial.json")]
    assert {one["status"] for one in told} == {"completed"}, done.stdout + done.stderr
    assert python(necklace, "-m", "pillarbox", "report", "run").returncode == 0
    assert "necklace,4" in (necklace / "run" / "report.html").read_text()
