"""Experiments by name, from files, and changed on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans import loading
from pillarbox.experiments.runs.plans.experiment import Experiment, FaultAt, FaultRate, System
from pillarbox.experiments.runs.plans.loading import experiment_of, load
from pillarbox.experiments.runs.plans.overrides import overridden
from pillarbox.experiments.runs.plans.values import made, plain
from pillarbox.experiments.runs.trials.experiment_run import orders_of
from pillarbox.topos.base.errors import InvalidValueError, PillarboxError

EXPERIMENT = Experiment(
    "mine",
    "two networks",
    (System("bcube,2,1", options={"paths": 2}), System("tree,2,2")),
    Workload(duration_s=3.0),
    (FaultAt("cut 0.0-s0 at 1 until 2"), FaultRate("kill", 6.0, 1.0)),
    repeats=2,
)
LEVELS_TOML = """
[[systems]]
network = "bcube,4,1"
rates_mbit = [180, 20]
[workload]
duration_s = 1
"""
TOML = """
repeats = 2
[[systems]]
network = "bcube,4,1"
rate_mbit = 30
[[systems]]
network = "tree,4,4"
label = "a tree"
[workload]
pattern = "all-to-all"
volume_bytes = 1000000
[[faults]]
fault = "cut 0.0-s0 at 1"
[[faults]]
fault = "kill"
per_minute = 6
lasting_s = 2.5
"""


@pytest.mark.parametrize("name", loading.names())
def test_every_experiment_of_the_catalogue_can_be_run(name):
    found = load(name)
    assert found.name == name
    assert found.about
    assert all(order.flows for order in orders_of(found))


def test_plain_data_and_back_is_the_same():
    assert made(Experiment, plain(EXPERIMENT), "") == EXPERIMENT


def test_toml(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(TOML)
    found = load(str(file))
    assert found.name == "mine"
    assert [system.name for system in found.systems] == ["bcube,4,1", "a tree"]
    assert found.systems[0].rate_mbit == 30.0
    assert found.faults == (
        FaultAt("cut 0.0-s0 at 1"),
        FaultRate("kill", 6.0, 2.5),
    )


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            "rate_mbit = 30",
            "rate_mbits = 30",
            "unknown key systems.0.rate_mbits: did you mean .*rate_mbit",
        ),
        ("rate_mbit = 30", 'rate_mbit = "x"', "systems.0.rate_mbit is a number, not x"),
        ("repeats = 2", "repeats = 2.5", "repeats is a whole number, not 2.5"),
        ("repeats = 2", "repeats = true", "repeats is a whole number|repeats is a number"),
        (
            "rate_mbit = 30",
            "port_addresses = 1",
            "systems.0.port_addresses is true or false, not 1",
        ),
        ('network = "bcube,4,1"', "mtu = 1500", "systems.0.network is missing"),
        ('"cut 0.0-s0', '"cutt 0.0-s0', r"there is no fault 'cutt': did you mean cut\?"),
        ('fault = "cut', 'faults = "cut', "unknown key faults.0.faults: did you mean fault"),
        ('fault = "cut 0.0-s0 at 1"', "fault = 3", "faults.0.fault is a text, not 3"),
        ('fault = "cut 0.0-s0 at 1"', 'kind = "cut"', 'write fault = "cut 0.3-4.0 at 2 until 4"'),
        ('fault = "kill"', 'fault = "server"', r"there is no fault 'server': did you mean kill\?"),
        ("[workload]", "[workloads]", "unknown key workloads: did you mean workload"),
        ("volume_bytes = 1000000", "", "either volume_bytes"),
        ("repeats = 2", "repeats = ", "is not TOML"),
        ("rate_mbit = 30", 'rate_mbit = "calibrated"', "a calibrated rate needs root"),
    ],
)
def test_what_is_wrong_in_toml_is_named(tmp_path: Path, before: str, after: str, sentence: str):
    file = tmp_path / "mine.toml"
    file.write_text(TOML.replace(before, after))
    with pytest.raises(PillarboxError, match=sentence):
        load(str(file))


@pytest.mark.parametrize(
    ("change", "look", "wanted"),
    [
        ("rate_mbit=30", lambda e: [s.rate_mbit for s in e.systems], [30.0, 30.0]),
        ("rate_mbit=none", lambda e: e.systems[1].rate_mbit, None),
        ("systems.0.routing=bsr", lambda e: [s.routing for s in e.systems], ["bsr", ""]),
        ("systems.0.options.paths=4", lambda e: e.systems[0].options, {"paths": 4}),
        ("workload.options.source=0.3", lambda e: e.workload.options, {"source": "0.3"}),
        ("workload.options.jitter_s=0.3", lambda e: e.workload.options, {"jitter_s": 0.3}),
        ("duration_s=9", lambda e: e.workload.duration_s, 9.0),
        ("faults.0=kill 0.1 at 2", lambda e: e.faults[0], FaultAt("kill 0.1 at 2")),
        ("seed=7", lambda e: e.seed, 7),
    ],
)
def test_changes(change, look, wanted):
    assert look(experiment_of(overridden(plain(EXPERIMENT), [change]))) == wanted


def test_systems_that_a_change_makes_alike_are_one():
    found = load("permutation", ["network=dcell,4,1"])
    assert [system.network for system in found.systems] == ["dcell,4,1"]
    two = load("permutation", ["network=dcell,4,1", "systems.0.routing=shortest"])
    assert [system.routing for system in two.systems] == ["shortest", ""]


def test_a_volume_takes_the_place_of_a_duration():
    found = experiment_of(overridden(plain(EXPERIMENT), ["workload.volume_bytes=1e6"]))
    assert (found.workload.volume_bytes, found.workload.duration_s) == (1_000_000, None)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("rate", "write NAME=VALUE"),
        ("rate_mbi=30", "unknown key rate_mbi: did you mean rate_mbit"),
        ("systems.7.plane=python", "has numbers 0 to 1"),
        ("options.paths=4", "write systems.0.options.paths or workload.options.paths"),
        ("label=twice", "the same name"),
        ("workload.pattern.x=1", "not a table"),
        ("repeats=0", "at least one repeat"),
    ],
)
def test_changes_that_cannot_be(change: str, sentence: str):
    with pytest.raises(PillarboxError, match=sentence):
        experiment_of(overridden(plain(EXPERIMENT), [change]))


def test_systems_that_ask_for_a_calibrated_rate_get_the_lowest():
    rates = {"bcube,2,1": 50.0, "tree,2,2": 30.0}
    values = overridden(plain(EXPERIMENT), ["rate_mbit=calibrated"])
    found = experiment_of(values, lambda system: rates[system.network])
    assert [system.rate_mbit for system in found.systems] == [30.0, 30.0]


def test_python_file(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from pillarbox.experiments.runs.plans.experiment import *\n"
        "EXPERIMENT = Experiment('mine', '', (System('bcube,2,1'),), Workload(duration_s=1.0))\n"
    )
    assert load(str(file), ["seed=3"]).seed == 3
    file.write_text("EXPERIMENT = 3\n")
    with pytest.raises(PillarboxError, match="must define EXPERIMENT"):
        load(str(file))
    file.write_text("1 / 0\n")
    with pytest.raises(PillarboxError, match=r"ZeroDivisionError.*\(line 1\)"):
        load(str(file))


def test_what_there_is_not():
    with pytest.raises(PillarboxError, match="did you mean quick"):
        load("quik")
    for file in ("no.py", "no.toml"):
        with pytest.raises(PillarboxError, match="No such file"):
            load(file)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("rate_mbit = 30", "rate_mbit = -5", r"line 5 \(systems.0.rate_mbit\): a cable's rate is"),
        ("rate_mbit = 30", "mtu = 20", r"line 5 \(systems.0.mtu\): the MTU is 576 to 65000"),
        ("rate_mbit = 30", "plane = 'x'", r"line 5 \(systems.0.plane\): there is no plane 'x'"),
        ("rate_mbit = 30", "timers = 'x'", r"line 5 \(systems.0.timers\): there are no 'x' timers"),
        ("rate_mbit = 30", "queue = 'x'", r"line 5 \(systems.0.queue\): there is no queue 'x'"),
        ("rate_mbit = 30", "delay = 'x'", r"line 5 \(systems.0.delay\): 'x' is no delay"),
        (
            'label = "a tree"',
            "port_addresses = true",
            r"line 8 \(systems.1.port_addresses\): a server of tree,4,4 has one port",
        ),
        ("rate_mbit = 30", "loss = -1", r"line 5 \(systems.0.loss\): a cable loses 0 to 100"),
        ("tree,4,4", "tree,4", r"line 7 \(systems.1.network\): network 'tree,4'"),
        (
            'label = "a tree"',
            "rates = 3",
            r"line 8 \(systems.1.rates\): unknown key systems.1.rates",
        ),
        ("volume_bytes = 1000000", "duration_s = 1", r"line 12 \(faults.0\): .* begins at 1 s"),
        ("per_minute = 6", "per_minutes = 6", r"line 16 \(faults.1.per_minutes\): unknown key"),
        ("[workload]", "[workload]\ntool = 'x'", r"line 10 \(workload.tool\): unknown traffic"),
        ("[workload]", "[workload]\ninterval_s = 0", r"line 9 \(workload\): interval_s is above 0"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path: Path, before, after, sentence):
    file = tmp_path / "mine.toml"
    assert before in TOML
    file.write_text(TOML.replace(before, after))
    with pytest.raises(PillarboxError, match=f"^{file}, {sentence}"):
        load(str(file))


def test_a_change_of_the_command_line_is_not_blamed_on_the_file(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(TOML)
    with pytest.raises(PillarboxError, match=r"^a cable's rate is above 0"):
        load(str(file), ["systems.0.rate_mbit=-5"])


@pytest.mark.parametrize(("moment", "accepted"), [("2.99", True), ("3", False)])
def test_a_fault_begins_before_the_flows_end(moment: str, accepted: bool):
    changes = ["duration_s=3", f"faults=cut 0.0-s0 at {moment}"]
    if accepted:
        assert load("quick", changes).faults == (FaultAt(f"cut 0.0-s0 at {moment}"),)
        return
    with pytest.raises(PillarboxError, match="begins at 3 s, and the flows end by 3 s"):
        load("quick", changes)


def test_a_plan_names_a_graph_file_with_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "net.json"
    ends = [{"source": 0, "target": 1}]
    file.write_text(json.dumps({"nodes": [{"id": 0}, {"id": 1}], "edges": ends}))
    system = System("net.json", routing="shortest")
    assert (system.network, system.name) == (system.topology.spec, "net.json shortest")
    assert system.network.startswith(f"{file}#")
    file.unlink()
    assert System(system.network).name == "net.json"  # a plan is read without its graph files
    with pytest.raises(PillarboxError, match="there is no graph file"):
        System("net.json")


def test_a_system_may_give_the_rate_of_each_level(tmp_path: Path) -> None:
    file = tmp_path / "levels.toml"
    file.write_text(LEVELS_TOML)
    (system,) = load(str(file)).systems
    assert (system.network, system.rate_mbit) == ("bcube,4,1,rates=9:1", 20.0)
    assert system == System("bcube,4,1", rates_mbit=[180, 20])
    assert made(System, plain(system), "") == system
    (half,) = load(str(file), ["rate_mbit=10"]).systems  # keeps the ratio of the levels
    assert (half.network, half.rate_mbit) == ("bcube,4,1,rates=9:1", 10.0)


@pytest.mark.parametrize(
    ("rates", "says"),
    [
        ("[180, 0]", "line 4 (systems.0.rates_mbit): rates_mbit has the rate of each level"),
        ("[180, 20]\nrate_mbit = 3", "rate_mbit or rates_mbit, not both"),
        ("[180, 20, 1]", "2 levels of cables"),
        ('["fast", 1]', "systems.0.rates_mbit"),
    ],
)
def test_wrong_rates_of_levels_are_one_sentence(rates: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "levels.toml"
    file.write_text(LEVELS_TOML.replace("[180, 20]", rates))
    with pytest.raises(PillarboxError) as refused:
        load(str(file))
    assert says in str(refused.value)


def test_truth_values_are_words() -> None:
    for value, wanted in ((True, True), ("false", False), ("True", True)):
        assert made(bool, value, "key") is wanted
    for wrong in (1, "yes", "", None):
        with pytest.raises(InvalidValueError, match="port_addresses is true or false, not"):
            made(System, {"network": "bcube,4,1", "port_addresses": wrong}, "key")
