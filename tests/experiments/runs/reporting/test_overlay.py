"""A run's flows, simulated again: records whose times are known by hand."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from click.testing import CliRunner

from pillarbox.experiments.cli.main import cli
from pillarbox.experiments.models.fluid.ideal import header_efficiency
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, FaultAt, System
from pillarbox.experiments.runs.reporting.overlay import class_rows, overlaid, overlay_figure
from pillarbox.experiments.runs.trials import records, schema, store
from pillarbox.topos.base.errors import PillarboxError

RATE = 8.0  # Mbit/s: a megabyte a second
SECOND = int(1e6 * header_efficiency(0))  # bytes that a cable delivers in a second
EXPERIMENT = Experiment(
    name="two",
    about="Two flows to one server.",
    systems=(System("tree,2,2", rate_mbit=RATE, mtu=1500),),
    workload=Workload(volume_bytes=1),
)
# Two flows of a second each share the cables to 1.1; another of the same server comes later.
FLOWS = (("0.0", 0.0, 2.5), ("0.1", 0.5, 2.6), ("0.0", 1.9, 3.1))


IDEAL = 1 + 3 * 1514 / 1e6  # seconds of a flow alone: its bytes, and a frame on the other cables


def written(folder, experiment=EXPERIMENT, third_s=FLOWS[2][1], routing="bridge", **changes):
    rows = []
    for flow, (source, start_s, end_s) in enumerate(FLOWS):
        start_s = third_s if flow == 2 else start_s
        row = {"flow": flow, "source": source, "destination": "1.1", "tool": "generator"}
        row |= {"status": "completed", "reason": "", "start_s": start_s, "begin_s": start_s}
        row |= {"end_s": end_s, "volume_bytes": SECOND, "delivered_bytes": SECOND, "tries": 1}
        rows.append(row | {"path": f"{source} 1.1", "measured": True, "alone_s": 1.0} | changes)
    told = {"trial": 0, "system": experiment.systems[0].name, "repeat": 0, "valid": True}
    told |= {"status": "completed", "reason": "", "seed": 1, "routing": routing}
    (folder / "trials").mkdir(parents=True)
    manifest = {"schema_version": schema.VERSION, "plan": asdict(experiment)}
    store.write_json(folder / records.MANIFEST, manifest)
    records.write_trial(records.trial_folder(folder, 0), told, {"flows": rows}, {})
    return folder


def test_each_flow_is_simulated_at_its_moment_on_its_path(tmp_path):
    found = overlaid(records.load(written(tmp_path / "run")))
    # The path's other three cables take 1.5 ms each for the first frame.
    assert found["live"].tolist() == pytest.approx([2.5 / IDEAL, 2.1 / IDEAL, 1.2 / IDEAL], 1e-3)
    # Half a second alone, a second at half the rate, then the second has the cable to itself for
    # what is left of it, 0.1 s of which it shares with the third.
    assert found["fluid"].tolist() == pytest.approx(
        [1 + 0.5 / IDEAL, 1 + 0.6 / IDEAL, 1 + 0.1 / IDEAL], rel=1e-3
    )


@pytest.mark.parametrize("alone_s", [None, 0.5])
def test_recorded_ideals_are_computed_again(tmp_path, alone_s):
    # Only records of arriving flows have them, and older ones by another definition.
    found = overlaid(records.load(written(tmp_path / "run", measured=None, alone_s=alone_s)))
    assert found["live"].tolist() == pytest.approx([2.5 / IDEAL, 2.1 / IDEAL, 1.2 / IDEAL], 1e-3)


def test_by_tcp_it_takes_the_packets_and_queues_of_the_lab(tmp_path):
    found = overlaid(records.load(written(tmp_path / "run")))
    # The second flow takes more than half from the first, which loses packets when it comes.
    assert found["tcp"].tolist() == pytest.approx(found["fluid"].tolist(), rel=0.35)
    # Together they are as fast: the last of both, each after its start, and the third.
    starts_s = [start_s for _, start_s, _ in FLOWS]
    last_s = [max((found[kind] + starts_s)[:2]) for kind in ("tcp", "fluid")]
    assert last_s[0] == pytest.approx(last_s[1], rel=0.05)
    assert found["tcp"][2] == pytest.approx(found["fluid"][2], rel=0.05)
    assert found["tcp"].sum() != pytest.approx(found["fluid"].sum(), rel=1e-3)


def test_what_does_not_count_is_left_out(tmp_path):
    with pytest.raises(PillarboxError, match="no measured, completed flow"):
        overlaid(records.load(written(tmp_path / "run", measured=False)))
    with pytest.raises(PillarboxError, match="no measured, completed flow"):
        overlaid(records.load(written(tmp_path / "failed", status="failed")))


def test_runs_that_no_fluid_can_repeat_are_refused(tmp_path):
    unshaped = replace(EXPERIMENT, systems=(System("tree,2,2", rate_mbit=None),))
    faulty = replace(EXPERIMENT, faults=(FaultAt("cut 0.0-s0 at 0.5"),))
    with pytest.raises(PillarboxError, match="have no rate"):
        overlaid(records.load(written(tmp_path / "unshaped", unshaped)))
    with pytest.raises(PillarboxError, match="has faults"):
        overlaid(records.load(written(tmp_path / "faulty", faulty)))
    with pytest.raises(PillarboxError, match="a duration and no volume"):
        overlaid(records.load(written(tmp_path / "lasting", volume_bytes=None)))


def test_the_figure_has_a_curve_of_each_kind(tmp_path):
    figure = overlay_figure(overlaid(records.load(written(tmp_path / "run"))))
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        *("live", "fluid", "tcp")
    ]
    assert axes.lines[0].get_xdata().tolist() == pytest.approx([1.2, 2.1, 2.5], rel=5e-3)
    assert axes.lines[0].get_ydata().tolist() == pytest.approx([1 / 3, 2 / 3, 1])


def test_the_command_tells_both_and_draws_them(tmp_path):
    run, file = written(tmp_path / "run"), tmp_path / "beside.svg"
    asked = ["simulate", "--beside", str(run), "--figure", str(file), "--json"]
    found = json.loads(CliRunner().invoke(cli, asked, catch_exceptions=False).stdout)
    rows = class_rows(overlaid(records.load(run)))
    assert found["beside"] == json.loads(json.dumps(rows))
    assert rows[-1]["live"]["median"] == pytest.approx(2.1 / IDEAL, rel=1e-3)
    assert file.read_text().startswith("<?xml")
    said = CliRunner().invoke(cli, asked[:3], catch_exceptions=False).stdout
    assert "median live" in said and "Not valid" not in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bcube,4,1", "--beside", "."], "leave SPEC out"),
        (["--beside", ".", "--load", "0.5"], "takes the run's flows"),
        (["bcube,4,1", "--figure", "x.svg"], "add --beside RUN"),
        (["--load", "0.5"], "give a network"),
        (["--beside", ".", "--figure", "x.pdf"], "use the suffix .svg or .png"),
        (["--beside", "."], "is not a run"),
    ],
)
def test_what_cannot_be_set_side_by_side(arguments, sentence):
    with pytest.raises(PillarboxError, match=sentence):
        CliRunner().invoke(cli, ["simulate", *arguments], catch_exceptions=False)
