"""Transports of an experiment's systems: lists, names, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation.setting_checks import check_settings
from pillarbox.experiments.lab.linux import mptcp
from pillarbox.experiments.runs.plans.experiment import Experiment, FaultAt, System
from pillarbox.experiments.runs.plans.loading import experiment_of
from pillarbox.experiments.runs.trials.experiment_run import orders_of
from pillarbox.experiments.runs.trials.unsupported import without_unsupported
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.topos.base.errors import InvalidValueError, PillarboxError, UnsupportedError

WORKLOAD = {"pattern": "one-to-one", "duration_s": 1.0}


def loaded(**values: Any) -> Experiment:
    return experiment_of({"name": "one", "about": "", "workload": WORKLOAD, **values})


def test_each_system_runs_with_each_transport() -> None:
    systems = [{"network": "bcube,4,1"}, {"network": "dcell,4,1", "label": "DCell"}]
    found = loaded(transport=["tcp", "mptcp"], systems=systems)
    assert [one.name for one in found.systems] == [
        "bcube,4,1",
        "bcube,4,1 mptcp",
        "DCell tcp",
        "DCell mptcp",
    ]
    both = loaded(transport=["tcp", "mptcp"], tcp=["reno", "cubic"], systems=systems[:1])
    assert {(one.transport, one.tcp) for one in both.systems} == {
        (transport, tcp) for transport in ("tcp", "mptcp") for tcp in ("reno", "cubic")
    }


def test_subflows_are_in_the_name() -> None:
    assert System("bcube,4,2", transport="mptcp", subflows=2).name == "bcube,4,2 mptcp 2"


@pytest.mark.parametrize("transport", ["mptcp", [], [1]])
def test_transports_of_an_experiment_are_a_list(transport: Any) -> None:
    with pytest.raises(InvalidValueError, match=r'transport is a list, such as .*"mptcp"'):
        loaded(transport=transport, systems=[{"network": "bcube,4,1"}])


def test_transports_stand_in_one_place() -> None:
    with pytest.raises(InvalidValueError, match="not both"):
        loaded(transport=["tcp"], systems=[{"network": "bcube,4,1", "transport": "tcp"}])


@pytest.mark.parametrize(
    ("spec", "settings", "why"),
    [
        ("tree,4,2", {"transport": "mptcp"}, "have one: use transport tcp"),
        ("bcube,4,1", {"transport": "mtcp"}, "there is no transport 'mtcp'.*mptcp"),
        ("bcube,4,1", {"subflows": 2}, "set transport = mptcp"),
        ("bcube,4,1", {"transport": "mptcp", "subflows": 0}, "has 1 to 2 subflows"),
        ("bcube,4,1", {"transport": "mptcp", "subflows": 3}, "has 1 to 2 subflows"),
        ("mesh,12", {"transport": "mptcp", "subflows": 10}, "has 1 to 9 subflows"),
    ],
)
def test_wrong_transports_are_refused(spec: str, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        check_settings(topos.parse(spec), LabSettings(**settings))


def test_right_transports_are_accepted() -> None:
    for subflows in (None, 1, 2):
        settings = LabSettings(transport="mptcp", subflows=subflows)
        check_settings(topos.parse("bcube,4,1"), settings)


def test_all_systems_are_compared_under_one_tool() -> None:
    systems = [{"network": "bcube,4,1"}, {"network": "bcube,4,1", "transport": "mptcp"}]
    assert {order.workload.tool for order in orders_of(loaded(systems=systems))} == {"generator"}
    assert {order.workload.tool for order in orders_of(loaded(systems=systems[:1]))} == {"auto"}
    systems[1]["tool"] = "iperf3"
    tools = {
        order.trial.system.name: order.workload.tool for order in orders_of(loaded(systems=systems))
    }
    assert tools == {"bcube,4,1": "generator", "bcube,4,1 iperf3 mptcp": "iperf3"}


def test_systems_that_this_kernel_lacks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, multipath = System("bcube,4,1"), System("bcube,4,1", transport="mptcp")
    faults = (FaultAt("kill 0.1 at 1", (multipath.name,)), FaultAt("kill 0.1 at 1"))
    one = Experiment(
        "one", "", (plain, multipath), loaded(systems=[{"network": "bcube,4,1"}]).workload, faults
    )
    monkeypatch.setattr(mptcp, "missing", lambda: "this kernel is old")
    found, sentences = without_unsupported(one)
    assert found.systems == (plain,)
    assert found.faults == faults[1:]
    assert sentences == ["the system bcube,4,1 mptcp is left out: this kernel is old"]
    alone = Experiment("one", "", (multipath,), one.workload)
    with pytest.raises(UnsupportedError, match="all systems of one use Multipath TCP"):
        without_unsupported(alone)
    elsewhere = System("bcube,4,1", transport="mptcp", cluster="lab", machines=1)
    remote = Experiment("one", "", (plain, elsewhere), one.workload)
    assert without_unsupported(remote) == (remote, [])
    monkeypatch.setattr(mptcp, "missing", lambda: "")
    assert without_unsupported(one) == (one, [])


def test_an_unknown_system_is_refused_as_before() -> None:
    with pytest.raises(PillarboxError, match="unknown systems"):
        Experiment(
            *(
                "one",
                "",
                (System("bcube,4,1"),),
                loaded(systems=[{"network": "bcube,4,1"}]).workload,
            ),
            (FaultAt("kill 0.1 at 1", ("nobody",)),),
        )
