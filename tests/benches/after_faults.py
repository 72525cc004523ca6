"""New flows after a single fault: lost pings, in every network and plane."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from pillarbox.experiments.lab.linux.measurement import in_child
from pillarbox.experiments.runs.plans.fault_schedule import fault_targets
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.fault_kinds import FAULT_KINDS, RACK
from pillarbox.hosts.base.faults import Fault
from pillarbox.hosts.base.shortest import shortest_path
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology
from tests.benches._frame import Row
from tests.benches._labs import hindrance, sandboxed
from tests.benches.failover import LOAD_MBIT, LOAD_MTU, RATE_MBIT, Load

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

NETWORKS = ("dpillar,4,2", "dcell,4,1", "bcube,4,1", "ficonn,4,1")
PLANES = ("ebpf", "python")
KINDS = tuple(kind.name for kind in FAULT_KINDS if kind.breaks and kind.target != RACK)
ROUNDS = 3  # rounds of pings between all server pairs during each fault
# Time for all servers to detect a fault, with a margin for a busy machine, in seconds.
NOTICED_S = {"fast": 4.0, "paper": 7.5}
BETWEEN_S = 2.0  # pause between two rounds of pings, in seconds
FAULTS_OF_A_KIND, QUICK_FAULTS = 4, 1
TIME_LIMIT_S = 900.0
NOTES = f"""
Single faults. {NOTICED_S["fast"]:g} s after a fault ({NOTICED_S["paper"]:g} s with paper timers,
which detect silence after 5 s), every live server pings every other server, {ROUNDS} times,
{BETWEEN_S:g} s apart. Each ping is a new flow. {FAULTS_OF_A_KIND} faults of each kind are drawn.
pairs: connected pairs of servers, over all faults of the kind. no_path: pairs for which the routing
has no path in one of the directions. lost_1, lost_2, lost_3: unanswered pings between the other
pairs, by round. beside: background load: none, or all-to-all traffic at a rate that keeps the
processors busy (see `bench failover`).
"""


class FaultCase(NamedTuple):
    """Case of the fault benchmark: lab settings, and number of faults of each kind."""

    network: str
    plane: str
    timers: str
    loaded: bool
    faults: int


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each kind of fault in each network, on each plane."""
    for case in _cases(quick):
        why = hindrance(case.plane)
        found: dict[str, Row] = {kind: {"outcome": f"skipped: {why}"} for kind in KINDS}
        if not why:
            result = in_child(loss_rows_by_fault_kind, *case, time_limit_s=TIME_LIMIT_S)
            failed: Row = {"outcome": f"failed: {result.failure}"}
            found = result.value or dict.fromkeys(KINDS, failed)
        for kind in KINDS:
            row: Row = {"network": case.network, "routing": "", "plane": case.plane}
            row |= {"timers": case.timers, "beside": "all-to-all" if case.loaded else "nothing"}
            row |= {"fault": kind, "pairs": None, "no_path": None}
            row |= {f"lost_{round_ + 1}": None for round_ in range(ROUNDS)}
            yield row | found[kind]


def _cases(quick: bool) -> Iterator[FaultCase]:
    if quick:
        yield FaultCase("dpillar,4,2", PLANES[0], "fast", loaded=False, faults=QUICK_FAULTS)
        return
    for network in NETWORKS:
        for plane in PLANES:
            for timers in NOTICED_S:
                yield FaultCase(network, plane, timers, loaded=False, faults=FAULTS_OF_A_KIND)
            yield FaultCase(network, plane, "fast", loaded=True, faults=FAULTS_OF_A_KIND)


def loss_rows_by_fault_kind(
    network: str, plane: str, timers: str, loaded: bool, faults: int
) -> dict[str, Row]:
    """Inject faults into a lab in a sandbox; return the pings lost by kind of fault."""
    topology = parse(network)
    with sandboxed(
        topology,
        plane=plane,
        timers=timers,
        rate_mbit=LOAD_MBIT[plane] if loaded else RATE_MBIT,
        mtu=LOAD_MTU if loaded else 1500,
    ) as lab:
        load = Load(lab, (0, topology.servers - 1)) if loaded else None
        with load.running() if load else nullcontext():
            return {
                kind: {"routing": lab.routing} | _fault_row(lab, kind, faults) for kind in KINDS
            }


def _fault_row(lab: Lab, kind: str, most: int) -> Row:
    every = faults_of(lab.topology, kind)
    if not every:
        return {"outcome": "skipped: the network has none"}
    lost, pairs, no_path = [0] * ROUNDS, 0, 0
    for fault in random.Random(kind).sample(every, min(most, len(every))):
        found = ping_losses_of_fault(lab, fault)
        pairs += found.pairs
        no_path += found.no_path
        lost = [so_far + more for so_far, more in zip(lost, found.lost, strict=True)]
    row: Row = {"pairs": pairs, "no_path": no_path}
    row |= {f"lost_{round_ + 1}": number for round_, number in enumerate(lost)}
    return row | {"outcome": "missed" if any(lost) else "met"}


def faults_of(topology: Topology, kind: str) -> list[Fault]:
    """Return all single faults of a kind in a network."""
    return [
        Fault(kind, tuple(map(topology.name, nodes))) for nodes in fault_targets(topology, kind)
    ]


class FaultLosses(NamedTuple):
    """Effect of a fault: connected pairs, pairs without a path, and lost pings per round."""

    pairs: int
    no_path: int
    lost: list[int]


def ping_losses_of_fault(lab: Lab, fault: Fault) -> FaultLosses:
    """Inject a fault, ping all pairs in rounds, repair it, and return the losses."""
    from pillarbox.experiments.runs.control.queries import pingall
    from pillarbox.experiments.runs.trials.trial_faults import begun

    lab.wait_converged()
    repair = begun(lab, fault)
    connected, with_path = _connected_pairs(lab)
    time.sleep(NOTICED_S[lab.settings.timers])
    lost = []
    for round_ in range(ROUNDS):
        if round_:
            time.sleep(BETWEEN_S)
        answered = pingall(lab)["ms"]
        lost.append(sum(answered[lab.name(a)][lab.name(b)] is None for a, b in with_path))
    repair()
    return FaultLosses(len(connected), len(connected) - len(with_path), lost)


def _connected_pairs(lab: Lab) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return server pairs still joined by cables, and those for which the routing has a path."""
    topology, failures = lab.topology, lab.failures()
    alive = [server for server in range(topology.servers) if server not in failures.nodes]
    pairs = [(a, b) for a in alive for b in alive if a != b]
    connected = [pair for pair in pairs if shortest_path(topology, *pair, failures)]
    routed = {pair for pair in pairs if route(topology, lab.routing, *pair, failures).paths}
    return connected, [(a, b) for a, b in connected if {(a, b), (b, a)} <= routed]
