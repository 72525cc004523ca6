"""The paths that flows took, from the servers' own tables at the end of a trial.

Some routings send a flow by a path that was chosen for it when it began. Their servers say in
their state which one that is, in one of three forms:

- ``flows`` with the ``path`` of each, as addresses: source routes
- ``destinations`` with several ``paths``, of which one is ``in use`` by all flows to there
- ``entries`` with the ``next`` server of each flow: the path is followed from server to server

Every other flow takes the path that the algorithm alone computes (`paths_of`).
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any

from experiments.analysis.fluid.ideal import static_paths
from experiments.traffic.flows import Flow
from experiments.trials.runs.order import PathSample
from hosts.base.failures import NONE, Failures
from hosts.base.path import Path, Step
from topos.base.errors import PillarboxError
from topos.base.topology import Topology

if TYPE_CHECKING:
    from experiments.emulation.lab import Lab

TCP = 6
SAMPLE_S = 1.0  # between two samples of the paths, in seconds
MOST_SAMPLING = 0.02  # upper bound for the share of time that sampling takes
SETTLED_S = 0.5  # after a fault or a repair, until servers have chosen other paths
Addresses = tuple[str, ...]  # of the servers of a path
Chosen = dict[tuple[str, str], list[Addresses]]  # by source and destination, oldest first


def live_paths(
    lab: Lab, flows: Sequence[Flow]
) -> tuple[tuple[Addresses, ...], tuple[Addresses, ...]]:
    """Return the path of each flow, and of its acknowledgements; empty where none was chosen."""
    topology = lab.topology
    if not lab.relays:
        return ((),) * len(flows), ((),) * len(flows)
    alive = [server for server in range(topology.servers) if server not in lab.dead]
    chosen = chosen_paths({topology.address(server): lab.state(server) for server in alive})
    ends = [(topology.address(flow.source), topology.address(flow.destination)) for flow in flows]
    return dealt(chosen, ends), dealt(chosen, [(to, source) for source, to in ends])


class PathSampler:
    """Samples the paths of flows while they send.

    Servers choose other paths after faults, and some routings whenever their probes find a better
    one. At a fault the paths that were in use until then are noted, and half a second later those
    that are in use then.
    """

    def __init__(
        self,
        lab: Lab,
        flows: Sequence[Flow],  # if there are none, nothing is sampled
    ) -> None:
        self.samples: list[PathSample] = []
        self._lab, self._flows = lab, flows
        self._failures = lab.failures()
        self._due_s = 0.0

    def look(self, now_s: float) -> None:
        """Sample the paths if it is time to; `now_s` are seconds after the barrier."""
        if not self._flows or now_s < 0:
            return
        failures = self._lab.failures()
        if failures != self._failures:
            if self.samples:
                self.samples.append(self.samples[-1]._replace(at_s=now_s))
            self._failures, self._due_s = failures, now_s + SETTLED_S
        elif now_s >= self._due_s:
            began_s = time.monotonic()
            with suppress(PillarboxError, OSError):  # a server died meanwhile
                paths, _ = live_paths(self._lab, self._flows)
                self.samples.append(PathSample(now_s, paths, failures))
            took_s = time.monotonic() - began_s
            self._due_s = now_s + max(SAMPLE_S, took_s / MOST_SAMPLING)


def dealt(chosen: Chosen, pairs: Sequence[tuple[str, str]]) -> tuple[Addresses, ...]:
    """Return a path for each flow, empty where none is known; those of a pair get its in turn."""
    flows, seen, given = Counter(pairs), Counter[tuple[str, str]](), []
    for pair in pairs:
        known = chosen.get(pair) or [()]
        found = known[-flows[pair] :]  # a tool's control connections come before
        given.append(found[seen[pair] % len(found)])
        seen[pair] += 1
    return tuple(given)


def chosen_paths(states: Mapping[str, Mapping[str, Any]]) -> Chosen:
    """Return the paths that servers say they have chosen, by the states of all servers."""
    to_all: Chosen = defaultdict(list)
    of_flows: Chosen = defaultdict(list)
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
            passed = _passed_by(server, flow, next_of)
            if passed:
                of_flows[passed[0], passed[-1]].append(passed)
    return {**to_all, **of_flows}


def _passed_by(
    server: str, flow: Mapping[str, Any], next_of: Mapping[tuple[str, tuple[int, ...]], str | None]
) -> Addresses:
    """Return the path of one TCP flow of a server; empty for others, or where it breaks off."""
    if "flow" in flow:
        key, passed = tuple(flow["flow"]), [server]
        following = next_of.get((server, key))
        while following is not None and following not in passed:
            passed.append(following)
            following = next_of.get((following, key))
        is_whole = passed[-1] == flow["destination"] and key[2] == TCP
        return tuple(passed) if is_whole else ()
    path = flow.get("path") or ()
    servers = path["servers"] if isinstance(path, Mapping) else path
    return tuple(servers) if flow.get("protocol") == TCP else ()


def paths_of(
    topology: Topology,
    routing: str,
    pairs: Sequence[tuple[int, int]],
    given: Sequence[Addresses],
    failures: Failures = NONE,
) -> list[Path | None]:
    """Return the path of each flow: the recorded one, else the computed one.

    Paths of a router in a user's file cannot be computed.
    """
    missing = [pair for pair, passed in zip(pairs, given, strict=True) if not passed]
    computed: Iterator[Path | None] = repeat(None)
    if not routing.endswith(".py"):
        computed = iter(static_paths(topology, routing, missing, failures))
    return [path_of(topology, passed) if passed else next(computed) for passed in given]


def path_of(topology: Topology, passed: Sequence[str]) -> Path | None:
    """Return addresses as a path, by the first port that leads on; None where it breaks off."""
    servers = [topology.server(address) for address in passed]
    steps = []
    for server, peer in pairwise(servers):
        ports = (port for port in range(topology.ports) if peer in topology.peers(server, port))
        port = next(ports, None)
        if port is None:
            return None
        steps.append(Step(port, peer))
    return Path(servers[0], tuple(steps)) if servers else None
