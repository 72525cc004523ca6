"""``pillarbox topo`` and the command line's manners, as a user sees them."""

import json
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from pillarbox import topos
from pillarbox.experiments.cli.commands.topo import cable_lines, counts_as_json, counts_as_text

FIELDS = {
    "spec",
    "servers",
    "switches",
    "ports_per_server",
    "cables",
    "diameter_bound",
    "diameter",
    "bisection",
    "parameters",
}


def pillarbox(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pillarbox", *arguments],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def test_json_has_the_promised_fields() -> None:
    described = json.loads(pillarbox("topo", "bcube,8,3,servers=2048", "--json").stdout)
    assert set(described) == FIELDS | {"schema"}
    assert described["spec"] == "bcube,8,3,servers=2048"
    assert (described["servers"], described["switches"], described["cables"]) == (2048, 1280, 8192)
    assert described["parameters"] == {"n": 8, "k": 3, "servers": 2048}
    assert (described["ports_per_server"], described["diameter_bound"]) == (4, 4)


def test_partial_dcell_has_no_proven_bounds() -> None:
    described = json.loads(pillarbox("topo", "dcell,4,1,servers=12", "--json").stdout)
    assert (described["diameter_bound"], described["diameter"]) == (None, 3)
    assert "no proven bound" in pillarbox("topo", "dcell,4,1,servers=12").stdout


def test_bound_is_called_a_bound_and_a_small_network_is_searched() -> None:
    shown = {name: counts_as_text(topos.parse(name)) for name in ("dcell,2,4", "ficonn,4,2")}
    assert "  at most 31 hops: 2^(k+1) - 1" in shown["dcell,2,4"]
    assert "  more than 37,705.1 cables: t_k" in shown["dcell,2,4"]
    assert "  7 hops (searched); at most 7 hops" in shown["ficonn,4,2"]
    assert counts_as_json(topos.parse("dcell,2,4"))["diameter"] is None


def test_summary_names_formula_and_source() -> None:
    summary = pillarbox("topo", "dpillar,48,4").stdout
    assert "1,327,104" in summary
    assert "2k - 1 (Liao 2012" in summary


@pytest.mark.parametrize(
    "spec", [spec for kind in topos.kinds() for spec in topos.network(kind).examples]
)
def test_cables_tell_the_whole_wiring_between_servers(spec: str) -> None:
    topology = topos.parse(spec)
    lines = list(cable_lines(topology))
    assert sum("switch" in line for line in lines) == topology.switches
    on_switches = sum(len(line.get("servers", [])) for line in lines)
    between_switches = sum(len(line.get("switches", [])) for line in lines)
    direct = [line["cable"] for line in lines if "cable" in line]
    assert on_switches + between_switches + len(direct) == topology.cables
    assert all("level" in line for line in lines)
    for a, b in direct:
        ports = range(topology.ports)
        assert topology.server(b) in [
            peer for port in ports for peer in topology.peers(topology.server(a), port)
        ]


def test_cables_of_dcell_are_those_of_figure_1() -> None:
    lines = [
        json.loads(line) for line in pillarbox("topo", "dcell,4,1", "--cables").stdout.splitlines()
    ]
    assert {"cable": ["0.3", "4.0"], "level": 1} in lines
    cells = [line["servers"] for line in lines if "switch" in line]
    assert cells[4] == ["4.0", "4.1", "4.2", "4.3"]


def test_check_agrees() -> None:
    assert "all agree" in pillarbox("topo", "ficonn,4,2", "--check").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("topo", "ficonn,3,1"),
        ("topo", "bcub,4,1"),
        ("topo",),
        ("topo", "bcube,4,1", "--colour"),
        ("topo", "bcube,4,1", "--draw", "picture.gif"),
        ("topo", "bcube,4,1", "--draw", "/nowhere/picture.svg"),
        ("top", "bcube,4,1"),
        ("demo", "--out", "/proc/nothing"),
        ("compare", "bcube,4,1", "nothing,1"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: tuple[str, ...]) -> None:
    ran = pillarbox(*arguments)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("pillarbox: ")
    assert len(ran.stderr.splitlines()) == 1


def test_reader_that_stops_early_sees_no_traceback() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "pillarbox", "topo", "dcell,6,2", "--cables"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as ran:
        assert ran.stdout
        assert ran.stderr
        assert json.loads(ran.stdout.readline())["switch"] == "s0"
        ran.stdout.close()
        assert ran.stderr.read() == b""


def test_help_has_examples() -> None:
    shown = pillarbox("topo", "--help").stdout
    assert "pillarbox topo dcell,4,1 --cables" in shown


def test_demo_draws_the_networks_whose_servers_relay(tmp_path: Path) -> None:
    ran = pillarbox("demo", "--drawings", "--out", str(tmp_path / "new" / "folder"))
    assert ran.returncode == 0, ran.stderr
    drawn = {file.stem: file.stat().st_size for file in (tmp_path / "new" / "folder").iterdir()}
    four = {"bcube", "dcell", "dpillar", "ficonn"}
    assert set(drawn) == four | {"bccc", "mesh", "rail", "torus"}
    assert min(drawn.values()) > 10_000


def test_an_exported_network_is_described_again(tmp_path: Path) -> None:
    file = tmp_path / "net.graphml"
    written = pillarbox("topo", "dpillar,4,2", "--export", str(file))
    assert (written.returncode, written.stdout) == (0, "")
    counts = ["servers", "switches", "cables", "ports_per_server", "diameter"]
    before, after = (
        json.loads(pillarbox("topo", spec, "--json").stdout) for spec in ("dpillar,4,2", str(file))
    )
    assert {key: before[key] for key in counts} == {key: after[key] for key in counts}
    checked = pillarbox("topo", str(file), "--check", "--draw", str(tmp_path / "net.svg"))
    assert checked.stdout.endswith(
        f": {before['cables']} cables checked from both ends, all agree\n"
    )
    assert (tmp_path / "net.svg").exists()


def test_an_export_without_a_known_format_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "net.yml"
    refused = pillarbox("topo", "bcube,4,1", "--export", str(file))
    assert (refused.returncode, file.exists()) == (2, False)
    assert "add --format with one of graphml" in refused.stderr
    pillarbox("topo", "bcube,4,1", "--export", str(file), "--format", "astra-sim")
    piped = pillarbox("topo", "bcube,4,1", "--export", "-", "--format", "astra-sim")
    assert piped.stdout == file.read_text()
    assert "npus_count: [ 4, 4 ]" in file.read_text()
    alone = pillarbox("topo", "bcube,4,1", "--format", "dot")
    assert "add --export FILE" in alone.stderr


@pytest.mark.parametrize(
    "command", ["path {} 0 3", "compare {}", "gap {}", "simulate {} --count 1000"]
)
def test_commands_take_a_graph_file(command: str, tmp_path: Path) -> None:
    file = tmp_path / "net.json"
    pillarbox("topo", "dcell,2,1", "--export", str(file))
    done = pillarbox(*command.format(file).split())
    assert done.returncode == 0, done.stderr
    file.unlink()
    lost = pillarbox(*command.format(file).split())
    assert lost.returncode == 2
    assert lost.stderr.startswith(f"pillarbox: there is no graph file {file}")


def test_names_that_are_markup_are_drawn_and_written_as_text(tmp_path: Path) -> None:
    file, strange = tmp_path / "$x$ <b>&.json", r"a$\frac$<b>"
    ends = [{"source": strange, "target": 1}]
    file.write_text(json.dumps({"nodes": [{"id": strange}, {"id": 1}], "edges": ends}))
    drawing = tmp_path / "net.svg"
    done = pillarbox("topo", str(file), "--draw", str(drawing))
    assert (done.returncode, done.stderr) == (0, "")
    assert escape(strange) in drawing.read_text()
    copy = tmp_path / "copy.graphml"
    assert pillarbox("topo", str(file), "--export", str(copy)).returncode == 0
    assert "servers           2" in pillarbox("topo", str(copy)).stdout
