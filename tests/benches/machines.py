"""A network over several machines: goodput, fault detection, start time, and verdicts."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.lab.linux.measurement import BenchmarkCaseResult, in_child
from pillarbox.topos.base.spec import parse
from tests.benches._frame import Row

if TYPE_CHECKING:
    pass

SPEC, MACHINES = "bcube,4,1", 2
SIZES = [("dcell,4,2", machines) for machines in (1, 2, 4)]
RATES: tuple[float | None, ...] = (10.0, 100.0, 1000.0, None)
MTUS = 1500, 9000
SECONDS, QUICK_SECONDS, CUTS = 4.0, 1.0, 5
SOAKED, SOAK_S, QUICK_SOAK_S = "dcell,4,1", 300.0, 10.0
FLOWS, FLOW_S = 5, 2.0  # flows within and between machines, and their duration in seconds
GENERATOR, IPERF3 = "generator", "iperf3"  # programs that send the flows
CARDS = {"segment tunnels": True, "do not": False}
TURNS = 10
QUIET, SATURATED, PUSHED = "unchanged", "a card too slow", "a shifted clock"
RATE_MBIT, CARD_MBIT, PUSH_S = 10.0, 20.0, 0.005
SIGNS = {SATURATED: ("card", "tunnels"), PUSHED: ("the clock of machine 1",)}
# Goodput goal between machines, as a fraction of a local cable, and its MTU.
LEAST_SHARE, SHARED_MTU = 0.5, 9000
LIMIT_S = 600.0
NOTES = f"""
All machines are on one computer, so the bench measures the overhead of Pillarbox and no
real network. Goodput: of one TCP connection for {FLOW_S:.0f} s between two servers of {SPEC} on the
same switch, on one machine and on two of {MACHINES}, in turns, the median of {FLOWS} (goal:
{LEAST_SHARE} of the local cable's goodput, without a rate limit at an MTU of {SHARED_MTU}); cards
segment packets in tunnels, or do not. sender: iperf3 has a process for each end, the generator has
a process on each machine: within a machine both ends are in one process, which saves wake-ups.
Cuts: time until the first adjacent server detects a cut, the median of {CUTS}. Trust: each server
sends to one other at {RATE_MBIT:.0f} Mbit/s, {TURNS} turns of each case: unchanged; with a card
limited to {CARD_MBIT:.0f} Mbit/s, less than its crossing cables; with a clock shifted by
{PUSH_S * 1e3:.0f} ms while flows are sent. as_wanted: number of turns that were valid, or invalid
for exactly the expected reason; mistaken: number of turns with a reason of another case. The last
row is {SOAK_S:.0f} s of `bench soak`, of {SOAKED} over {MACHINES} machines, with its columns.
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield rows on a lab over several machines: goodput, cable cuts, start times, verdicts."""
    if os.geteuid() or not (find_spec("distributed") and find_spec("cryptography")):
        yield {"case": "all", "outcome": "skipped: root, Dask and cryptography are needed"}
        return
    if not quick:
        for rate_mbit, mtu, cards in product(RATES, MTUS, CARDS):
            yield _goodput(rate_mbit, mtu, cards, GENERATOR)
        yield from (_goodput(None, mtu, cards, IPERF3) for mtu, cards in product(MTUS, CARDS))
        yield from _cut_rows()
        yield from (_start_row(*size) for size in SIZES)
    yield from _verdict_rows(1 if quick else TURNS, QUICK_SECONDS if quick else SECONDS, quick)
    yield _soak_row(QUICK_SOAK_S if quick else SOAK_S)


def _in_child(function: Callable[..., Any], *arguments: Any) -> BenchmarkCaseResult:
    return in_child(function, *arguments, time_limit_s=LIMIT_S)


@contextmanager
def lab_on_machines(
    spec: str, machines: int, cuts_tunnels: bool = True, **how: Any
) -> Iterator[Any]:
    """Yield a lab in a new sandbox, on one machine or on several."""
    from pillarbox.experiments.apps.cluster.cluster_fabric import ClusterFabric
    from pillarbox.experiments.apps.cluster.local_machines import OneComputer
    from pillarbox.experiments.lab.emulation import lab_registry
    from pillarbox.experiments.lab.emulation.lab import Fabric, Lab
    from pillarbox.experiments.lab.emulation.local_fabric import LocalFabric
    from pillarbox.experiments.lab.linux import sandbox
    from pillarbox.hosts.live.settings import LabSettings

    place = lab_registry.create_lab_folder()
    sandbox.enter()
    settings, topology = LabSettings(**how), parse(spec)
    fabric: Fabric = LocalFabric()
    if machines > 1:
        fabric = ClusterFabric(ground=OneComputer(machines, cuts_tunnels=cuts_tunnels))
    try:
        with Lab(topology, settings, place.folder, fabric=fabric) as lab:
            yield lab
    finally:
        lab_registry.remove_lab_folder(place)


# -- goodput -----------------------------------------------------------------------------------


def _goodput(rate_mbit: float | None, mtu: int, cards: str, sender: str) -> Row:
    result = _in_child(goodput_mbit, rate_mbit, mtu, CARDS[cards], sender)
    row: Row = {"rate_mbit": rate_mbit, "mtu": mtu, "cards": cards, "sender": sender}
    within, across = result.value if result.value else (None, None)
    row |= {"within_mbit": within, "across_mbit": across, "share": None}
    if result.failure or not within or across is None:
        return row | {"outcome": f"failed: {result.failure or 'nothing arrived'}"}
    share = row["share"] = across / within
    judged = rate_mbit is None and mtu == SHARED_MTU and CARDS[cards]
    missed = judged and share < LEAST_SHARE
    return row | {"outcome": f"missed: {LEAST_SHARE} wanted" if missed else "ok"}


def goodput_mbit(
    rate_mbit: float | None, mtu: int, cuts_tunnels: bool, sender: str
) -> tuple[float, ...]:
    """Return the goodput of connections within a machine and between machines, in Mbit/s."""
    with lab_on_machines(SPEC, MACHINES, cuts_tunnels, rate_mbit=rate_mbit, mtu=mtu) as lab:
        lab.wait_converged()
        ends = _neighbours(lab)
        turns = [[_one_flow(lab, to, FLOW_S, sender) for to in ends] for _ in range(FLOWS)]
    return tuple(map(statistics.median, zip(*turns, strict=True)))


def _neighbours(lab: Any) -> tuple[int, int]:
    """Return two neighbours of server 0, on its own machine and on another one."""
    beside = [peer for port in range(lab.topology.ports) for peer in lab.topology.peers(0, port)]
    away = [lab.fabric.machine_of(peer) != lab.fabric.machine_of(0) for peer in beside]
    return beside[away.index(False)], beside[away.index(True)]


def _one_flow(lab: Any, destination: int, seconds: float, sender: str) -> float:
    from pillarbox.experiments.apps.cluster.distributed_sending import Generators
    from pillarbox.experiments.lab.traffic.tools import tool_for
    from pillarbox.experiments.models.workloads.flows import Flow, Sending

    flows = [Flow(0, 0, destination, duration_s=seconds)]
    if sender == GENERATOR:
        tool: Any = Generators(lab.fabric, flows, Sending())
    else:
        tool = tool_for(sender, lab, flows, Sending())
    try:
        tool.prepare()
        tool.start(time.monotonic() + lab.fabric.trial_backend.lead_s)
        while not tool.ended():
            time.sleep(0.05)
        return (tool.results()[0].goodput_bps or 0.0) / 1e6
    finally:
        tool.close()


# -- cuts, and bringing up ---------------------------------------------------------------------


def _cut_rows() -> Iterator[Row]:
    result = _in_child(cut_detection_ms)
    for kind, where in product(("cut", "silent cut"), ("within", "across")):
        row: Row = {"fault": kind, "cable": where, "detected_ms": None}
        if result.failure:
            yield row | {"outcome": f"failed: {result.failure}"}
        else:
            yield row | {"detected_ms": result.value[f"{kind} {where}"], "outcome": "ok"}


def cut_detection_ms() -> dict[str, float | None]:
    """Return the detection times of cuts in milliseconds, by kind and cable."""
    from pillarbox.experiments.runs.trials.trial_faults import FaultInjector
    from pillarbox.hosts.base.faults import Fault

    found: dict[str, float | None] = {}
    with lab_on_machines(SPEC, MACHINES) as lab:
        lab.wait_converged()
        cables = [(cable.a, cable.b) for cable in lab.topology.links()]
        apart = [lab.fabric.machine_of(a) != lab.fabric.machine_of(b) for a, b in cables]
        for kind, across in product(("cut", "silent cut"), (False, True)):
            times = []
            ends = tuple(map(lab.name, cables[apart.index(across)]))
            for _ in range(CUTS):
                faulting = FaultInjector(lab, [Fault(kind, ends, 0.1, None)])
                begin_s = time.monotonic()
                faulting.begin(begin_s)
                time.sleep(1.5)
                times += [row["detected_s"] for row in faulting.end() if row["detected_s"]]
                lab.wait_converged()
            middle = statistics.median(times) * 1e3 if times else None
            found[f"{kind} {'across' if across else 'within'}"] = middle
    return found


def _start_row(spec: str, machines: int) -> Row:
    result = _in_child(start_times_s, spec, machines)
    row: Row = {"network": spec, "machines": machines}
    up_s, converged_s = result.value if result.value else (None, None)
    row |= {"up_s": up_s, "converged_s": converged_s}
    return row | {"outcome": f"failed: {result.failure}" if result.failure else "ok"}


def start_times_s(spec: str, machines: int) -> tuple[float, float]:
    """Return the start time of a lab, and the time until all servers have found their peers."""
    began_s = time.monotonic()
    with lab_on_machines(spec, machines) as lab:
        up_s = time.monotonic()
        lab.wait_converged()
        return up_s - began_s, time.monotonic() - up_s


def _soak_row(length_s: float) -> Row:
    result = _in_child(soak_columns, length_s)
    row: Row = {"network": SOAKED, "machines": MACHINES}
    if result.failure:
        return row | {"outcome": f"failed: {result.failure}"}
    found: Row = result.value
    return row | found


def soak_columns(length_s: float) -> Row:
    """Run the soak test in a lab over several machines; return the benchmark columns."""
    from tests.benches.soak import SEED, Soak

    with lab_on_machines(SOAKED, MACHINES) as lab:
        lab.wait_converged()
        soak = Soak(lab, Random(SEED))
        try:
            row: Row = soak.run(length_s)
        finally:
            soak.traffic.close()
    return row


# -- trust -------------------------------------------------------------------------------------


def _verdict_rows(turns: int, seconds: float, quick: bool) -> Iterator[Row]:
    result = _in_child(trial_verdict_counts, turns, seconds)
    for case in (QUIET, SATURATED, PUSHED):
        row: Row = {"case": case, "as_wanted": None, "mistaken": None, "first_reason": None}
        if result.failure:
            yield row | {"outcome": f"failed: {result.failure}"}
            continue
        good, mistaken, first = result.value[case]
        # A quick benchmark, perhaps on a busy machine, reports wrong verdicts but does not fail.
        fine = not mistaken and (good == turns or (quick and case == QUIET))
        row |= {"as_wanted": f"{good} of {turns}", "mistaken": mistaken, "first_reason": first}
        yield row | {"outcome": "ok" if fine else "missed"}


def trial_verdict_counts(turns: int, seconds: float) -> dict[str, tuple[int, int, str]]:
    """Return by disturbance the number of right and wrong trial verdicts, and the first reason."""
    found = dict.fromkeys((QUIET, SATURATED, PUSHED), (0, 0, ""))
    with lab_on_machines(SPEC, MACHINES, rate_mbit=RATE_MBIT) as lab:
        lab.wait_converged()
        for turn, case in product(range(turns), found):
            reasons = _reasons_under_disturbance(lab, case, seconds, turn)
            own = _expected_reasons(reasons, case)
            mistaken = any(_expected_reasons(reasons, other) for other in SIGNS if other != case)
            right = bool(own) if case in SIGNS else not reasons
            so_far, wrong, first = found[case]
            first = first or next(iter(own or reasons), "")
            found[case] = so_far + right, wrong + mistaken, first
    return found


def _expected_reasons(reasons: tuple[str, ...], case: str) -> list[str]:
    """Return the reasons of an invalid trial that a disturbance is expected to cause."""
    return [one for one in reasons if any(sign in one for sign in SIGNS.get(case, ()))]


def _reasons_under_disturbance(lab: Any, case: str, seconds: float, seed: int) -> tuple[str, ...]:
    """Run a trial under a disturbance; return the verdict's reasons against the trial."""
    from pillarbox.experiments.apps.cluster.local_machines import CARD
    from pillarbox.experiments.lab.linux import shaping
    from pillarbox.experiments.models.workloads.workload import Workload
    from pillarbox.experiments.runs.plans.experiment import Experiment, System
    from pillarbox.experiments.runs.plans.trials import Trial
    from pillarbox.experiments.runs.trials.experiment_run import order_of
    from pillarbox.experiments.runs.trials.outcome import outcome
    from pillarbox.experiments.runs.trials.trial_worker import measured_in

    system = System(SPEC, machines=MACHINES, **lab.settings.plain())
    workload = Workload(pattern="permutation", duration_s=seconds)
    order = order_of(Experiment("trust", "", (system,), workload), Trial(0, system, 0, seed))
    kernel = lab.fabric.ground.computer.namespaces[1].netlink
    [card] = (link.ifindex for link in kernel.links() if link.name == CARD)
    clock = lab.fabric.clocks.clocks[1]

    def push(message: tuple[Any, ...]) -> None:
        if case == PUSHED and message == ("phase", "sending"):
            clock.now = lambda: time.monotonic() - PUSH_S

    if case == SATURATED:
        kernel.send(shaping.limited(card, CARD_MBIT, None))
    try:
        record = outcome(order, measured_in(lab, order, push)).record
        return tuple(record["verdict"]["reasons"])
    finally:
        clock.now = time.monotonic
        if case == SATURATED:
            kernel.send(shaping.unlimited(card))
