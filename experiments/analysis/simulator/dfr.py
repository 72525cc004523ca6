"""DFR for arrays of flows around failures (hosts/dcell/dfr.py), as every server decides it.

A server knows what has failed in its own DCell_b. Its shortest ways there are searched when a hop
needs them for the first time, and kept: tables of all of millions of servers would take long. In
here servers are known by their uids; of a server that a partial DCell does not have, no link works.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numba
import numpy

from experiments.analysis.simulator.failures import Bools
from experiments.analysis.simulator.hops import Fill, Ints
from hosts.dcell.dfr import LEVEL_B, RETRY, TTL
from topos.dcell import DCell

# What is at a place of an array that leads nowhere: no server, no link, no way.
NONE = -1


class Ways(NamedTuple):
    """What each server knows, once it has searched: a row for each, of places in its DCell_b."""

    reached: Any  # how many servers it reaches, itself among them; 0 before the search
    queue: Any  # the places of these, the nearest first
    hop: Any  # by place: that of the first hop to there, or NONE
    port_of: Any  # and the port that leads to it


def fill(dcell: DCell, works: Bools, *, b: int = LEVEL_B, retry: int = RETRY) -> Fill:
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

    Examples
    --------
    The paper's example (section 7.3): the cable between 0.3 and 4.0 is unplugged.

    >>> import topos
    >>> from experiments.analysis.fluid.links import working_links
    >>> from experiments.analysis.simulator.hops import walk
    >>> from hosts.base.failures import parse_failures
    >>> dcell = topos.parse("dcell,4,1")
    >>> works = working_links(dcell, parse_failures(dcell, ["link:0.3-4.0"]))
    >>> ends = (numpy.array([dcell.server(server)]) for server in ("0.0", "4.3"))
    >>> print(*map(dcell.address, walk(fill(dcell, works), TTL, *ends).peers.tolist()))
    1.0 1.3 4.1 4.3
    """
    sizes = numpy.array(dcell.sizes, numpy.int64)
    by_uid = numpy.zeros((dcell.sizes[-1], dcell.ports), bool)
    of_servers = works[: dcell.servers * dcell.ports].reshape(-1, dcell.ports)
    by_uid[dcell.uid(numpy.arange(dcell.servers))] = of_servers
    b = min(b, dcell.k)
    # Memory is taken only where rows are written; with many flows that is nearly everywhere.
    place = numpy.min_scalar_type(-dcell.sizes[b])
    rows = [numpy.empty((len(by_uid), dcell.sizes[b]), place) for _ in range(3)]
    ways = Ways(numpy.zeros(len(by_uid), numpy.int32), *rows)
    return partial(_by_servers, dcell, partial(_fill, sizes, by_uid, b, ways, retry))


def _by_servers(
    dcell: DCell,
    by_uid: Fill,
    sources: Ints,
    destinations: Ints,
    ports: Any,
    peers: Any,
    counts: Any,
) -> None:
    by_uid(dcell.uid(sources), dcell.uid(destinations), ports, peers, counts)
    servers = dcell.server_of_uid(peers)
    if servers is not peers:  # they differ only in some partial DCells
        peers[:] = servers


@numba.njit(cache=True, nogil=True)
def _fill(
    sizes: Any,
    works: Any,
    b: int,
    ways: Any,
    retry: int,
    sources: Any,
    destinations: Any,
    ports: Any,
    peers: Any,
    counts: Any,
) -> None:
    """Walk each packet to its end."""
    for flow in range(len(sources)):
        here, destination = sources[flow], destinations[flow]
        proxy, came, left, hops = NONE, NONE, retry, 0
        while here != destination:
            if hops == TTL:
                hops = 0
                break
            port, peer, proxy, rerouted = _choose(
                sizes, works, b, ways, here, destination, proxy, came
            )
            left -= rerouted
            if port == NONE or left < 1:
                hops = 0
                break
            ports[flow, hops], peers[flow, hops] = port, peer
            hops += 1
            here, came = peer, port
        counts[flow] = hops


@numba.njit(cache=True, nogil=True)
def _choose(
    sizes: Any,
    works: Any,
    b: int,
    ways: Any,
    here: int,
    destination: int,
    proxy: int,
    came: int,
) -> tuple[int, int, int, bool]:
    """Return the next hop, the proxy from now on, and whether the packet was rerouted."""
    at_proxy = proxy == here
    if at_proxy:
        proxy = NONE
    target = destination if proxy == NONE else proxy
    near, far, level = _first_link(sizes, b, here, target)
    if near == here and works[here, level] and level != came:
        return level, far, proxy, False
    base = here // sizes[b] * sizes[b]
    queue, hop, port_of = ways.queue[here], ways.hop[here], ways.port_of[here]
    if not ways.reached[here]:
        ways.reached[here] = _search(sizes, works, b, here, queue, hop, port_of)
    if near != here and hop[near - base] != NONE and (level == NONE or works[near, level]):
        return port_of[near - base], base + hop[near - base], proxy, False
    if level == NONE:
        return NONE, NONE, NONE, False
    together = here // sizes[level] == destination // sizes[level]
    wanted, top = level + (at_proxy and not together), len(sizes) - 1
    for turn in range(top - b):  # from the wanted level upwards, then from there downwards
        level = wanted + turn if wanted + turn <= top else top - turn
        for place in queue[: ways.reached[here]]:
            near = base + place
            if works[near, level] and (near != here or level != came):
                far = _far(sizes, near, level)
                if near == here:
                    return level, far, far, True
                return port_of[place], base + hop[place], far, True
    return NONE, NONE, NONE, False


@numba.njit(cache=True, nogil=True)
def _first_link(sizes: Any, b: int, here: int, target: int) -> tuple[int, int, int]:
    """Return the first link above level b on the way: its ends and level, or NONE and the target.

    Either way what comes first is where the packet goes inside its DCell_b.
    """
    far, level = NONE, NONE
    while here // sizes[b] != target // sizes[b]:
        level = b + 1
        while here // sizes[level] != target // sizes[level]:
            level += 1
        size, whole = sizes[level - 1], sizes[level]
        base = here // whole * whole
        own, other = (here - base) // size, (target - base) // size
        target = base + own * size + other - (other > own)
        far = base + other * size + own - (own > other)
    return target, far, level


@numba.njit(cache=True, nogil=True)
def _far(sizes: Any, server: int, level: int) -> int:
    """Return the server at the other end of a level's cable."""
    size, whole = sizes[level - 1], sizes[level]
    base = server // whole * whole
    own, inner = (server - base) // size, server % size
    other = inner + (inner >= own)
    return base + other * size + own - (own > other)


@numba.njit(cache=True, nogil=True)
def _search(sizes: Any, works: Any, b: int, here: int, queue: Any, hop: Any, port_of: Any) -> int:
    """Find the ways inside the own DCell_b, to the nearest servers first; return to how many.

    Of several shortest ways the first counts: upper levels come first, then the lowest peer.
    """
    base, n = here // sizes[b] * sizes[b], sizes[0]
    hop[:] = NONE
    queue[0], reached, done = here - base, 1, 0
    while done < reached:
        place = queue[done]
        at, done = base + place, done + 1
        for port in range(b, -1, -1):
            if not works[at, port]:
                continue
            first = _far(sizes, at, port) if port else at // n * n
            for peer in range(first, first + (1 if port else n)):
                found = peer - base
                if peer == here or hop[found] != NONE or not works[peer, port]:
                    continue
                hop[found] = found if at == here else hop[place]
                port_of[found] = port if at == here else port_of[place]
                queue[reached] = found
                reached += 1
    return reached
