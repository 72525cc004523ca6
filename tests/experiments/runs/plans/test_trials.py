"""The order of trials: blocks, random within each, and the same for the same seed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.plans.trials import blocks
from pillarbox.experiments.runs.trials.experiment_run import order_of

SYSTEMS = tuple(System("bcube,4,1", label=label) for label in "abcdef")
EXPERIMENT = Experiment("x", "", SYSTEMS, Workload("permutation", duration_s=1.0), repeats=4)


@given(seed=st.integers(0, 10**6), repeats=st.integers(1, 6))
def test_each_block_has_every_system_once(seed: int, repeats: int):
    experiment = replace(EXPERIMENT, seed=seed, repeats=repeats)
    found = list(blocks(experiment))
    assert len(found) == repeats
    for repeat, block in enumerate(found):
        assert sorted(trial.system.label for trial in block) == list("abcdef")
        assert {trial.repeat for trial in block} == {repeat}
        assert len({trial.seed for trial in block}) == 1
    numbers = [trial.number for block in found for trial in block]
    assert numbers == list(range(6 * repeats))
    assert found == list(blocks(experiment))
    assert found == list(blocks(replace(experiment, repeats=repeats + 1)))[:repeats]


def test_order_differs_between_blocks_and_seeds():
    orders = {
        tuple(trial.system.label for trial in block)
        for seed in range(3)
        for block in blocks(replace(EXPERIMENT, seed=seed))
    }
    assert len(orders) > 6


def test_systems_of_a_block_send_the_same_flows_and_repeats_others():
    first, second, *_ = blocks(EXPERIMENT)
    flows = [[order_of(EXPERIMENT, trial).flows for trial in block] for block in (first, second)]
    assert all(one == flows[0][0] for one in flows[0])
    assert flows[0][0] != flows[1][0]


def test_with_a_precision_there_may_be_more_blocks():
    assert len(list(blocks(replace(EXPERIMENT, precision=0.1, most_repeats=7)))) == 7
    assert len(list(blocks(replace(EXPERIMENT, precision=0.1, most_repeats=2)))) == 4
