"""The scale check: pairs of systems, and its three results on both sides of the tolerance."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import pytest

from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.plans.values import plain
from pillarbox.experiments.runs.trials import records, schema, store
from pillarbox.experiments.runs.trials.scale_check import (
    ScaleComparison,
    dilated_pairs,
    scale_comparisons,
    scale_sentence,
)
from pillarbox.experiments.runs.trials.statistics import Comparison, Estimate, compare
from pillarbox.experiments.runs.trials.summary import scale_sentences, text_of


def sentence(low: float, high: float, repeats: int = 3) -> str:
    ratio = Estimate(math.sqrt(low * high), low, high, repeats)
    found = scale_comparisons({"goodput": Comparison(ratio, False)})
    return scale_sentence("A", (10, 20), found)


@pytest.mark.parametrize(
    ("low", "high", "repeats", "result"),
    [
        (0.99, 1.02, 3, "free of scale within 2 %"),
        (0.91, 1.0999, 3, "free of scale within 10 %"),
        (0.99, 1.1001, 3, "not decided for goodput"),
        (0.90, 1.00, 3, "not decided for goodput"),
        (1.05, 1.30, 3, "not decided for goodput"),
        (1.1001, 1.30, 3, "goodput not free of scale"),
        (0.70, 0.909, 3, "goodput not free of scale"),
    ],
)
def test_an_interval_decides_only_if_it_is_on_one_side_of_the_tolerance(
    low: float, high: float, repeats: int, result: str
) -> None:
    assert result in sentence(low, high, repeats)


def test_one_result_that_differs_is_named() -> None:
    found = [
        ScaleComparison("median slowdown", Estimate(1.01, 0.99, 1.03, 5)),
        ScaleComparison("99th slowdown", Estimate(1.5, 1.3, 1.7, 5)),
    ]
    text = scale_sentence("A", (10, 20), found)
    assert text.startswith("A, 10 and 20 times slower: 99th slowdown not free of scale")
    assert "median slowdown 1.010 times (0.990-1.030)" in text


def test_steady_results_are_free_of_scale() -> None:
    steady = dict(enumerate([1.0, 1.01, 0.99, 1.0]))
    found = scale_comparisons({"goodput": compare(steady, steady)})
    assert "free of scale within 1 %" in scale_sentence("A", (10, 20), found)


def test_systems_with_other_settings_or_faults_are_no_pair() -> None:
    first = {"network": "bcube,2,1", "dilation": 10, "label": "A"}
    second = {**first, "dilation": 20, "label": "B"}
    assert [*dilated_pairs([first, second])] == [(0, 1)]
    assert [*dilated_pairs([first, {**first, "label": "B"}])] == []
    assert [*dilated_pairs([first, {**second, "network": "bcube,4,1"}])] == []
    assert [*dilated_pairs([first, second], [{"systems": ["A"]}])] == []
    assert [*dilated_pairs([first, second], [{"systems": ["A", "B"]}])] == [(0, 1)]


def written_run(
    folder: Path, rerouted_s: dict[float, float], *, repeats: int = 4, reason: str = ""
) -> records.Run:
    """Write a run with two dilations of a system, whose faults take these times to reroute."""
    systems = tuple(System("bcube,2,1", label=f"{k:g}", dilation=k) for k in rerouted_s)
    plan = Experiment("made up", "", systems, Workload(duration_s=1.0), repeats=repeats)
    (folder / "trials").mkdir(parents=True)
    store.write_json(
        folder / records.MANIFEST, {"schema_version": schema.VERSION, "plan": plain(plan)}
    )
    for number, (repeat, system) in enumerate(product(range(repeats), systems)):
        told = {"trial": number, "system": system.name, "repeat": repeat, "valid": True, "seed": 1}
        told |= {"status": "completed", "reason": "", "flows": 1, "failed_flows": 0}
        told |= {"goodput_bps": 1e6 + repeat, "verdict": {"reasons": []}}
        event = {
            "at_s": 0.1,
            "event": "cut",
            "what": "0.0 s0",
            "reason": reason,
            "stopped_flows": 1,
        }
        event["rerouted_s"] = rerouted_s[system.dilation] * (1 + repeat / 1000)
        records.write_trial(records.trial_folder(folder, number), told, {"events": [event]}, {})
    return records.load(folder)


@pytest.mark.parametrize(
    ("large_s", "result"),
    [
        (0.2, "10, 10 and 20 times slower: free of scale within 1 %: goodput 1.000 times"),
        (0.3, "10, 10 and 20 times slower: time to reroute not free of scale"),
    ],
)
def test_a_run_with_two_dilations_has_a_verdict(
    tmp_path: Path, large_s: float, result: str
) -> None:
    run = written_run(tmp_path / "run", {10.0: 0.2, 20.0: large_s})
    (sentence,) = scale_sentences(run)
    assert sentence.startswith(result)
    assert " ".join(sentence.split()) in " ".join(text_of(run).split())


def test_a_run_without_dilation_has_no_verdict_of_scale(tmp_path: Path) -> None:
    assert [*scale_sentences(written_run(tmp_path / "run", {1.0: 0.2}))] == []


def test_systems_with_few_trials_are_named_in_one_sentence(tmp_path: Path) -> None:
    run = written_run(tmp_path / "run", {10.0: 0.2, 20.0: 0.2, 40.0: 0.2}, repeats=2)
    (sentence,) = scale_sentences(run)
    assert "fewer than 3 pairs" in sentence and sentence.endswith("systems 10; 20")


def test_a_system_is_not_compared_with_itself_at_another_dilation(tmp_path: Path) -> None:
    assert "against 10" not in text_of(written_run(tmp_path / "run", {10.0: 0.2, 20.0: 0.2}))


def test_faults_after_the_end_are_reported(tmp_path: Path) -> None:
    missed = written_run(tmp_path / "missed", {1.0: 0.2}, repeats=2, reason="the trial ended")
    line = "faults that did not happen, because the trial ended: 2 of 1"
    assert line in text_of(missed)
    happened = written_run(tmp_path / "run", {1.0: 0.2}, repeats=2)
    assert "did not happen" not in text_of(happened)
