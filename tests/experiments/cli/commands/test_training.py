"""``pillarbox training``: time, bytes and traces of an iteration, and bad input in one sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pillarbox.experiments.cli.commands.training import MODEL, command
from pillarbox.experiments.models.workloads.training.chakra_files import read_trace, write_trace
from pillarbox.experiments.models.workloads.training.trace import COMPUTE
from pillarbox.experiments.models.workloads.training.training_workload import MODEL_OPTIONS
from pillarbox.experiments.models.workloads.training.transformer import Transformer
from pillarbox.experiments.runs.trials.experiment_run import run
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.models.workloads.training.drawn_trace import drawn_trace
from tests.experiments.runs.trials.test_training import ITERATION, STEP_S, FakeIterations
from tests.experiments.runs.trials.test_training import SMALL as SMALL_MODEL

SMALL = ["--hidden", "64", "--sequence", "32", "--layers", "2", "--micro-batches", "2"]


def answered(*arguments: str) -> dict[str, Any]:
    told = CliRunner().invoke(command, [*arguments, "--json"])
    assert told.exit_code == 0, told.exception
    return dict(json.loads(told.output))


def test_bytes_are_those_of_the_formula_and_the_parts_add_up() -> None:
    found = answered("bcube,4,1", "--tp", "2", "--pp", "2", "--ep", "2", *SMALL)
    assert found["sent_bytes"] == found["formula_bytes"]
    assert set(found["sent_bytes"]) == {"tensor", "pipeline", "data", "expert"}
    assert sum(found["parts"].values()) == pytest.approx(found["iteration_s"])
    assert sum(found["critical_path"].values()) == pytest.approx(found["iteration_s"])
    assert len(found["ranks"]) == 16


def test_text() -> None:
    told = CliRunner().invoke(command, ["tree,2,2", "--tp", "2", *SMALL])
    assert told.exit_code == 0, told.exception
    first, second, *_ = told.output.splitlines()
    assert first == "tree,2,2: 4 ranks, ring"
    assert second.startswith("iteration      ")
    assert "formula" in told.output


def test_a_long_table_is_cut_off() -> None:
    told = CliRunner().invoke(command, ["tree,40,1", *SMALL])
    assert "... and 8 more ranks: see --json" in told.output


def test_written_trace_takes_the_same_time(tmp_path: Path) -> None:
    out = tmp_path / "traces"
    first = answered("tree,2,2", "--tp", "2", "--pp", "2", *SMALL, "-o", str(out))
    assert first["files"] == [str(out / f"trace.{rank}.et") for rank in range(4)]
    second = answered("tree,2,2", "--trace", str(out / "trace.%d.et"))
    for key in ("iteration_s", "parts", "ranks", "critical_path", "sent_bytes"):
        assert second[key] == first[key]
    assert second["formula_bytes"] is None
    model = Transformer(
        tp=2, pp=2, hidden=64, sequence=32, layers=2, micro_batches=2
    )  # dp: 4 servers
    assert read_trace(str(out / "trace.%d.et")).groups == model.trace().groups


def test_a_skewed_gate_makes_ranks_wait(tmp_path: Path) -> None:
    network = ("tree,4,1", "--ep", "4", *SMALL)
    shares = tmp_path / "shares.json"
    shares.write_text(json.dumps([8, *[1] * 7]))
    even, skewed, read = (
        answered(*network, *more) for more in ((), ("--skew", "2"), ("--shares", str(shares)))
    )
    for one in (skewed, read):
        assert one["iteration_s"] > even["iteration_s"]
        assert one["parts"]["waiting_s"] > even["parts"]["waiting_s"]
        assert one["sent_bytes"] == one["formula_bytes"] == even["sent_bytes"]


def test_random_placement_is_slower_in_a_tree() -> None:
    network = ("tree,4,4", "--tp", "4", *SMALL)
    near, far = (
        answered(*network, "--placement", placement, "--seed", "3")["iteration_s"]
        for placement in ("packed", "random")
    )
    assert near < far


def test_jobs_of_separate_switches_do_not_slow_each_other_down() -> None:
    jobs = ("--job", "tp=4 dp=1", "--job", "operation=all-reduce bytes=4e5 ranks=4 name=sums")
    found = answered("dcell,4,1", *jobs, *SMALL, "--placement", "paper")
    assert [one["job"] for one in found["jobs"]] == ["0", "sums"]
    assert [one["servers"][0] for one in found["jobs"]] == ["0.0", "1.0"]
    assert [one["slowdown"] for one in found["jobs"]] == pytest.approx([1.0, 1.0])
    assert found["formula_bytes"] is None
    told = CliRunner().invoke(command, ["dcell,4,1", *jobs, *SMALL])
    assert "sums" in told.output
    assert "1.000" in told.output


def test_options_are_those_of_the_transformer() -> None:
    names = {name.replace("-", "_") for name in MODEL} | {"tflops"}
    assert names == set(MODEL_OPTIONS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tp", "3"], "must be a multiple of 4 tp"),
        (["--trace", "nowhere.%d.et"], "there is no trace file nowhere.0.et"),
        (["--trace", "nowhere.et"], "nowhere.et cannot be read: No such file"),
        (["--trace", "a.%d.et", "--layers", "2"], "the option layers describes a transformer"),
        (["--groups", "a.json"], "the option groups needs a trace"),
        (["--trace", "a.et", "--ranks", "2000000000"], "ranks is a whole number from 1 to 500,000"),
        (["--skew", "1"], "describes the gate of experts: set experts or ep"),
        (["--skew", "-1", "--ep", "2"], "from 0 to 10, not -1"),
        (["--trace", "a.%d.et", "--skew", "1"], "the option skew describes a transformer"),
        (["--job", "operation=broadcast bytes=1.5"], "bytes is a whole number from 1 to"),
        (["--job", "operation=broadcast bytes=NaN"], "bytes is a whole number from 1 to"),
        (["--pytorch"], "the option pytorch needs a trace"),
        (["--algorithm", "bml2"], "no algorithm 'bml2'"),
        (["--routing", "none"], "has no routing 'none'"),
    ],
)
def test_bad_input(arguments: list[str], words: str) -> None:
    told = CliRunner().invoke(command, ["tree,2,2", *arguments])
    assert isinstance(told.exception, PillarboxError), told.output
    assert words in str(told.exception)


def test_trace_of_a_run_has_its_times(tmp_path: Path) -> None:
    done = run(ITERATION, tmp_path / "run", measure=FakeIterations())
    out = tmp_path / "measured"
    told = CliRunner().invoke(command, ["--ran", str(done.folder), "--trial", "2", "-o", str(out)])
    assert told.exit_code == 0, told.exception
    model = Transformer(**SMALL_MODEL)
    assert len(told.output.splitlines()) == model.ranks
    found = read_trace(str(out / "trace.%d.et"))
    assert found.groups == model.trace().groups
    computing = [node for node in found.ranks[0] if node.kind == COMPUTE]
    assert {node.duration_us for node in computing} == {round(STEP_S * 1e6)}
    for arguments, words in (
        (["--trial", "9", "-o", str(out)], "trial 9 of .* has no .*: choose one of 1, 2, 3, 4$"),
        ([], "needs --out DIR"),
        (["tree,2,2", "-o", str(out)], "takes no SPEC"),
    ):
        told = CliRunner().invoke(command, ["--ran", str(done.folder), *arguments])
        assert re.search(words, str(told.exception))
    for arguments, words in (([], "give a network"), (["--trial", "1"], "add --ran RUN")):
        told = CliRunner().invoke(command, ["--json", *arguments])
        assert words in str(told.exception)


def test_unmatched_ranks_of_a_trace(tmp_path: Path) -> None:
    write_trace(drawn_trace(), tmp_path)
    told = CliRunner().invoke(command, ["tree,2,1", "--trace", str(tmp_path / "trace.%d.et")])
    assert "has 2 servers, and this workload has 4 ranks" in str(told.exception)
