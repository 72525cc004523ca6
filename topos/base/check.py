"""Contract check of a network, cable by cable, for tests and for authors of new networks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy

from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.polymorphic import NOTHING
from pillarbox.topos.base.topology import Plug, Topology


def problems(topology: Topology) -> list[str]:
    """Return a sentence for each rule of class Topology that the network violates."""
    sentences: list[str] = []
    for check in (
        _cable_problems,
        _scalar_problems,
        _address_problems,
        _array_problems,
        _name_problems,
    ):
        try:
            sentences.extend(check(topology))
        except PillarboxError as error:
            # An exception in the network's class is a problem too; the other checks still run.
            sentences.append(f"the network rejects its own nodes or addresses: {error}")
    return sentences


def _cable_problems(topology: Topology) -> Iterator[str]:
    """Yield a sentence per cable whose ends do not name each other, or for a wrong cable count."""
    plugs = 0
    for node in range(topology.nodes):
        name = topology.node_name(node)
        for port, plug in topology.neighbours(node):
            plugs += 1
            near_end = f"{name} port {port}"
            if not 0 <= plug.node < topology.nodes:
                yield f"{near_end} leads to node {plug.node}, which does not exist"
                continue
            far_end = f"{topology.node_name(plug.node)} port {plug.port}"
            if not 0 <= plug.port < topology.ports_of(plug.node):
                yield f"{near_end} leads to {far_end}, which that node does not have"
            elif topology.plug(plug.node, plug.port) != (node, port, plug.level):
                yield f"{near_end} leads to {far_end}, which does not lead back at the same level"
            if node >= topology.servers <= plug.node and not topology.switches_interconnect:
                yield f"{near_end} leads to a switch, but switches_interconnect is not set"
    if plugs != 2 * topology.cables:
        yield f"the network declares {topology.cables} cables and has {plugs / 2:g}"
    links = Counter(frozenset([(c.a, c.a_port), (c.b, c.b_port)]) for c in topology.links())
    if len(links) != topology.cables or max(links.values(), default=1) > 1:
        yield "links() does not give every cable once"
    arrays = topology.cable_arrays()
    rows = {
        frozenset([(a, p), (b, q)]) for a, p, b, q, _ in zip(*map(_as_ints, arrays), strict=True)
    }
    if rows != set(links):
        yield "cable_arrays() and links() differ"


def _scalar_problems(topology: Topology) -> Iterator[str]:
    """Yield a sentence per method that returns no plain int, and per negative bound."""
    for server in range(topology.servers):
        answers = [*topology.digits(server), topology.uid(server), topology.ipv4(server)]
        for port in range(topology.ports):
            plug = topology.server_plug(server, port)
            answers += plug
            peers = topology.peers(server, port)
            answers += peers
            if _adjacent_servers(topology, server, plug.node) - set(peers):
                yield f"h{server} port {port} leads to {plug.node}, but its peers are {peers}"
        if any(type(answer) is not int for answer in answers):
            yield f"an answer about h{server} is not a plain int: {answers}"
            return
    for bound in (topology.diameter_bound(), topology.bisection(), topology.disjoint_paths()):
        if bound.value is not None and bound.value < 0:
            yield f"the bound {bound.formula} is negative"


def _adjacent_servers(topology: Topology, server: int, far: int) -> set[int]:
    """Return the servers at a cable's far end: one server, or all others on the far switch."""
    if far < topology.servers:
        return {far} - {NOTHING}
    around = {plug.node for _, plug in topology.neighbours(far)}
    return {node for node in around if node < topology.servers} - {server}


def _as_ints(array: Iterable[int]) -> list[int]:
    return [int(value) for value in array]


def _address_problems(topology: Topology) -> Iterator[str]:
    """Yield a sentence per address that is not unique or does not map back to its server."""
    seen_addresses = set()
    for server in range(topology.servers):
        text = topology.address(server)
        seen_addresses.add(text)
        if topology.server(text) != server:
            yield f"server {server} has the address {text}, which leads to another server"
        for digit, radix in zip(topology.digits(server), topology.radices(), strict=True):
            if not 0 <= digit < radix:
                yield f"server {server} has the address {text}, out of range"
        if topology.server_of_ip(topology.ip(server)) != server:
            yield f"server {server} is not found by its IPv4 address {topology.ip(server)}"
        if topology.server_of_uid(topology.uid(server)) != server:
            yield f"server {server} is not found by its uid"
    if len(seen_addresses) != topology.servers:
        yield "two servers have the same address"
    macs = {topology.mac(*end) for end in _cable_ends(topology)}
    if len(macs) != 2 * topology.cables:
        yield "two ports have the same MAC address"


def _cable_ends(topology: Topology) -> Iterator[tuple[int, int]]:
    """Yield (node, port) of every cable end in a network."""
    for node in range(topology.nodes):
        for port, _ in topology.neighbours(node):
            yield node, port


def _array_problems(topology: Topology) -> Iterator[str]:
    """Yield a sentence per method whose results for node arrays and single nodes differ."""
    servers = numpy.arange(topology.servers)
    digits = topology.digits(servers)
    if list(zip(*map(_as_ints, digits), strict=True)) != [topology.digits(int(s)) for s in servers]:
        yield "digits() of an array and of single servers differ"
    if _as_ints(topology.server_at(digits)) != _as_ints(servers):
        yield "server_at() of arrays does not undo digits()"
    addresses = topology.ipv4(servers)
    if _as_ints(addresses) != [topology.ipv4(int(s)) for s in servers]:
        yield "ipv4() of an array and of single servers differ"
    if _as_ints(topology.server_of_ipv4(addresses)) != _as_ints(servers):
        yield "server_of_ipv4() of an array does not undo ipv4()"
    uids = topology.uid(servers)
    if _as_ints(uids) != [topology.uid(int(s)) for s in servers]:
        yield "uid() of an array and of single servers differ"
    for method, count, ports, plugs in (
        ("server_plug", topology.servers, topology.ports, topology.server_plug),
        ("switch_plug", topology.switches, topology.switch_ports, topology.switch_plug),
    ):
        nodes = numpy.arange(count)
        for port in range(ports):
            columns = [numpy.broadcast_to(column, count) for column in plugs(nodes, port)]
            single = [plugs(node, port) for node in range(count)]
            if [
                _normalised_plug(Plug(*row)) for row in zip(*map(_as_ints, columns), strict=True)
            ] != [_normalised_plug(plug) for plug in single]:
                yield f"{method}() of an array and of single nodes differ at port {port}"


def _normalised_plug(plug: Plug) -> Plug:
    """Return a port's far end, with port and level set to 0 if the port has no cable."""
    return Plug(NOTHING, 0, 0) if plug.node == NOTHING else plug


def _name_problems(topology: Topology) -> Iterator[str]:
    """Yield a sentence per node name that is not unique, too long, or not parsed back."""
    names = [topology.interface(*end) for end in _cable_ends(topology)]
    if len(set(names)) != len(names):
        yield "two interfaces have the same name"
    for switch in range(topology.switches):
        if topology.switch(topology.node_name(topology.servers + switch)) != switch:
            yield f"switch {switch} is not found by its name"
    labels = {topology.switch_label(switch) for switch in range(topology.switches)}
    if len(labels) != topology.switches:
        yield "two switches have the same label"
    node_positions = topology.layout().positions
    if set(node_positions) != set(range(topology.nodes)):
        yield "layout() does not place every node"
