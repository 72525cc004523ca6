"""CPU time of a routing decision for each algorithm, and memory of a forwarder's modules."""

from __future__ import annotations

import gc
import json
import random
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from pillarbox.experiments.base.interpreter import code_command
from pillarbox.experiments.lab.linux.measurement import interleaved, medians
from pillarbox.hosts.base.algorithms import algorithms, route
from pillarbox.hosts.base.ports import arrival_port
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.base.timers import PAPER
from pillarbox.hosts.memory.frame_devices import FrameHop, FrameTap
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.wire.dcn import Protocol
from pillarbox.hosts.wire.frame import ETH_DCN
from pillarbox.hosts.wire.marks import serial_of, udp_packet
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology
from tests.benches._frame import Row

LARGE = ("dpillar,16,3", "dcell,6,3", "bcube,8,3", "ficonn,16,2", "fattree,8")
SMALL = ("dpillar,8,2", "dcell,4,1", "bcube,4,1", "ficonn,4,2", "tree,4,5", "fattree,4")
MODULES = (
    "pillarbox.hosts.dpillar",
    "pillarbox.hosts.dcell",
    "pillarbox.hosts.bcube",
    "pillarbox.hosts.ficonn",
)
HEAVY = ("numpy", "pandas", "matplotlib", "mininet", "click")
TIME_LIMIT_S = 60.0
FLOWS = 64
# Python program that measures the import of one module in a new interpreter.
IMPORTS = """
import json, sys, time
def resident_mib():
    text = open("/proc/self/status").read()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024
before, start = resident_mib(), time.perf_counter()
__import__(sys.argv[1])
seconds = time.perf_counter() - start
heavy = [name for name in sys.argv[2:] if name in sys.modules]
print(json.dumps([seconds, resident_mib() - before, heavy]))
"""
NOTES = """
path_us: CPU time for the whole path of a random pair, as `pillarbox path` computes it ("-" if this
needs a search over the network). send_us, relay_us: CPU time of a router for a packet of its own in
a known flow, and for a data frame that it relays: header parsed and checked, next hop, header
written. deliver_us: the same for a frame that has arrived. All networks are idle, in memory;
figures are medians over rounds in which the cases take turns. "control": CPU time of the receiver
of one heartbeat. import_ms and memory_mib are those of a new process, above those of the bare
interpreter.
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield rows of routing speed: whole paths, next hops per router, and module imports."""
    rounds = 3 if quick else 15
    yield from _paths(SMALL if quick else LARGE, rounds)
    yield from _steps(rounds)
    for module in MODULES:
        yield _import_cost(module)


# -- whole paths -------------------------------------------------------------------------------


def _paths(specs: tuple[str, ...], rounds: int) -> Iterator[Row]:
    cases = {}
    for spec in specs:
        topology = parse(spec)
        drawn = random.Random(1)
        pairs = [_pair(topology, drawn) for _ in range(20)]
        for name, algorithm in algorithms(topology).items():
            if algorithm.path or algorithm.path_set or algorithm.around:
                cases[spec, name] = _path_case(topology, name, pairs)
    times = medians(interleaved({f"{s} {n}": case for (s, n), case in cases.items()}, rounds))
    for spec, name in cases:
        yield {"network": spec, "algorithm": name, "path_us": times[f"{spec} {name}"] / 20 * 1e6}


def _path_case(topology: Topology, name: str, pairs: list[tuple[int, int]]) -> Callable[[], None]:
    def case() -> None:
        for a, b in pairs:
            route(topology, name, a, b)

    return case


def _pair(topology: Topology, drawn: random.Random) -> tuple[int, int]:
    a, b = drawn.sample(range(topology.servers), 2)
    return a, b


# -- single steps ------------------------------------------------------------------------------


def _steps(rounds: int) -> Iterator[Row]:
    cases: dict[str, Callable[[], None]] = {}
    counts: dict[str, int] = {}
    names = []
    for spec in SMALL:
        for name, algorithm in algorithms(parse(spec)).items():
            if algorithm.router:
                names.append((spec, name))
                for step, (case, count) in _step_cases(spec, algorithm.router).items():
                    cases[f"{spec} {name} {step}"] = case
                    counts[f"{spec} {name} {step}"] = count
    gc.freeze()  # exclude the networks' many objects from garbage collection
    try:
        times = medians(interleaved(cases, rounds))
    finally:
        gc.unfreeze()
    for spec, name in names:
        row: Row = {"network": spec, "router": name}
        for step in ("send", "relay", "deliver", "control"):
            key = f"{spec} {name} {step}"
            row[f"{step}_us"] = times[key] / counts[key] * 1e6 if key in times else None
        yield row


def _step_cases(spec: str, router: type[Router]) -> dict[str, tuple[Callable[[], None], int]]:
    """Return functions that repeat a router's steps, and the number of repeats, by kind."""
    topology = parse(spec)
    seen: list[FrameHop] = []
    network = MemoryNetwork(
        topology,
        lambda net, server: router(net, server, timers=PAPER),
        [FrameTap(lambda hop, _: seen.append(hop))],
    )
    drawn = random.Random(2)
    pairs = [_pair(topology, drawn) for _ in range(FLOWS)]
    for _ in range(2):  # the first packet of a flow requests a path, the second uses it
        seen.clear()
        for a, b in pairs:
            network.send_udp(a, b)
        network.run(PAPER.heartbeat_s)
    now = network.now
    packets = [(a, udp_packet(topology, a, b)) for a, b in pairs]
    found: dict[str, list[Callable[[], object]]] = {
        "send": [_bound_call(network.routers[a].send, packet, now) for a, packet in packets],
        "relay": [],
        "deliver": [],
        "control": [],
    }
    for hop in seen:
        port = arrival_port(topology, hop.server, hop.step)
        receive = _bound_call(network.routers[hop.peer].receive, port, hop.server, hop.frame, now)
        serial = serial_of(hop.frame.data)
        if serial is not None:
            arrived = network.trips[serial].destination == hop.peer
            found["deliver" if arrived else "relay"].append(receive)
        elif hop.frame.ethertype == ETH_DCN and hop.frame.data[1] == Protocol.HEARTBEAT:
            found["control"].append(receive)
    return {
        step: (_case_of_calls(calls[:200]), len(calls[:200]))
        for step, calls in found.items()
        if calls
    }


def _bound_call(function: Callable[..., object], *arguments: Any) -> Callable[[], object]:
    return lambda: function(*arguments)


def _case_of_calls(calls: list[Callable[[], object]]) -> Callable[[], None]:
    def case() -> None:
        for call in calls:
            call()

    return case


# -- imports -----------------------------------------------------------------------------------


def _import_cost(module: str) -> Row:
    done = subprocess.run(
        code_command(IMPORTS, module, *HEAVY),
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    row: Row = {"module": module, "import_ms": None, "memory_mib": None}
    if done.returncode:
        return row | {"outcome": f"failed: {done.stderr.strip().splitlines()[-1]}"}
    seconds, mib, heavy = json.loads(done.stdout)
    outcome = f"missed: imports {', '.join(heavy)}" if heavy else "ok"
    return row | {"import_ms": seconds * 1e3, "memory_mib": mib, "outcome": outcome}
