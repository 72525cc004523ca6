"""Networks as networkx graphs, and networkx graphs as networks (docs/graphs.md)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pillarbox.experiments.models.export import network_file
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.spec import parse

if TYPE_CHECKING:
    import networkx


def graph(network: str) -> networkx.Graph:
    """Return a network as an undirected networkx graph of its servers, switches and cables.

    Nodes are named ``h0``, ``s0``, and have the attributes `kind`, `address`, `ipv4` and `label`;
    edges have `level`, `source_port` and `target_port`.

    Parameters
    ----------
    network : str
        Specification of the network, such as ``dcell,4,1``.

    Examples
    --------
    >>> import pillarbox
    >>> pillarbox.graph("bcube,4,1").degree["h0"]
    2
    """
    import networkx

    data = json.loads(network_file(parse(network), "json"))
    found = networkx.Graph(**data["graph"])
    found.add_nodes_from((node.pop("id"), node) for node in data["nodes"])
    found.add_edges_from((edge.pop("source"), edge.pop("target"), edge) for edge in data["edges"])
    return found


def graph_file_text(network: networkx.Graph) -> str:
    """Return a networkx graph as a node-link file, or raise PillarboxError for another object.

    `networkx.node_link_data` has different arguments in different versions of networkx.
    """
    require(
        hasattr(network, "is_directed"),
        f"a network is a text such as 'bcube,4,1' or a networkx graph, not a "
        f"{type(network).__name__}",
    )
    nodes = [{**attributes, "id": node} for node, attributes in network.nodes(data=True)]
    edges = [
        {**attributes, "source": a, "target": b} for a, b, attributes in network.edges(data=True)
    ]
    data = {"directed": network.is_directed(), "nodes": nodes, "edges": edges}
    return json.dumps(data, default=str)
