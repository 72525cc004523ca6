"""Runs of lab 7 that never ran: written by what writes runs, with times that a test chooses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pillarbox import topos
from pillarbox.experiments.models.workloads.flows import COMPLETED, FlowResult
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.trials.experiment_run import run
from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder
from pillarbox.experiments.runs.trust.readings import Readings
from tests.experiments.runs.seen import SEEN


def write_run(
    folder: Path,
    values: dict[str, Any],
    rate_mbit: float,
    volume_bytes: int,
    took_s: dict[str, float],
    *,
    idle: float = 0.5,
) -> Path:
    """Write the run of a sheet's experiment; without idle processors it is not valid."""
    systems = [
        System(network, routing=routing, timers="paper", mtu=1500, rate_mbit=rate_mbit)
        for network, routing in ((values["network"], values["routing"]), (values["tree"], ""))
    ]
    workload = Workload("all-to-all", volume_bytes, tool="generator")

    def measured(order: TrialOrder, _: Any, log: Path) -> TrialMeasurements:
        log.touch()
        network = order.trial.system.network
        end_s = took_s[network]
        results = tuple(
            FlowResult(flow, "fake", COMPLETED, "", 0.0, end_s, volume_bytes, 0, 1)
            for flow in order.flows
        )
        return TrialMeasurements(
            routing=order.trial.system.routing or "bridge",
            plane="ebpf",
            tool="generator",
            tool_versions={},
            began={"wall": "2026-03-01T10:15:00+00:00", "monotonic_s": 5.0},
            results=results,
            paths=tuple(() for _ in results),
            back=tuple(() for _ in results),
            events=(),
            readings=replace(readings(network, rate_mbit, volume_bytes, end_s), idle=idle),
            lab={},
        )

    plan = Experiment("mine", "", tuple(systems), workload, repeats=1)
    return run(plan, folder, measure=measured).folder


def readings(spec: str, rate_mbit: float, volume_bytes: int, end_s: float) -> Readings:
    """Return what a quiet machine would have read; each cable carries as much as any other."""
    network = topos.parse(spec)
    name = [*map(network.address, range(network.servers))]
    name += [network.node_name(node) for node in range(network.servers, network.nodes)]
    ends = [(c.a, c.a_port, c.b) for c in network.links()]
    ends += [(c.b, c.b_port, c.a) for c in network.links()]
    pairs = network.servers * (network.servers - 1)
    cables = {"bcube": 3, "tree": 3.5}[network.kind]  # of a flow, on average
    sent = int(volume_bytes * pairs * cables / len(ends))
    row = {"rate_bps": rate_mbit * 1e6, "sent_bytes": sent, "dropped_packets": 0}
    row |= {"busy_share": 0.9, "conserved": 0.99}
    return replace(
        SEEN,
        duration_s=end_s,
        rate_bps=rate_mbit * 1e6,
        links=[{"from": name[a], "port": port, "to": name[b], **row} for a, port, b in ends],
    )


def model_runs(folder: Path, values: dict[str, Any]) -> Path:
    """Write both runs whose figures the model answer of student s0 holds."""
    network, tree = values["network"], values["tree"]
    write_run(folder / "first", values, 10.0, values["volume_bytes"], {network: 10.5, tree: 31.5})
    took_s = {network: 2.06, tree: 3.23}
    write_run(folder / "second", values, 1000.0, 20_000_000, took_s, idle=0.0)
    return folder
