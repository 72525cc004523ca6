"""Explanations of a run's flows: sentences, JSON, the trace for Perfetto, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from click.testing import CliRunner, Result

from pillarbox.experiments.cli.main import cli
from pillarbox.experiments.models.packets.packet_log import PacketLog
from pillarbox.experiments.runs.reporting.perfetto import trace_of
from pillarbox.experiments.runs.reporting.slow_flows import (
    Explanation,
    NamedPart,
    explained,
    simulated_trial,
    slowest,
)
from pillarbox.experiments.runs.trials import records
from pillarbox.experiments.runs.trials.packet_records import FILE, write_packets
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.runs.reporting.test_overlay import written

PARTS = (
    NamedPart("waiting", 0.71, "s3-eth2", 2.6, ""),
    NamedPart("timeout", 0.4, "s3-eth2", 0.0, ""),
    NamedPart("recovery", 0.1, "", 0.0, ""),
    NamedPart("rerouting", 0.2, "h0-eth1", 0.0, "cut 0.0 s0"),
    NamedPart("sending", 0.9, "h0-eth0", 0.0, ""),
    NamedPart("sending", 0.09, "s3-eth2", 0.0, ""),
    NamedPart("machine", 0.006, "", 0.0, ""),
    NamedPart("start", 0.004, "", 0.0, ""),
)
EXPLANATION = Explanation(1, 7, "0.0", "1.1", 1000, 0.5, 2.41, 1.27, PARTS)
# Required fields of an event by its phase, of the Trace Event Format.
FIELDS = {
    "M": {"name": str, "pid": int, "args": dict},
    "X": {"name": str, "pid": int, "tid": int, "ts": float, "dur": float},
    "i": {"name": str, "ts": float, "s": str},
    "C": {"name": str, "pid": int, "ts": float, "args": dict},
}


def test_a_sentence_has_the_largest_parts_and_their_places() -> None:
    assert EXPLANATION.sentence() == (
        "2.41 s, 1.9 times the ideal: 0.99 s sending its own data at the rate of the cables, "
        "0.71 s waiting at s3-eth2 behind 3 flows, "
        "0.40 s in retransmission time-outs after a drop at s3-eth2, "
        "0.20 s until lost data took another path (cut 0.0 s0), "
        "0.10 s in fast recovery after late packets, 0.01 s in 2 smaller parts"
    )


def test_parts_that_round_to_zero_are_left_out() -> None:
    parts = (NamedPart("sending", 2.41, "h0-eth0", 0.0, ""), NamedPart("machine", 0.004, "", 0, ""))
    assert "smaller" not in replace(EXPLANATION, parts=parts).sentence()


def test_flows_without_times_are_not_explained(tmp_path: Path) -> None:
    one = simulated_trial(records.load(written(tmp_path / "run")), 0)
    damaged = one.flows.assign(start_s=[0.0, float("nan"), 0.0], end_s=[1.0, 1.0, float("inf")])
    assert slowest(damaged, 3)["flow"].tolist() == damaged["flow"].tolist()[:1]


def test_json_has_all_parts() -> None:
    found = EXPLANATION.as_json()
    assert sum(part["seconds"] for part in found["parts"]) == pytest.approx(found["seconds"])
    assert found["parts"][0] == {
        "kind": "waiting", "seconds": 0.71, "port": "s3-eth2", "flows": 2.6, "fault": None
    }  # fmt: skip


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, ["why-slow", *map(str, words)])


def test_a_simulation_explains_a_run_without_a_packet_log(tmp_path: Path) -> None:
    folder = written(tmp_path / "run")
    found = run(folder, "--simulated", "--json")
    assert found.exit_code == 0, found.output
    flows = json.loads(found.output)["flows"]
    assert len(flows) == 3
    for flow in flows:
        assert sum(part["seconds"] for part in flow["parts"]) == pytest.approx(flow["seconds"])
        # The flows share the last port only with one another.
        waits = [part for part in flow["parts"] if part["kind"] == "waiting"]
        assert all(part["flows"] <= 1.01 for part in waits)
    # The first two share it for a second: they wait at the switch of their destination.
    longest = max(flows, key=lambda flow: flow["seconds"])
    waits = {
        part["port"]: part["seconds"] for part in longest["parts"] if part["kind"] == "waiting"
    }
    assert max(waits, key=waits.__getitem__).startswith("s")


def test_a_trial_that_is_not_valid_is_marked(tmp_path: Path) -> None:
    folder = written(tmp_path / "run")
    trial = records.trial_folder(folder, 0)
    write_packets(trial / FILE, PacketLog(*(numpy.empty(0) for _ in PacketLog._fields)))
    mark = "pillarbox: trial 1 is not valid: the CPU was overloaded"
    assert mark not in run(folder).output
    file = trial / records.TRIAL_FILE
    verdict = {"valid": False, "verdict": {"reasons": ["the CPU was overloaded"]}}
    file.write_text(json.dumps({**json.loads(file.read_text()), **verdict}))
    assert mark in run(folder).output
    assert mark not in run(folder, "--simulated").output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "--log-packets"),
        (("--trial", 2), "no trial 2"),
        ((3, "--simulated"), "no flow 3"),
    ],
)
def test_errors_say_what_helps(tmp_path: Path, words: tuple[object, ...], sentence: str) -> None:
    found = run(written(tmp_path / "run"), *words)
    assert isinstance(found.exception, PillarboxError)
    assert sentence in str(found.exception)


def trace(tmp_path: Path) -> list[dict[str, Any]]:
    one = simulated_trial(records.load(written(tmp_path / "run")), 0)
    event = {"at_s": 0.5, "event": "cut", "what": "0.0 s0", "detected_s": 0.05, "rerouted_s": None}
    events = records.frame("events", [event | {"trial": 0, "system": "", "repeat": 0}])
    one = one._replace(events=events)
    found = trace_of(one, explained(one, slowest(one.flows, 3)))
    assert found.keys() == {"traceEvents", "displayTimeUnit"}
    return json.loads(json.dumps(found))["traceEvents"]


def test_a_trace_has_the_fields_of_its_format(tmp_path: Path) -> None:
    events = trace(tmp_path)
    for event in events:
        for name, kind in FIELDS[event["ph"]].items():
            assert isinstance(event[name], kind), event
        assert event.get("ts", 0.0) >= 0 and event.get("dur", 0.0) >= 0
        assert event.get("s", "g") in "gpt"
    assert {event["ph"] for event in events} == FIELDS.keys()
    names = [event["name"] for event in events if event["ph"] == "i"]
    assert names == ["cut 0.0 s0", "detected: cut 0.0 s0"]


def test_flows_are_slices_of_their_source_that_do_not_overlap(tmp_path: Path) -> None:
    events = trace(tmp_path)
    processes = {
        event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"
    }
    slices = [event for event in events if event["ph"] == "X"]
    assert sorted(processes[event["pid"]] for event in slices) == [
        "server 0.0", "server 0.0", "server 0.1"
    ]  # fmt: skip
    assert all(" s" in event["args"]["why"] for event in slices)
    ends: dict[tuple[int, int], float] = {}
    for event in sorted(slices, key=lambda event: event["ts"]):
        track = event["pid"], event["tid"]
        assert event["ts"] >= ends.get(track, 0.0)
        ends[track] = event["ts"] + event["dur"]


def test_queues_are_empty_in_the_end(tmp_path: Path) -> None:
    last: dict[str, int] = {}
    most: dict[str, int] = {}
    for event in trace(tmp_path):
        if event["ph"] == "C":
            last[event["name"]] = event["args"]["bytes"]
            most[event["name"]] = max(most.get(event["name"], 0), last[event["name"]])
    assert set(last.values()) == {0}
    assert max(most.values()) > 30_000
