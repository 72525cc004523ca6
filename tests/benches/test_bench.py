import json
import os
import re
import resource
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import networkx
import pytest
from click.testing import CliRunner

from pillarbox.experiments.base.text import records
from pillarbox.experiments.lab.linux import measurement
from pillarbox.hosts.base.actions import Action, Drop
from pillarbox.hosts.dcell.plain import DCellRouting
from pillarbox.hosts.wire.frame import Frame
from pillarbox.topos.base.spec import parse
from tests.benches import _frame, cables, fuzz_routers
from tests.commands.bench import command

ROOT = Path(__file__).parents[2]
FAKE_FNSS = """
import networkx
def bcube_topology(n, k):
    graph = networkx.Graph()
    servers = n ** (k + 1)
    for level in range(k + 1):
        for i in range(n**k):  # FNSS 0.9.1's wiring: right at the top level only
            for server in range(i, i + n ** (level + 1), n**level):
                graph.add_edge(servers + level * n**k + i, server)
    return graph
"""


def bench(*arguments: str, first_on_path: Path | None = None) -> subprocess.CompletedProcess[str]:
    path = [str(folder) for folder in (first_on_path, ROOT / "src") if folder]
    return subprocess.run(
        [sys.executable, "-m", "pillarbox", "bench", *arguments],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    )


def fnss(folder: Path, source: str) -> Path:
    """Put a stand-in for FNSS there, so that the test is the same with and without the real one."""
    package = folder / "fnss" / "topologies"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (folder / "fnss" / "__init__.py").write_text("" if source else "raise ImportError('no fnss')")
    (package / "datacenter.py").write_text(source)
    return folder


def test_listing_shows_each_bench_with_its_title_but_no_shared_part():
    done = bench()
    assert done.returncode == 0
    listed = re.search(r"^cables +Computation of all cables of large", done.stdout, re.MULTILINE)
    assert listed
    assert "measure" not in done.stdout


def test_unknown_bench_is_one_line_and_exit_code_2():
    done = bench("cabels")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "cabels" in done.stderr
    assert "cables" in done.stderr


def test_every_bench_found_has_a_title_and_a_run():
    assert _frame.titles()
    for name, title in _frame.titles().items():
        assert title
        assert callable(_frame.find(name).run)


def test_a_new_file_is_a_new_bench(tmp_path, monkeypatch):
    (tmp_path / "as_new.py").write_text('"""New."""\n\ndef run(quick):\n    yield {"n": 1}\n')
    monkeypatch.setattr("tests.benches.__path__", [str(tmp_path)])
    assert _frame.titles() == {"as-new": "New."}
    assert list(_frame.find("as-new").run(True)) == [{"n": 1}]


def test_cables_as_json_with_fnss(tmp_path):
    done = bench("cables", "--quick", "--json", first_on_path=fnss(tmp_path, FAKE_FNSS))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {"cpu", "kernel", "python", "numpy"} <= set(told["machine"])
    rows = told["rows"]
    assert [row["outcome"] for row in rows] == ["ok"] * len(rows)
    assert all(row["build_s"] > 0 and row["peak_mib"] > 1 for row in rows)
    right = {row["builder"]: row["right_switches_percent"] for row in rows if "builder" in row}
    assert right.pop("fnss") == 50  # its wiring is wrong below the top level
    assert set(right.values()) == {100}
    # The ratio is that of the times in the same row, not of another run.
    ours, *others = (row for row in rows if "builder" in row)
    for row in others:
        expected = row["per_cable_ns"] / ours["per_cable_ns"]
        assert row["slower_times"] == pytest.approx(expected)


def test_cables_without_fnss_says_how_to_install_it_and_goes_on(tmp_path):
    done = bench("cables", "--quick", first_on_path=fnss(tmp_path, ""))
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if " fnss " in line]
    assert "skipped: no fnss: pip install 'pillarbox[bench]'" in line
    assert " - " in line
    assert done.stdout.count(" ok") == 4


def test_real_fnss_has_the_wiring_that_the_stand_in_has(tmp_path):
    datacenter = pytest.importorskip("fnss.topologies.datacenter")
    stand_in: dict = {}
    exec(FAKE_FNSS, stand_in)
    real = datacenter.bcube_topology(4, 2)
    assert set(map(frozenset, real.edges)) == set(
        map(frozenset, stand_in["bcube_topology"](4, 2).edges)
    )


@pytest.mark.parametrize(("n", "k"), [(4, 1), (3, 2), (2, 3), (5, 0)])
def test_loop_that_is_compared_with_builds_the_same_graph(n, k):
    links = {frozenset((link.a, link.b)) for link in parse(f"bcube,{n},{k}").links()}
    assert set(map(frozenset, cables.networkx_loop(n, k).edges)) == links


def test_right_switches_notices_one_swapped_cable():
    graph = cables.networkx_loop(3, 1)
    assert cables._right_switches(3, 1, cables._links(graph)) == 6
    assert networkx.is_bipartite(graph)
    graph.remove_edges_from([(0, 9), (3, 10)])
    graph.add_edges_from([(3, 9), (0, 10)])
    assert cables._right_switches(3, 1, cables._links(graph)) == 4


# -- the frame -----------------------------------------------------------------------------------


def test_rows_with_other_keys_begin_another_table():
    rows = [{"a": 1}, {"a": 2}, {"b_s": None}, {"a": 3}]
    assert [len(group) for group in _frame.groups(rows)] == [2, 1, 1]


def test_table_aligns_numbers_to_the_right_and_words_to_the_left():
    text = records(
        [
            {"name": "a", "servers": 2097152, "time_s": 0.0001234},
            {"name": "long", "servers": None, "time_s": 1234.5},
        ]
    )
    assert text.splitlines() == [
        "name    servers    time_s",
        "a     2,097,152  0.000123",
        "long          -     1,234",
    ]


@pytest.mark.parametrize(
    ("outcome", "bad"),
    [("ok", False), ("skipped: no fnss", False), ("missed: 30", True), ("failed: died", True)],
)
def test_missed_and_failed_rows_are_told_by_the_exit_code(outcome, bad):
    assert _frame.failed([{"a": 1}, {"outcome": outcome}]) is bad


def press_ctrl_c():
    raise KeyboardInterrupt


@pytest.mark.parametrize("stop", [press_ctrl_c, partial(signal.raise_signal, signal.SIGTERM)])
def test_a_bench_that_is_stopped_shows_the_rows_so_far(monkeypatch, stop):
    done = {"network": "dcell,4,1", "outcome": "ok"}

    def rows(_quick):
        yield done
        stop()

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(_frame, "find", lambda name: _frame.Bench(name, rows, "What it measures."))
    table = CliRunner().invoke(command, ["long"])
    assert "dcell,4,1" in table.stdout
    assert "What it measures." in table.stdout
    as_json = CliRunner().invoke(command, ["long", "--json"])
    assert json.loads(as_json.stdout)["rows"] == [done]
    assert table.exit_code == as_json.exit_code == 1
    signal.signal(signal.SIGTERM, before)


# -- measuring -----------------------------------------------------------------------------------


def test_cases_take_turns_and_each_time_is_its_own():
    ticks = iter(range(100))
    order = []
    seconds = measurement.interleaved(
        {"a": lambda: order.append("a"), "b": lambda: (order.append("b"), next(ticks))},
        rounds=3,
        clock=lambda: float(next(ticks)),
    )
    assert order == list("ababab")
    assert seconds == {"a": [1.0] * 3, "b": [2.0] * 3}
    assert measurement.ratios(measurement.medians(seconds), "a") == {"a": 1.0, "b": 2.0}


def test_what_a_case_made_is_gone_before_the_next_begins():
    class Made:
        alive = 0

        def __init__(self):
            Made.alive += 1
            self.itself = self  # only the collector can tell

        def __del__(self):
            Made.alive -= 1

    seen = []

    def case():
        seen.append(Made.alive)
        return Made()

    measurement.interleaved({"a": case, "b": case}, rounds=2)
    assert seen == [0, 0, 0, 0]


def test_peak_of_a_child_is_its_own_and_not_that_of_a_large_parent():
    ballast = bytearray(b"x") * (200 << 20)
    assert measurement.peak_mib() > 200
    small = measurement.in_child(measurement.ratios, {"a": 1.0}, "a", time_limit_s=30)
    assert small.value == {"a": 1.0}
    assert small.peak_mib < 100
    # What getrusage says there: this is why it is not asked.
    inherited = measurement.in_child(resource.getrusage, 0, time_limit_s=30).value[2] / 1024
    assert inherited > 200
    assert len(ballast) == 200 << 20


def test_peak_of_a_child_counts_what_it_held_for_a_moment(tmp_path, monkeypatch):
    (tmp_path / "hungry.py").write_text("def eat(mib): return len(b'x' * (mib << 20))")
    monkeypatch.syspath_prepend(tmp_path)
    import hungry

    little, much = (measurement.in_child(hungry.eat, mib, time_limit_s=30) for mib in (1, 65))
    assert much.value == 65 << 20
    assert much.peak_mib - little.peak_mib == pytest.approx(64, abs=8)


@pytest.mark.parametrize(
    ("function", "arguments", "limit_s", "failure"),
    [
        (os._exit, [3], 30, "exit code 3"),
        (signal.raise_signal, [signal.SIGKILL], 30, "killed by SIGKILL"),
        (signal.pause, [], 0.2, "took longer than 0.2 s"),
        (parse, ["bcube,1,1"], 30, "BCube needs switches of n >= 2 ports"),
    ],
)
def test_case_that_dies_is_a_result_with_a_reason(function, arguments, limit_s, failure):
    result = measurement.in_child(function, *arguments, time_limit_s=limit_s)
    assert failure in result.failure
    assert result.value is None
    assert result.peak_mib is None


@pytest.mark.long
def test_routing_bench_has_a_row_for_each_router_and_light_imports():
    rows = json.loads(bench("routing", "--quick", "--json").stdout)["rows"]
    steps = {(row["network"], row["router"]): row for row in rows if "router" in row}
    assert {("dcell,4,1", "dfr"), ("bcube,4,1", "bsr"), ("ficonn,4,2", "tar")} <= set(steps)
    assert all(row["send_us"] > 0 and row["deliver_us"] > 0 for row in steps.values())
    imports = [row for row in rows if "module" in row]
    assert [row["outcome"] for row in imports] == ["ok"] * 4


def test_fuzzed_routers_raise_nothing(monkeypatch):
    monkeypatch.setattr(fuzz_routers, "FRAMES_QUICK", 150)
    specs = ("dpillar,4,2", "dcell,2,1", "bcube,2,1", "ficonn,4,1", "tree,2,2")
    monkeypatch.setattr(fuzz_routers, "SPECS", specs)
    rows = list(fuzz_routers.run(quick=True))
    assert {row["outcome"] for row in rows} == {"ok"}
    assert all(row["dropped"] > 50 for row in rows)


def test_router_whose_state_grows_is_found_out(monkeypatch: pytest.MonkeyPatch):
    class Hoarder(DCellRouting):
        def incoming(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
            self.hoard = [*getattr(self, "hoard", []), frame]
            return [Drop("kept")]

    monkeypatch.setattr(fuzz_routers, "FRAMES", 3000)
    assert fuzz_routers.fuzz_router("dcell,4,1", "hoarder", Hoarder, 3000)["outcome"] == (
        "failed: the state grows"
    )
