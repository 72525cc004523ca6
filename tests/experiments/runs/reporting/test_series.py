import numpy as np
import pandas as pd
import pytest

from pillarbox import topos
from pillarbox.experiments.runs.reporting import series
from pillarbox.experiments.runs.trials import records

BCUBE, TREE = "bcube,2,1 bsr", "tree,2,2"


@pytest.fixture(scope="module")
def run(run_folder):
    return records.load(run_folder)


def intervals(*rows):
    table = [
        {"trial": 0, "system": "a", "repeat": 0, "valid": True, "flow": 0, **row} for row in rows
    ]
    return records.frame("intervals", table)


def stretch(begin_s, end_s, delivered):
    return {"begin_s": begin_s, "end_s": end_s, "delivered_bytes": delivered}


def test_goodput_spreads_bytes_over_their_interval():
    rows = intervals(stretch(0.0, 1.0, 1000), stretch(0.5, 2.0, 3000))
    found = series.goodput_over_time(rows, 0.5)
    assert list(found["at_s"]) == [0.25, 0.75, 1.25, 1.75]
    assert np.allclose(found["goodput_bps"], [8000, 24000, 16000, 16000])


def test_a_bin_of_which_most_lies_after_the_end_is_left_out(run):
    found = series.goodput_over_time(run.intervals, 0.7)
    whole = series.of_whole_bins(found, run.intervals, 0.7)
    for trial, end_s in run.intervals.groupby("trial")["end_s"].max().items():
        middles = found[found["trial"] == trial]["at_s"]
        assert list(whole[whole["trial"] == trial]["at_s"]) == [m for m in middles if m <= end_s]
    assert 0 < len(whole) < len(found)
    short = series.of_whole_bins(series.goodput_over_time(run.intervals, 99.0), run.intervals, 99.0)
    assert len(short) == run.intervals["trial"].nunique()  # one bin is better than none


def test_every_byte_is_in_some_bin(run):
    width = series.bin_width_s(run.intervals)
    found = series.goodput_over_time(run.intervals, width)
    bytes_by_trial = found.groupby("trial")["goodput_bps"].sum() * width / 8
    assert np.allclose(bytes_by_trial, run.intervals.groupby("trial")["delivered_bytes"].sum())


@pytest.mark.parametrize(("end_s", "width"), [(0.5, 0.1), (10.0, 0.1), (61.0, 0.5), (600.0, 5.0)])
def test_bins_are_round_and_not_too_many(end_s, width):
    assert series.bin_width_s(intervals(stretch(0.0, end_s, 1))) == pytest.approx(width)


def test_means_are_of_valid_trials_alone(run):
    goodput = series.goodput_over_time(run.intervals, 0.1)
    means = series.mean_of_valid(goodput, "at_s", "goodput_bps")
    assert dict(means.groupby("system")["trials"].first()) == {BCUBE: 2, TREE: 1}
    tree = goodput[goodput["trial"] == 1]["goodput_bps"]
    assert np.allclose(means[means["system"] == TREE]["goodput_bps"], tree)


def test_trial_that_ended_earlier_counts_as_zero():
    rows = intervals(stretch(0.0, 1.0, 1000))
    longer = intervals(stretch(0.0, 2.0, 2000)).assign(trial=1)
    goodput = series.goodput_over_time(pd.concat([rows, longer]), 1.0)
    means = series.mean_of_valid(goodput, "at_s", "goodput_bps")
    assert list(means["goodput_bps"])[:2] == [8000, 4000]


def test_ideal_is_drawn_over_time(run):
    ideals = series.of_first_trials(series.ideal_over_time(run.records))
    own = ideals[ideals["system"] == BCUBE]
    assert own[["trial", "at_s", "ideal_bps"]].values.tolist() == [[0, 0.0, 48e6], [0, 1.0, 24e6]]
    old = {**run.records[0], "ideal_steps": []}
    assert series.ideal_over_time([old]).empty  # a mean of flows that end is no line
    [[level]] = series.ideal_over_time([old | {"ideal_s": None}])[["ideal_bps"]].values.tolist()
    assert level == 48e6


def test_flows_that_went_on_after_a_repair_alone_were_not_rerouted(run):
    events = run.events
    cut = events["event"] == "cut"
    marked = series.with_cut_off_column(
        events.assign(rerouted_s=events["rerouted_s"].mask(cut, 1.2))
    )
    assert marked.loc[cut, "cut_off"].all() and marked.loc[cut, "rerouted_s"].isna().all()
    around = series.with_cut_off_column(events)
    assert not around["cut_off"].any() and around.loc[cut, "rerouted_s"].notna().all()


def test_the_trial_shown_is_one_with_a_fault(run):
    assert series.shown_trial(run.records, run.events, run.systems) == 0
    tree = run.events.assign(trial=3)
    assert series.shown_trial(run.records, tree, run.systems) == 3  # though it is not valid
    assert series.shown_trial(run.records, run.events.iloc[:0], run.systems) == 0
    failed = [{**one, "status": "failed"} for one in run.records]
    assert series.shown_trial(failed, run.events, run.systems) is None


def test_share_of_failed_flows_is_missing_on_top(run):
    shares = series.throughput_shares(run.flows)
    tops = shares.groupby(["system", "valid"])["share"].max()
    assert tops[BCUBE, True] == pytest.approx(23 / 24)
    assert tops[TREE, True] == tops[TREE, False] == 1.0
    assert set(shares[shares["system"] == BCUBE]["failed"]) == {1}


def test_completion_rises_to_the_share_that_completed(run):
    done = series.flows_done(run.flows).groupby("trial")["share"].max()
    assert list(done) == [pytest.approx(11 / 12), 1, 1, 1]
    shares = series.bytes_done(run.intervals, run.flows).groupby("trial")["share"].max()
    assert list(shares) == pytest.approx([11 / 12, 1, 1, 1])


def test_long_curves_are_thinned_and_keep_their_ends(run):
    flows = pd.concat([run.flows[run.flows["trial"] == 1]] * 200)
    flows["end_s"] = np.linspace(1.0, 2.0, len(flows))
    done = series.flows_done(flows)
    assert len(done) <= series.MOST_POINTS + 1
    assert done["at_s"].iloc[-1] == 2.0 and done["share"].iloc[-1] == 1.0


def test_links_know_their_level_and_leave_invalid_trials_out(run):
    networks = {BCUBE: topos.parse("bcube,2,1"), TREE: topos.parse("tree,2,2")}
    links = run.links.copy()
    links.loc[links["trial"] == 3, "busy_share"] = 1.0
    loads = series.link_loads(links, networks)
    assert len(loads) == 2 * 8 + 2 * 6
    assert set(loads["valid"]) == {True}
    assert loads[loads["system"] == TREE]["load"].max() < 1.0
    spread = series.load_spread(loads).set_index(["system", "level"])
    assert list(spread["links"]) == [8, 8, 8, 4]
    assert spread.loc[(BCUBE, 1.0), "mean"] > spread.loc[(BCUBE, 0.0), "mean"]


def test_system_without_valid_trial_is_shown_as_such(run):
    links = run.links.assign(valid=False)
    loads = series.link_loads(links, {})
    assert set(loads["valid"]) == {False}
    assert loads["level"].isna().all()


def test_fault_marks_are_moments_of_one_trial(run):
    marks = series.fault_marks(run.events)
    assert list(marks["trial"]) == [0, 0]
    cut = marks.iloc[0]
    assert (cut["at_s"], cut["detected_s"], cut["recovered_s"]) == (0.5, 0.55, 1.1)


def test_fault_times_are_of_all_valid_trials(run):
    times = series.fault_times(run.events).set_index("event")
    assert times.loc["cut", "events"] == 2
    assert times.loc["cut", "rerouted_s"] == pytest.approx(0.2)
    assert pd.isna(times.loc["healed", "rerouted_s"])


def test_empty_tables_give_empty_series():
    tables = {name: records.frame(name, ()) for name in ("flows", "intervals", "links", "events")}
    assert series.goodput_over_time(tables["intervals"], 0.1).empty
    assert series.throughput_shares(tables["flows"]).empty
    assert series.flows_done(tables["flows"]).empty
    assert series.link_loads(tables["links"], {}).empty
    assert series.fault_marks(tables["events"]).empty
    assert series.fault_times(tables["events"]).empty
