"""A training iteration as an experiment: its order, records, report and errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pillarbox.experiments.cli.commands.run import command
from pillarbox.experiments.lab.traffic.collective_tool import TransferResult
from pillarbox.experiments.models.workloads.training.chakra_files import write_trace
from pillarbox.experiments.models.workloads.workload import TRAINING, Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.plans.loading import load, with_jobs_alone
from pillarbox.experiments.runs.reporting import tables
from pillarbox.experiments.runs.reporting.collective_section import operations
from pillarbox.experiments.runs.reporting.run_reading import read
from pillarbox.experiments.runs.reporting.training_section import iterations
from pillarbox.experiments.runs.reporting.training_section import jobs as jobs_table
from pillarbox.experiments.runs.trials.diff import difference
from pillarbox.experiments.runs.trials.diff import text_of as difference_text
from pillarbox.experiments.runs.trials.experiment_run import run
from pillarbox.experiments.runs.trials.job_slowdowns import job_slowdowns, slowdowns_in
from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder
from pillarbox.experiments.runs.trials.summary import COMPLETION, compared_systems, main_of, text_of
from pillarbox.experiments.runs.trials.training_results import measured_trace
from pillarbox.experiments.runs.trials.trial_process import TrialDisplay
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.models.workloads.training.drawn_trace import drawn_trace
from tests.experiments.runs.trials.test_experiment_run import FakeTrials

STEP_S = 0.1
SMALL = {"tp": 2, "pp": 2, "layers": 2, "hidden": 32, "sequence": 16, "micro_batches": 1}
ITERATION = Experiment(
    "iteration",
    "nobody starts it",
    (System("bcube,2,1", rate_mbit=20.0), System("tree,2,2", rate_mbit=20.0)),
    Workload(TRAINING, options=SMALL),
    repeats=2,
)


class FakeIterations(FakeTrials):
    """Measures iterations in which every step takes STEP_S after those that it needs."""

    def __call__(self, order: TrialOrder, live: TrialDisplay, log: Path) -> TrialMeasurements:
        plan = order.iteration
        assert plan
        ends: list[float] = []
        steps = []
        for at, (one, flow) in enumerate(zip(plan.graph.transfers, plan.flow_of, strict=True)):
            begin_s = max((ends[other] for other in one.after), default=0.0)
            ends.append(begin_s + (STEP_S if flow >= 0 else 0.0))
            moments = (begin_s, begin_s, ends[-1])
            steps.append(TransferResult(at, flow, 0, "copy", plan.volumes[at], *moments))
        found = super().__call__(order, live, log)
        results = tuple(replace(one, end_s=STEP_S / 2) for one in found.results)
        return replace(found, steps=tuple(steps), results=results)


def test_records_have_the_parts_of_the_iteration(tmp_path: Path) -> None:
    found = run(ITERATION, tmp_path / "run", measure=FakeIterations())
    for _, trial in found.trials.iterrows():
        parts = trial.compute_s + trial.exposed_s + trial.waiting_s
        assert parts == pytest.approx(trial.completion_s)
        assert trial.ideal_s > 0
    assert (found.trials.bound_bps >= found.trials.ideal_bps).all()
    assert len(found.ranks) == 4 * 4  # ranks, trials
    assert (found.ranks.waits_for != found.ranks["rank"]).all()
    assert set(found.nodes.kind) == {"compute", "send", "receive", "all-reduce"}
    assert (found.nodes.begin_s <= found.nodes.end_s).all()
    assert found.nodes.end_s.max() == found.trials.completion_s.max()
    assert (found.transfers.volume_bytes > 0).all()
    assert (tmp_path / "run" / "nodes.csv").exists()
    assert main_of(found) is COMPLETION


def test_report_has_a_table_of_iterations(tmp_path: Path) -> None:
    run(ITERATION, tmp_path / "run", measure=FakeIterations())
    found = read(tmp_path / "run")
    table = iterations(found)
    assert [row.cells[0] for row in table.rows] == ["bcube,2,1", "tree,2,2"]
    assert table.rows[0].cells[-1].startswith("rank ")
    assert operations(found).rows == []
    assert "training (tp 2, pp 2" in tables.workload(ITERATION)
    assert "one iteration" in tables.workload(ITERATION)
    assert tables.summary(found).rows


def test_two_runs_are_compared_by_completion_time(tmp_path: Path) -> None:
    first, second = (
        run(ITERATION, tmp_path / name, measure=FakeIterations()) for name in ("a", "b")
    )
    assert "completion" in difference_text(difference(first, second))


def test_trials_that_did_not_complete_have_no_parts(tmp_path: Path) -> None:
    class Broken(FakeIterations):
        def __call__(self, order: TrialOrder, live: TrialDisplay, log: Path) -> TrialMeasurements:
            found = super().__call__(order, live, log)
            return replace(found, steps=(*found.steps[:-1], found.steps[-1]._replace(end_s=None)))

    found = run(ITERATION, tmp_path / "run", measure=Broken())
    assert found.trials.compute_s.isna().all()
    assert found.ranks.empty
    assert iterations(read(tmp_path / "run")).rows == []


def test_catalogue_and_options() -> None:
    told = CliRunner().invoke(command, [TRAINING, "--dry-run", "--set", "workload.options.dp=1"])
    assert told.exit_code == 0, told.output
    assert "bcube,4,1, repeat 1: 16 flows" in told.output  # 2 rings of 4, and 4 pairs both ways
    assert load(TRAINING).workload.pattern == TRAINING


def test_trace_of_a_file(tmp_path: Path) -> None:
    write_trace(drawn_trace(), tmp_path)
    file = tmp_path / "mine.toml"
    file.write_text(
        f"""
        name = "mine"
        about = "a trace"
        systems = [{{ network = "tree,4,1" }}]
        workload = {{ pattern = "training", options = {{ trace = "{tmp_path}/trace.%d.et" }} }}
        """
    )
    told = CliRunner().invoke(command, [str(file), "--dry-run"])
    assert told.exit_code == 0, told.exception
    assert "tree,4,1, repeat 1: 4 flows" in told.output


def dry_run(*words: str) -> Result:
    return CliRunner().invoke(command, [*words, "--dry-run"])


def test_options_of_the_iteration_on_the_command_line() -> None:
    told = dry_run(TRAINING, "--tp", "4", "--pp", "2", "--ep", "2", "--dp", "2")
    assert told.exit_code == 0, told.exception
    assert "bcube,4,1, repeat 1: 48 flows" in told.output
    told = dry_run(TRAINING, "--job", "tp=4", "--job", "dp=8", "--repeats", "1")
    assert told.exit_code == 0, told.exception
    for system in ("tree,4,4", "tree,4,4, job 0 alone", "tree,4,4, job 1 alone"):
        assert f"{system}, repeat 1" in told.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--dp", "3"), "tp x pp x dp = 4 x 2 x 3 = 24 ranks, and there are 16 servers: choose dp"),
        (("--ep", "4"), "there are 16 servers: choose ep of at most 2"),
        (("--job", "tp"), "'tp' is no option of a job"),
        (("--job", " "), "a job has no options"),
        (("--job", "micro-batches=2 micro_batches=3"), "sets micro_batches twice"),
    ],
)
def test_wrong_options_of_the_iteration(options: tuple[str, ...], words: str) -> None:
    assert words in str(dry_run(TRAINING, *options).exception)


def test_options_of_an_iteration_need_one() -> None:
    assert "choose `run training`" in str(dry_run("quick", "--micro-batches", "3").exception)
    refused = dry_run("quick", "--job", "tp=2").exception
    assert str(refused).startswith("--job describes")


def test_jobs_run_together_and_alone(tmp_path: Path) -> None:
    """Every step takes twice as long next to the other job."""

    class Slower(FakeIterations):
        def __call__(self, order: TrialOrder, live: TrialDisplay, log: Path) -> TrialMeasurements:
            found = super().__call__(order, live, log)
            if order.trial.system.job:
                return found
            steps = (
                one._replace(begin_s=2 * one.begin_s, end_s=2 * one.end_s) for one in found.steps
            )
            return replace(found, steps=tuple(steps))

    jobs = [{"name": "a", **SMALL, "pp": 1}, {"name": "b", **SMALL, "tp": 1, "iterations": 2}]
    workload = Workload(TRAINING, options={"jobs": jobs})
    systems = (System("tree,2,2", rate_mbit=20.0, label="a tree"),)
    mixed = with_jobs_alone(replace(ITERATION, systems=systems, workload=workload))
    assert [one.name for one in mixed.systems][1:] == ["a tree, job a alone", "a tree, job b alone"]
    found = run(mixed, tmp_path / "run", measure=Slower())
    assert len(found.jobs) == 2 * (2 + 2)  # repeats, jobs together and alone
    assert set(found.jobs.together) == {"a tree"}
    first, second = job_slowdowns(found)
    assert (first.job, first.slowdown.value, first.ranks) == ("a", pytest.approx(2.0), 2)
    assert (second.job, second.slowdown.value) == ("b", pytest.approx(2.0))
    assert first.simulated >= 1.0
    assert not first.doubtful
    table = found.jobs.assign(valid=~(found.jobs.alone & (found.jobs.job == "a")))
    first, second = slowdowns_in(table)
    assert (first.doubtful, second.doubtful) == (True, False)
    assert first.cells()[5].startswith("2.00")
    assert first.cells()[5].endswith("?")
    ended = found.nodes[found.nodes.system == "a tree, job b alone"].end_s.max()
    assert second.alone_s.value == pytest.approx(ended / 2)
    assert [row.cells[1] for row in jobs_table(read(tmp_path / "run")).rows] == ["a", "b"]
    assert "together, s" in text_of(found)
    assert "against a tree" not in text_of(found)
    assert tables.summary(read(tmp_path / "run")).columns[-1] == "failed flows"
    systems += (replace(systems[0], label="", network="bcube,2,1"),)
    assert compared_systems(with_jobs_alone(replace(mixed, systems=systems))) == ["bcube,2,1"]
    trace, _ = measured_trace(found, None)
    assert len(trace.ranks) in (2, 4)


def test_a_system_names_a_job_of_the_workload() -> None:
    strange = replace(ITERATION, systems=(System("tree,2,2", job="c"),))
    with pytest.raises(PillarboxError, match="unknown job 'c': the workload has no jobs"):
        with_jobs_alone(strange)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["workload.options.tp=3"], "hidden (512) must be a multiple of 4 tp (12)"),
        (["workload.options.tp=32"], "tp x pp = 32 x 2 = 64 ranks, and there are 16 servers"),
        (["workload.options.tpp=3"], "has no option 'tpp'"),
        (["workload.options.placement=best"], "options.placement is packed"),
        (["workload.options.ranks=3"], "the option ranks needs a trace"),
        (["workload.options.trace=none.%d.et"], "the option tp describes a transformer"),
        (["workload.volume_bytes=3"], "omit volume_bytes"),
        (["workload.duration_s=3"], "omit volume_bytes and duration_s"),
        (["workload.tool=iperf3"], "has its own traffic tool"),
        (["algorithm=bml"], "BML needs"),
        (["systems.0.machines=2"], "training iterations run on one machine only"),
    ],
)
def test_nothing_begins_that_cannot_be(changes: list[str], words: str) -> None:
    options = [word for change in changes for word in ("--set", change)]
    told = CliRunner().invoke(command, [TRAINING, "--dry-run", *options])
    assert isinstance(told.exception, PillarboxError), told.output
    assert words in str(told.exception)
