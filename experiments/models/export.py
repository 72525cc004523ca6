"""Files of a network for other tools: graphs, and the topology files of simulators and emulators.

=============  ====================  =============================================================
format         suffix                what reads the file
=============  ====================  =============================================================
graphml        .graphml              networkx.read_graphml, and `pillarbox topo FILE.graphml`
json           .json                 networkx.node_link_graph, and `pillarbox topo FILE.json`
dot            .dot, .gv             Graphviz, and `pillarbox topo FILE.dot`
ns3            .inet                 InetTopologyReader of ns-3 (Inet 3.0 format)
htsim          .topo                 FatTreeTopology::load of csg-htsim: fat-trees only
astra-sim      (with --format)       NetworkParser of ASTRA-sim's analytical network
containerlab   .clab.yml, .clab.yaml containerlab deploy
=============  ====================  =============================================================

Nodes have Pillarbox's names (h0, s0), and servers come first: a network that is exported and read
again has the same server numbers. A format that cannot carry the network is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from pillarbox.topos.base.errors import PillarboxError, UnsupportedError, require
from pillarbox.topos.base.topology import Topology
from pillarbox.topos.fattree import FatTree

MOST_CABLES = 1_000_000  # maximum number of cables of an exported network
# Rate and delay of every cable, in formats that demand both: those of csg-htsim's example files.
RATE_GBPS, DELAY_NS = 100, 1000
IMAGE = "alpine"  # container image of every node in a containerlab file
CABLES_NOTE = (
    f"Relative rate 1 is {RATE_GBPS} Gbit/s, the delay {DELAY_NS} ns: change both as needed."
)

NODE_KEYS = ("kind", "address", "ipv4", "label")
CABLE_KEYS = ("level", "source_port", "target_port", "rate")


def network_file(topology: Topology, name: str) -> str:
    """Return the content of a network's file in the format of this name, or raise PillarboxError.

    >>> from pillarbox import topos
    >>> print(network_file(topos.parse("bcube,4,1"), "astra-sim"))
    # bcube,4,1: innermost dimension first. Bandwidths in GB/s, latencies in ns.
    # Relative rate 1 is 100 Gbit/s, the delay 1000 ns: change both as needed.
    topology: [ Switch, Switch ]
    npus_count: [ 4, 4 ]
    bandwidth: [ 12.5, 12.5 ]
    latency: [ 1000.0, 1000.0 ]
    <BLANKLINE>
    """
    require(
        topology.cables <= MOST_CABLES,
        f"{topology.spec} has {topology.cables} cables; the maximum for an export is {MOST_CABLES}",
    )
    return "\n".join(WRITERS[name](topology)) + "\n"


def format_of(file: Path, name: str | None) -> str:
    """Return the name of a file's format: the given name, or that of the suffix.

    >>> format_of(Path("net.clab.yml"), None), format_of(Path("net.txt"), "ns3")
    ('containerlab', 'ns3')
    """
    if name:
        return name
    for suffix, found in SUFFIXES.items():
        if file.name.endswith(suffix):
            return found
    raise PillarboxError(
        f"the suffix of {file.name!r} names no format: add --format with one of "
        f"{', '.join(WRITERS)}, or take one of the suffixes {', '.join(SUFFIXES)}"
    )


def node_attributes(topology: Topology, node: int) -> dict[str, Any]:
    """Return the attributes of a server (address, IPv4 address) or of a switch (label)."""
    if node >= topology.servers:
        return {"kind": "switch", "label": topology.switch_label(node - topology.servers)}
    attributes = {"kind": "server", "address": topology.address(node)}
    try:
        return {**attributes, "ipv4": topology.ip(node)}
    except PillarboxError:  # larger than 10.0.0.0/8
        return attributes


def _cables(topology: Topology) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Yield both ends' names and the attributes of every cable."""
    for cable in topology.links():
        level, *ports = int(cable.level), int(cable.a_port), int(cable.b_port)
        attributes = dict(zip(CABLE_KEYS, (level, *ports), strict=False))
        if topology.factors.rates:
            attributes["rate"] = topology.rate_of_level(level)
        yield topology.node_name(cable.a), topology.node_name(cable.b), attributes


def _nodes(topology: Topology) -> Iterator[tuple[str, dict[str, Any]]]:
    for node in range(topology.nodes):
        yield topology.node_name(node), node_attributes(topology, node)


def _graphml(topology: Topology) -> Iterator[str]:
    yield '<?xml version="1.0" encoding="utf-8"?>'
    yield '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    for domain, keys, value_type in (("node", NODE_KEYS, "string"), ("edge", CABLE_KEYS, "int")):
        for key in keys:
            yield f'<key id="{key}" for="{domain}" attr.name="{key}" attr.type="{value_type}"/>'
    yield f'<graph id={quoteattr(topology.spec)} edgedefault="undirected">'
    for name, attributes in _nodes(topology):
        yield f'<node id="{name}">{_graphml_data(attributes)}</node>'
    for a, b, attributes in _cables(topology):
        yield f'<edge source="{a}" target="{b}">{_graphml_data(attributes)}</edge>'
    yield "</graph>"
    yield "</graphml>"


def _graphml_data(attributes: dict[str, Any]) -> str:
    values = ((key, escape(str(value))) for key, value in attributes.items())
    return "".join(f'<data key="{key}">{value}</data>' for key, value in values)


def _node_link(topology: Topology) -> Iterator[str]:
    graph = {
        "directed": False,
        "multigraph": False,
        "graph": {"name": topology.spec},
        "nodes": [{"id": name, **attributes} for name, attributes in _nodes(topology)],
        "edges": [{"source": a, "target": b, **found} for a, b, found in _cables(topology)],
    }
    yield json.dumps(graph, indent=1)


def _dot(topology: Topology) -> Iterator[str]:
    yield f"graph {_quoted_dot(topology.spec)} {{"
    for name, attributes in _nodes(topology):
        yield f"  {name} [{_dot_attributes(attributes)}];"
    for a, b, attributes in _cables(topology):
        yield f"  {a} -- {b} [{_dot_attributes(attributes)}];"
    yield "}"


def _dot_attributes(attributes: dict[str, Any]) -> str:
    return ", ".join(f"{key}={_quoted_dot(str(value))}" for key, value in attributes.items())


def _quoted_dot(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _ns3(topology: Topology) -> Iterator[str]:
    """Yield Inet 3.0's lines: counts; number and position of each node; ends, weight of each cable.

    The reader names nodes by number and skips positions. Switches follow the servers.
    """
    yield f"{topology.nodes} {topology.cables}"
    for node in range(topology.nodes):
        yield f"{node} 0 0"
    for cable in topology.links():
        yield f"{cable.a} {cable.b} 1"


def _htsim(topology: Topology) -> Iterator[str]:
    """Yield csg-htsim's description of a fat-tree: its counts, then each tier from the leaves."""
    if not isinstance(topology, FatTree) or topology.levels not in (2, 3):
        raise UnsupportedError(
            f"htsim's format describes fat-trees of 2 or 3 levels, and cannot carry "
            f"{topology.spec}: export fattree,n, or take another format"
        )
    tiers = topology.levels
    pod = topology.servers if tiers == 2 else topology.half**2
    yield f"# {topology.spec}. {CABLES_NOTE}"
    yield from (f"Nodes {topology.servers}", f"Tiers {tiers}", f"Podsize {pod}")
    for tier in range(tiers):
        top = tier == tiers - 1
        rate = RATE_GBPS * topology.rate_of_level(tier)
        yield from ("", f"Tier {tier}", f"Downlink_speed_Gbps {rate}")
        yield f"Radix_Down {topology.n if top else topology.half}"
        if not top:
            yield f"Radix_Up {topology.half}"
        yield from (f"Downlink_Latency_ns {DELAY_NS}", "Switch_Latency_ns 0")


def _astra_sim(topology: Topology) -> Iterator[str]:
    """Yield the YAML of ASTRA-sim's analytical network: building block and size per dimension."""
    blocks = dimensions(topology)
    if blocks is None:
        raise UnsupportedError(
            f"ASTRA-sim's analytical network is a product of switches, rings and full meshes of "
            f"servers, which {topology.spec} is not: export a network such as bcube,4,1"
        )

    def row(values: list[Any]) -> str:
        return f"[ {', '.join(map(str, values))} ]"

    yield f"# {topology.spec}: innermost dimension first. Bandwidths in GB/s, latencies in ns."
    yield f"# {CABLES_NOTE}"
    yield f"topology: {row([block.block for block in blocks])}"
    yield f"npus_count: {row([block.servers for block in blocks])}"
    rates = [RATE_GBPS / 8 * topology.rate_of_level(block.level) for block in blocks]
    yield f"bandwidth: {row(rates)}"
    yield f"latency: {row([float(DELAY_NS) for _ in blocks])}"


class Dimension(NamedTuple):
    """A dimension of a network: block in ASTRA-sim's words, number of servers, level of cables."""

    block: str
    servers: int
    level: int


def dimensions(topology: Topology) -> list[Dimension] | None:
    """Return a network's dimensions, innermost (last digit) first; None if it is no product.

    In a product, two servers are one hop apart only if their addresses differ in one digit, and
    the servers that differ in that digit form a switch, a full mesh or a ring.

    >>> from pillarbox import topos
    >>> dimensions(topos.parse("bcube,4,1"))
    [Dimension(block='Switch', servers=4, level=0), Dimension(block='Switch', servers=4, level=1)]
    >>> dimensions(topos.parse("dcell,4,1")) is None
    True
    """
    radices = topology.radices()
    if topology.switches_interconnect or math.prod(radices) != topology.servers or 1 in radices:
        return None
    first = _blocks_of(topology, 0)
    if any(_blocks_of(topology, server) != first for server in range(topology.servers)):
        return None
    return first and first[::-1]


def _blocks_of(topology: Topology, server: int) -> list[Dimension] | None:
    """Return the dimensions of one server's cables, in the order of its digits."""
    switched, direct, cables = [], set(), 0
    level_to: dict[int, int] = {}  # level of the cable towards each server one hop away
    for port, plug in topology.neighbours(server):
        cables += 1
        peers = topology.peers(server, port)
        level_to |= dict.fromkeys(peers, plug.level)
        if plug.node >= topology.servers:
            switched.append(set(peers))
        else:
            direct.add(plug.node)
    found, used = [], 0
    digits, radices = topology.digits(server), topology.radices()
    for place, radix in enumerate(radices):
        line = [
            topology.server_at([*digits[:place], digit, *digits[place + 1 :]])
            for digit in range(radix)
        ]
        others = set(line) - {server}
        ring = {line[(digits[place] + step) % radix] for step in (1, -1)}
        cabled = direct & others
        if others in switched and not cabled:
            found.append(Dimension("Switch", radix, level_to[min(others)]))
            used += 1
        elif cabled in (others, ring):
            block = "FullyConnected" if cabled == others else "Ring"
            found.append(Dimension(block, radix, level_to[min(cabled)]))
            used += len(cabled)
        else:
            return None
    return found if used == cables else None


def _containerlab(topology: Topology) -> Iterator[str]:
    """Yield containerlab's YAML; port p is eth(p + 1), since eth0 is the management network."""
    name = re.sub(r"[^a-z0-9]+", "-", Path(topology.spec).name.casefold()).strip("-")
    yield f"# {json.dumps(topology.spec)[1:-1]}"
    yield f"name: {name}"
    yield "topology:"
    yield "  defaults:"
    yield "    kind: linux"
    yield f"    image: {IMAGE}"
    yield "  nodes:"
    for node, attributes in _nodes(topology):
        yield f"    {node}:"
        yield "      labels:"
        yield from (f"        {key}: {json.dumps(text)}" for key, text in attributes.items())
    yield "  links:"
    for a, b, found in _cables(topology):
        ends = f'"{a}:eth{found["source_port"] + 1}", "{b}:eth{found["target_port"] + 1}"'
        yield f"    - endpoints: [{ends}]"


# Writers of the formats' lines, by name of the format.
WRITERS: dict[str, Callable[[Topology], Iterator[str]]] = {
    "graphml": _graphml,
    "json": _node_link,
    "dot": _dot,
    "ns3": _ns3,
    "htsim": _htsim,
    "astra-sim": _astra_sim,
    "containerlab": _containerlab,
}
# Names of formats by the suffix of a file.
SUFFIXES = {
    ".graphml": "graphml",
    ".json": "json",
    ".dot": "dot",
    ".gv": "dot",
    ".inet": "ns3",
    ".topo": "htsim",
    ".clab.yml": "containerlab",
    ".clab.yaml": "containerlab",
}
