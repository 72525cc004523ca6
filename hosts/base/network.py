"""What hosts/NETWORK says of its network, in one place: ``NETWORK = Network(...)``.

Commands, live servers, the simulator, reports and tests find it by the network's name
(`hosts.base.declared`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hosts.base.algorithms import Algorithm
from hosts.base.declared import all_declared
from hosts.base.rules import Fabric, Rule
from hosts.base.timers import PAPER, Timers
from hosts.wire.dcn import DCN
from hosts.wire.header import Header
from topos.base.errors import require

Hop = tuple[int, int]  # sender and receiver, which are neighbours
Trees = Sequence[Sequence[Hop]]


@dataclass(frozen=True)
class Network:
    """How the servers of one network route.

    Parameters
    ----------
    algorithms : mapping of str to Algorithm
        By their names, the usual one first. Shortest-path routing is there in any case.
    rules : mapping of str to Rule or Fabric
        What the simulator compiles, by the names of algorithms (`hosts.base.rules`); what is not
        here it takes flow by flow.
    paper_timers : Timers, optional
        Where the network's own paper says other times than `hosts.base.timers.PAPER`.
    distribution : callable, optional
        How a file gets from one server to several: given the topology, the source and the
        receivers, it returns trees of hops, which carry an equal part of the file each. Without
        it, a file goes from receiver to receiver.
    headers : tuple of Header
        Those of its own, beside DCell's, which is there for messages in any case.
    """

    algorithms: Mapping[str, Algorithm]
    rules: Mapping[str, Rule | Fabric] = field(default_factory=dict)
    paper_timers: Timers = PAPER
    distribution: Callable[[Any, int, Sequence[int]], Trees] | None = None
    headers: tuple[Header, ...] = ()


@cache
def headers() -> tuple[Header, ...]:
    """Return the headers of all networks, which their versions tell apart.

    >>> [header.name for header in headers()]
    ['dcn', 'bcube']
    """
    found = (DCN, *(header for network in all_declared() for header in network.headers))
    for values in (
        [header.name for header in found],
        [form.name for header in found for form in header.forms],
        [header.version for header in found],
    ):
        require(
            len(set(values)) == len(values),
            f"headers of two networks have the same name or version: {values}",
        )
    return found


def header_of(data: bytes) -> Header | None:
    """Return the header that packets under the headers' ethertype begin with, None if none does."""
    return _headers_by_version().get(data[0] >> 4) if data else None


@cache
def _headers_by_version() -> dict[int, Header]:
    return {header.version: header for header in headers()}
