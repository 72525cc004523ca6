"""TCP through a failure: the longest gap without bytes, in every network and plane."""

from __future__ import annotations

import os
import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from itertools import islice, permutations
from typing import TYPE_CHECKING, NamedTuple

from pillarbox.experiments.lab.linux.measurement import in_child
from pillarbox.experiments.models.workloads.flows import COMPLETED, Flow, FlowResult, Sending
from pillarbox.experiments.runs.plans.fault_schedule import failures_of
from pillarbox.hosts.base.algorithms import SHORTEST, algorithms, route
from pillarbox.hosts.base.faults import Fault
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.live.devices import APPLICATION_INTERFACE
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology
from tests.benches._frame import Row
from tests.benches._labs import hindrance, sandboxed

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

NETWORKS = ("dpillar,4,2", "dcell,4,1", "bcube,4,1", "ficonn,4,1")
PLANES = ("ebpf", "python")
PAPER_NETWORKS = ("dcell,4,1", "bcube,4,1")
RATE_MBIT = 100.0
CONTROL = "reno"  # TCP congestion control that every kernel has
INTERVAL_S = 0.005  # interval of the byte counts, the resolution of a gap, in seconds
# TCP's window stays below a port's queue size. So only the fault loses packets, and TCP is not
# recovering from congestion losses when the fault occurs.
RECEIVE_BUFFER = 1 << 17
RTO_MIN = "50ms"
PAIRS = 64  # number of server pairs searched for a path that allows every fault
WARM_UP_S = 0.4
WINDOW_S = 0.1  # interval between two readings of a port's counter, in seconds
END_S = 10.0  # timeout for the TCP flow to end after the request, in seconds
TIME_LIMIT_S = 400.0
TURNS = {"fast": 3, "paper": 1}
# Background load: all-to-all traffic that keeps the processors busy for LOAD_BUSY of their time.
# Cables are fast enough that this takes less than half of each flow's share, at most MOST_OF_SHARE.
# The rest is spare capacity for the flows of a failed cable.
LOAD_BUSY, MOST_OF_SHARE = 0.8, 0.4
LOAD_MBIT, LOAD_MTU = {"ebpf": 20_000.0, "python": 1_000.0}, 9000
# Load calibration: first share of a flow's rate, number of tries, and their duration.
FIRST_OF_SHARE, TRIES, TRY_S = 0.02, 6, 0.6
LATEST = 4  # CPU load samples to average: a single sample may be off by a third
NO_TIME = 0.01  # minimum measured CPU load from which a flow rate is extrapolated
MORE_UNDER_LOAD_S = 0.1  # added to the goal for a flow's longest gap under load, in seconds

CUT, FAR_CUT, SILENT = "cut at the source", "cut at a relay", "silent cut"
SERVER, SWITCH = "server death", "switch death"
FAULTS = (CUT, FAR_CUT, SILENT, SERVER, SWITCH)
PAPER_FAULTS = (FAR_CUT, SERVER)


class FailoverTimes(NamedTuple):
    """Upper bounds for a TCP flow's gap after each kind of fault, and waiting times, in seconds."""

    goals: dict[str, float]
    broken_s: float  # time from a fault to its repair
    return_s: float  # timeout for the flow's return to its original path


PACES = {
    "fast": FailoverTimes(
        {CUT: 0.1, FAR_CUT: 0.1, SILENT: 0.3, SERVER: 0.3, SWITCH: 0.3}, 1.2, 2.5
    ),
    # A neighbour is down after 5 s without heartbeats. TCP's next try is the fifth, after 6.2 s
    # plus the round trips that TCP adds to each try.
    "paper": FailoverTimes({FAR_CUT: 1.0, SERVER: 7.0}, 9.0, 15.0),
}
NOTES = f"""
One TCP connection (Reno, {RATE_MBIT:.0f} Mbit/s) over one or more relays, and a fault on its path,
in {TURNS["fast"]} turns. gap_s: the longest period without a byte at the receiver between the fault
and its repair, measured to {INTERVAL_S * 1e3:.0f} ms, the median of the turns; worst_s: the
maximum; repair_gap_s: the longest period after the repair; return_s: time from the repair until the
flow uses the repaired path again (a dash: not during the observation). A relay with a cut cable is
not the sender. Only heartbeats reveal a silent cut, the death of a server and, if the server at the
cable's end reports nothing, a cut on the far side of a switch.
beside: background load: none, or all-to-all traffic at the rate that keeps the processors busy for
{LOAD_BUSY:.0%} of their time, but at most {MOST_OF_SHARE:.0%} of each flow's share of the cables.
These cables have {LOAD_MBIT["ebpf"] / 1e3:g} Gbit/s ({LOAD_MBIT["python"] / 1e3:g} on the Python
plane) and an MTU of {LOAD_MTU}. The goals under load are {MORE_UNDER_LOAD_S:g} s longer.
busy_percent: load of all processors before the fault.
With fast timers the routes of both ends set TCP's minimum retransmission timeout to {RTO_MIN} (ip
route ... rto_min), as data centers do: Linux's 200 ms alone would exceed the network's reaction
time. The timeout doubles with each try, and a gap ends with a try. The papers' timers declare a
neighbour dead after 5 s (Guo 2008, section 7.1). TCP has its default settings there: its tries 3.0
and 6.2 s after the fault are the last one before and the first one after this time.
"""


class FailoverCase(NamedTuple):
    """Case of the failover benchmark: lab settings, faults to inject and number of repeats."""

    network: str
    plane: str
    timers: str
    loaded: bool
    faults: Sequence[str]
    turns: int

    def goal_s(self, fault: str) -> float:
        """Return the goal for the longest gap in a flow after a fault, in seconds."""
        return PACES[self.timers].goals[fault] + (MORE_UNDER_LOAD_S if self.loaded else 0.0)


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each fault in each network, on each plane."""
    for case in _quick_cases() if quick else _cases():
        why = hindrance(case.plane)
        found: dict[str, Row] = {fault: {"outcome": f"skipped: {why}"} for fault in case.faults}
        if not why:
            result = in_child(flow_gaps_by_fault, *case, time_limit_s=TIME_LIMIT_S)
            failed: Row = {"outcome": f"failed: {result.failure}"}
            found = result.value or dict.fromkeys(case.faults, failed)
        for fault in case.faults:
            row: Row = {"network": case.network, "routing": "", "plane": case.plane}
            row |= {"timers": case.timers, "beside": "all-to-all" if case.loaded else "nothing"}
            row |= {"fault": fault, "gap_s": None, "worst_s": None, "goal_s": case.goal_s(fault)}
            row |= {"repair_gap_s": None, "return_s": None, "busy_percent": None}
            yield row | found[fault]


def _quick_cases() -> Iterator[FailoverCase]:
    for plane in PLANES:
        yield FailoverCase("dcell,4,1", plane, "fast", False, (FAR_CUT,), 1)
    yield FailoverCase("dcell,4,1", PLANES[0], "fast", True, (FAR_CUT,), 1)


def _cases() -> Iterator[FailoverCase]:
    for loaded in (False, True):
        for network in NETWORKS:
            for plane in PLANES:
                yield FailoverCase(network, plane, "fast", loaded, FAULTS, TURNS["fast"])
    for network in PAPER_NETWORKS:
        yield FailoverCase(network, PLANES[-1], "paper", False, PAPER_FAULTS, TURNS["paper"])


def flow_gaps_by_fault(
    network: str, plane: str, timers: str, loaded: bool, faults: Sequence[str], turns: int
) -> dict[str, Row]:
    """Inject faults into a lab in a sandbox; return the gaps in a TCP flow by fault."""
    from pillarbox.experiments.lab.linux.namespaces import write_sysctl

    topology, case = parse(network), FailoverCase(network, plane, timers, loaded, faults, turns)
    found: dict[str, list[FaultEffect]] = {fault: [] for fault in faults}
    with sandboxed(
        topology,
        routing=_routing(topology, faults),
        plane=plane,
        timers=timers,
        rate_mbit=LOAD_MBIT[plane] if loaded else RATE_MBIT,
        mtu=LOAD_MTU if loaded else 1500,
    ) as lab:
        ends = _ends(topology, lab.routing, faults)
        for server, far in (ends, ends[::-1]):
            with lab.host(server).live_namespace():
                write_sysctl("net/ipv4/tcp_rmem", f"4096 {RECEIVE_BUFFER} {RECEIVE_BUFFER}")
            if timers == "fast":
                _set_rto_min(lab, server, far)
        load = Load(lab, ends) if loaded else None
        for _ in range(turns):
            for fault in faults:
                with load.running() if load else nullcontext():
                    found[fault].append(_measured_fault_effect(lab, ends, fault))
    return {
        fault: {"routing": lab.routing} | _fault_columns(each, case.goal_s(fault))
        for fault, each in found.items()
    }


class Load:
    """Background load: all-to-all traffic at a rate that keeps the processors busy.

    The CPU load is measured whenever the traffic runs, and the rate is adjusted.
    """

    def __init__(self, lab: Lab, ends: tuple[int, int]) -> None:
        from pillarbox.experiments.models.fluid.ideal import ideal

        self._lab = lab
        everyone = permutations(range(lab.topology.servers), 2)
        self._pairs = [pair for pair in everyone if pair != ends]
        rate_bps = LOAD_MBIT[lab.plane] * 1e6
        ideals = ideal(lab.topology, lab.routing, _flows(self._pairs), rate_bps, LOAD_MTU)
        self._share_bps = float(ideals.goodput_bps.min())
        self._flow_bps = FIRST_OF_SHARE * self._share_bps
        # Rate of each background flow in bit/s, and latest CPU loads.
        self._looks: deque[tuple[float, float]] = deque(maxlen=LATEST)
        for _ in range(TRIES):
            with self.running():
                pass

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send the background load for the duration of a `with` block."""
        from pillarbox.experiments.lab.traffic.generator import Generator
        from pillarbox.experiments.runs.trust.machine import between, machine

        sending = Sending(CONTROL, TIME_LIMIT_S, TIME_LIMIT_S, self._flow_bps)
        cpus = len(os.sched_getaffinity(0))  # number of traffic generator processes
        with ExitStack() as stack:
            tools = []
            for part in (self._pairs[first::cpus] for first in range(cpus)):
                tool = Generator(self._lab, _flows(part), sending)
                tools.append(stack.enter_context(closing(tool)))
                tool.prepare()
            for tool in tools:
                tool.start(time.monotonic())
            time.sleep(TRY_S)  # wait until all background flows have begun
            before = machine()
            time.sleep(TRY_S)
            self._adjust_rate(1.0 - between(before, machine()).idle)
            yield

    def _adjust_rate(self, busy: float) -> None:
        """Adjust the background flows' rate, so that the CPU load approaches LOAD_BUSY."""
        self._looks.append((self._flow_bps, max(busy, NO_TIME)))
        tried_bps, found = map(sum, zip(*self._looks, strict=True))
        self._flow_bps = min(MOST_OF_SHARE * self._share_bps, LOAD_BUSY * tried_bps / found)


def _flows(pairs: list[tuple[int, int]]) -> list[Flow]:
    return [Flow(number, *pair, duration_s=TIME_LIMIT_S) for number, pair in enumerate(pairs)]


def _set_rto_min(lab: Lab, server: int, far: int) -> None:
    """Set the minimum TCP retransmission timeout of a server's route to another to RTO_MIN."""
    target = lab.topology.ip(far)
    command = ["ip", "route", "add", target, "dev", APPLICATION_INTERFACE, "rto_min", RTO_MIN]
    if lab.host(server).popen(command).wait():
        raise PillarboxError(f"the server's IP route cannot be changed: {' '.join(command)} failed")


class FaultEffect(NamedTuple):
    """Measured effect of one fault on one TCP connection: gaps in its data, CPU load, loss."""

    gap_s: float = 0.0
    repair_gap_s: float = 0.0
    return_s: float | None = None
    busy: float = 0.0  # CPU load before the fault, as a fraction
    skipped: str = ""
    lost: str = ""  # reason why the TCP connection broke


def _measured_fault_effect(lab: Lab, ends: tuple[int, int], fault: str) -> FaultEffect:
    """Inject a fault on the path of a TCP flow, repair it, and return the effect on the flow."""
    from pillarbox.experiments.lab.traffic.generator import Generator
    from pillarbox.experiments.runs.trials.trial_faults import begun
    from pillarbox.experiments.runs.trust.machine import between, machine

    pace = PACES[lab.settings.timers]
    lab.wait_converged()
    most_s = WARM_UP_S + pace.broken_s + pace.return_s + END_S
    flow = Flow(0, *ends, duration_s=most_s)
    sending = Sending(CONTROL, INTERVAL_S, most_s + END_S, RATE_MBIT * 1e6)
    with closing(Generator(lab, [flow], sending)) as tool:
        tool.prepare()
        barrier_s = time.monotonic()
        tool.start(barrier_s)
        before = machine()
        time.sleep(WARM_UP_S)
        busy = 1.0 - between(before, machine()).idle
        scenario = path_faults(lab.topology, latest_flow_path(lab, *ends)).get(fault)
        if scenario is None:
            return FaultEffect(skipped="the path has no such element")
        failures = failures_of(lab.topology, scenario.fault)
        if not route(lab.topology, lab.routing, *ends, failures).paths:
            return FaultEffect(skipped="the routing has no path around it")
        usual = _bytes_in_window(lab, scenario)
        broken_s = time.monotonic()
        repair = begun(lab, scenario.fault)
        time.sleep(pace.broken_s)
        repaired_s = time.monotonic()
        repair()
        back_s = _return_time(lab, scenario, usual / 4, repaired_s + pace.return_s)
        end_s = time.monotonic()
        tool.finish()
        while not tool.ended():
            time.sleep(INTERVAL_S)
        (result,) = tool.results()
    gaps = [(barrier_s + begin, barrier_s + end) for begin, end in delivery_gaps(result)]
    return FaultEffect(
        _longest_gap(gaps, broken_s, repaired_s),
        _longest_gap(gaps, repaired_s, end_s),
        back_s - repaired_s if back_s else None,
        busy,
        lost=_why_lost(result),
    )


def delivery_gaps(result: FlowResult) -> list[tuple[float, float]]:
    """Return the periods in which no data of a flow arrived: begin and end in seconds."""
    gaps: list[tuple[float, float]] = []
    for one in result.intervals:
        if one.delivered_bytes:
            continue
        if gaps and gaps[-1][1] == one.begin_s:
            gaps[-1] = gaps[-1][0], one.end_s
        else:
            gaps.append((one.begin_s, one.end_s))
    return gaps


def _why_lost(result: FlowResult) -> str:
    """Return the reason why a TCP flow broke, empty if it completed."""
    if result.status != COMPLETED:
        return result.reason.removeprefix("its connection broke: ")
    begin_s, end_s = (delivery_gaps(result) or [(0.0, 0.0)])[-1]
    is_last = end_s == result.intervals[-1].end_s
    return "nothing arrived in its last second" if is_last and end_s - begin_s > 1.0 else ""


def _fault_columns(turns: list[FaultEffect], goal_s: float) -> Row:
    """Return the benchmark columns that summarize the repeats of one fault."""
    done = [turn for turn in turns if not turn.skipped]
    if not done:
        return {"outcome": f"skipped: {turns[0].skipped}"}
    gap_s = statistics.median(turn.gap_s for turn in done)
    returned = [turn.return_s for turn in done if turn.return_s is not None]
    row: Row = {"gap_s": gap_s, "worst_s": max(turn.gap_s for turn in done)}
    row["repair_gap_s"] = statistics.median(turn.repair_gap_s for turn in done)
    row["return_s"] = statistics.median(returned) if returned else None
    row["busy_percent"] = 100 * statistics.median(turn.busy for turn in done)
    lost = next((turn.lost for turn in done if turn.lost), "")
    if lost:
        return row | {"outcome": f"failed: the connection broke: {lost}"}
    return row | {"outcome": "ok" if gap_s <= goal_s else f"missed: {goal_s:g} s wanted"}


def _longest_gap(gaps: list[tuple[float, float]], start: float, end: float) -> float:
    """Return the duration of a flow's longest gap that overlaps a period, in seconds."""
    return max((b - a for a, b in gaps if b > start and a < end), default=0.0)


# -- faults on a path ------------------------------------------------------------------------------


class PathFault(NamedTuple):
    """A fault on a flow's path, and the port that carried the flow before."""

    fault: Fault
    server: int
    port: int


def path_faults(topology: Topology, path: Path) -> dict[str, PathFault]:
    """Return the faults that can be injected on a flow's path, by name."""
    first, *further = zip(path.servers, path.steps, strict=False)
    if not further:
        return {}
    relay, step = further[0]
    found = {
        CUT: _cable_fault(topology, "cut", *first),
        FAR_CUT: _cable_fault(topology, "cut", relay, step),
        SILENT: _cable_fault(topology, "silent cut", relay, step),
        SERVER: _path_fault(topology, "server", relay, step, relay),
    }
    for server, step in [first, *further]:
        node = topology.server_plug(server, step.port).node
        if node >= topology.servers:
            found[SWITCH] = _path_fault(topology, "switch", server, step, node)
            break
    return found


def _cable_fault(topology: Topology, kind: str, server: int, step: Step) -> PathFault:
    return _path_fault(
        topology, kind, server, step, server, topology.server_plug(server, step.port).node
    )


def _path_fault(topology: Topology, kind: str, server: int, step: Step, *nodes: int) -> PathFault:
    fault = Fault(kind, tuple(map(topology.name, nodes)))
    return PathFault(fault, server, step.port)


def _routing(topology: Topology, faults: Sequence[str]) -> str:
    """Return the routing algorithm of a network that survives most of the given faults."""
    own = [
        name for name, found in algorithms(topology).items() if found.router and name != SHORTEST
    ]

    def survived(name: str) -> int:
        return _survivable(topology, name, _ends(topology, name, faults), faults)

    return max(own, key=survived)


def _ends(topology: Topology, routing: str, faults: Sequence[str]) -> tuple[int, int]:
    """Return two servers with relays in between, whose path survives most faults."""
    servers = range(topology.servers)
    pairs = ((a, b) for a in servers for b in reversed(servers) if a != b)

    def survived(ends: tuple[int, int]) -> int:
        return _survivable(topology, routing, ends, faults)

    return max(islice(pairs, PAIRS), key=survived)


def _survivable(
    topology: Topology, routing: str, ends: tuple[int, int], faults: Sequence[str]
) -> int:
    """Return the number of faults on a path after which the routing still has a path."""
    paths = route(topology, routing, *ends).paths
    found = path_faults(topology, paths[0]) if paths else {}
    known = [failures_of(topology, found[fault].fault) for fault in faults if fault in found]
    return sum(bool(route(topology, routing, *ends, failures).paths) for failures in known)


# -- paths of the flow ------------------------------------------------------------------------


def latest_flow_path(lab: Lab, source: int, destination: int) -> Path:
    """Return the path of the latest flow between two live servers, from the servers' state."""
    from pillarbox.experiments.runs.trials.recorded_paths import live_paths, paths_of

    chosen, _ = live_paths(lab, [Flow(0, source, destination)])
    (path,) = paths_of(lab.topology, lab.routing, [(source, destination)], chosen)
    return path if isinstance(path, Path) else Path(source, ())


def _bytes_in_window(lab: Lab, scenario: PathFault) -> int:
    """Return the bytes that the flow's port sends in WINDOW_S."""
    name = lab.topology.interface(scenario.server, scenario.port)
    before = lab.fabric.bytes_sent()[name]
    time.sleep(WINDOW_S)
    return lab.fabric.bytes_sent()[name] - before


def _return_time(lab: Lab, scenario: PathFault, least: float, deadline: float) -> float | None:
    """Wait until the original port carries the flow again; return the time, None on timeout."""
    while (start := time.monotonic()) < deadline:
        if _bytes_in_window(lab, scenario) > least:
            return start
    return None
