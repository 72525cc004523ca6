"""A small run: two systems, two repeats, a cut cable, a failed flow, an invalid trial."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product

import pytest

from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, FaultAt, System
from pillarbox.experiments.runs.trials import records, schema, store

VOLUME = 1_000_000
RATES = {"bcube,2,1": 4e6, "tree,2,2": 2e6}
FAILED = "connection refused"
INVALID = "cables with packets waiting sent only 0.500 of what their rate allows"
EXPERIMENT = Experiment(
    name="small",
    about="A cube against a tree.",
    systems=(System("bcube,2,1", routing="bsr"), System("tree,2,2")),
    workload=Workload(volume_bytes=VOLUME),
    faults=(FaultAt("cut 0.0-s0 at 0.5 until 1.5"),),
    repeats=2,
)


def trials():
    """Yield trial.json and the tables of each trial; the last one is invalid."""
    for trial, (repeat, system) in enumerate(product((0, 1), EXPERIMENT.systems)):
        topology, rate = system.topology, RATES[system.network]
        flows = [flow_row(topology, trial, flow, rate) for flow in range(12)]
        done = [flow for flow in flows if flow["status"] == "completed"]
        valid = trial != 3
        told = {"trial": trial, "system": system.name, "repeat": repeat, "valid": valid, "seed": 1}
        told |= {"status": "completed", "reason": "", "flows": 12, "failed_flows": 12 - len(done)}
        told |= {"goodput_bps": 11 * rate, "ideal_bps": 12 * rate, "ideal_s": VOLUME * 8 / rate}
        told |= {"completion_s": max(flow["end_s"] for flow in done) if len(done) == 12 else None}
        told["ideal_steps"] = [[0.0, 12 * rate], [1.0, 6 * rate]]
        told |= {"fairness": 0.99, "link_spread": 0.05}
        verdict = {"valid": valid, "reasons": [] if valid else [INVALID], "warnings": []}
        told["verdict"] = verdict | {"figures": {"conserved_median": 0.98 if valid else 0.5}}
        intervals = [row for flow in done for row in interval_rows(flow)]
        events = event_rows() if system.routing else []
        yield (
            told,
            {
                "flows": flows,
                "intervals": intervals,
                "links": list(link_rows(topology)),
                "events": events,
            },
        )


def flow_row(topology, trial, flow, rate):
    pair = [pair for pair in product(range(4), repeat=2) if pair[0] != pair[1]][flow]
    ends = [topology.address(end) for end in pair]
    row = {"flow": flow, "source": ends[0], "destination": ends[1], "tool": "generator"}
    row |= {"start_s": 0.0, "begin_s": 0.0, "volume_bytes": VOLUME, "tries": 1}
    row |= {"ideal_bps": rate, "ideal_end_s": VOLUME * 8 / rate, "path": " ".join(ends)}
    if (trial, flow) == (0, 5):
        return row | {"status": "failed", "reason": FAILED, "delivered_bytes": 0}
    end_s = VOLUME * 8 / rate * (1.05 + 0.01 * flow)
    row |= {"status": "completed", "reason": "", "end_s": end_s, "delivered_bytes": VOLUME}
    return row | {"goodput_bps": VOLUME * 8 / end_s, "retransmits": flow}


def interval_rows(flow):
    half_s = flow["end_s"] / 2
    for begin_s in (0.0, half_s):
        row = {"flow": flow["flow"], "begin_s": begin_s, "end_s": begin_s + half_s}
        yield row | {"delivered_bytes": VOLUME // 2}


def link_rows(topology):
    def name(node):
        return topology.address(node) if node < topology.servers else topology.node_name(node)

    for cable in topology.links():
        for node, port, far in ((cable.a, cable.a_port, cable.b), (cable.b, cable.b_port, cable.a)):
            row = {"from": name(node), "to": name(far), "port": port, "rate_bps": 1e7}
            row |= {"sent_bytes": 1000, "dropped_packets": 0}
            yield row | {"busy_share": min(0.4 + 0.3 * cable.level + 0.01 * node, 1.0)}


def event_rows():
    cut = {"at_s": 0.5, "event": "cut", "what": "0.0 s0", "reason": "", "stopped_flows": 3}
    cut |= {"detected_s": 0.05, "rerouted_s": 0.2, "recovered_s": 0.6}
    return [cut, {"at_s": 1.5, "event": "healed", "what": "0.0 s0", "reason": ""}]


def write_run(folder, experiment=EXPERIMENT):
    """Write that run into a folder, with another plan where one is given."""
    (folder / "trials").mkdir(parents=True)
    manifest = {"schema_version": schema.VERSION, "plan": asdict(experiment)}
    manifest["machine"] = {"kernel": "6.1.0", "processor": "a processor", "processors": 2}
    store.write_json(folder / records.MANIFEST, manifest)
    names = dict(zip((s.name for s in EXPERIMENT.systems), experiment.systems, strict=True))
    for told, tables in trials():
        told["system"] = names[told["system"]].name
        records.write_trial(records.trial_folder(folder, told["trial"]), told, tables, {})
    return folder


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "small")


@pytest.fixture(scope="session")
def run_writer():
    return write_run


@pytest.fixture(scope="session")
def experiment():
    return EXPERIMENT
