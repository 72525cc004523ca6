"""Simulations of arriving flows by several models, and the tables of their slowdowns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from pillarbox.experiments.base.processes import peak_mib
from pillarbox.experiments.base.text import paragraphs, records
from pillarbox.experiments.models.arrivals.arrival_request import ArrivalRequest
from pillarbox.experiments.models.arrivals.simulated_arrivals import (
    ArrivalSimulation,
    simulate,
    slowdown_rows_by_size,
)
from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters
from pillarbox.experiments.models.packets.tail_estimates import (
    estimate_tails,
    simulate_samples,
)
from pillarbox.experiments.models.packets.tcp_arrivals import simulate_by_tcp
from pillarbox.experiments.models.workloads.arrivals import Arrivals, Window
from pillarbox.topos.base.topology import Topology

FLUID, ESTIMATE = "fluid", "estimate"
FEW_SAMPLES = 5_000  # number of sampled flows below which tails are not reliable
FULL = 1.0  # offered load, relative to its capacity, from which a link is overloaded


class SimulatedNetwork(NamedTuple):
    """A network, the paths of its flows, and TCP's parameters."""

    topology: Topology
    routing: str
    choice: str
    seed: int
    cable_bps: float  # goodput of a cable
    tcp: TcpParameters


class SmallerNetwork(NamedTuple):
    """A network whose packet simulations show what packets add to the fluid model."""

    request: ArrivalRequest
    load: float
    flows: int  # number of flows in a simulation
    tcp: TcpParameters
    most_events: float


def arrival_results(
    network: SimulatedNetwork,
    flows: tuple[Arrivals, Window],
    *,
    by_tcp: bool = False,
    smaller: SmallerNetwork | None = None,
) -> Iterator[tuple[dict[str, Any], ArrivalSimulation]]:
    """Simulate arriving flows as fluids and by the other models; yield the results of each.

    Results are a summary for the tables, and the simulated flows.
    """
    topology, routing, choice, seed, cable_bps, tcp = network
    samples, samples_s = None, 0.0
    if smaller is not None:  # first, because it may be refused
        began = time.perf_counter()
        samples = simulate_samples(
            smaller.request,
            smaller.load,
            smaller.flows,
            smaller.tcp,
            most_samples=max(FEW_SAMPLES, len(flows[0].start_s)),
            most_events=smaller.most_events,
            choice=choice,
        )
        samples_s = time.perf_counter() - began
    began = time.perf_counter()
    fluid = simulate(
        topology,
        routing,
        *flows,
        cable_bps,
        choice=choice,
        seed=seed,
        records_limits=samples is not None,
    )
    yield _result_row(FLUID, fluid, began), fluid
    if by_tcp:
        began = time.perf_counter()
        by_packets = simulate_by_tcp(topology, fluid, routing, tcp, seed)
        yield _result_row(transport_name(tcp), by_packets, began), by_packets
    if smaller is not None and samples is not None:
        began = time.perf_counter() - samples_s
        found = estimate_tails(topology, fluid, tcp, samples, seed)
        of_fluids = ("carried", "active_before", "active_after")
        row = _result_row(ESTIMATE, found, began) | {
            "loads": found.loads._asdict() | dict.fromkeys(of_fluids),
            "most_active": None,
            "smaller": smaller.request.topology.spec,
            "packet_simulations": samples.simulations,
            "samples": len(samples.excess_s),
        }
        yield row, found


def transport_name(tcp: TcpParameters) -> str:
    """Return the transport protocol's name in tables."""
    return "MPTCP" if tcp.subflows else "TCP"


def _result_row(kind: str, found: ArrivalSimulation, began: float) -> dict[str, Any]:
    took_s = time.perf_counter() - began
    counted = found.counts
    return {
        "of": kind,
        "flows": len(counted),
        "counted": int(counted.sum()),
        "slowdown": slowdown_rows_by_size(
            found.arrivals.volume_bytes[counted], found.slowdown[counted]
        ),
        "loads": found.loads._asdict(),
        "simulated_s": float(found.arrivals.start_s.max(initial=0.0)),
        "events": found.course.events,
        "most_active": found.course.most_active,
        "took_s": round(took_s, 3),
        "peak_mib": round(peak_mib()),
    }


def results_text(found: list[dict[str, Any]]) -> str:
    """Return the table of slowdowns of all simulations, with a paragraph about each."""
    rows, notes = [], []
    are_several = any(one["of"] != FLUID for one in found)
    for one in found:
        kind = {"of": one["of"]} if are_several else {}
        rows += [{"load": one["load"], **kind, **row} for row in one["slowdown"]]
        loads, named = one["loads"], "" if one["load"] is None else f"Load {one['load']:g}"
        named = ", ".join(filter(None, (named, *kind.values())))
        named = f"{named}: " if named else ""
        if "smaller" in one:
            count = one["packet_simulations"]
            notes.append(
                f"{named}packets were simulated in {one['smaller']}, {count:,} "
                f"time{'s' * (count != 1)} ({one['events']:,} events); estimates are drawn from "
                f"{one['samples']:,} flows. Simulated in {one['took_s']:.1f} s, "
                f"{one['peak_mib']:,} MiB."
            )
            if one["samples"] < FEW_SAMPLES:
                notes.append(
                    f"Tails estimated from fewer than {FEW_SAMPLES:,} flows are not reliable: use "
                    "a smaller network, more --events, or --tcp."
                )
            continue
        notes.append(
            f"{named}offered load {loads['offered']:.3f} of all cables (carried: "
            f"{loads['carried']:.3f}), {loads['busiest']:.2f} of the busiest link, "
            f"{loads['servers']:.3f} of the servers' ports. {one['flows']:,} flows "
            f"({one['counted']:,} evaluated) in {one['simulated_s']:.3g} s, at most "
            f"{one['most_active']:,} simultaneously. Drawn in {one['drawn_s']:.1f} s, simulated "
            f"in {one['took_s']:.1f} s, {one['peak_mib']:,} MiB."
        )
        if loads["busiest"] >= FULL:
            notes.append(
                "The busiest link is overloaded: its backlog grows while flows arrive, so "
                "slowdowns depend on the duration."
            )
    return f"{records(rows)}\n\n{paragraphs(notes)}"
