"""The ways that flows took, as the servers' own tables tell at the end of a trial.

Some routings send a flow by a way that was chosen for it when it began. Their servers say in
their state which one that is, in one of three forms:

- ``flows`` with the ``path`` of each, as addresses: source routes
- ``destinations`` with several ``paths``, of which one is ``in use`` by all flows to there
- ``entries`` with the ``next`` server of each flow: the way is followed from server to server

Every other flow takes the way that the algorithm alone computes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from experiments.traffic.flows import Flow
from hosts.base.path import Path, Step
from topos.base.topology import Topology

if TYPE_CHECKING:
    from experiments.emulation.lab import Lab

TCP = 6
Way = tuple[str, ...]  # addresses
Ways = dict[tuple[str, str], list[Way]]  # by source and destination, oldest first


def live_paths(lab: Lab, flows: Sequence[Flow]) -> tuple[tuple[Way, ...], tuple[Way, ...]]:
    """Return the way of each flow, and that of its acknowledgements; empty where there is none."""
    topology = lab.topology
    chosen: Ways = {}
    if lab.relays:
        alive = [server for server in range(topology.servers) if server not in lab.dead]
        chosen = chosen_ways({topology.address(server): lab.state(server) for server in alive})
    numbers: Counter[tuple[int, int]] = Counter()
    computed: dict[tuple[int, int], Way] = {}

    def way(source: int, destination: int, number: int, of: int) -> Way:
        ends = topology.address(source), topology.address(destination)
        found = chosen.get(ends, [])
        if found:  # a tool's control connections come before its flows
            return found[-of:][min(number, len(found[-of:]) - 1)]
        if (source, destination) not in computed:
            steps = lab.computed(source, destination)
            computed[source, destination] = tuple(a for a in steps if a[0] != "s")
        return computed[source, destination]

    pairs = [(flow.source, flow.destination) for flow in flows]
    of = Counter(pairs)
    there, back = [], []
    for source, destination in pairs:
        number = numbers[source, destination]
        numbers[source, destination] += 1
        there.append(way(source, destination, number, of[source, destination]))
        back.append(way(destination, source, number, of[source, destination]))
    return tuple(there), tuple(back)


def chosen_ways(states: Mapping[str, Mapping[str, Any]]) -> Ways:
    """Return the ways that servers say they have chosen, by the states of all servers."""
    to_all: Ways = defaultdict(list)
    of_flows: Ways = defaultdict(list)
    next_of = {
        (server, tuple(entry["flow"])): entry["next"]
        for server, state in states.items()
        for entry in state.get("entries", ())
    }
    for server, state in states.items():
        for destination in state.get("destinations", ()):
            used = [tuple(path["servers"]) for path in destination["paths"] if path["in use"]]
            to_all[server, destination["server"]] += used
        for flow in state.get("flows", ()):
            way = _way_of(server, flow, next_of)
            if way:
                of_flows[way[0], way[-1]].append(way)
    return {**to_all, **of_flows}


def _way_of(
    server: str, flow: Mapping[str, Any], next_of: Mapping[tuple[str, tuple[int, ...]], str | None]
) -> Way:
    """Return the way of one TCP flow of a server; empty for others, or where it breaks off."""
    if "flow" in flow:
        key, way = tuple(flow["flow"]), [server]
        following = next_of.get((server, key))
        while following is not None and following not in way:
            way.append(following)
            following = next_of.get((following, key))
        is_whole = way[-1] == flow["destination"] and key[2] == TCP
        return tuple(way) if is_whole else ()
    told = flow.get("path") or ()
    servers = told["servers"] if isinstance(told, Mapping) else told
    return tuple(servers) if flow.get("protocol") == TCP else ()


def path_of(topology: Topology, way: Sequence[str]) -> Path | None:
    """Return a way as a path, by the first port that leads on; None where it breaks off."""
    servers = [topology.server(address) for address in way]
    steps = []
    for server, peer in pairwise(servers):
        ports = (port for port in range(topology.ports) if peer in topology.peers(server, port))
        port = next(ports, None)
        if port is None:
            return None
        steps.append(Step(port, peer))
    return Path(servers[0], tuple(steps)) if servers else None
