"""Points of the servers of a class network, computed from traces of packets.

In each round every server sends a packet to every other server, and the lab traces the packets.
Half of a server's points is the share of its own packets that arrive: those that it sends, and
those that reach it as their destination. The other half is the share that arrives of the packets
that others handed to it as a relay. A packet that cannot arrive is not counted: its source was
killed, its destination is dead, or no path works. A server's points are the mean of its rounds.

A loss counts against all servers that had the packet, even if the destination dropped it: otherwise
a relay could spoil packets at the last hop without losing points.

The lab measures all of this, and a student's code cannot influence it: docs/class-network.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any, NamedTuple

from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.shortest import steps
from pillarbox.topos.base.topology import Topology

NOT_PASSED_ON = "it did not pass the packet on"
FULL_POINTS = 100.0


class Packet(NamedTuple):
    """A traced packet between two servers.

    Attributes
    ----------
    source, destination
        The two servers.
    path
        Servers that had the packet, the source first.
    arrived
        True if the destination received the packet.
    reason
        Reason of the loss at the last server of the path; empty if the packet arrived.
    """

    source: int
    destination: int
    path: tuple[int, ...]
    arrived: bool
    reason: str = ""

    @property
    def relays(self) -> set[int]:
        """Servers other than source and destination that had the packet."""
        return {*self.path} - {self.source, self.destination}


@dataclass
class Score:
    """Packets of a server in a round, or in all rounds so far."""

    own: int = 0  # packets sent, and packets that reached the server as their destination
    own_arrived: int = 0
    relayed: int = 0  # packets that other servers handed over to be relayed
    relayed_arrived: int = 0
    losses: Counter[str] = field(default_factory=Counter)  # counted packets lost here, by reason
    of_rounds: list[float] = field(default_factory=list)  # points of the rounds so far

    def add(self, one: Score) -> None:
        """Add the packets of a round; a round without any packet of the server is not counted."""
        self.own += one.own
        self.own_arrived += one.own_arrived
        self.relayed += one.relayed
        self.relayed_arrived += one.relayed_arrived
        self.losses += one.losses
        shares = [
            arrived / count
            for arrived, count in ((one.own_arrived, one.own), (one.relayed_arrived, one.relayed))
            if count
        ]
        if shares:
            self.of_rounds.append(FULL_POINTS * mean(shares))

    @property
    def points(self) -> float:
        """Points of a server, from 0 to 100: the mean of the rounds."""
        return mean(self.of_rounds or [0.0])


def packet_of(
    topology: Topology, pair: tuple[int, int], trace: dict[str, Any], failures: Failures
) -> Packet:
    """Return a traced packet, given its trace by `PacketTracer` and the failures in effect.

    A server that was sent the packet over a working hop had it, even without any record of it.
    """
    path = [topology.server(name) for name in trace["path"]]
    reason = trace["dropped"]
    if trace["lost_to"] and not reason:
        peer, last = topology.server(trace["lost_to"]), path[-1]
        works = any(
            (step.port, step.peer) == (trace["lost_port"], peer)
            for step in steps(topology, last, failures)
        )
        path += [peer] * works
        reason = NOT_PASSED_ON if works else "it sent the packet to a failed next hop"
    elif not reason:
        reason = NOT_PASSED_ON
    return Packet(*pair, tuple(path), trace["delivered"], "" if trace["delivered"] else reason)


def add_packets(
    scores: dict[int, Score],
    packets: Iterable[Packet],
    topology: Topology,
    failures: Failures,
    stopped: Collection[int],
) -> None:
    """Add packets of a round to the scores of all servers in this round.

    `stopped` are servers whose student's code does not run: their packets count as lost.
    """
    reached = _reachable_servers(topology, failures, stopped)
    for packet in packets:
        source, destination, last = packet.source, packet.destination, packet.path[-1]
        if not packet.arrived:
            if destination not in reached[source]:
                continue
            scores[last].losses[packet.reason] += 1
        for end in {source, last} & {source, destination}:
            scores[end].own += 1
            scores[end].own_arrived += packet.arrived
        for relay in packet.relays:
            scores[relay].relayed += 1
            scores[relay].relayed_arrived += packet.arrived


def _reachable_servers(
    topology: Topology, failures: Failures, stopped: Collection[int]
) -> dict[int, set[int]]:
    """Return the servers that each server can reach, by server; none for a failed server.

    A stopped server reaches what its neighbours reach, but relays nothing and is not reached.
    """
    dead = replace(failures, nodes=failures.nodes | {*stopped})
    reached: dict[int, set[int]] = {}
    for server in range(topology.servers):
        if server in dead.nodes or server in reached:
            continue
        group = {server}
        for at in (queue := [server]):
            found = {step.peer for step in steps(topology, at, dead)} - group
            group |= found
            queue += found
        reached |= dict.fromkeys(group, group)
    for server in range(topology.servers):
        if server in dead.nodes:
            alive = server not in failures.nodes
            next_hops = (step.peer for step in steps(topology, server, dead) if alive)
            reached[server] = set[int]().union(*(reached[peer] for peer in next_hops))
    return reached
