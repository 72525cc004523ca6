"""A routing's paths as a rule: arithmetic on plain numbers, of which there is one copy.

Servers call a rule for one path at a time, and the simulator compiles the same function for
millions of them. So rules keep to what both can do (docs/adr/0005-rules.md): numbers in and out,
subscripts, loops, and other rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import starmap
from typing import Any, NamedTuple

from hosts.base.path import Path, Step
from topos.base.topology import Topology

NONE = -1  # the number of what there is none of


class Rule(NamedTuple):
    """Which hops a path takes.

    ``hops(*numbers, source, destination, choice)`` yields each hop's port and the server that it
    leads to. A path begins at the last visit of its source and ends at the first visit of its
    destination, should the hops make more of them. Where there is none, there are no hops.
    """

    hops: Callable[..., Iterator[tuple[int, int]]]
    numbers: Callable[[Any], tuple[int, ...]]  # what the rule has to know of the network
    most: Callable[[Any], int]  # hops
    # By which port of the next server a hop arrives that leaves by that one, through a switch; None
    # where that is a cable between two servers.
    arrivals: Callable[[Any], Sequence[int | None]]
    # How many paths there are for a pair. Where some are the same, they have several numbers.
    choices: Callable[[Any], int] = lambda _: 1

    def path(self, topology: Topology, source: int, destination: int, choice: int = 0) -> Path:
        """Return the path of that number; one without hops where there is none."""
        hops = self.hops(*self.numbers(topology), source, destination, choice)
        return Path(source, tuple(starmap(Step, hops))).cut()

    def first_step(self, topology: Topology, source: int, destination: int) -> Step | None:
        """Return the first hop, None where there is none."""
        hops = self.hops(*self.numbers(topology), source, destination, 0)
        return next(starmap(Step, hops), None)

    def paths(self, topology: Topology, source: int, destination: int) -> list[Path]:
        """Return all different paths, by their numbers."""
        numbers = range(self.choices(topology))
        found = (self.path(topology, source, destination, number) for number in numbers)
        return [path for path in dict.fromkeys(found) if path.steps]


class Fabric(NamedTuple):
    """Which way a hop takes through switches that interconnect.

    ``links(*numbers, source, destination, choice)`` yields each node that a packet leaves, and by
    which port: the source, then every switch.
    """

    links: Callable[..., Iterator[tuple[int, int]]]
    numbers: Callable[[Any], tuple[int, ...]]
    most: Callable[[Any], int]  # links
    choices: Callable[[Any], int] = lambda _: 1

    def path(self, topology: Topology, source: int, destination: int, choice: int = 0) -> Path:
        """Return the path of that number, which names its switches."""
        links = self.links(*self.numbers(topology), source, destination, choice)
        (_, port), *onward = links
        via = tuple(switch for switch, _ in onward)
        return Path(source, (Step(port, destination, via),))
