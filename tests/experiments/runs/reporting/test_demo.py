from dataclasses import replace

import pytest
from click.testing import CliRunner

from pillarbox.experiments.cli.commands import demo
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.catalogue import DEMO
from pillarbox.experiments.runs.trials import records
from pillarbox.experiments.runs.trials.experiment_run import orders_of
from pillarbox.hosts.base.faults import read


def test_plan_can_be_run_as_it_is():
    orders = orders_of(DEMO)
    assert {len(order.flows) for order in orders} == {240}
    struck = {order.trial.system.name: [one.kind for one in order.faults] for order in orders}
    assert struck == {"BCube": [], "tree": [], "BCube, cut": ["cut"], "tree, cut": ["cut"]}


def test_without_root_networks_are_drawn_and_told_what_root_is_for(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(
        "pillarbox.experiments.runs.reporting.drawing.draw_topology", lambda _, path: path.touch()
    )
    monkeypatch.setattr("pillarbox.experiments.base.files.give_to_user", drawn.append)
    monkeypatch.setattr(demo, "refusal", lambda: "no user namespaces")
    ran = CliRunner().invoke(demo.command, ["--out", str(tmp_path / "demo")])
    assert ran.exit_code == 0, ran.output
    assert len({path.name for path in drawn if path.suffix == ".png"}) >= 4
    assert "sudo ./pillarbox demo" in ran.stdout


@pytest.mark.parametrize(("valid", "code"), [(True, 0), (False, 1)])
def test_exit_code_says_whether_all_trials_are_valid(valid, code, monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "refusal", lambda: "")
    monkeypatch.setattr(demo, "run_and_report", lambda *_: valid)
    assert demo.command.main(["--out", str(tmp_path)], standalone_mode=False) == code


@pytest.mark.root
def test_experiment_is_run_and_its_report_named(tmp_path, capsys):
    small = {"BCube": "bcube,2,1", "tree": "tree,2,2"}
    systems = tuple(
        replace(one, network=small[one.name.partition(",")[0]], rate_mbit=10.0)
        for one in DEMO.systems
    )
    workload = Workload(volume_bytes=200_000, timeout_s=60.0)
    faults = tuple(
        replace(one, fault=str(read(one.fault)._replace(at_s=0.1, until_s=0.4)))
        for one in DEMO.faults
    )
    small_one = replace(DEMO, systems=systems, workload=workload, faults=faults)
    all_valid = demo.run_and_report(small_one, tmp_path)
    (folder,) = tmp_path.iterdir()
    printed = capsys.readouterr()
    assert str((folder / "report.html").resolve()) in printed.out
    assert "[4/4]" in printed.err
    run = records.load(folder)
    assert all_valid == run.trials["valid"].all()
    said = [log.read_text() for log in sorted(folder.rglob("log.txt"))]
    assert set(run.trials["status"]) == {"completed"}, said
    assert set(run.flows["status"]) == {"completed"}, set(run.flows["reason"])
    for sentence in ("BCube moved 12 flows of 200 kB in", "the paper measured 2.9", "BCube, cut:"):
        assert sentence in " ".join(printed.out.split())
    assert "Faults and recovery" in (folder / "report.html").read_text()
