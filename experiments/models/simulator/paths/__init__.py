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
from pillarbox.experiments.models.simulator.compiled import native, native_in_place
from pillarbox.experiments.models.simulator.compiled_networks import network_table
from pillarbox.experiments.models.simulator.hops import (
    Fill,
    Hops,
    LinksToServers,
    add_link_flows,
    as_int64_array,
    block_by_block,
    hops_of_flows,
    link_onto,
    link_type,
    links_onto,
    routes_of_hops,
)
from pillarbox.experiments.models.simulator.uncompiled import fill_by, path_finder, routes_by
from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.hosts.base.declarations import declared
from pillarbox.hosts.base.rules import NONE, Rule, SwitchPath
from pillarbox.topos.base.errors import UnknownNameError, require
from pillarbox.topos.base.topology import Topology

Numbers: TypeAlias = tuple[Any, ...]  # parameters of a network, as its rules take them
MOST_HOPS = 255  # maximum number of hops per path, for routings that are not compiled


class WalkRule(NamedTuple):
    """Compiled routing rule that computes flows' hops from server to server."""

    fill: Callable[
        [Ints], Fill
    ]  # returns the function that writes hops, given each flow's path number
    most: int  # maximum number of hops of a path
    arrivals: Sequence[int | None]  # arrival port by departure port (see `routes_of_hops`)


class CompiledRouting(NamedTuple):
    """A simulated routing: walks over servers, or returns flows' links (both if not compiled)."""

    walk: Callable[[Any], WalkRule] | None = None
    # Function that returns flows' links, for networks without relays: a path has only switches.
    routes: Callable[[Any, Ints, Ints, Ints], Routes] | None = None
    # Function that returns the number of paths per server pair; equal paths count repeatedly.
    choices: Callable[[Any], int] = lambda _: 1
    # Function that returns the links of flows, each on a random one of its working paths.
    working: Callable[[Any, Ints, Ints, Bools, Generator], Routes] | None = None
    # Function that adds flows to the number of flows on each link; None: `link_flows` uses `walk`.
    add_flows: Callable[[Any, Ints, Ints, Ints, Ints], None] | None = None
    in_python: bool = (
        False  # whether the routing runs in Python, flow by flow, and may not be thread-safe
    )


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
    working = partial(_working_routes, rule)
    if isinstance(rule, SwitchPath):
        return CompiledRouting(None, partial(_routes_of_fabric, rule), rule.choices, working)
    walk, add_flows = partial(_walk_of_rule, rule), partial(_add_flows_of_rule, rule)
    return CompiledRouting(walk, None, rule.choices, working, add_flows)


def _walk_of_rule(rule: Rule, topology: Topology) -> WalkRule:
    fill = partial(native(_write_hops, rule=rule.hops), rule.numbers(topology))
    return WalkRule(
        lambda choice: partial(fill, as_int64_array(choice)),
        rule.most(topology),
        rule.arrivals(topology),
    )


def rule(*_numbers: Any) -> Iterator[tuple[int, int]]:
    """Placeholder for the rule with which `_write_hops` is compiled."""
    raise NotImplementedError


def _write_hops(
    numbers: Numbers, choice: Ints, sources: Ints, destinations: Ints, hops: Hops
) -> None:
    """Write the hops of each flow between its ends (see `pillarbox.hosts.base.rules.Rule`)."""
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        count = 0
        for port, peer in rule(*numbers, source, destination, choice[flow]):
            if peer == source:
                count = 0
                continue
            hops.ports[flow, count] = port
            hops.peers[flow, count] = peer
            count += 1
            if peer == destination:
                break
        hops.counts[flow] = count


def _add_flows_of_rule(
    rule: Rule, topology: Topology, s: Ints, d: Ints, choice: Ints, counts: Ints
) -> None:
    shape = topology.servers, topology.ports, links_onto(topology, rule.arrivals(topology))
    room = numpy.empty(2 * rule.most(topology), numpy.int64)
    add = native_in_place(_add_link_flows, rule=rule.hops)
    add(rule.numbers(topology), shape, as_int64_array(choice), s, d, room, counts)


def _add_link_flows(
    numbers: Numbers,
    shape: tuple[int, int, LinksToServers],
    choice: Ints,
    sources: Ints,
    destinations: Ints,
    room: Ints,
    counts: Ints,
) -> None:
    """Add flows to the number of flows on each link, without an array of their hops."""
    servers, ports, onto = shape
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        end, here, well = 0, source, True
        for port, peer in rule(*numbers, source, destination, choice[flow]):
            if peer == source:
                end, here, well = 0, source, True
                continue
            well &= peer < servers
            if well:
                room[end] = here * ports + port
                end += 1
                link = link_onto(onto, here, port, peer)
                if link != NONE:
                    room[end] = link
                    end += 1
            here = peer
            if peer == destination:
                break
        if well:
            for place in range(end):
                counts[room[place]] += 1


def _routes_of_fabric(
    rule: SwitchPath, topology: Topology, s: Ints, d: Ints, choice: Ints
) -> Routes:
    starts = numpy.zeros(len(s) + 1, numpy.int64)
    links: Ints = numpy.empty(len(s) * rule.most(topology), link_type(topology))
    fill = native_in_place(_write_links, rule=rule.links)
    flows = as_int64_array(choice), as_int64_array(s), as_int64_array(d)
    fill(rule.numbers(topology), port_counts(topology), *flows, starts, links)
    return Routes(starts, links[: starts[-1]])


def _write_links(
    numbers: Numbers,
    ports: tuple[int, int, int],
    choice: Ints,
    sources: Ints,
    destinations: Ints,
    starts: Ints,
    links: Ints,
) -> None:
    """Write the links of each flow through switches that interconnect."""
    end = 0
    for flow in range(len(sources)):
        for node, port in rule(*numbers, sources[flow], destinations[flow], choice[flow]):
            links[end] = link_of(*ports, node, port)
            end += 1
        starts[flow + 1] = end


def _working_routes(
    rule: Rule | SwitchPath, topology: Topology, s: Ints, d: Ints, works: Bools, random: Generator
) -> Routes:
    order = numpy.arange(rule.choices(topology))
    shape: tuple[Any, ...] = port_counts(topology)
    fill: Callable[..., object]
    if isinstance(rule, SwitchPath):
        most, fill = rule.most(topology), native_in_place(_write_working_links, rule=rule.links)
    else:
        most, fill = 2 * rule.most(topology), native_in_place(_write_working_hops, rule=rule.hops)
        shape = (*shape[:2], links_onto(topology, rule.arrivals(topology)))
    starts = numpy.zeros(len(s) + 1, numpy.int64)
    links: Ints = numpy.empty(len(s) * most, link_type(topology))
    fill(
        rule.numbers(topology),
        shape,
        order,
        works,
        random,
        as_int64_array(s),
        as_int64_array(d),
        starts,
        links,
    )
    return Routes(starts, links[: starts[-1]])


def _write_working_hops(
    numbers: Numbers,
    shape: tuple[int, int, LinksToServers],
    order: Ints,
    works: Bools,
    random: Generator,
    sources: Ints,
    destinations: Ints,
    starts: Ints,
    links: Ints,
) -> None:
    """Write the links of a random working path of each flow (see `hops.routes_of_hops`)."""
    servers, ports, onto = shape
    for flow in range(len(sources)):
        source, destination = sources[flow], destinations[flow]
        starts[flow + 1] = begin = starts[flow]
        for tried in range(len(order)):
            _draw_number(order, tried, random)
            end, here, well = begin, source, True
            for port, peer in rule(*numbers, source, destination, order[tried]):
                if peer == source:
                    end, here, well = begin, source, True
                    continue
                well &= peer < servers
                if well:
                    links[end] = here * ports + port
                    well = works[links[end]]
                    end += 1
                link = link_onto(onto, here, port, peer) if well else NONE
                if link != NONE:
                    links[end] = link
                    well = works[link]
                    end += 1
                here = peer
                if peer == destination:
                    break
            if well and end > begin:
                starts[flow + 1] = end
                break


def _write_working_links(
    numbers: Numbers,
    ports: tuple[int, int, int],
    order: Ints,
    works: Bools,
    random: Generator,
    sources: Ints,
    destinations: Ints,
    starts: Ints,
    links: Ints,
) -> None:
    """Write the links of a random working path of each flow through switches that interconnect."""
    for flow in range(len(sources)):
        starts[flow + 1] = begin = starts[flow]
        for tried in range(len(order)):
            _draw_number(order, tried, random)
            end, well = begin, True
            for node, port in rule(*numbers, sources[flow], destinations[flow], order[tried]):
                links[end] = link_of(*ports, node, port)
                well = works[links[end]]
                end += 1
                if not well:
                    break
            if well and end > begin:
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
        counts = idle.pop() if idle else numpy.zeros(link_count(topology), numpy.int32)
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
    numbers = numpy.broadcast_to(numpy.asarray(choice, numpy.int64), sources.shape)
    require(
        sources.shape == destinations.shape and not (sources == destinations).any(),
        "flows need arrays of sources and destinations of equal length, and two different ends",
    )
    most = algorithm.choices(topology)
    require(
        not len(numbers) or 0 <= int(numbers.min()) <= int(numbers.max()) < most,
        f"the paths of {name} in {topology.spec} have the numbers 0 to {most - 1}",
    )
    return algorithm, numbers


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
