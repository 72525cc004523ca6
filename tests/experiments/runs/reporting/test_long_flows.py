"""Flows that last, live and simulated: records whose goodput is known by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest
from click.testing import CliRunner

from pillarbox.experiments.cli.main import cli
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import FaultAt, System
from pillarbox.experiments.runs.reporting.long_flows import (
    lasting,
    lasts,
    length_rows,
    simulated_trials,
)
from pillarbox.experiments.runs.reporting.overlay import repeated
from pillarbox.experiments.runs.trials import records
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.runs.reporting.test_overlay import EXPERIMENT, SECOND, written

DURATION_S = 6.0
GREEDY = replace(EXPERIMENT, workload=Workload(duration_s=DURATION_S))


def greedy(folder: Path, **changes: Any) -> records.Run:
    lasted = {"volume_bytes": None, "delivered_bytes": 2 * SECOND, "ideal_bps": 1e6, "begin_s": 0.0}
    return records.load(written(folder, GREEDY, **lasted | changes))


def test_each_flow_has_what_the_cables_give_it(tmp_path: Path) -> None:
    run = greedy(tmp_path / "run")
    assert lasts(run)
    flows = lasting(run)
    assert flows["live"].tolist() == pytest.approx([8 * 2 * SECOND / DURATION_S] * 3)
    assert flows["cables"].tolist() == [4, 4, 4]
    rate_bps = 8.0 * SECOND
    assert flows["tcp"].sum() == pytest.approx(rate_bps, rel=0.05)
    assert (flows["tcp"] > 0.1 * rate_bps).all()


def test_rows_are_means_of_trials_by_the_length_of_paths(tmp_path: Path) -> None:
    flows = lasting(greedy(tmp_path / "run"))
    first = flows.assign(cables=[2, 4, 4])
    second = flows.assign(cables=[2, 2, 4], trial=1, live=2 * flows["live"])
    short, long, both = length_rows(pandas.concat([first, second]))
    assert (short["cables"], long["cables"], both["cables"]) == (2, 4, "all")
    assert both["flows"] == 3
    assert both["live"] == pytest.approx(1.5 * flows["live"].sum())
    assert both["off"] == pytest.approx(both["tcp"] / both["live"] - 1)
    assert short["live"] + long["live"] == pytest.approx(both["live"])


def test_runs_whose_flows_end_do_not_last_and_faults_are_refused(tmp_path: Path) -> None:
    assert not lasts(records.load(written(tmp_path / "ends")))
    faulty = replace(GREEDY, faults=(FaultAt("cut 0.0-s0 at 0.5"),))
    with pytest.raises(PillarboxError, match="has faults"):
        lasting(records.load(written(tmp_path / "faulty", faulty, volume_bytes=None)))
    with pytest.raises(PillarboxError, match="no completed trial"):
        lasting(records.load(written(tmp_path / "none", GREEDY, volume_bytes=None, trial=7)))


def test_simulated_trials_have_the_goodput_of_their_flows_and_a_queue(tmp_path: Path) -> None:
    run = greedy(tmp_path / "run")
    found = simulated_trials(run)
    assert found.index.tolist() == [0]
    (trial,) = found.itertuples()
    assert trial.goodput_bps == pytest.approx(lasting(run)["tcp"].sum())
    assert 1 / 3 < trial.fairness <= 1
    assert 0 < trial.queue_median_bytes <= trial.queue_p99_bytes <= 100 * 1514
    failed = records.load(written(tmp_path / "none", GREEDY, volume_bytes=None, trial=7))
    assert simulated_trials(failed).to_dict("list") == {name: [] for name in found.columns}
    with pytest.raises(PillarboxError, match="have no duration"):
        simulated_trials(records.load(written(tmp_path / "ends")))


@pytest.mark.parametrize(
    ("tcp", "queue", "congestion", "marked_from"),
    [
        ("", "droptail", "cubic", 0),
        ("dctcp", "ecn", "dctcp", 1 / 5),
        ("reno", "droptail", "reno", 0),
        ("bbr", "ecn", "cubic", 1 / 5),
    ],
)
def test_a_run_is_simulated_with_its_control_and_its_marks(
    tmp_path: Path, tcp: str, queue: str, congestion: str, marked_from: float
) -> None:
    systems = tuple(replace(one, tcp=tcp, queue=queue) for one in GREEDY.systems)
    run = records.load(written(tmp_path / "run", replace(GREEDY, systems=systems)))
    (trial,) = repeated(run)
    assert (trial.tcp.congestion, trial.tcp.marked_from) == (congestion, marked_from)


@pytest.mark.parametrize(("subflows", "paths"), [(1, 1), (2, 2), (None, 2)])
def test_multipath_tcp_is_simulated_on_the_paths_of_ports(
    tmp_path: Path, subflows: int | None, paths: int
) -> None:
    system = System("bcube,2,1", rate_mbit=8, mtu=1500, transport="mptcp", subflows=subflows)
    plan = replace(GREEDY, systems=(system,))
    lasted = {"volume_bytes": None, "delivered_bytes": 3 * SECOND, "begin_s": 0.0, "ideal_bps": 1e6}
    run = records.load(written(tmp_path / "run", plan, routing="bcube", **lasted))
    (trial,) = repeated(run)
    assert (trial.tcp.subflows, trial.tcp.header) == (paths, 40)
    assert trial.multipath and trial.multipath.counts.tolist() == [paths] * 3
    # All flows go to one server, and use both of its ports.
    both_bps = 2 * 8e6 * (1500 - 52 - 24) / (1514 + 40)
    assert lasting(run)["tcp"].sum() == pytest.approx(both_bps, rel=0.07)


def test_the_command_tells_both(tmp_path: Path) -> None:
    run = greedy(tmp_path / "run")
    asked = ["simulate", "--beside", str(run.folder)]
    said = CliRunner().invoke(cli, asked, catch_exceptions=False).stdout
    assert "live Mbit/s" in said and "max-min fair" in said
    found = json.loads(CliRunner().invoke(cli, [*asked, "--json"], catch_exceptions=False).stdout)
    assert found["beside"] == json.loads(json.dumps(length_rows(lasting(run))))
    refused = CliRunner().invoke(cli, [*asked, "--figure", str(tmp_path / "x.svg")])
    assert "have no figure" in str(refused.exception)
