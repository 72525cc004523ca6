"""The demo's sentences, from records that the test makes up."""

from types import SimpleNamespace

import pandas
import pytest

from pillarbox.experiments.runs.reporting import summary_text

CUBE, TREE, CUT = "cube", "tree", "cube, cut"


class Records(SimpleNamespace):
    """Some tables of a run, as `records.Run` gives them."""

    def of(self, system):
        own = {name: getattr(self, name) for name in ("trials", "flows", "intervals", "events")}
        told = [one for one in self.records if one["system"] == system]
        tables = {name: table[table.system == system] for name, table in own.items()}
        return Records(**tables, links=self.links, records=told, systems=[system])

    def valid(self):
        return Records(records=[one for one in self.records if one["valid"]])


def flow(trial, system, number, end_s, **more):
    row = {"trial": trial, "system": system, "flow": number, "source": "0.0", "destination": "1.1"}
    row |= {"status": "completed", "end_s": end_s, "volume_bytes": 2_000_000, "retransmits": 0}
    return row | {"path": "0.0 0.1 1.1"} | more


def interval(trial, system, number, begin_s, delivered_bytes):
    row = {"trial": trial, "system": system, "flow": number, "begin_s": begin_s}
    return row | {"end_s": begin_s + 0.1, "delivered_bytes": delivered_bytes}


def link(trial, near, far, dropped):
    return {"trial": trial, "from": near, "to": far, "dropped_packets": dropped}


@pytest.fixture
def run():
    """A cube that is done after 3 s, a tree after 12 s, and a cube whose last flow was held up."""
    ends = {CUBE: [2.9, 3.0], TREE: [11.0, 12.0], CUT: [3.0] * 40 + [4.0]}
    flows = [
        flow(trial, system, number, end_s, retransmits=7 if number == 40 else 0)
        for trial, (system, own) in enumerate(ends.items())
        for number, end_s in enumerate(own)
    ]
    still = {
        0.3,
        0.4,
        0.5,
        1.2,
        1.3,
        1.4,
        1.5,
    }  # two pauses; and one of a single interval does not count
    intervals = [
        interval(2, CUT, number, tenth / 10, 0 if number == 40 and tenth / 10 in still else 9)
        for number in (0, 40)
        for tenth in range(20)
    ]
    intervals[-1]["delivered_bytes"] = 0
    trials = [
        {"trial": n, "system": system, "completion_s": max(own), "goodput_bps": 1e9}
        | {"bound_bps": 1.25e9}
        for n, (system, own) in enumerate(ends.items())
    ]
    cut = {"trial": 2, "system": CUT, "event": "cut", "what": "0.0 s0", "reason": "", "at_s": 1.0}
    cut |= {"detected_s": 0.007, "rerouted_s": None, "stopped_flows": 0}
    healed = cut | {"event": "healed", "at_s": 1.6}
    return Records(
        flows=pandas.DataFrame(flows),
        intervals=pandas.DataFrame(intervals),
        links=pandas.DataFrame(
            [
                *(link(2, "0.0", "s0", 3), link(2, "s0", "0.1", 9), link(2, "s0", "0.2", 99)),
                *(link(2, "0.1", "s5", 1), link(2, "s5", "1.1", 2), link(1, "s0", "0.1", 99)),
            ]
        ),
        events=pandas.DataFrame([cut, healed]),
        trials=pandas.DataFrame(trials),
        records=[{"system": system, "valid": system != CUT} for system in ends],
        systems=list(ends),
    )


def test_two_systems_are_compared_beside_the_paper(run):
    told = "cube moved 2 flows of 2.00 MB in 3.00 s, the tree in 12.0 s: 4.0 times as fast; "
    assert summary_text.comparison(run, CUBE, TREE, 2.9) == told + "the paper measured 2.9."


def test_a_system_with_a_failed_flow_is_compared_with_nothing(run):
    run.trials.loc[1, "completion_s"] = None
    assert "Not all flows of cube and tree" in summary_text.comparison(run, CUBE, TREE, 2.9)


def test_a_fault_is_told_by_what_it_did(run):
    told = summary_text.after_fault(run, CUT, CUBE)
    assert told == (
        "cube, cut: cut of 0.0-s0 at 1.00 s; detected after 7 ms; 1 flow delivered "
        "nothing until the repair; all flows completed after 4.00 s instead of 3.00 s "
        "(not all trials of cube, cut are valid)."
    )


def test_flows_that_stood_still_are_counted_where_none_was_cut_off(run):
    run.events = run.events[run.events.event == "cut"]
    told = "; 1 flow stalled, the longest for 400 ms; "
    assert told in summary_text.after_fault(run, CUT, CUBE)
    run.events.loc[0, "at_s"] = 0.65  # its pause at 1.2 s is another's, and so are short ones
    assert "; no flow stalled for 200 ms; " in summary_text.after_fault(run, CUT, CUBE)


def test_a_system_without_its_fault_says_so(run):
    assert (
        summary_text.after_fault(run, TREE, CUBE)
        == "No fault in tree: all flows were completed before."
    )


def test_a_trial_that_failed_is_not_said_to_have_been_spared(run):
    run.flows = run.flows[run.flows.system != CUT]
    assert (
        summary_text.after_fault(run, CUT, CUBE)
        == "cube, cut: the trial has no flows, as it failed."
    )


def test_the_table_has_the_times_of_flows_and_the_share_of_the_bound(run):
    *rows, note = summary_text.times(run).splitlines()[2:]
    assert note == "? marks figures of trials that are not valid: do not trust them."
    assert [line.split() for line in rows] == [
        ["cube", "1/1", "1000", "80.0", "2.95", "3.00", "3.00"],
        ["tree", "1/1", "1000", "80.0", "11.5", "11.9", "12.0"],
        ["cube,", "cut", "0/1", "1000?", "80.0?", "3.00?", "3.00?", "4.00?"],
    ]


def test_a_straggler_is_explained(run):
    (told,) = summary_text.stragglers(run)
    assert told == (
        "cube, cut: the last flow, 0.0 to 1.1, took 1.00 s longer than 95 % of them; it "
        "retransmitted 7 packets; it stalled 2 times, the longest for 400 ms, as TCP does after a "
        "retransmission timeout; of the ports on its path, s0 to 0.1 dropped the most: 9 packets "
        "of all flows."
    )


def test_a_way_that_is_not_known_is_not_blamed(run):
    """Two switches join the same servers: over which of them it went is not known."""
    both = [link(2, "0.1", "s6", 50), link(2, "s6", "1.1", 50), link(2, "0.0", "s1", 50)]
    run.links = pandas.concat([run.links, pandas.DataFrame([*both, link(2, "s1", "0.1", 50)])])
    (told,) = summary_text.stragglers(run)
    assert "dropped" not in told
