"""Output of Mininet's `nodes`, `net`, `links`, `dump` and `intfs`, with addresses as names."""

from __future__ import annotations

from collections.abc import Sequence

from pillarbox.experiments.base.text import columns, listing, paragraphs
from pillarbox.hosts.base.failures import Failures
from pillarbox.topos.base.topology import Topology


def nodes_text(topology: Topology) -> str:
    """Return text that lists the addresses of all servers and the names of all switches.

    >>> from pillarbox import topos
    >>> print(nodes_text(topos.parse("dcell,2,1")))
    servers: 0.0 0.1 1.0 1.1 2.0 2.1
    switches: s0 s1 s2
    """
    names = list(map(topology.name, range(topology.nodes)))
    servers, switches = names[: topology.servers], names[topology.servers :]
    return paragraphs([f"servers: {' '.join(servers)}", f"switches: {' '.join(switches)}"])


def port_peers_text(topology: Topology) -> str:
    """Return a text with each port of each node and the port at its cable's far end.

    >>> from pillarbox import topos
    >>> print(port_peers_text(topos.parse("dcell,2,1")).splitlines()[1])
    0.0  port 0: s0 port 0, port 1: 1.0 port 1
    """
    rows = []
    for node in range(topology.nodes):
        ends = (
            f"port {port}: {topology.name(plug.node)} port {plug.port}"
            for port, plug in topology.neighbours(node)
        )
        rows.append([topology.name(node), ", ".join(ends)])
    return listing([["node", "cables"], *rows])


def cables_table(topology: Topology, failures: Failures) -> str:
    """Return a table of cables: name as in faults, state, and interfaces at both ends."""
    rows = []
    for cable in topology.links():
        a, b = topology.name(cable.a), topology.name(cable.b)
        down = [topology.name(node) for node in (cable.a, cable.b) if node in failures.nodes]
        state = f"{' and '.join(down)} down" if down else "ok"
        state = "cut" if frozenset([cable.a, cable.b]) in failures.links else state
        ends = ((cable.a, cable.a_port), (cable.b, cable.b_port))
        rows.append([f"{a}-{b}", state, *(topology.interface(*end) for end in ends)])
    return columns([["cable", "state", "interfaces", ""], *rows])


def nodes_table(topology: Topology, failures: Failures) -> str:
    """Return a table of nodes with state and ports; servers also with host name and IP address."""
    rows = []
    for node in range(topology.nodes):
        is_server = node < topology.servers
        names = [topology.node_name(node), topology.ip(node)] if is_server else ["", ""]
        state = "down" if node in failures.nodes else "ok"
        rows.append([topology.name(node), *names, state, " ".join(_ports(topology, node))])
    return columns([["node", "host name", "IP address", "state", "interfaces"], *rows])


def interfaces_table(topology: Topology, own: Sequence[str]) -> str:
    """Return a table of each node's interfaces; `own` are those of servers that are not ports."""
    rows = []
    for node in range(topology.nodes):
        more = own if node < topology.servers else ()
        rows.append([topology.name(node), " ".join([*more, *_ports(topology, node)])])
    return columns([["node", "interfaces"], *rows])


def _ports(topology: Topology, node: int) -> list[str]:
    return [topology.interface(node, port) for port, _ in topology.neighbours(node)]
