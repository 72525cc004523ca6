"""DFR around failures for arrays of flows: the rules of hosts/dcell, compiled.

A server knows all failures in its own DCell_b. Its shortest paths there are searched when a hop
first needs them, and stored: computing the tables of millions of servers would take long. The
search is a copy of the routers', which use link states that list single peers
(docs/adr/0005-rules.md). Servers are numbered by uid here; links of servers that a partial DCell
lacks do not work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Bools, Ints
from pillarbox.experiments.models.simulator.compiled import native_in_place
from pillarbox.experiments.models.simulator.compiled_recursive import nested_as_arrays
from pillarbox.experiments.models.simulator.hops import Fill, Hops
from pillarbox.hosts.base.recursive import Nested, far_end
from pillarbox.hosts.dcell.dfr import LEVEL_B, RETRY, TTL
from pillarbox.hosts.dcell.rules import NONE, InnerRoutes, choose, nested, next_link, own_link
from pillarbox.topos.dcell import DCell


class SearchResults(NamedTuple):
    """Next hops of each server within its DCell_b, after its search: one row per server."""

    reached: Ints  # number of servers that the server reaches, itself included; 0 before the search
    queue: Ints  # positions in the DCell_b of the reached servers, in the order of proxies
    peers: Ints  # columns of `pillarbox.hosts.dcell.rules.Inside`
    ports: Ints
    # For each position and port in a DCell_b: the first position to which the port leads.
    first: Ints
    by_uid: bool  # whether the nearest proxy is that with the nearest uid, or with the fewest hops


def fill(
    dcell: DCell,
    works: Bools,
    *,
    b: int = LEVEL_B,
    retry: int = RETRY,
    rerouted: list[Ints] | None = None,
    by_uid: bool = False,
) -> Fill:
    """Return a function that writes the hops of flows: at most TTL each, none for a dropped packet.

    Parameters
    ----------
    dcell : DCell
        Full or partial DCell.
    works : array
        Whether each link works, by link number (see `FailedNodes.works`).
    b : int
        Level within which servers know all links; values above k count as k.
    retry : int
        Retry count of a new packet.
    rerouted : list, optional
        List that receives, for each block of flows, the number of reroutings of each flow: with a
        retry count of that number or less, the packet would have been dropped.
    by_uid : bool
        Reading of "the closest one to self.uid" (section 4.3): the proxy's cable is at the server
        with the numerically nearest uid; by default, at the server with the fewest hops, as routers
        choose it.

    Examples
    --------
    The paper's example (section 7.3): the cable between 0.3 and 4.0 is unplugged.

    >>> from pillarbox import topos
    >>> from pillarbox.experiments.models.fluid.directed_links import working_links
    >>> from pillarbox.experiments.models.simulator.hops import hops_of_flows
    >>> from pillarbox.hosts.base.failures import parse_failures
    >>> dcell = topos.parse("dcell,4,1")
    >>> works = working_links(dcell, parse_failures(dcell, ["cut 0.3-4.0"]))
    >>> ends = (numpy.array([dcell.server(server)]) for server in ("0.0", "4.3"))
    >>> hops = hops_of_flows(fill(dcell, works), TTL, *ends)
    >>> print(*map(dcell.address, hops.peers[0, :4].tolist()))
    1.0 1.3 4.1 4.3
    """
    links_by_uid = numpy.zeros((dcell.sizes[-1], dcell.ports), bool)
    of_servers = works[: dcell.servers * dcell.ports].reshape(-1, dcell.ports)
    links_by_uid[_uids_or_server_numbers(dcell)] = of_servers
    b = min(b, dcell.k)
    # Memory is used only for written rows of search results: nearly all rows with many flows.
    small = numpy.min_scalar_type(-dcell.sizes[b])
    shape = len(links_by_uid), dcell.sizes[b]
    queue, peers, ports = (numpy.empty(shape, small) for _ in range(3))
    net = nested(dcell.sizes)
    # The far end of a port, as a position in its DCell_b, is the same in each DCell_b.
    first = [[place // dcell.n * dcell.n] * (b + 1) for place in range(dcell.sizes[b])]
    for place, of_ports in enumerate(first):
        of_ports[1:] = [far_end(net, place, port) for port in range(1, b + 1)]
    reached = numpy.zeros(len(links_by_uid), numpy.int32)
    searches = SearchResults(reached, queue, peers, ports, numpy.array(first), by_uid)
    return partial(
        _fill_with_server_numbers,
        dcell,
        partial(_walk_packets, nested_as_arrays(net), links_by_uid, b, searches, retry),
        rerouted,
    )


def _fill_with_server_numbers(
    dcell: DCell,
    by_uid: Callable[..., object],
    rerouted: list[Ints] | None,
    sources: Ints,
    destinations: Ints,
    hops: Hops,
) -> None:
    often = numpy.empty(len(sources), numpy.int64)
    by_uid(dcell.uid(sources), dcell.uid(destinations), hops, often)
    if rerouted is not None:
        rerouted.append(often)
    if dcell.servers < dcell.sizes[-1]:
        written = hops.written()
        hops.peers[written] = dcell.server_of_uid(hops.peers[written])


@lru_cache(maxsize=1)
def _uids_or_server_numbers(dcell: DCell) -> Ints:
    return dcell.uid(numpy.arange(dcell.servers))


@native_in_place
def _walk_packets(
    net: Nested,
    works: Bools,
    b: int,
    searches: SearchResults,
    retry: int,
    sources: Ints,
    destinations: Ints,
    hops: Hops,
    rerouted: Ints,
) -> None:
    """Forward each simulated DFR packet to its destination, or until it is dropped."""
    for flow in range(len(sources)):
        here, destination = sources[flow], destinations[flow]
        proxy, came_by, left, count = NONE, NONE, retry, 0
        link = next_link(net, b, here, destination, proxy)
        while here != destination:
            hop = own_link(works, here, proxy, came_by, link)
            if hop.port == NONE:
                inside = _next_hops_inside(net, works, b, searches, here)
                hop = choose(net, b, works, inside, here, destination, proxy, came_by, link)
            left -= hop.rerouted
            if hop.port == NONE or left < 1 or count == TTL:
                count = 0
                break
            hops.ports[flow, count], hops.peers[flow, count] = hop.port, hop.peer
            count += 1
            # All servers of a DCell_b agree on the next link to the same server.
            agreed = hop.port <= b and hop.proxy == proxy and hop.proxy != hop.peer
            here, came_by, proxy = hop.peer, hop.port, hop.proxy
            if not agreed:
                link = next_link(net, b, here, destination, proxy)
        hops.counts[flow] = count
        rerouted[flow] = retry - left


def _next_hops_inside(
    net: Nested, works: Bools, b: int, searches: SearchResults, here: int
) -> InnerRoutes:
    """Return a DCell server's next hops in its DCell_b, searched at the first call."""
    queue, peers, ports = searches.queue[here], searches.peers[here], searches.ports[here]
    if not searches.reached[here]:
        size, n = net.sizes[b], net.sizes[0]
        base = here // size * size
        searches.reached[here] = _search_next_hops(
            works[base : base + size], searches.first, n, here - base, queue, peers, ports
        )
        if searches.by_uid:
            _sort_by_uid_distance(queue, searches.reached[here])
    return InnerRoutes(queue[1 : searches.reached[here]], ports, peers)


def _search_next_hops(
    works: Bools, first: Ints, n: int, here: int, queue: Ints, peers: Ints, ports: Ints
) -> int:
    """Find the next hops inside the own DCell_b, nearest positions first; return the number
    reached.

    Among equally short paths the first one counts: higher levels come first, then the lowest peer.
    Among servers at equal distance, the one with the lowest uid comes first.
    """
    ports[:] = NONE
    queue[0], reached, done, begin, end = here, 1, 0, 0, 1
    while done < reached:
        at, done = queue[done], done + 1
        for port in range(first.shape[1] - 1, -1, -1):
            if not works[at, port]:
                continue
            lowest = first[at, port]
            for peer in range(lowest, lowest + (1 if port else n)):
                if peer == here or ports[peer] != NONE or not works[peer, port]:
                    continue
                peers[peer] = peer if at == here else peers[at]
                ports[peer] = port if at == here else ports[at]
                queue[reached] = peer
                reached += 1
        if (
            done == end
        ):  # all servers at this distance are done: sort the servers of the next distance
            _sort_slice(queue, begin, end)
            begin, end = end, reached
    return reached


def _sort_by_uid_distance(places: Ints, end: int) -> None:
    """Sort the places after the first by their distance from it; the lower of two comes first."""
    here = 0 + places[0]
    for place in range(2, end):
        value, at = 0 + places[place], place
        key = 2 * abs(value - here) + (value > here)
        while at > 1 and 2 * abs(places[at - 1] - here) + (places[at - 1] > here) > key:
            places[at] = places[at - 1]
            at -= 1
        places[at] = value


def _sort_slice(places: Ints, begin: int, end: int) -> None:
    """Sort a short slice in place; numba's own sort would allocate memory."""
    for place in range(begin + 1, end):
        value, at = places[place], place
        while at > begin and places[at - 1] > value:
            places[at] = places[at - 1]
            at -= 1
        places[at] = value
