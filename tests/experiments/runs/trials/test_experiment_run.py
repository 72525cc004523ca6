"""Runs without labs: their order, their records, what goes on after a stop, how two runs differ."""

from __future__ import annotations

import errno
import json
import math
import os
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas
import pytest
from click.testing import CliRunner

from pillarbox import experiments
from pillarbox.experiments.cli.commands.run import command
from pillarbox.experiments.models.workloads.flows import COMPLETED, FAILED, FlowResult, Interval
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, FaultAt, System
from pillarbox.experiments.runs.trials import manifest, records, schema, store
from pillarbox.experiments.runs.trials.diff import as_plain, difference
from pillarbox.experiments.runs.trials.diff import text_of as difference_text
from pillarbox.experiments.runs.trials.experiment_run import orders_of, run
from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder
from pillarbox.experiments.runs.trials.summary import advice, doubtful, summaries, text_of
from pillarbox.experiments.runs.trials.trial_process import TrialDisplay, TrialError
from pillarbox.experiments.runs.trust.readings import DurationStatistics, Readings
from pillarbox.topos.base import spec
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.spec import parse
from tests.experiments.runs.seen import SEEN

EXPERIMENT = Experiment(
    "fake",
    "two networks that nobody starts",
    (System("bcube,2,1", rate_mbit=20.0), System("tree,2,2", rate_mbit=20.0)),
    Workload(volume_bytes=1_000_000),
    repeats=3,
)
END_S = {"bcube,2,1": 2.0, "tree,2,2": 5.0}


def readings(order: TrialOrder, late_s: float = 1e-4) -> Readings:
    link = {
        "from": "0.0",
        "to": "s0",
        "port": 0,
        "rate_bps": 20e6,
        "sent_bytes": 3_000_000,
        "dropped_packets": 0,
        "busy_share": 0.9,
        "conserved": 0.99,
    }
    round_trip = DurationStatistics(100, late_s, late_s, late_s)
    return replace(
        SEEN,
        duration_s=END_S[order.trial.system.network],
        links=[link, {**link, "from": "s0", "to": "0.0"}],
        round_trip=round_trip,
        programs_forward=True,
    )


def result(order: TrialOrder, number: int, end_s: float) -> FlowResult:
    flow = order.flows[number]
    half = flow.volume_bytes // 2
    intervals = [Interval(0.0, end_s / 2, half, 1, 900, 30_000), Interval(end_s / 2, end_s, half)]
    return FlowResult(
        flow, "fake", COMPLETED, "", 0.01, end_s, flow.volume_bytes, 1, 1, intervals=intervals
    )


class FakeTrials:
    """Measures without a lab; counts what it was asked for, and fails or stops where it is told."""

    def __init__(self, *, fails: tuple[int, ...] = (), stops_at: int = -1, late=()) -> None:
        self.asked: list[TrialOrder] = []
        self.fails, self.stops_at, self.late = fails, stops_at, late
        self.sysctl = "4096 131072 6291456"
        self.events: tuple[dict[str, object], ...] = ()

    def __call__(self, order: TrialOrder, live: TrialDisplay, log: Path) -> TrialMeasurements:
        number = order.trial.number
        if number == self.stops_at:
            raise KeyboardInterrupt
        self.asked.append(order)
        log.write_text("what it printed\n")
        if number in self.fails:
            raise TrialError("its process ended unexpectedly with code 1")
        end_s = END_S[order.trial.system.network] * (1 + order.trial.repeat / 100)
        results = [result(order, flow.number, end_s) for flow in order.flows]
        return TrialMeasurements(
            routing="shortest",
            plane="python",
            tool="fake",
            tool_versions={},
            began={"wall": "2026-03-01T10:15:00+00:00", "monotonic_s": 5.0},
            results=tuple(results),
            paths=tuple(() for _ in results),
            back=tuple(() for _ in results),
            events=self.events,
            readings=readings(order, 1.0 if number in self.late else 1e-4),
            lab={"sysctls": {"net.ipv4.tcp_rmem": self.sysctl}},
            log=('{"event": "up"}',),
        )


@pytest.fixture(autouse=True)
def _one_version(monkeypatch: pytest.MonkeyPatch):
    """Whoever commits while tests run makes no difference between two runs."""
    monkeypatch.setattr(manifest, "versions", lambda: {"version": "0"})
    monkeypatch.setattr(manifest, "machine", lambda: {"kernel": "6"})


def test_a_run_parses_each_spec_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    parsed, network = Counter[str](), spec.network

    def counted(kind: str):
        parsed[kind] += 1
        return network(kind)

    monkeypatch.setattr(spec, "network", counted)
    systems = tuple(replace(one) for one in EXPERIMENT.systems)  # copies without parsed networks
    fake = FakeTrials()
    run(replace(EXPERIMENT, systems=systems), tmp_path / "run", measure=fake)
    sent = pickle.loads(pickle.dumps(fake.asked[0]))
    assert sent.topology == fake.asked[0].topology
    assert parsed == {"bcube": 1, "tree": 1}


def test_the_system_of_a_lab_has_the_network_of_the_lab():
    network = parse("bcube,2,1")
    system = System.of_lab(network, rate_mbit=20.0)
    assert system == EXPERIMENT.systems[0] and system.topology is network


# -- the records ----------------------------------------------------------------------------------


def test_a_run_is_what_was_measured(tmp_path: Path):
    fake = FakeTrials()
    found = run(EXPERIMENT, tmp_path / "run", measure=fake)
    assert [order.trial.number for order in fake.asked] == list(range(6))
    assert len(found.flows) == 6 * 12
    assert len(found.intervals) == 6 * 24
    assert len(found.links) == 12 and len(found.events) == 0
    assert set(found.trials.status) == {"completed"} and found.trials.valid.all()
    bcube = found.of("bcube,2,1")
    assert list(bcube.trials.sort_values("repeat").completion_s) == [2.0, 2.02, 2.04]
    first = bcube.trials.sort_values("repeat").iloc[0]
    assert first.goodput_bps == 12 * 1_000_000 * 8 / 2.0
    assert (first.flows, first.failed_flows) == (12, 0)
    assert first.fairness == pytest.approx(1.0)
    row = bcube.flows.iloc[0]
    assert row.delivered_bytes == row.volume_bytes == 1_000_000
    assert (row.source, row.destination, row.path) == ("0.0", "0.1", "0.0 0.1")


def test_tables_have_their_columns_and_types(tmp_path: Path):
    found = run(EXPERIMENT, tmp_path / "run", measure=FakeTrials(fails=(1,)))
    for table in (records.TRIALS, *schema.TABLES):
        frame = getattr(found, table)
        if table in schema.SOME_RUNS:
            assert frame.empty and not (found.folder / f"{table}.csv").exists()
            continue
        assert {name: str(kind) for name, kind in frame.dtypes.items()} == records.columns(table)
        assert list(pandas.read_csv(found.folder / f"{table}.csv").columns) == list(frame.columns)
        again = records.typed(table, pandas.read_parquet(found.folder / f"{table}.parquet"))
        pandas.testing.assert_frame_equal(records.short_names(again, table), frame)


def test_addresses_in_csv_are_numbers_to_no_reader(tmp_path: Path):
    fake = FakeTrials()
    fake.events = ({"at_s": 0.1, "event": "kill", "what": "0.1", "reason": ""},)
    only = replace(EXPERIMENT, systems=EXPERIMENT.systems[:1], repeats=1)
    folder = run(only, tmp_path / "run", measure=fake).folder

    def cells(table: str) -> list[list[object]]:
        found = pandas.read_csv(folder / f"{table}.csv")
        return found[list(schema.ADDRESSES[table])].to_numpy().tolist()

    assert cells("flows")[0] == ["0.0.bcube", "0.1.bcube", "0.0.bcube 0.1.bcube"]
    assert cells("links") == [["0.0.bcube", "s0"], ["s0", "0.0.bcube"]]
    assert cells("events") == [["0.1.bcube"]]
    assert parse("bcube,2,1").node("0.1.bcube") == parse("bcube,2,1").node("0.1")
    for place in (folder, folder / "trials" / "0000"):
        assert list(pandas.read_parquet(place / "events.parquet").what) == ["0.1.bcube"]

    run(only, folder, measure=fake, plain_csv=True)  # of a run that has ended, the tables alone
    assert cells("flows")[0] == [0.0, 0.1, "0.0 0.1"]  # which is why


def test_files_can_be_read_by_everybody_and_nothing_is_left_over(tmp_path: Path):
    found = run(EXPERIMENT, tmp_path / "run", measure=FakeTrials())
    files = list(found.folder.rglob("*"))
    assert {file.stat().st_mode & 0o777 for file in files if file.is_file()} == {0o644}
    assert {file.stat().st_mode & 0o777 for file in files if file.is_dir()} == {0o755}
    names = {file.name for file in files}
    assert not any(store.UNFINISHED in name or name == ".lock" for name in names)
    trial = found.folder / "trials" / "0000"
    assert (trial / "log.txt").read_text() == "what it printed\n"
    assert json.loads((trial / "events.jsonl").read_text()) == {"event": "up"}


def test_a_table_takes_no_row_of_another():
    with pytest.raises(PillarboxError, match="flows has no column goodput_mbps"):
        records.frame("flows", [{"goodput_mbps": 3}])
    with pytest.raises(PillarboxError, match=r"do not fit the table flows: .*first"):
        records.frame("flows", [{"trial": 0, "repeat": 0, "flow": "first"}])


def test_load_refuses_what_it_cannot_read(tmp_path: Path):
    with pytest.raises(PillarboxError, match="is not a run"):
        experiments.load(tmp_path)
    (tmp_path / "manifest.json").write_text('{"schema_version": 99}')
    with pytest.raises(PillarboxError, match=f"version 99, newer than the {schema.VERSION}"):
        experiments.load(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(PillarboxError, match="cannot be read"):
        experiments.load(tmp_path)


# -- what goes wrong ------------------------------------------------------------------------------


def test_a_trial_that_failed_is_a_row_with_its_reason(tmp_path: Path):
    found = run(EXPERIMENT, tmp_path / "run", measure=FakeTrials(fails=(2,)))
    row = found.trials.set_index("trial").loc[2]
    assert (row.status, row.valid) == ("failed", False)
    assert "with code 1" in row.reason
    assert math.isnan(row.goodput_bps)
    assert len(found.flows) == 5 * 12


def test_flows_that_failed_have_no_goodput_and_their_trial_takes_as_long_as_it_took(tmp_path: Path):
    def failing(numbers: range):
        def measured(order, live, log):
            found = FakeTrials()(order, live, log)
            results = [
                replace(one, status=FAILED, reason="reset", end_s=None)
                if one.flow.number in numbers
                else replace(one, end_s=1.0)
                for one in found.results
            ]
            return replace(found, results=tuple(results))

        return run(replace(EXPERIMENT, repeats=1), tmp_path / str(numbers), measure=measured)

    some = failing(range(1))
    assert math.isnan(some.flows.goodput_bps[0]) and some.flows.reason[0] == "reset"
    trial = some.of("bcube,2,1").trials.iloc[0]
    assert trial.failed_flows == 1 and math.isnan(trial.completion_s)
    assert trial.goodput_bps == 12 * 1_000_000 * 8 / END_S["bcube,2,1"]
    assert "failed flows: 1" in text_of(some)
    every = failing(range(12))
    assert every.trials.goodput_bps.isna().all()
    text_of(every)


def test_invalid_trials_are_shown_and_never_averaged(tmp_path: Path):
    whole = run(EXPERIMENT, tmp_path / "whole", measure=FakeTrials())
    found = run(EXPERIMENT, tmp_path / "run", measure=FakeTrials(late=(0,), fails=(1,)))
    assert [one["trial"] for one in found.records if not one["valid"]] == [0, 1]
    assert set(found.flows[found.flows.trial == 0].valid) == {False}
    assert set(found.valid().flows.trial) == {2, 3, 4, 5}
    for summary, all_of_it in zip(summaries(found), summaries(whole), strict=True):
        assert (summary.valid, summary.trials) == (2, 3)
        assert summary.estimates["goodput_bps"].repeats == 2
        assert all_of_it.estimates["goodput_bps"].repeats == 3
    assert [line.split(",")[0] for line in doubtful(found)] == ["trial 1", "trial 2"]
    assert "2/3" in text_of(found) and "canary" in text_of(found)
    assert "tree,2,2 against bcube,2,1, completion: 2.50 times" in text_of(whole)


def test_a_run_of_invalid_trials_shows_their_figures_as_untrusted(tmp_path: Path):
    found = run(EXPERIMENT, tmp_path / "run", measure=FakeTrials(late=tuple(range(6))))
    [bcube, _] = summaries(found)
    assert bcube.estimates["goodput_bps"].repeats == 0
    assert bcube.untrusted["goodput_bps"].repeats == 3
    lines = text_of(found).splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("bcube,2,1"))
    assert lines[at].split()[:3] == ["bcube,2,1", "0/3", "-"]
    assert lines[at + 1].split()[:4] == ["not", "valid", "3", "47.5?"]
    assert "? marks figures of trials that are not valid: do not trust them." in lines
    assert all(cell == "-" or cell.endswith("?") for cell in lines[at + 1].split()[3:])


def test_valid_trials_are_not_mixed_with_others(tmp_path: Path):
    whole = run(EXPERIMENT, tmp_path / "whole", measure=FakeTrials())
    assert "?" not in text_of(whole) and advice(whole) == ""
    some = run(EXPERIMENT, tmp_path / "some", measure=FakeTrials(late=(0,)))
    system = some.records[0]["system"]
    lines = [line for line in text_of(some).splitlines() if "?" in line]
    assert len(lines) == 2 and lines[0].split()[:3] == ["not", "valid", "1"]
    mean = summaries(some)[some.systems.index(system)].estimates["goodput_bps"]
    assert mean.repeats == 2


def test_advice_names_commands_that_help(tmp_path: Path):
    found = run(EXPERIMENT, tmp_path / "a run", measure=FakeTrials(late=(0,)))
    said = advice(found, "fake.toml")
    folder = tmp_path / "a run"
    assert f"pillarbox run --resume '{folder}' --repeats 4 --when-quiet" in said
    assert "pillarbox run fake.toml --rate-mbit 10" in said


def test_more_repeats_fill_up_a_run(tmp_path: Path):
    first = FakeTrials(late=(0, 1))
    folder = tmp_path / "run"
    found = run(replace(EXPERIMENT, repeats=2), folder, measure=first)
    assert len(found.valid().records) == 2
    more = FakeTrials()
    found = run(EXPERIMENT, folder, measure=more)
    assert [order.trial.number for order in more.asked] == [4, 5]
    assert found.manifest["plan"]["repeats"] == 3
    assert {one.valid for one in summaries(found)} == {2}
    with pytest.raises(PillarboxError, match="repeats was 3 and is 2"):
        run(replace(EXPERIMENT, repeats=2), folder, measure=more)


def test_a_resumed_run_takes_more_repeats_and_nothing_else(tmp_path: Path):
    folder = tmp_path / "run"
    run(EXPERIMENT, folder, measure=FakeTrials())
    more = CliRunner().invoke(command, ["--resume", str(folder), "--repeats", "4", "--dry-run"])
    assert "8. " in more.output and more.exit_code == 0, more.output
    other = CliRunner().invoke(command, ["--resume", str(folder), "--seed", "4", "--dry-run"])
    assert "only --repeats can change" in str(other.exception)


def test_what_cannot_be_run_is_refused_before_anything_is(tmp_path: Path):
    for experiment in (
        replace(EXPERIMENT, systems=(System("bcube,2"),)),
        replace(EXPERIMENT, systems=(System("bcube,2,1", routing="dfr"),)),
        replace(EXPERIMENT, workload=replace(EXPERIMENT.workload, pattern="all-to-none")),
        replace(EXPERIMENT, faults=(FaultAt("cut 9.9-s0 at 1"),)),
    ):
        with pytest.raises(PillarboxError):
            run(experiment, tmp_path / "run", measure=FakeTrials())
    assert not (tmp_path / "run").exists()


def test_a_fault_for_one_system_spares_the_others():
    fault = FaultAt("cut h0-s0 at 1", systems=("tree,2,2",))
    orders = orders_of(replace(EXPERIMENT, faults=(fault,)))
    assert {order.trial.system.name: len(order.faults) for order in orders} == {
        "bcube,2,1": 0,
        "tree,2,2": 1,
    }
    with pytest.raises(PillarboxError, match=r"unknown systems \(tree,2\)"):
        replace(EXPERIMENT, faults=(replace(fault, systems=("tree,2",)),))


# -- going on -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stops_at", [0, 3, 5])
def test_a_stopped_run_loses_no_finished_trial(tmp_path: Path, stops_at: int):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(EXPERIMENT, folder, measure=FakeTrials(stops_at=stops_at))
    assert list(records.finished_trials(folder)) == list(range(stops_at))
    fake = FakeTrials()
    found = run(EXPERIMENT, folder, measure=fake)
    assert [order.trial.number for order in fake.asked] == list(range(stops_at, 6))
    whole = run(EXPERIMENT, tmp_path / "whole", measure=FakeTrials())
    pandas.testing.assert_frame_equal(found.flows, whole.flows)
    pandas.testing.assert_frame_equal(found.trials, whole.trials)


def test_a_full_disk_is_one_sentence_that_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pillarbox.hosts.linux.user_namespace.refusal", lambda: "")
    monkeypatch.setattr("pillarbox.experiments.runs.trials.experiment_run.run", full)
    arguments = ["quick", "--out", str(tmp_path / "run")]
    with pytest.raises(PillarboxError, match=r"disk is full.*`pillarbox run --resume .*/run`"):
        CliRunner().invoke(command, arguments, catch_exceptions=False)


def test_a_trial_that_was_being_written_is_run_again(tmp_path: Path):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(EXPERIMENT, folder, measure=FakeTrials(stops_at=1))
    half = folder / "trials" / f"0001{store.UNFINISHED}"
    half.mkdir()
    (half / "trial.json").write_text("{")
    assert len(run(EXPERIMENT, folder, measure=FakeTrials()).records) == 6
    assert not half.exists()


def test_another_plan_is_refused_with_what_changed(tmp_path: Path):
    run(EXPERIMENT, tmp_path / "run", measure=FakeTrials())
    fake = FakeTrials()
    for changed, what in (
        (replace(EXPERIMENT, seed=2), "seed was 1 and is 2"),
        (replace(EXPERIMENT, repeats=2), "repeats was 3 and is 2"),
        (replace(EXPERIMENT, systems=EXPERIMENT.systems[:1]), "systems.1 was .* and is None"),
    ):
        with pytest.raises(PillarboxError, match=what):
            run(changed, tmp_path / "run", measure=fake)
    assert not fake.asked


def test_no_folder_of_other_things_becomes_a_run(tmp_path: Path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(PillarboxError, match="not empty and not a run"):
        run(EXPERIMENT, tmp_path, measure=FakeTrials())


def test_two_at_once_are_refused(tmp_path: Path):
    def again(order, live, log):
        with pytest.raises(PillarboxError, match="is being written by another process"):
            run(EXPERIMENT, tmp_path / "run", measure=FakeTrials())
        return FakeTrials()(order, live, log)

    run(replace(EXPERIMENT, repeats=1), tmp_path / "run", measure=again)


def test_it_stops_when_the_intervals_are_narrow(tmp_path: Path):
    careful = replace(EXPERIMENT, repeats=2, precision=0.05, most_repeats=9)
    repeats = set(run(careful, tmp_path / "some", measure=FakeTrials()).trials.repeat)
    assert 2 < len(repeats) < 9
    wanted_too_much = replace(careful, precision=1e-6, most_repeats=4)
    repeats = set(run(wanted_too_much, tmp_path / "all", measure=FakeTrials()).trials.repeat)
    assert repeats == {0, 1, 2, 3}


# -- two runs -------------------------------------------------------------------------------------


def test_the_difference_names_a_changed_sysctl_and_a_slower_system(tmp_path: Path):
    before = run(EXPERIMENT, tmp_path / "before", measure=FakeTrials())
    changed = FakeTrials()
    changed.sysctl = "4096 131072 999"
    slower = replace(EXPERIMENT, workload=Workload(volume_bytes=500_000))
    after = run(slower, tmp_path / "after", measure=changed)
    found = difference(before, after)
    assert {(change.part, change.name) for change in found.changes} == {
        ("plan", "workload.volume_bytes"),
        ("systems", "bcube,2,1.sysctls.net.ipv4.tcp_rmem"),
        ("systems", "tree,2,2.sysctls.net.ipv4.tcp_rmem"),
    }
    goodput, completion = found.results[:2]
    assert goodput.ratio.ratio.value == pytest.approx(0.5)
    assert goodput.ratio.differs and not completion.ratio.differs
    text = difference_text(found)
    assert "tcp_rmem: 4096 131072 6291456 -> 4096 131072 999" in text
    assert "no difference shown" in text
    json.dumps(as_plain(found), allow_nan=False)


def test_the_same_twice_is_no_difference(tmp_path: Path):
    twice = [run(EXPERIMENT, tmp_path / name, measure=FakeTrials()) for name in "ab"]
    found = difference(*twice)
    assert not found.changes
    assert found.results and not any(result.ratio.differs for result in found.results)
    assert "the same plan" in difference_text(found)


def test_systems_of_one_run_alone(tmp_path: Path):
    both = run(EXPERIMENT, tmp_path / "both", measure=FakeTrials())
    one = run(
        replace(EXPERIMENT, systems=EXPERIMENT.systems[:1]),
        tmp_path / "one",
        measure=FakeTrials(fails=(0,)),
    )
    found = difference(both, one)
    assert found.only == (("tree,2,2",), ())
    assert found.invalid == (0, 1)
    assert "tree,2,2: in the first run only" in difference_text(found)


def test_faults_of_a_run_of_the_first_version_are_read_as_they_are_written_now(
    tmp_path: Path,
) -> None:
    cable = {"kind": "silent cut", "what": ["h0", "s0"], "at_s": 1.5, "until_s": None}
    rate = {"kind": "server", "per_minute": 2.0, "lasting_s": 1.0}
    plan = {
        "name": "old",
        "about": "",
        "systems": [{"network": "tree,2,2"}],
        "faults": [cable, rate],
    }
    old = {"schema_version": 1, "plan": {**plan, "workload": {"duration_s": 1.0}}}
    (tmp_path / "manifest.json").write_text(json.dumps(old))
    found = records.load(tmp_path).manifest
    cut, kill = found["plan"]["faults"]
    assert cut["fault"] == "cut h0-s0 silent at 1.5"
    assert (kill["fault"], kill["per_minute"], kill["lasting_s"]) == ("kill", 2.0, 1.0)
    assert found["schema_version"] == schema.VERSION
