"""Paths of flows, read from the servers' tables during and at the end of a trial.

Some routings choose a path for each flow when it begins. Their servers report the chosen path in
their state, in one of three forms:

- ``flows`` with the ``path`` of each flow, as addresses: source routes
- ``destinations`` with several ``paths``, one of them ``in use`` by all flows to the destination,
  each with its servers and the ports by which it leaves them
- ``entries`` with the ``next`` server of each flow: the path is followed from server to server

With other routings the algorithm alone determines the path (`paths_of`). A routing that sprays uses
all of a pair's disjoint paths, which are computed as well.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.models.fluid.ideal import static_flow_paths
from pillarbox.experiments.models.workloads.flows import Flow
from pillarbox.experiments.runs.trials.order import FlowPathsAtTime
from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.path import Path, Step
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab
    from pillarbox.experiments.models.fluid.directed_links import FlowPath

TCP = 6
PORT = "%"  # separator of a server and the port by which a path leaves it
SAMPLE_S = 1.0  # Interval between two samples of the paths, in seconds.
MOST_SAMPLING = 0.02  # Upper bound for the share of time that sampling takes.
SETTLED_S = 0.5  # Time from a fault or repair until servers have chosen other paths, in seconds.
Addresses = tuple[str, ...]  # Servers on a path: addresses, with ports if they are known.
# Chosen paths by source and destination address, the oldest first.
Chosen = dict[tuple[str, str], list[Addresses]]


def is_sprayed(topology: Topology, routing: str) -> bool:
    """Return True if a routing sends the packets of a flow on several paths in turn."""
    known = algorithms(topology).get(routing)
    return known is not None and known.sprays


def live_paths(
    lab: Lab, flows: Sequence[Flow]
) -> tuple[tuple[Addresses, ...], tuple[Addresses, ...]]:
    """Return the paths of flows and of their acknowledgements in a lab; empty if not chosen."""
    topology = lab.topology
    if not lab.relays or is_sprayed(topology, lab.routing):
        return ((),) * len(flows), ((),) * len(flows)
    alive = [server for server in range(topology.servers) if server not in lab.dead]
    chosen = chosen_paths({topology.address(server): lab.state(server) for server in alive})
    ends = [(topology.address(flow.source), topology.address(flow.destination)) for flow in flows]
    return recorded_flow_paths(chosen, ends), recorded_flow_paths(
        chosen, [(to, source) for source, to in ends]
    )


class PathSampler:
    """Sampler of the flows' paths during a trial.

    Servers choose other paths after faults, and some routings whenever their probes find a better
    path. At a fault the sampler records the paths that were in use until then, and half a second
    later the new paths.
    """

    def __init__(
        self,
        lab: Lab,
        flows: Sequence[Flow],  # Flows to sample; without flows the sampler does nothing.
    ) -> None:
        self.samples: list[FlowPathsAtTime] = []
        self._lab, self._flows = lab, flows
        self._failures = lab.failures()
        self._due_s = 0.0

    def look(self, now_s: float) -> None:
        """Sample the paths if a sample is due; `now_s` is the time after the barrier in seconds."""
        if not self._flows or now_s < 0:
            return
        failures = self._lab.failures()
        if failures != self._failures:
            if self.samples:
                self.samples.append(self.samples[-1]._replace(at_s=now_s))
            self._failures, self._due_s = failures, now_s + SETTLED_S
        elif now_s >= self._due_s:
            began_s = time.monotonic()
            with suppress(PillarboxError, OSError):  # a server died while its paths were read
                paths, _ = live_paths(self._lab, self._flows)
                self.samples.append(FlowPathsAtTime(now_s, paths, failures))
            took_s = time.monotonic() - began_s
            self._due_s = now_s + max(SAMPLE_S, took_s / MOST_SAMPLING)


def recorded_flow_paths(chosen: Chosen, pairs: Sequence[tuple[str, str]]) -> tuple[Addresses, ...]:
    """Return the path of each flow, empty if unknown; flows of a pair take its paths in turn."""
    flows, seen, given = Counter(pairs), Counter[tuple[str, str]](), []
    for pair in pairs:
        known = chosen.get(pair) or [()]
        found = known[-flows[pair] :]  # The first paths are those of a tool's control connections.
        given.append(found[seen[pair] % len(found)])
        seen[pair] += 1
    return tuple(given)


def chosen_paths(states: Mapping[str, Mapping[str, Any]]) -> Chosen:
    """Return the chosen paths by source and destination, from the states of all servers."""
    to_all: Chosen = defaultdict(list)
    of_flows: Chosen = defaultdict(list)
    next_of = {
        (server, tuple(entry["flow"])): entry["next"]
        for server, state in states.items()
        for entry in state.get("entries", ())
    }
    for server, state in states.items():
        for destination in state.get("destinations", ()):
            used = [_passed(path) for path in destination["paths"] if path["in use"]]
            to_all[server, destination["server"]] += used
        for flow in state.get("flows", ()):
            passed = _flow_path(server, flow, next_of)
            if passed:
                of_flows[passed[0].partition(PORT)[0], passed[-1]].append(passed)
    return {**to_all, **of_flows}


def _flow_path(
    server: str, flow: Mapping[str, Any], next_of: Mapping[tuple[str, tuple[int, ...]], str | None]
) -> Addresses:
    """Return the path of a TCP flow from a server's state; empty if incomplete or not TCP."""
    if "flow" in flow:
        key, passed = tuple(flow["flow"]), [server]
        following = next_of.get((server, key))
        while following is not None and following not in passed:
            passed.append(following)
            following = next_of.get((following, key))
        is_whole = passed[-1] == flow["destination"] and key[2] == TCP
        return tuple(passed) if is_whole else ()
    if flow.get("protocol") != TCP:
        return ()
    path = flow.get("path") or ()
    return _passed(path) if isinstance(path, Mapping) else tuple(path)


def _passed(path: Mapping[str, Any]) -> Addresses:
    """Return the servers on a path, and the ports by which it leaves them if they are known.

    In DPillar with two columns both ports of a server lead to the same server.

    >>> _passed({"servers": ["0.0.0", "1.0.0", "0.0.1"], "ports": [1, 1]})
    ('0.0.0%1', '1.0.0%1', '0.0.1')
    """
    servers, ports = path["servers"], path.get("ports", ())
    leaving = [f"{server}{PORT}{port}" for server, port in zip(servers, ports, strict=False)]
    return (*leaving, *servers[len(leaving) :])


def paths_of(
    topology: Topology,
    routing: str,
    pairs: Sequence[tuple[int, int]],
    given: Sequence[Addresses],
    failures: Failures = NONE,
) -> list[FlowPath]:
    """Return the path of each flow: the recorded path, or else the path that the routing computes.

    Paths of a router in a user's file cannot be computed.
    """
    missing = [pair for pair, passed in zip(pairs, given, strict=True) if not passed]
    computed: Iterator[FlowPath] = repeat(None)
    if not routing.endswith(".py"):
        computed = iter(static_flow_paths(topology, routing, missing, failures))
    return [path_of(topology, passed) if passed else next(computed) for passed in given]


def path_of(topology: Topology, passed: Sequence[str]) -> Path | None:
    """Convert the addresses of a path's servers to node numbers; None if two are not connected.

    A server may have its port, such as ``0.0.0%1``. Otherwise the first port to the next server is
    taken.
    """
    ends = [address.partition(PORT) for address in passed]
    servers = [topology.server(address) for address, _, _ in ends]
    steps = []
    for (server, peer), (_, _, known) in zip(pairwise(servers), ends, strict=False):
        ports = [port for port in range(topology.ports) if peer in topology.peers(server, port)]
        port = next((port for port in ports if not known or port == int(known)), None)
        if port is None:
            return None
        steps.append(Step(port, peer))
    return Path(servers[0], tuple(steps)) if servers else None
