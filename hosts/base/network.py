"""Routing declaration of a network, in hosts/KIND: ``NETWORK = Network(...)``.

Commands, live servers, the simulator, reports and tests look the declaration up by the network's
name (`pillarbox.hosts.base.declarations`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pillarbox.hosts.base.algorithms import Algorithm
from pillarbox.hosts.base.declarations import all_declared
from pillarbox.hosts.base.rules import Rule, SwitchPath
from pillarbox.hosts.base.timers import PAPER, Timers
from pillarbox.hosts.wire.dcn import DCN
from pillarbox.hosts.wire.header import Header
from pillarbox.hosts.wire.source_route import SOURCE_ROUTE
from pillarbox.topos.base.errors import require

Hop = tuple[int, int]  # sender and receiver of a hop, two neighbouring servers
Trees = Sequence[Sequence[Hop]]


@dataclass(frozen=True)
class Network:
    """Routing declaration of one kind of network: algorithms, timers, packet headers.

    Parameters
    ----------
    algorithms : mapping of str to Algorithm
        Routing algorithms by name, the default first. Shortest-path routing is always added.
    rules : mapping of str to Rule or Fabric
        Rules that the simulator compiles, by the names of algorithms
        (`pillarbox.hosts.base.rules`). The simulator computes algorithms without a rule flow by
        flow.
    paper_timers : Timers, optional
        Timers of the network's paper, if they differ from `pillarbox.hosts.base.timers.PAPER`.
    distribution : callable, optional
        Function that plans the distribution of a file from one server to several. From the
        topology, the source and the receivers it computes trees of hops, each of which carries an
        equal part of the file. Without it, a file is passed from receiver to receiver.
    usual : str, optional
        Default routing of live labs. Without it, the first routing with a router is used.
    headers : tuple of Header
        Packet headers of the network, in addition to those of all networks: DCell's for messages,
        and the source route for port addresses.
    several : str, optional
        Algorithm whose path sets are the paths of port addresses. Without it, the first algorithm
        with a path set is used.
    """

    algorithms: Mapping[str, Algorithm]
    rules: Mapping[str, Rule | SwitchPath] = field(default_factory=dict)
    paper_timers: Timers = PAPER
    distribution: Callable[[Any, int, Sequence[int]], Trees] | None = None
    usual: str = ""
    headers: tuple[Header, ...] = ()
    several: str = ""


@cache
def headers() -> tuple[Header, ...]:
    """Return the packet headers of all networks; each has its own version number.

    Networks may share a header: `pillarbox.hosts.rail` and `pillarbox.hosts.mesh` use that of
    BCube.

    >>> [header.name for header in headers()]
    ['dcn', 'source_route', 'bcube']
    """
    of_networks = (header for network in all_declared() for header in network.headers)
    every = (DCN, SOURCE_ROUTE, *of_networks)
    declared_headers = tuple({id(header): header for header in every}.values())
    for values in (
        [header.name for header in declared_headers],
        [form.name for header in declared_headers for form in header.forms],
        [header.version for header in declared_headers],
    ):
        require(
            len(set(values)) == len(values),
            f"packet headers of two networks have the same name or version number: {values}",
        )
    return declared_headers


def header_of(data: bytes) -> Header | None:
    """Return the header format of a packet by its version field, None if it is unknown."""
    return _headers_by_version().get(data[0] >> 4) if data else None


@cache
def _headers_by_version() -> dict[int, Header]:
    """Return all networks' packet header formats by version number."""
    return {header.version: header for header in headers()}
