"""The A/A check: a system that stands twice in a plan, on made-up records and on a real lab."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pillarbox.experiments.runs.plans.experiment import System
from pillarbox.experiments.runs.plans.loading import load
from pillarbox.experiments.runs.plans.values import plain
from pillarbox.experiments.runs.trials.aa_check import aa_check_sentence, identical_system_pairs
from pillarbox.experiments.runs.trials.experiment_run import run
from pillarbox.experiments.runs.trials.statistics import compare
from pillarbox.experiments.runs.trials.summary import aa_check_sentences

SAME = (System("bcube,2,1", label="A"), System("bcube,2,1", label="B"))
STEADY = dict(enumerate([10.0, 10.2, 9.9, 10.1, 10.0]))


@pytest.mark.parametrize(
    ("systems", "found"),
    [
        (SAME, [(0, 1)]),
        ((*SAME, System("bcube,2,1", label="C")), [(0, 1), (0, 2)]),
        ((SAME[0], System("bcube,2,1", rate_mbit=11.0, label="B")), []),
        ((SAME[0], System("bcube,2,1", options={"paths": 2}, label="B")), []),
    ],
)
def test_systems_that_differ_in_their_label_alone_are_the_same(systems, found):
    assert [*identical_system_pairs([plain(system) for system in systems])] == found


def test_what_a_fault_strikes_is_not_what_it_spares() -> None:
    systems, fault = [plain(system) for system in SAME], {"kind": "cut", "what": ["h0", "s0"]}
    assert [*identical_system_pairs(systems, [{**fault, "systems": []}])] == [(0, 1)]
    assert [*identical_system_pairs(systems, [{**fault, "systems": ["A"]}])] == []


def test_what_came_of_it_is_told_in_words():
    faster = {repeat: value * 1.1 for repeat, value in STEADY.items()}
    assert "no difference is found" in aa_check_sentence("A", "B", (STEADY, {**STEADY, 0: 10.1}))
    assert "but a difference is found" in aa_check_sentence("A", "B", (STEADY, faster))
    assert "5 pairs of valid trials, and the run has 2" in aa_check_sentence(
        "A", "B", (STEADY, {0: 1.0, 4: 1.0})
    )


def test_the_catalogue_has_one():
    systems = [plain(system) for system in load("a-a").systems]
    assert [*identical_system_pairs(systems)] == [(0, 1)]
    assert load("a-a").repeats > 5  # one may turn out not to be valid


@pytest.mark.long  # ten trials of a second; what it does with them is tested above
@pytest.mark.alone  # figures that a busy machine changes
@pytest.mark.root
def test_a_lab_differs_from_one_of_another_rate_and_not_from_itself(tmp_path: Path):
    """By all trials, valid or not: where the machine is busy, it is for both labels alike."""
    changes = ["repeats=2", "network=tree,2,1", "workload.pattern=one-to-one"]
    changes += ["workload.duration_s=1.0", "seed=3"]
    same = load("a-a", changes)
    systems = (*same.systems, System("tree,2,1", rate_mbit=150.0, label="faster"))
    done = run(replace(same, systems=systems), tmp_path / "run")
    trials = done.trials[done.trials.status == "completed"]
    goodput = {
        name: dict(zip(own.repeat, own.goodput_bps, strict=True))
        for name, own in trials.groupby("system")
    }
    # Half as much again is nearer to what is faster; how near, the machine may say.
    alike, faster = (compare(goodput[name], goodput["A"]).ratio.value for name in ("B", "faster"))
    assert 0.75 < alike < 1.25 < faster < 1.75
    (sentence,) = aa_check_sentences(done)
    assert sentence.startswith("A and B are the same system; an A/A check takes 5 pairs")
