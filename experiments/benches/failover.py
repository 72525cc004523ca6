"""TCP through a failure: the longest gap without bytes, in every network and plane."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from experiments.benches._frame import Row
from experiments.linux.measure import in_child
from hosts.base.algorithms import SHORTEST, algorithms, route
from hosts.base.failures import Failures
from hosts.base.path import Path as Way
from hosts.base.path import Step
from hosts.linux.calls import die_with_parent
from hosts.live.bpf import available
from hosts.live.devices import APPLICATION_INTERFACE
from topos.base.errors import PillarboxError
from topos.base.spec import parse
from topos.base.topology import Topology

if TYPE_CHECKING:
    from experiments.emulation.lab import Lab

NETWORKS = ("dpillar,4,2", "dcell,4,1", "bcube,4,1", "ficonn,4,1")
QUICK_NETWORKS = ("dcell,4,1",)
PLANES = ("ebpf", "python")
PAPER_NETWORKS = ("dcell,4,1", "bcube,4,1")
RATE_MBIT = 100.0
CONTROL = b"reno"  # congestion control that every kernel has
# The window stays below what a queue holds: so nothing but the fault loses packets, and TCP is not
# busy with losses of its own making when it comes.
RECEIVE_BUFFER = 1 << 17
RTO_MIN = "50ms"
PORT = 5001
PAIRS = 64  # of servers, among which to look for one whose path every fault can be put on
CHUNK = 1 << 18
LEAST_GAP_S = 0.002  # shorter ones are not kept
WARM_UP_S = 0.4
WINDOW_S = 0.1  # over which ports' counters are compared
TIME_LIMIT_S = 400.0
TURNS = {"fast": 3, "paper": 1}

CUT, FAR_CUT, SILENT = "cut at the source", "cut at a relay", "silent cut"
SERVER, SWITCH = "server death", "switch death"
FAULTS = (CUT, FAR_CUT, SILENT, SERVER, SWITCH)
QUICK_FAULTS = (FAR_CUT,)
PAPER_FAULTS = (FAR_CUT, SERVER)


class Pace(NamedTuple):
    """What timers promise, and how long to look: all in seconds."""

    goals: dict[str, float]
    broken_s: float  # from the fault to its repair
    return_s: float  # how long to wait for the flow to come back to where it was


PACES = {
    "fast": Pace({CUT: 0.2, FAR_CUT: 0.2, SILENT: 0.5, SERVER: 0.5, SWITCH: 0.5}, 1.2, 2.5),
    # 5 s without heart-beats, and then until the next of TCP's tries: the fifth, after 6.2 s and
    # the round trips that TCP adds to each.
    "paper": Pace({FAR_CUT: 1.0, SERVER: 7.0}, 9.0, 15.0),
}
NOTES = f"""
One TCP connection (Reno, cables of {RATE_MBIT:.0f} Mbit/s) over one relay or more, and a fault on
its path; of {TURNS["fast"]} turns. gap_s: the longest time without a byte at the receiver between
the fault and its repair, the median of the turns, and worst_s, the longest of all; repair_gap_s:
the longest after the repair; return_s: from the repair until the flow was back on the repaired way
(a dash: not while the bench looked). The relay that sees its cable cut is not the sender; a silent
cut and a server's death only heart-beats tell, and a cut those who are behind a switch.
With fast timers the ends' routes set TCP's least time of retransmission to {RTO_MIN} (ip route ...
rto_min), as data centers do: Linux's 200 ms alone would take longer than the network. It doubles
with each try, and a gap ends with a try. The papers' timers give a neighbour up after 5 s (Guo
2008, section 7.1); TCP is as it comes there, and its tries after 3.0 and 6.2 s are those before and
after that.
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each fault in each network, on each plane."""
    networks = QUICK_NETWORKS if quick else NETWORKS
    faults: tuple[str, ...] = QUICK_FAULTS if quick else FAULTS
    cases = [(spec, plane, "fast", faults) for spec in networks for plane in PLANES]
    if not quick:
        cases += [(spec, PLANES[-1], "paper", PAPER_FAULTS) for spec in PAPER_NETWORKS]
    for spec, plane, timers, wanted in cases:
        why = _reason(plane)
        found: dict[str, Row] = {fault: {"outcome": f"skipped: {why}"} for fault in wanted}
        if not why:
            turns = 1 if quick else TURNS[timers]
            told = in_child(measured, spec, plane, timers, wanted, turns, time_limit_s=TIME_LIMIT_S)
            failed: Row = {"outcome": f"failed: {told.failure}"}
            found = told.value or dict.fromkeys(wanted, failed)
        for fault in wanted:
            row: Row = {"network": spec, "routing": "", "plane": plane, "timers": timers}
            row |= {"fault": fault, "gap_s": None, "worst_s": None}
            row |= {"goal_s": PACES[timers].goals[fault], "repair_gap_s": None, "return_s": None}
            yield row | found[fault]


def _reason(plane: str) -> str:
    """Return why a plane cannot be measured here, nothing if it can."""
    if os.geteuid():
        return "network namespaces need root"
    return available() if plane == "ebpf" else ""


def measured(
    spec: str, plane: str, timers: str, faults: tuple[str, ...], turns: int
) -> dict[str, Row]:
    """Run a lab in a sandbox; return the columns that were measured, by fault."""
    from experiments.linux import sandbox

    sandbox.enter()
    from experiments.emulation.lab import running
    from hosts.live.settings import LabSettings

    topology = parse(spec)
    settings = LabSettings(
        routing=_routing(topology, faults), plane=plane, timers=timers, rate_mbit=RATE_MBIT
    )
    found: dict[str, list[Turn]] = {fault: [] for fault in faults}
    with (
        tempfile.TemporaryDirectory() as folder,
        running(topology, settings, Path(folder)) as lab,
    ):
        ends = _ends(topology, lab.routing, faults)
        if timers == "fast":
            _hurry(lab, *ends)
            _hurry(lab, *ends[::-1])
        for _ in range(turns):
            for fault in faults:
                found[fault].append(_turn(lab, ends, fault))
    goals = PACES[timers].goals
    return {
        fault: {"routing": lab.routing} | _judged(each, goals[fault])
        for fault, each in found.items()
    }


def _hurry(lab: Lab, server: int, far: int) -> None:
    """Let a server's TCP not wait longer for the far one than data centers let theirs."""
    target = lab.topology.ip(far)
    command = ["ip", "route", "add", target, "dev", APPLICATION_INTERFACE, "rto_min", RTO_MIN]
    if lab.host(server).popen(command).wait():
        raise PillarboxError(f"the route cannot be set: {' '.join(command)}")


class Turn(NamedTuple):
    """What one fault did to one connection."""

    gap_s: float = 0.0
    repair_gap_s: float = 0.0
    return_s: float | None = None
    skipped: str = ""
    lost: str = ""  # why the connection broke


def _turn(lab: Lab, ends: tuple[int, int], fault: str) -> Turn:
    pace = PACES[lab.settings.timers]
    lab.wait_converged()
    with Flow(lab, *ends) as flow:
        time.sleep(WARM_UP_S)
        scenario = scenarios(lab.topology, taken(lab, *ends)).get(fault)
        if scenario is None:
            return Turn(skipped="no such thing is on the way")
        if not route(lab.topology, lab.routing, *ends, scenario.failures).paths:
            return Turn(skipped="the routing knows no way around it")
        usual = _sent(lab, scenario)
        broken_s = time.monotonic()
        repair = scenario.begin(lab)
        time.sleep(pace.broken_s)
        repaired_s = time.monotonic()
        repair()
        back_s = _back(lab, scenario, usual / 4, repaired_s + pace.return_s)
        end_s = time.monotonic()
        gaps = flow.gaps(end_s)
    return Turn(
        _longest(gaps, broken_s, repaired_s),
        _longest(gaps, repaired_s, end_s),
        back_s - repaired_s if back_s else None,
        lost=flow.lost,
    )


def _judged(turns: list[Turn], goal_s: float) -> Row:
    """Return the columns that sum up what several turns of a fault did."""
    done = [turn for turn in turns if not turn.skipped]
    if not done:
        return {"outcome": f"skipped: {turns[0].skipped}"}
    gap_s = statistics.median(turn.gap_s for turn in done)
    returned = [turn.return_s for turn in done if turn.return_s is not None]
    row: Row = {"gap_s": gap_s, "worst_s": max(turn.gap_s for turn in done)}
    row["repair_gap_s"] = statistics.median(turn.repair_gap_s for turn in done)
    row["return_s"] = statistics.median(returned) if returned else None
    lost = next((turn.lost for turn in done if turn.lost), "")
    if lost:
        return row | {"outcome": f"failed: the connection broke: {lost}"}
    return row | {"outcome": "ok" if gap_s <= goal_s else f"missed: {goal_s:g} s wanted"}


def _longest(gaps: list[tuple[float, float]], start: float, end: float) -> float:
    """Return the longest gap of which a part lies between two moments."""
    return max((b - a for a, b in gaps if b > start and a < end), default=0.0)


# -- what fails ---------------------------------------------------------------------------------


class Scenario(NamedTuple):
    """A fault on a way, what the algorithms are told of it, and the port that carried the flow."""

    begin: Callable[[Lab], Callable[[], object]]  # returns what repairs it
    failures: Failures
    server: int
    port: int


def scenarios(topology: Topology, way: Way) -> dict[str, Scenario]:
    """Return the faults that can be put on a way, by name."""
    first, *further = zip(way.servers, way.steps, strict=False)
    if not further:
        return {}
    found = {CUT: _cut(topology, *first), FAR_CUT: _cut(topology, *further[0])}
    found[SILENT] = _cut(topology, *further[0], silent=True)
    relay, step = further[0]
    dead = Failures(frozenset([relay]))
    found[SERVER] = Scenario(lambda lab: _killed(lab, relay), dead, relay, step.port)
    for server, step in zip(way.servers, way.steps, strict=False):
        node = topology.server_plug(server, step.port).node
        if node >= topology.servers:
            dark = Failures(frozenset([node]))
            found[SWITCH] = Scenario(_stopping(node), dark, server, step.port)
            break
    return found


def _cut(topology: Topology, server: int, step: Step, *, silent: bool = False) -> Scenario:
    far = topology.server_plug(server, step.port).node

    def begin(lab: Lab) -> Callable[[], object]:
        fault = lab.cut(server, far, silent=silent)
        return lambda: lab.heal(fault)

    failures = Failures(links=frozenset([frozenset((server, far))]))
    return Scenario(begin, failures, server, step.port)


def _killed(lab: Lab, server: int) -> Callable[[], object]:
    lab.kill(server)
    return lambda: lab.revive(server)


def _stopping(node: int) -> Callable[[Lab], Callable[[], object]]:
    def begin(lab: Lab) -> Callable[[], object]:
        fault = lab.stop_switch(node - lab.topology.servers)
        return lambda: lab.heal(fault)

    return begin


def _routing(topology: Topology, faults: tuple[str, ...]) -> str:
    """Return the routing of the network's own that survives most faults."""
    own = [
        name for name, found in algorithms(topology).items() if found.router and name != SHORTEST
    ]

    def survived(name: str) -> int:
        return _survivable(topology, name, _ends(topology, name, faults), faults)

    return max(own, key=survived)


def _ends(topology: Topology, routing: str, faults: tuple[str, ...]) -> tuple[int, int]:
    """Return two servers with relays between them, where the routing survives most faults."""
    servers = range(topology.servers)
    pairs = ((a, b) for a in servers for b in reversed(servers) if a != b)

    def survived(ends: tuple[int, int]) -> int:
        return _survivable(topology, routing, ends, faults)

    return max(islice(pairs, PAIRS), key=survived)


def _survivable(
    topology: Topology, routing: str, ends: tuple[int, int], faults: tuple[str, ...]
) -> int:
    """Return how many of the faults leave a way that the routing knows."""
    ways = route(topology, routing, *ends).paths
    found = scenarios(topology, ways[0]) if ways else {}
    known = [found[fault].failures for fault in faults if fault in found]
    return sum(bool(route(topology, routing, *ends, failures).paths) for failures in known)


# -- where the flow goes ------------------------------------------------------------------------


def taken(lab: Lab, source: int, destination: int) -> Way:
    """Return the way of the only flow there is, as the ports' counters tell it."""
    before = lab.bytes_sent()
    time.sleep(WINDOW_S)
    sent = {name: count - before[name] for name, count in lab.bytes_sent().items()}

    def busiest(server: int) -> tuple[int, int]:
        cabled = [port for port, _ in lab.topology.neighbours(server)]
        return max((sent[lab.topology.interface(server, port)], port) for port in cabled)

    steps: list[Step] = []
    at, left = source, set(range(lab.topology.servers)) - {source}
    while at != destination and left:
        port = busiest(at)[1]
        peers = left.intersection(lab.topology.peers(at, port))
        if not peers:
            break
        at = destination if destination in peers else max(peers, key=lambda peer: busiest(peer)[0])
        left.remove(at)
        steps.append(Step(port, at))
    return Way(source, tuple(steps))


def _sent(lab: Lab, scenario: Scenario) -> int:
    """Return what the scenario's port sends in one window."""
    name = lab.topology.interface(scenario.server, scenario.port)
    before = lab.bytes_sent()[name]
    time.sleep(WINDOW_S)
    return lab.bytes_sent()[name] - before


def _back(lab: Lab, scenario: Scenario, least: float, deadline: float) -> float | None:
    """Wait until the port carries the flow again; return when it began to, None if it does not."""
    while (start := time.monotonic()) < deadline:
        if _sent(lab, scenario) > least:
            return start
    return None


# -- the flow -----------------------------------------------------------------------------------


class Flow:
    """A TCP connection that carries as much as it can: a process for each end.

    The receiver notes each gap between two arrivals, by CLOCK_MONOTONIC.
    """

    def __init__(self, lab: Lab, source: int, destination: int) -> None:
        self.lost = ""
        client, server = _connected(lab, source, destination)
        self._pipe, theirs = socket.socketpair()
        with client, server, theirs:
            self._children = [
                _forked(lambda: _send_for_ever(client)),
                _forked(lambda: _note_gaps(server, theirs)),
            ]

    def __enter__(self) -> Flow:
        return self

    def __exit__(self, *error: object) -> None:
        for child in self._children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        self._pipe.close()

    def gaps(self, end_s: float) -> list[tuple[float, float]]:
        """Return when each gap began and ended; one that lasts until `end_s` is a lost flow's."""
        self._pipe.sendall(b"?")
        with self._pipe.makefile() as told:
            found = json.loads(told.readline())
        self.lost = found["lost"]
        gaps = [(a, b) for a, b in found["gaps"]]
        if end_s - found["last"] > LEAST_GAP_S:
            gaps.append((found["last"], end_s))
            if end_s - found["last"] > 1.0:
                self.lost = self.lost or "nothing arrived in its last second"
        return gaps


def _connected(lab: Lab, source: int, destination: int) -> tuple[socket.socket, socket.socket]:
    with lab.host(destination).live_namespace():
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with lab.host(source).live_namespace():
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with listener:
        for each in (listener, client):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONTROL)
            each.settimeout(5.0)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER // 2)
        address = lab.topology.ip(destination), PORT
        listener.bind(address)
        listener.listen(1)
        client.connect(address)
        server, _ = listener.accept()
    for each in (client, server):
        each.settimeout(None)
    return client, server


def _forked(program: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            die_with_parent(signal.SIGKILL)
            program()
        finally:
            os._exit(0)
    return child


def _send_for_ever(client: socket.socket) -> None:
    data = bytes(CHUNK)
    with suppress(OSError):  # the receiver tells
        while True:
            client.sendall(data)


def _note_gaps(server: socket.socket, asked: socket.socket) -> None:
    buffer = bytearray(CHUNK)
    gaps: list[tuple[float, float]] = []
    lost, last = "", time.monotonic()
    wanted = [server, asked]
    while True:
        ready, _, _ = select.select(wanted, [], [])
        if asked in ready:
            asked.recv(1)
            asked.sendall(json.dumps({"gaps": gaps, "last": last, "lost": lost}).encode() + b"\n")
        if server in ready:
            try:
                ended = not server.recv_into(buffer)
            except OSError as error:
                ended, lost = True, error.strerror or str(error)
            if ended:
                lost = lost or "its sender closed it"
                wanted.remove(server)
                continue
            now = time.monotonic()
            if now - last > LEAST_GAP_S:
                gaps.append((last, now))
            last = now
