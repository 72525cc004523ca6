"""Queries of a running lab: paths of packets, link loads, round-trip times, TCP throughput."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.base.text import columns
from pillarbox.experiments.lab.emulation.packet_tracing import computed, named
from pillarbox.experiments.lab.observe.pings import WAIT_S
from pillarbox.experiments.models.workloads.flows import Flow, Sending
from pillarbox.experiments.runs.trials.trial_backend import backend_of
from pillarbox.hosts.base.algorithms import SHORTEST, algorithms, choose, route
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.faults import Fault
from pillarbox.hosts.base.path import Step
from pillarbox.topos.base.addressing import NO_PORTS, End, EndPorts
from pillarbox.topos.base.errors import require

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

LOAD_S = 1.0
BUSIEST = 12
PARALLEL_PINGS = 8  # number of servers that ping simultaneously
LONGEST_S = 3600.0  # longest duration of an iperf, in seconds
LONGEST_LOG = 8192  # maximum number of bytes shown from the end of a forwarder's log
LEAD_S, GRACE_S, LOOK_S = 0.1, 10.0, 0.02


def path(lab: Lab, source: int, destination: int, ports: EndPorts = NO_PORTS) -> dict[str, Any]:
    """Return the path that the routing computes, and the path that a packet sent now takes."""
    taken = lab.trace(source, destination, ports=ports)
    return {**taken, "computed": lab.computed(source, destination, ports)}


def disjoint(lab: Lab, source: int, destination: int, *, by_paper: bool = True) -> dict[str, Any]:
    """Return the working disjoint paths: the routing's, or by max-flow if these are more."""
    from pillarbox.experiments.models.fluid.disjoint import node_disjoint_paths

    topology, failures = lab.topology, lab.failures()
    most = node_disjoint_paths(topology, source, destination, failures)
    name = choose(topology, None, several=True, opposite=False)
    if by_paper and name != SHORTEST:
        found = route(topology, name, source, destination, failures, several=True)
        if len(found.paths) >= len(most):
            return {"by": name, "paths": [named(topology, path, failures) for path in found.paths]}
    # nodes that paths name: servers only, or servers and switches
    nodes = topology.nodes if topology.ports == 1 else topology.servers
    paths = [[topology.name(node) for node in path if node < nodes] for path in most]
    return {"by": "max-flow", "paths": paths}


def disjoint_text(found: dict[str, Any]) -> str:
    """Return disjoint paths as text, one per line."""
    lines = [f"{len(found['paths'])} disjoint, by {found['by']}"]
    return "\n".join(lines + [" ".join(path) for path in found["paths"]])


def log(lab: Lab, server: int) -> dict[str, str]:
    """Return the last lines of the log of a server's forwarder."""
    require(bool(lab.forwarders), f"servers of {lab.topology.spec} do not relay, and have no log")
    assert lab.forwarders
    return {"log": lab.forwarders.last_lines(server, LONGEST_LOG)}


def path_text(found: dict[str, Any]) -> str:
    """Return a packet's computed path and its actual path as two lines of text."""
    taken = f"{' '.join(found['path'])} ({outcome(found)})"
    return f"computed: {' '.join(found['computed']) or 'none'}\ntaken:    {taken}"


def outcome(found: dict[str, Any]) -> str:
    """Return whether and where a traced packet was delivered or lost, as a short phrase."""
    if found["delivered"]:
        return "arrived"
    if found["dropped"]:
        return f"dropped by {found['path'][-1]}: {found['dropped']}"
    return f"lost on the way to {found['lost_to']}" if found["lost_to"] else "lost"


# -- why -----------------------------------------------------------------------------------------


def why(lab: Lab, source: int, destination: int, ports: EndPorts = NO_PORTS) -> dict[str, Any]:
    """Trace a packet between two servers; return why it arrives or is lost, as sentences."""
    dead = [lab.name(end) for end in (source, destination) if end in lab.dead]
    because = [f"{name} is dead: revive {name}" for name in dead]
    found: dict[str, Any] = {}
    if source not in lab.dead:
        found = path(lab, source, destination, ports)
        because.append(f"a packet went {' '.join(found['path'])} ({outcome(found)})")
        usual = computed(lab.topology, lab.routing, source, destination, Failures(), ports)
        because += _failures_at_next_hop(lab, found, usual)
        because += (sprays := list(_spraying_sentence(lab, source, destination)))
        if found["delivered"] and not sprays:
            because += _detour_sentence(lab, usual, found["path"])
        elif not found["delivered"] and not dead:
            because += _remedies(lab, source, destination)
    because += [
        f"in effect: {fault} (to repair: {_repair_command(fault)})"
        for fault in faults_in_effect(lab)
    ]
    others = [lab.name(server) for server in sorted(lab.dead)]
    because += [f"dead: {name} (to repair: revive {name})" for name in others if name not in dead]
    return {**found, "because": because}


def faults_in_effect(lab: Lab) -> list[Fault]:
    """Return the active faults of cables, switches and racks, in the notation of commands."""
    return [
        Fault(fault.kind, tuple(lab.names_in(fault)[: 1 + fault.of_cable]), amounts=fault.amounts)
        for fault in lab.faults.active
    ]


def _repair_command(fault: Fault) -> str:
    return f"heal {'-'.join(fault.what)}"


def _spraying_sentence(lab: Lab, source: int, destination: int) -> Iterator[str]:
    """Yield a sentence that names all paths of a sprayed flow."""
    topology, known = lab.topology, algorithms(lab.topology).get(lab.routing)
    if known and known.sprays:
        found = route(topology, lab.routing, source, destination, lab.failures(), several=True)
        paths = "; ".join(" ".join(named(topology, path, lab.failures())) for path in found.paths)
        yield f"{lab.routing} sends packets over these paths in turn: {paths or 'none is left'}"


def _detour_sentence(lab: Lab, usual: list[str], path: list[str]) -> Iterator[str]:
    """Yield a sentence that names a packet's path without faults, if its path differs."""
    if lab.failures() != Failures() and usual and usual != path:
        yield f"that is a detour: without faults the path is {' '.join(usual)}"


def _remedies(lab: Lab, source: int, destination: int) -> Iterator[str]:
    """Yield the remedies for a lost packet: a repair, another routing, or waiting."""
    names = f"{lab.name(source)} and {lab.name(destination)}"
    if not disjoint(lab, source, destination, by_paper=False)["paths"]:
        yield f"no path is left between {names}: no routing can help, repair a fault"
        return
    around = list(_routings_around(lab, source, destination))
    yield from around
    if not around and lab.computed(source, destination):
        yield f"{lab.routing} has a path: the packet was lost before all servers knew: try again"


def _failures_at_next_hop(lab: Lab, found: dict[str, Any], usual: list[str]) -> Iterator[str]:
    """Yield the failures of cables and nodes between a lost packet's last node and next hop."""
    at = lab.node(found["path"][-1])
    if found["delivered"]:
        return
    if not lab.relays:
        yield from _failed_on(lab, usual)
    if at >= lab.topology.servers:
        return
    if found["lost_to"]:
        step = Step(found["lost_port"], lab.server(found["lost_to"]))
        stopped = lab.failures().of_hop(lab.topology, at, step)
        if stopped:
            cable = "-".join(map(lab.name, stopped))
            yield f"{cable} has failed, and {lab.name(at)} has not noticed yet"
    down = [link["peer"] for link in lab.state(at).get("links", []) if not link["up"]]
    if down:
        yield f"{lab.name(at)} does not hear {' '.join(down)}"


def _failed_on(lab: Lab, path: list[str]) -> Iterator[str]:
    """Yield the first failed cable or switch on a path that includes switches."""
    failed, nodes = lab.failures(), [lab.node(name) for name in path]
    for a, b in pairwise(nodes):
        if frozenset([a, b]) in failed.links:
            yield f"{lab.name(a)}-{lab.name(b)} has failed"
            return
        if b in failed.nodes:
            yield f"{lab.name(b)} has failed"
            return


def _routings_around(lab: Lab, source: int, destination: int) -> Iterator[str]:
    """Yield the routings that have a path if the lab's routing has none."""
    topology, failures = lab.topology, lab.failures()
    known = [
        name
        for name, one in algorithms(topology).items()
        if one.router and (name == SHORTEST or one.path or one.path_set or one.around)
    ]
    works = [name for name in known if route(topology, name, source, destination, failures).paths]
    if lab.routing in known and lab.routing not in works and works:
        yield (
            f"{lab.routing} has no path around this failure, {' and '.join(works)} would have one: "
            f"up {topology.spec} --routing {works[0]}"
        )


# -- load ----------------------------------------------------------------------------------------


def load(lab: Lab) -> list[dict[str, Any]]:
    """Measure for one second the load of each server's ports; return the busiest first."""
    before, start_s = lab.fabric.bytes_sent(), time.monotonic()
    time.sleep(LOAD_S)
    after, seconds = lab.fabric.bytes_sent(), time.monotonic() - start_s
    topology, rate_mbit = lab.topology, lab.settings.rate_mbit
    rows = []
    for server in range(topology.servers):
        for port, plug in topology.neighbours(server):
            name = topology.interface(server, port)
            mbit = (after.get(name, 0) - before.get(name, 0)) * 8e-6 / seconds
            rate = topology.rate_of_level(plug.level) * rate_mbit if rate_mbit else None
            share = mbit / rate if rate else None
            ends = {"from": topology.name(server), "to": topology.name(plug.node)}
            rows.append({**ends, "port": port, "mbit": mbit, "share": share})
    return sorted(rows, key=lambda row: -row["mbit"])


def load_text(rows: list[dict[str, Any]]) -> str:
    """Return the server ports with the highest load as a table."""
    cells = [["from", "to", "Mbit/s", "of its rate"]]
    for row in rows[:BUSIEST]:
        share = "" if row["share"] is None else f"{row['share']:.0%}"
        cells.append([row["from"], row["to"], f"{row['mbit']:.2f}", share])
    return columns(cells, numbers=[2, 3])


# -- measuring -----------------------------------------------------------------------------------


def ping(lab: Lab, source: End, destination: End) -> dict[str, Any]:
    """Return the round-trip time of an echo in ms, None after a timeout."""
    require_alive(lab, source.server)
    name, ports = lab.topology.end_name, (source.port, destination.port)
    found = lab.fabric.echoes(source.server, [destination.server], WAIT_S, ports)
    ends = {"source": name(source), "destination": name(destination)}
    return {**ends, "ms": found[destination.server]}


def pingall(lab: Lab) -> dict[str, Any]:
    """Return round-trip times between all pairs of servers; dead servers send no echoes."""
    servers = range(lab.topology.servers)

    def round_trips_from(source: int) -> dict[str, float | None]:
        others = [server for server in servers if server != source]
        alive = source not in lab.dead
        ms = lab.fabric.echoes(source, others, WAIT_S) if alive else dict.fromkeys(others)
        return {lab.name(server): value for server, value in ms.items()}

    # several servers ping in parallel: each lost ping costs a timeout
    with ThreadPoolExecutor(PARALLEL_PINGS) as pool:
        rows = dict(zip(map(lab.name, servers), pool.map(round_trips_from, servers), strict=True))
    sent = sum(map(len, rows.values()))
    received = sum(value is not None for row in rows.values() for value in row.values())
    return {"sent": sent, "received": received, "ms": rows}


def pingall_text(found: dict[str, Any]) -> str:
    """Return the result of `pingall` as text, in Mininet's format."""
    said = []
    for source, row in found["ms"].items():
        answers = (name if ms is not None else "X" for name, ms in row.items())
        said.append(f"{source} -> {' '.join(answers)}")
    sent, received = found["sent"], found["received"]
    lost = (sent - received) / sent if sent else 0.0
    return "\n".join([*said, f"{lost:.1%} dropped ({received}/{sent} received)"])


def iperf(lab: Lab, source: int, destination: int, seconds: float) -> dict[str, Any]:
    """Send one TCP flow for a number of seconds; return its throughput."""
    require_alive(lab, source)
    require_alive(lab, destination)
    flow = Flow(0, source, destination, duration_s=seconds)
    sending = Sending(timeout_s=seconds + GRACE_S, multipath=lab.settings.multipath)
    with closing(backend_of(lab).flow(flow, sending)) as tool:
        tool.prepare()
        tool.start(time.monotonic() + LEAD_S)
        while not tool.ended():
            time.sleep(LOOK_S)
        [result] = tool.results()
        name = tool.name
    ends = {"source": lab.name(source), "destination": lab.name(destination)}
    named = f"from {ends['source']} to {ends['destination']}"
    require(result.goodput_bps is not None, f"the flow {named} has failed: {result.reason}")
    assert result.goodput_bps is not None and result.end_s and result.begin_s is not None
    return {
        **ends,
        "mbit": result.goodput_bps * 1e-6,
        "seconds": result.end_s - result.begin_s,
        "bytes": result.delivered_bytes,
        "retransmits": result.retransmits,
        "tool": name,
    }


def require_alive(lab: Lab, server: int) -> None:
    """Raise PillarboxError if a server is dead."""
    name = lab.name(server)
    require(server not in lab.dead, f"{name} is dead: revive {name}")
