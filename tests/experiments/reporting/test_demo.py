from dataclasses import replace

import pytest
from click.testing import CliRunner

from experiments.commands import demo
from experiments.traffic.workload import Workload
from experiments.trials.catalogue.demo import EXPERIMENT
from experiments.trials.plans.experiment import FaultAt, System
from experiments.trials.runs import records
from experiments.trials.runs.run import orders_of


def test_plan_can_be_run_as_it_is():
    orders = orders_of(EXPERIMENT)
    assert {len(order.flows) for order in orders} == {240}
    assert {order.faults[0].kind for order in orders} == {"cut"}


def test_without_root_networks_are_drawn_and_told_what_root_is_for(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr("experiments.reporting.drawing.draw_topology", lambda _, path: path.touch())
    monkeypatch.setattr("experiments.files.give_to_user", drawn.append)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    ran = CliRunner().invoke(demo.command, ["--out", str(tmp_path / "demo")])
    assert ran.exit_code == 0, ran.output
    assert len({path.name for path in drawn if path.suffix == ".png"}) >= 4
    assert "sudo ./pillarbox demo" in ran.stdout


@pytest.mark.root
def test_experiment_is_run_and_its_report_named(tmp_path, capsys):
    systems = (System("bcube,2,1", rate_mbit=10.0), System("tree,2,2", rate_mbit=10.0))
    workload = Workload(volume_bytes=200_000, timeout_s=60.0)
    faults = (FaultAt("cut", ("h0", "s0"), at_s=0.1, until_s=0.4),)
    demo.show(replace(EXPERIMENT, systems=systems, workload=workload, faults=faults), tmp_path)
    (folder,) = tmp_path.iterdir()
    printed = capsys.readouterr()
    assert str((folder / "report.html").resolve()) in printed.out
    assert "[2/2]" in printed.err
    run = records.load(folder)
    assert set(run.trials["status"]) == {"completed"}, run.trials["reason"]
    assert set(run.flows["status"]) == {"completed"}, run.flows["reason"]
    assert "Faults and recovery" in (folder / "report.html").read_text()
