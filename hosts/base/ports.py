"""Ingress port of a hop at the next server."""

from __future__ import annotations

from hosts.base.path import Step
from topos.base.topology import Topology


def arrival_port(topology: Topology, server: int, step: Step) -> int:
    """Return the port by which a hop's packet arrives at the next server.

    The port leads back over the same cable or switch.

    Raises ValueError if the hop does not exist.
    """
    plug = topology.server_plug(server, step.port)
    if plug.node == step.peer:
        return int(plug.port)
    back = [p for p in range(topology.ports) if server in topology.peers(step.peer, p)]
    same_switch = (p for p in back if topology.server_plug(step.peer, p).node == plug.node)
    for port in (*same_switch, *back):
        return port
    raise ValueError(f"port {step.port} of server {server} does not lead to {step.peer}")
