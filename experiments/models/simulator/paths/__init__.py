"""Compiled routing: the rules that hosts/NETWORK declares, for arrays of flows.

Flows are arrays of sources and destinations, which differ; where a routing has several paths for a
pair, a third array holds the number of each flow's path. Routings without a rule have a file per
network, ``fattree.py`` for hosts/fattree.py. Routings that are not compiled run flow by flow
(`uncompiled`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy
from numpy.random import Generator

from pillarbox.experiments.models.arrays import Bools, Ints
from pillarbox.experiments.models.fluid.directed_links import (
    Routes,
    link_count,
    link_of,
    port_counts,
)
from pillarbox.experiments.models.simulator.compiled import bound, native_in_place
from pillarbox.experiments.models.simulator.compiled_networks import network_table
from pillarbox.experiments.models.simulator.hops import (
    Fill,
    HopLinks,
    Hops,
    add_link_flows,
    as_int64_array,
    block_by_block,
    hop_links,
    hops_of_flows,
    link_type,
    routes_of_hops,
    write_links_of_hop,
)
from pillarbox.experiments.models.simulator.uncompiled import fill_by, path_finder, routes_by
from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.hosts.base.declarations import declared
from pillarbox.hosts.base.rules import Rule, SwitchPath
from pillarbox.topos.base.errors import UnknownNameError, require
from pillarbox.topos.base.topology import Topology

Numbers: TypeAlias = tuple[Any, ...]  # parameters of a network, as its rules take them
MOST_HOPS = 255  # maximum number of hops per path, for routings that are not compiled


class WalkRule(NamedTuple):
    """Compiled routing rule that computes flows' hops from server to server."""

    # function that returns, given each flow's path number, the function that writes hops
    fill: Callable[[Ints], Fill]
    most: int  # maximum number of hops of a path
    arrivals: Sequence[int | None]  # arrival port by departure port (see `routes_of_hops`)


class CompiledRouting(NamedTuple):
    """A simulated routing, which has `walk` or `routes`, or both."""

    # Function that returns how to compute flows' hops; None if a path has only switches.
    walk: Callable[[Any], WalkRule] | None = None
    # Function that returns flows' links; None: `routes` and `link_flows` use `walk`.
    routes: Callable[[Any, Ints, Ints, Ints], Routes] | None = None
    # Function that returns the number of paths per server pair; equal paths count repeatedly.
    choices: Callable[[Any], int] = lambda _: 1
    # Function that returns the links of flows, each on a random one of its working paths.
    working: Callable[[Any, Ints, Ints, Bools, Generator], Routes] | None = None
    # Function that adds flows to the number of flows on each link, if it is faster than `routes`.
    add_flows: Callable[[Any, Ints, Ints, Ints, Ints], None] | None = None
    # True if the routing runs in Python, flow by flow, and may not be thread-safe
    in_python: bool = False


def compiled_routings(topology: Topology) -> dict[str, CompiledRouting]:
    """Return the network's compiled algorithms by name; empty if the network has none."""
    return dict(_compiled_of_kind(topology.kind))


@cache  # cached, since it is called for every block of flows of a network
def _compiled_of_kind(kind: str) -> dict[str, CompiledRouting]:
    network = declared(kind)
    rules = network.rules if network else {}
    ruled = {name: _compiled(rule) for name, rule in rules.items()}
    return ruled | network_table("paths", kind, "ALGORITHMS")


def _compiled(rule: Rule | SwitchPath) -> CompiledRouting:
    walk = partial(_walk_of_rule, rule) if isinstance(rule, Rule) else None
    return CompiledRouting(
        walk,
        partial(_routes_of_rule, rule),
        rule.choices,
        partial(_working_routes, rule),
        partial(_add_flows_of_rule, rule),
    )


def rule(*_numbers: Any) -> Iterator[tuple[int, int]]:
    """Placeholder for the rule with which a function is compiled."""
    raise NotImplementedError


def write_hop(_space: Any, _end: int, _here: int, _port: int, _peer: int) -> int:
    """Placeholder for the function that writes a hop, or a hop's links; it returns the new end."""
    raise NotImplementedError


def write_links(
    _state: Any, _source: int, _destination: int, _choice: int, _links: Ints, _begin: int
) -> int:
    """Placeholder for the function that writes the links of a path; it returns their end."""
    raise NotImplementedError


def _path_writer(rule: Rule, write: Callable[..., int]) -> Callable[..., int]:
    return bound(write_path, rule=rule.hops, write_hop=write)


def write_path(
    numbers: Numbers, source: int, destination: int, choice: int, space: Any, begin: int
) -> int:
    """Write the hops of a path between its ends (see `pillarbox.hosts.base.rules.Rule`).

    `write_hop` writes the hops to `space`, from position `begin` on. Return the end of the path.
    """
    end, here = begin, source
    for port, peer in rule(*numbers, source, destination, choice):
        if peer == source:
            end, here = begin, source
            continue
        end = write_hop(space, end, here, port, peer)
        here = peer
        if peer == destination:
            break
    return end


def _walk_of_rule(rule: Rule, topology: Topology) -> WalkRule:
    write = native_in_place(_write_hops, write_path=_path_writer(rule, write_row))
    fill = partial(write, rule.numbers(topology))
    return WalkRule(
        lambda choice: partial(fill, as_int64_array(choice)),
        rule.most(topology),
        rule.arrivals(topology),
    )


def _write_hops(
    numbers: Numbers, choice: Ints, sources: Ints, destinations: Ints, hops: Hops
) -> None:
    """Write the hops of each flow."""
    for flow in range(len(sources)):
        ends = sources[flow], destinations[flow]
        row = hops.ports[flow], hops.peers[flow]
        hops.counts[flow] = write_path(numbers, *ends, choice[flow], row, 0)


def write_row(space: tuple[Ints, Ints], end: int, _here: int, port: int, peer: int) -> int:
    """Write a hop's port and peer; return the new number of hops."""
    ports, peers = space
    ports[end] = port
    peers[end] = peer
    return end + 1


class LinkWriter(NamedTuple):
    """Function to compile in place of `write_links`, with its first argument."""

    write: Callable[..., int]
    state: tuple[Numbers, Any]
    most: int  # maximum number of links of a path


def _link_writer(rule: Rule | SwitchPath, topology: Topology) -> LinkWriter:
    numbers, most = rule.numbers(topology), rule.most(topology)
    if isinstance(rule, SwitchPath):
        over_switches = bound(write_switch_links, rule=rule.links)
        return LinkWriter(over_switches, (numbers, port_counts(topology)), most)
    over_servers = bound(write_server_links, write_path=_path_writer(rule, write_links_of_hop))
    net = hop_links(topology, rule.arrivals(topology))
    return LinkWriter(over_servers, (numbers, net), 2 * most)


def write_server_links(
    state: tuple[Numbers, HopLinks],
    source: int,
    destination: int,
    choice: int,
    links: Ints,
    begin: int,
) -> int:
    """Write the links of a path over servers from `begin` on; return the end of the links."""
    numbers, net = state
    end = write_path(numbers, source, destination, choice, (net, links), begin)
    return max(begin, end)


def write_switch_links(
    state: tuple[Numbers, tuple[int, int, int]],
    source: int,
    destination: int,
    choice: int,
    links: Ints,
    begin: int,
) -> int:
    """Write the links of a path through switches that interconnect, as `write_server_links`."""
    numbers, ports = state
    end = begin
    for node, port in rule(*numbers, source, destination, choice):
        links[end] = link_of(*ports, node, port)
        end += 1
    return end


def _routes_of_rule(
    rule: Rule | SwitchPath, topology: Topology, s: Ints, d: Ints, choice: Ints
) -> Routes:
    write, state, most = _link_writer(rule, topology)
    starts = numpy.zeros(len(s) + 1, numpy.int64)
    links: Ints = numpy.empty(len(s) * most, link_type(topology))
    flows = as_int64_array(choice), as_int64_array(s), as_int64_array(d)
    native_in_place(_write_routes, write_links=write)(state, *flows, starts, links)
    return Routes(starts, links[: starts[-1]])


def _write_routes(
    state: Any, choice: Ints, sources: Ints, destinations: Ints, starts: Ints, links: Ints
) -> None:
    """Write the start of each flow's links, and the links."""
    for flow in range(len(sources)):
        ends = sources[flow], destinations[flow]
        starts[flow + 1] = write_links(state, *ends, choice[flow], links, starts[flow])


def _add_flows_of_rule(
    rule: Rule | SwitchPath, topology: Topology, s: Ints, d: Ints, choice: Ints, counts: Ints
) -> None:
    write, state, most = _link_writer(rule, topology)
    links = numpy.empty(most, numpy.int64)
    flows = as_int64_array(choice), as_int64_array(s), as_int64_array(d)
    native_in_place(_add_flows, write_links=write)(state, *flows, links, counts)


def _add_flows(
    state: Any, choice: Ints, sources: Ints, destinations: Ints, links: Ints, counts: Ints
) -> None:
    """Add flows to the number of flows on each link, without an array of all flows' links."""
    for flow in range(len(sources)):
        end = write_links(state, sources[flow], destinations[flow], choice[flow], links, 0)
        for place in range(end):
            counts[links[place]] += 1


def _working_routes(
    rule: Rule | SwitchPath, topology: Topology, s: Ints, d: Ints, works: Bools, random: Generator
) -> Routes:
    write, state, most = _link_writer(rule, topology)
    order = numpy.arange(rule.choices(topology))
    starts = numpy.zeros(len(s) + 1, numpy.int64)
    links: Ints = numpy.empty(len(s) * most, link_type(topology))
    flows = as_int64_array(s), as_int64_array(d)
    fill = native_in_place(_write_working_routes, write_links=write)
    fill(state, order, works, random, *flows, starts, links)
    return Routes(starts, links[: starts[-1]])


def _write_working_routes(
    state: Any,
    order: Ints,
    works: Bools,
    random: Generator,
    sources: Ints,
    destinations: Ints,
    starts: Ints,
    links: Ints,
) -> None:
    """Write the links of a random working path of each flow."""
    for flow in range(len(sources)):
        starts[flow + 1] = begin = starts[flow]
        for tried in range(len(order)):
            _draw_number(order, tried, random)
            ends = sources[flow], destinations[flow]
            end = write_links(state, *ends, order[tried], links, begin)
            place = begin
            while place < end and works[links[place]]:
                place += 1
            if begin < end == place:
                starts[flow + 1] = end
                break


def _draw_number(order: Ints, tried: int, random: Generator) -> None:
    """Swap a random one of the numbers not yet tried to position `tried`."""
    drawn = tried + int(random.random() * (len(order) - tried))
    order[tried], order[drawn] = order[drawn], order[tried]


def routing_by_name(topology: Topology, name: str) -> CompiledRouting:
    """Return the network's simulated routing of that name, the first one for an empty name."""
    known = compiled_routings(topology)
    others = [other for other in algorithms(topology) if other not in known]
    name = name or next(iter([*known, *others]))
    if name in known:
        return known[name]
    require(
        name in others,
        f"{topology.spec} has no routing {name!r}: there are {', '.join([*known, *others])}",
        UnknownNameError,
    )
    return _uncompiled_routing(topology, name)


def _uncompiled_routing(topology: Topology, name: str) -> CompiledRouting:
    find = path_finder(topology, name)
    most = min(topology.servers, MOST_HOPS)
    return CompiledRouting(
        walk=lambda _: WalkRule(lambda _: fill_by(find), most, ()),
        routes=lambda _, sources, destinations, __: routes_by(
            topology, find, sources, destinations
        ),
        in_python=True,
    )


def routes(
    topology: Topology,
    name: str,
    sources: Ints,
    destinations: Ints,
    choice: Ints | int = 0,
) -> Routes:
    """Return the links of each flow on its path by a routing.

    >>> from pillarbox import topos
    >>> bcube = topos.parse("bcube,4,1")
    >>> found = routes(bcube, "bcube", numpy.array([0, 0]), numpy.array([5, 3]))
    >>> numpy.diff(found.starts).tolist()
    [4, 2]
    """
    algorithm, choice = _checked_choice(topology, name, sources, destinations, choice)

    def of_block(part: slice) -> Routes:
        ends = sources[part], destinations[part]
        if algorithm.routes:
            return algorithm.routes(topology, *ends, choice[part])
        assert algorithm.walk
        fill, most, arrivals = algorithm.walk(topology)
        hops = hops_of_flows(fill(choice[part]), most, *ends)
        return routes_of_hops(topology, sources[part], hops, arrivals)

    return concatenated_routes(
        block_by_block(of_block, len(sources), at_once=not algorithm.in_python)
    )


def link_flows(
    topology: Topology,
    name: str,
    sources: Ints,
    destinations: Ints,
    choice: Ints | int = 0,
) -> Ints:
    """Return the number of flows on each link, without an array of all flows' links.

    >>> from pillarbox import topos
    >>> bcube = topos.parse("bcube,4,1")
    >>> int(link_flows(bcube, "bcube", numpy.array([0, 0]), numpy.array([5, 3])).sum())
    6
    """
    algorithm, choice = _checked_choice(topology, name, sources, destinations, choice)
    idle: list[Ints] = []  # counts of threads between two blocks: at most one array per thread

    def count(part: slice) -> None:
        try:  # another thread may take the last array between a test of `idle` and `pop`
            counts = idle.pop()
        except IndexError:
            counts = numpy.zeros(link_count(topology), numpy.int32)
        ends = as_int64_array(sources[part]), as_int64_array(destinations[part])
        if algorithm.add_flows:
            algorithm.add_flows(topology, *ends, choice[part], counts)
        elif algorithm.routes:
            links = algorithm.routes(topology, *ends, choice[part]).links
            counts += numpy.bincount(links, minlength=len(counts))
        else:
            assert algorithm.walk
            fill, most, arrivals = algorithm.walk(topology)
            hops = hops_of_flows(fill(choice[part]), most, *ends)
            add_link_flows(topology, ends[0], hops, arrivals, counts)
        idle.append(counts)

    block_by_block(count, len(sources), at_once=not algorithm.in_python)
    return numpy.sum([numpy.zeros(link_count(topology), numpy.int64), *idle], axis=0)


def lengths(
    topology: Topology,
    name: str,
    sources: Ints,
    destinations: Ints,
    choice: Ints | int = 0,
) -> Ints:
    """Return the number of server-to-server hops of each flow; 0 without a path."""
    algorithm, choice = _checked_choice(topology, name, sources, destinations, choice)
    if not algorithm.walk:
        return numpy.ones(len(sources), numpy.int32)
    fill, most, _ = algorithm.walk(topology)
    counts = numpy.empty(len(sources), numpy.int32)

    def count(part: slice) -> None:
        counts[part] = hops_of_flows(
            fill(choice[part]), most, sources[part], destinations[part]
        ).counts

    block_by_block(count, len(sources), at_once=not algorithm.in_python)
    return counts


def _checked_choice(
    topology: Topology, name: str, sources: Ints, destinations: Ints, choice: Ints | int
) -> tuple[CompiledRouting, Ints]:
    algorithm = routing_by_name(topology, name)
    numbers = numpy.asarray(choice, numpy.int64)
    require(
        sources.shape == destinations.shape and not (sources == destinations).any(),
        "flows need arrays of sources and destinations of equal length, and two different ends",
    )
    most = algorithm.choices(topology)
    require(
        not numbers.size or 0 <= int(numbers.min()) <= int(numbers.max()) < most,
        f"the paths of {name} in {topology.spec} have the numbers 0 to {most - 1}",
    )
    return algorithm, numpy.broadcast_to(numbers, sources.shape)


def concatenated_routes(parts: list[Routes]) -> Routes:
    """Return the routes of all parts, one part after the other."""
    if not parts:
        return Routes(numpy.zeros(1, numpy.int64), numpy.empty(0, numpy.int32))
    before = numpy.cumsum([0, *(part.starts[-1] for part in parts)])
    starts = [part.starts[1:] + earlier for part, earlier in zip(parts, before, strict=False)]
    return Routes(
        numpy.concatenate([numpy.zeros(1, numpy.int64), *starts]),
        numpy.concatenate([part.links for part in parts]),
    )
