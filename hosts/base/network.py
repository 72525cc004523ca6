"""What hosts/NETWORK says of its network, in one place: ``NETWORK = Network(...)``.

Commands, live servers, the simulator, reports and tests find it by the network's name
(`hosts.base.declared`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hosts.base.algorithms import Algorithm
from hosts.base.rules import Fabric, Rule
from hosts.base.timers import PAPER, Timers

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
    """

    algorithms: Mapping[str, Algorithm]
    rules: Mapping[str, Rule | Fabric] = field(default_factory=dict)
    paper_timers: Timers = PAPER
    distribution: Callable[[Any, int, Sequence[int]], Trees] | None = None
