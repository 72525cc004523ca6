"""Packet tracing in a running lab: a marked packet is sent and followed, hop by hop.

Every forwarder records its actions on packets with a mark (`pillarbox.hosts.wire.marks`), and
passes them through its router on either plane. If servers do not relay, sockets at the switches'
ports capture the mark (`following`).
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from typing import Any

from pillarbox.experiments.lab.emulation.fabric import ForwarderQueries, Nodes
from pillarbox.experiments.lab.observe.switch_tracing import SwitchTracer
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.path import Path, switches_between
from pillarbox.hosts.base.pinned_paths import pinned_path
from pillarbox.hosts.linux.calls import readable
from pillarbox.hosts.wire.marks import TRACED, serial_of, udp_payload
from pillarbox.topos.base.addressing import NO_PORTS, End, EndPorts
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

LONGEST_PACKET = 1 << 16
TRACE_PORT = 9  # UDP port of marked packets: the "discard" service
TRACE_S = 2.0
TRACE_PAIRS_S = 10.0
# Maximum number of packets traced together: a server may record each one eight times (TRACES).
MOST_PAIRS = 512
NOWHERE: dict[str, Any] = {"delivered": False, "dropped": "", "lost_to": "", "lost_port": None}


class PacketTracer:
    """Sends marked packets in a network and finds their paths; `dead` are the dead servers."""

    def __init__(
        self,
        topology: Topology,
        net: Nodes,
        forwarders: ForwarderQueries | None,
        dead: Collection[int],
    ) -> None:
        self.topology, self._net = topology, net
        self._forwarders, self._dead = forwarders, dead
        self._serials = count(1)
        self._lock = threading.Lock()  # two traces cannot listen on a server simultaneously

    def trace(
        self,
        source: int,
        destination: int,
        source_port: int = 0,
        ports: EndPorts = NO_PORTS,
    ) -> dict[str, Any]:
        """Send a marked packet and return its path, hop by hop.

        If servers do not relay, the hops are the switches that the packet reached.

        Parameters
        ----------
        source, destination : int
            The two servers.
        source_port : int
            UDP port that the packet is sent from; 0 for any.
        ports : pair of int or None
            Ports of the servers whose addresses the packet has, in labs with port addresses.

        Returns
        -------
        dict
            ``path``: addresses reached; ``delivered``: True if the packet arrived; ``dropped``: the
            reason if a server dropped it; ``lost_to`` and ``lost_port``: the last next hop and
            egress port, if the packet never arrived at that hop.
        """
        serial = next(self._serials)
        if self._forwarders is None:
            return self._trace_switches(serial, source, destination, source_port)
        require(
            source not in self._dead,
            f"server {self.topology.name(source)} is dead, and cannot send",
        )
        with self._lock, ExitStack() as listening:
            listeners = []
            if destination not in self._dead:
                # A socket bound to the destination port prevents ICMP "port unreachable".
                listeners.append(listening.enter_context(self.listener(destination)))
            self.send(serial, source, destination, source_port, ports)
            self._wait(listeners)
            deadline = time.monotonic() + TRACE_S
            records = partial(self._records, self._forwarders, serial)
            found = self._trace_from_records(records, source)
            while not (found["delivered"] or found["dropped"]) and time.monotonic() < deadline:
                time.sleep(0.02)
                found = self._trace_from_records(records, source)
        return found

    def trace_pairs(self, pairs: Sequence[tuple[int, int]], wait_s: float) -> list[dict[str, Any]]:
        """Send a marked packet between each pair of servers, all together; return their traces.

        A packet is delivered if a socket on its destination receives it within `wait_s` after the
        last packet was sent. At most `MOST_PAIRS` pairs fit into the servers' trace records.
        """
        require(self._forwarders is not None, "the servers of this network do not relay")
        assert self._forwarders
        require(len(pairs) <= MOST_PAIRS, f"trace at most {MOST_PAIRS} pairs together")
        serials = [next(self._serials) for _ in pairs]
        with self._lock, ExitStack() as listening:
            receivers = {
                server: listening.enter_context(self.listener(server))
                for server in {server for _, server in pairs} - {*self._dead}
            }
            for serial, (source, destination) in zip(serials, pairs, strict=True):
                with suppress(OSError):  # the source is dead: it has no route
                    self.send(serial, source, destination, 0)
            received = _received_serials(receivers, len(pairs), wait_s)
        records: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
        for server in range(self.topology.servers):
            for one in self._forwarders.ask(server, "trace") or []:
                records[one["serial"], server].append(one)
        found = []
        for serial, (source, destination) in zip(serials, pairs, strict=True):
            trace = self._trace_from_records(partial(_records_at, records, serial), source)
            arrived = trace["path"][-1] == self.topology.address(destination)
            trace["delivered"] &= arrived and (destination, serial) in received
            found.append(trace)
        return found

    @staticmethod
    def _records(forwarders: ForwarderQueries, serial: int, server: int) -> list[dict[str, Any]]:
        """Return a server's trace records of a packet."""
        return [one for one in forwarders.ask(server, "trace") or [] if one["serial"] == serial]

    def listener(self, server: int) -> Any:
        """Return a socket that receives marked packets at a server; the caller closes it."""
        return self._udp_socket(server, "", TRACE_PORT)

    def send(
        self,
        serial: int,
        source: int,
        destination: int,
        source_port: int,
        ports: EndPorts = NO_PORTS,
    ) -> None:
        """Send a marked UDP packet from a server to another."""
        out_by, in_by = ports
        own = "" if out_by is None else self.topology.end_ip(End(source, out_by))
        target = self.topology.end_ip(End(destination, in_by))
        with self._udp_socket(source, own, source_port) as sender:
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, TRACED)
            sender.sendto(udp_payload(serial), (target, TRACE_PORT))

    def _wait(self, listeners: list[Any]) -> None:
        """Wait briefly for a marked packet at its destination, before servers' records are read."""
        readable(listeners, TRACE_S / 20)

    def _trace_switches(
        self, serial: int, source: int, destination: int, source_port: int
    ) -> dict[str, Any]:
        name, target = self.topology.name(source), self.topology.ip(destination)
        with (
            SwitchTracer(self._net, TRACE_PORT) as follower,
            self._udp_socket(destination, target, TRACE_PORT) as listener,
            self._udp_socket(source, "", source_port) as sender,
        ):
            try:
                sender.sendto(udp_payload(serial), (target, TRACE_PORT))
            except OSError as error:  # the sender's port is down
                dropped = f"{name} cannot send: {error.strerror}"
                return {**NOWHERE, "path": [name], "dropped": dropped}
            arrived = bool(readable([listener], TRACE_S))
            path = [name, *follower.passed(serial)]
        if arrived:
            path.append(self.topology.name(destination))
        dropped = "" if arrived else "switches report no reason"
        return {**NOWHERE, "path": path, "delivered": arrived, "dropped": dropped}

    def _udp_socket(self, server: int, address: str, port: int) -> socket.socket:
        with self._net[self.topology.node_name(server)].live_namespace():
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((address, port))
        return made

    def _trace_from_records(
        self, records: Callable[[int], list[dict[str, Any]]], source: int
    ) -> dict[str, Any]:
        """Return a packet's trace, assembled from the records of all servers that it passed.

        `records` returns the records of a server; one without a record of the packet was not
        reached.
        """
        at, path = source, [self.topology.address(source)]
        seen: Counter[int] = Counter()
        found: dict[str, Any] = {**NOWHERE, "path": path}
        while True:
            own = records(at)
            if len(own) <= seen[at]:
                return found
            # The marked packet was not lost here if the next server has recorded it.
            if found["lost_to"]:
                path.append(found["lost_to"])
                found["lost_to"], found["lost_port"] = "", None
            what = own[seen[at]]
            seen[at] += 1
            if what["did"] != "sent":
                found["delivered"] = what["did"] == "delivered"
                found["dropped"] = what.get("reason", "")
                return found
            found["lost_to"], found["lost_port"] = what["peer"], what["port"]
            at = self.topology.server(what["peer"])


def _records_at(
    records: Mapping[tuple[int, int], list[dict[str, Any]]], serial: int, server: int
) -> list[dict[str, Any]]:
    """Return the trace records of a packet at a server, given all records."""
    return records.get((serial, server), [])


def _received_serials(
    receivers: Mapping[int, socket.socket], most: int, wait_s: float
) -> set[tuple[int, int]]:
    """Return the (server, serial number) of marked packets that sockets on servers receive.

    The function returns after `most` packets, after `wait_s` without another marked packet (a flood
    of other packets does not count), or after `TRACE_PAIRS_S`.
    """
    now_s = time.monotonic()
    end_s, silent_s = now_s + TRACE_PAIRS_S, now_s + wait_s
    found: set[tuple[int, int]] = set()
    server_of = {receiver: server for server, receiver in receivers.items()}
    while len(found) < most and now_s < min(end_s, silent_s):
        before = len(found)
        for receiver in readable([*server_of], silent_s - now_s):
            serial = serial_of(receiver.recv(LONGEST_PACKET))
            if serial is not None:
                found.add((server_of[receiver], serial))
        now_s = time.monotonic()
        if len(found) > before:
            silent_s = now_s + wait_s
    return found


def computed(
    topology: Topology,
    routing: str,
    source: int,
    destination: int,
    failures: Failures,
    ports: EndPorts = NO_PORTS,
) -> list[str]:
    """Return the path of the routing with all failures known; empty if there is no path.

    Between the addresses of ports it is their pinned path, unless that has failed.

    If servers do not relay, the path includes the switches. For a live flow, the switches' own
    hash selects one of several paths of equal cost.
    """
    pinned = pinned_path(topology, source, ports[0], destination, ports[1])
    if pinned and not failures.first_on(topology, pinned):
        return named(topology, pinned, failures)
    if routing.endswith(".py"):
        return []
    found = route(topology, routing, source, destination, failures)
    return named(topology, found.paths[0], failures) if found.paths else []


def named(topology: Topology, path: Path, failures: Failures) -> list[str]:
    """Return the names of the nodes on a path, with switches if servers do not relay."""
    passed = [path.source]
    for server, step in zip(path.servers, path.steps, strict=False):
        if topology.ports == 1:
            passed += switches_between(topology, server, step, failures.nodes, failures.links)
        passed.append(step.peer)
    return [topology.name(node) for node in passed]
