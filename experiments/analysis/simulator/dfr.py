"""DFR for arrays of flows around failures: the rules of hosts/dcell, compiled.

A server knows what has failed in its own DCell_b. Its shortest ways there are searched when a hop
needs them for the first time, and kept: tables of all of millions of servers would take long. That
search is a copy of the routers', who find theirs in link states that list single peers
(docs/adr/0005-rules.md). In here servers are known by their uids; of a server that a partial DCell
does not have, no link works.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy

from experiments.analysis.simulator.compiled import native_in_place
from experiments.analysis.simulator.failures import Bools
from experiments.analysis.simulator.hops import Fill, Hops, Ints
from experiments.analysis.simulator.recursive import arrays
from hosts.base.recursive import Nested, far_end
from hosts.dcell.dfr import LEVEL_B, RETRY, TTL
from hosts.dcell.rules import NONE, Inside, choose, nested, next_link, own_link
from topos.dcell import DCell


class Ways(NamedTuple):
    """What each server knows, once it has searched: a row for each, of places in its DCell_b."""

    reached: Any  # how many servers it reaches, itself among them; 0 before the search
    queue: Any  # the places of these, the nearest first
    peers: Any  # of `hosts.dcell.rules.Inside`
    ports: Any
    # The same in each DCell_b: by place and port, the first place there that the port leads to.
    first: Any


def fill(
    dcell: DCell,
    works: Bools,
    *,
    b: int = LEVEL_B,
    retry: int = RETRY,
    rerouted: list[Ints] | None = None,
) -> Fill:
    """Return what writes the hops of flows: at most TTL each, none for a packet that is dropped.

    Parameters
    ----------
    dcell : DCell
        Full or partial.
    works : array
        By the number of each link, whether it works (see `analysis.simulator.failures`).
    b : int
        The level within which servers know all links; at most k counts.
    retry : int
        The retry count of a new packet.
    rerouted : list, optional
        Takes for each block of flows how often each was rerouted: with a retry count of that or
        less it would have been dropped.

    Examples
    --------
    The paper's example (section 7.3): the cable between 0.3 and 4.0 is unplugged.

    >>> import topos
    >>> from experiments.analysis.fluid.links import working_links
    >>> from experiments.analysis.simulator.hops import walk
    >>> from hosts.base.failures import parse_failures
    >>> dcell = topos.parse("dcell,4,1")
    >>> works = working_links(dcell, parse_failures(dcell, ["cut 0.3-4.0"]))
    >>> ends = (numpy.array([dcell.server(server)]) for server in ("0.0", "4.3"))
    >>> print(*map(dcell.address, walk(fill(dcell, works), TTL, *ends).peers[0, :4].tolist()))
    1.0 1.3 4.1 4.3
    """
    by_uid = numpy.zeros((dcell.sizes[-1], dcell.ports), bool)
    of_servers = works[: dcell.servers * dcell.ports].reshape(-1, dcell.ports)
    by_uid[_uids(dcell)] = of_servers
    b = min(b, dcell.k)
    # Memory is taken only where rows are written; with many flows that is nearly everywhere.
    small = numpy.min_scalar_type(-dcell.sizes[b])
    queue, peers, ports = (numpy.empty((len(by_uid), dcell.sizes[b]), small) for _ in range(3))
    net = nested(dcell.sizes)
    # What a port leads to inside is the same in each DCell_b.
    first = [[place // dcell.n * dcell.n] * (b + 1) for place in range(dcell.sizes[b])]
    for place, of_ports in enumerate(first):
        of_ports[1:] = [far_end(net, place, port) for port in range(1, b + 1)]
    reached = numpy.zeros(len(by_uid), numpy.int32)
    ways = Ways(reached, queue, peers, ports, numpy.array(first))
    return partial(
        _by_servers, dcell, partial(_fill, arrays(net), by_uid, b, ways, retry), rerouted
    )


def _by_servers(
    dcell: DCell,
    by_uid: Callable[..., object],
    rerouted: list[Ints] | None,
    sources: Ints,
    destinations: Ints,
    ports: Any,
    peers: Any,
    counts: Any,
) -> None:
    often = numpy.empty(len(sources), numpy.int64)
    by_uid(dcell.uid(sources), dcell.uid(destinations), ports, peers, counts, often)
    if rerouted is not None:
        rerouted.append(often)
    if dcell.servers < dcell.sizes[-1]:
        written = Hops(counts, ports, peers).written()
        peers[written] = dcell.server_of_uid(peers[written])


@lru_cache(maxsize=1)
def _uids(dcell: DCell) -> Any:
    return dcell.uid(numpy.arange(dcell.servers))


@native_in_place
def _fill(
    net: Nested,
    works: Any,
    b: int,
    ways: Any,
    retry: int,
    sources: Any,
    destinations: Any,
    ports: Any,
    peers: Any,
    counts: Any,
    rerouted: Any,
) -> None:
    """Walk each packet to its end."""
    for flow in range(len(sources)):
        here, destination = sources[flow], destinations[flow]
        proxy, came_by, left, hops = NONE, NONE, retry, 0
        link = next_link(net, b, here, destination, proxy)
        while here != destination:
            hop = own_link(works, here, proxy, came_by, link)
            if hop.port == NONE:
                inside = _inside(net, works, b, ways, here)
                hop = choose(net, b, works, inside, here, destination, proxy, came_by, link)
            left -= hop.rerouted
            if hop.port == NONE or left < 1 or hops == TTL:
                hops = 0
                break
            ports[flow, hops], peers[flow, hops] = hop.port, hop.peer
            hops += 1
            # All servers of a DCell_b agree on the next link to the same server.
            agreed = hop.port <= b and hop.proxy == proxy and hop.proxy != hop.peer
            here, came_by, proxy = hop.peer, hop.port, hop.proxy
            if not agreed:
                link = next_link(net, b, here, destination, proxy)
        counts[flow] = hops
        rerouted[flow] = retry - left


def _inside(net: Nested, works: Any, b: int, ways: Any, here: int) -> Inside:
    """Return a server's ways, searched at the first time."""
    queue, peers, ports = ways.queue[here], ways.peers[here], ways.ports[here]
    if not ways.reached[here]:
        size, n = net.sizes[b], net.sizes[0]
        base = here // size * size
        ways.reached[here] = _search(
            works[base : base + size], ways.first, n, here - base, queue, peers, ports
        )
    return Inside(queue[1 : ways.reached[here]], ports, peers)


def _search(works: Any, first: Any, n: int, here: int, queue: Any, peers: Any, ports: Any) -> int:
    """Find the ways inside the own DCell_b, to the nearest places first; return to how many.

    Of several shortest ways the first counts: upper levels come first, then the lowest peer. Of
    servers that are equally near, the one with the lowest uid comes first.
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
        if done == end:  # all of equally near servers are done, and come in the order of places
            _sort(queue, begin, end)
            begin, end = end, reached
    return reached


def _sort(places: Any, begin: int, end: int) -> None:
    """Sort a short part in its place, for which numba's own way would need memory."""
    for place in range(begin + 1, end):
        value, at = places[place], place
        while at > begin and places[at - 1] > value:
            places[at] = places[at - 1]
            at -= 1
        places[at] = value
