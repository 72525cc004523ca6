"""Ingress port of a hop at the next server."""

from __future__ import annotations

from pillarbox.hosts.base.path import Step
from pillarbox.topos.base.topology import Topology


def arrival_port(topology: Topology, server: int, step: Step) -> int:
    """Return the port by which a hop's packet arrives at the next server.

    The port leads back over the same cable or switch.

    Raises ValueError if the hop does not exist.
    """
    plug = topology.server_plug(server, step.port)
    if plug.node == step.peer:
        return int(plug.port)
    if plug.node >= topology.servers and step.peer != server:
        # The usual case, a common switch: without a walk over all servers of each port.
        for port in range(topology.ports):
            if topology.server_plug(step.peer, port).node == plug.node:
                return port
    back = [p for p in range(topology.ports) if server in topology.peers(step.peer, p)]
    ends = {port: topology.server_plug(step.peer, port).node for port in back}
    for port in back:
        if ends[port] == plug.node:
            return port
    for port in back:
        if len(back) == 1 or _in_one_fabric(topology, ends[port], plug.node):
            return port
    raise ValueError(f"port {step.port} of server {server} does not lead to {step.peer}")


def _in_one_fabric(topology: Topology, a: int, b: int) -> bool:
    """Return True if cables between switches lead from one switch to another."""
    visited = {a}
    for switch in (queue := [a]):
        for _, plug in topology.neighbours(switch):
            if plug.node >= topology.servers and plug.node not in visited:
                visited.add(plug.node)
                queue.append(plug.node)
    return b in visited
