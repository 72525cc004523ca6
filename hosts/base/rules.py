"""Routing rules: path computations on plain numbers, shared by routers and the simulator.

Servers call a rule for one path at a time, and the simulator compiles the same function for
millions of paths. So rules use only constructs that both support (docs/adr/0005-rules.md): numbers
as arguments and results, subscripts, loops, and other rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import starmap
from typing import Any, NamedTuple, Protocol, TypeVar

from pillarbox.hosts.base.path import Path, Step
from pillarbox.topos.base.topology import Topology

NONE = -1  # number that means "no server", "no path" or "no port"
VARIES = -2  # number of an ingress port that depends on the hop's two servers
Value_co = TypeVar("Value_co", covariant=True)


class Values(Protocol[Value_co]):
    """Values that a rule reads by index: a list in a router, an array in the simulator."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Value_co: ...


class Rule(NamedTuple):
    """Routing algorithm in compilable form: a function that computes the hops of a path.

    ``hops(*numbers, source, destination, choice)`` yields each hop's port and next server. If the
    hops visit an end more than once, the path begins at the last visit of its source and ends at
    the first visit of its destination. If no path exists, the rule yields no hops.
    """

    hops: Callable[..., Iterator[tuple[int, int]]]
    # Function from a topology to the parameters that the rule needs: numbers, or tuples of numbers
    # (the simulator compiles a rule for each length of a tuple).
    numbers: Callable[[Any], tuple[Any, ...]]
    most: Callable[[Any], int]  # function from a topology to the maximum number of hops of a path
    # Ingress port at the next server of a hop through a switch, indexed by egress port.
    # The entry is None for egress ports with a direct cable between two servers, and VARIES if hops
    # by the same egress port arrive by different ports.
    arrivals: Callable[[Any], Sequence[int | None]]
    # Number of paths per pair of servers; identical paths may have several numbers.
    choices: Callable[[Any], int] = lambda _: 1

    def path(self, topology: Topology, source: int, destination: int, choice: int = 0) -> Path:
        """Return the path with number `choice` between two servers; without hops if none exists."""
        hops = self.hops(*self.numbers(topology), source, destination, choice)
        return Path(source, tuple(starmap(Step, hops))).cut()

    def first_step(self, topology: Topology, source: int, destination: int) -> Step | None:
        """Return the first hop of path 0, None if no path exists."""
        hops = self.hops(*self.numbers(topology), source, destination, 0)
        return next(starmap(Step, hops), None)

    def paths(self, topology: Topology, source: int, destination: int) -> list[Path]:
        """Return all distinct paths between two servers, by number."""
        numbers = range(self.choices(topology))
        paths = (self.path(topology, source, destination, number) for number in numbers)
        return [path for path in dict.fromkeys(paths) if path.steps]


class SwitchPath(NamedTuple):
    """Routing rule for networks of interconnected switches: computes the links of one hop.

    ``links(*numbers, source, destination, choice)`` yields each node with its egress port: the
    source, then every switch of the path.
    """

    links: Callable[..., Iterator[tuple[int, int]]]
    numbers: Callable[[Any], tuple[Any, ...]]
    most: Callable[[Any], int]  # function from a topology to the maximum number of links of a path
    choices: Callable[[Any], int] = lambda _: 1

    def path(self, topology: Topology, source: int, destination: int, choice: int = 0) -> Path:
        """Return path number `choice` between two servers: one hop with its switches."""
        links = self.links(*self.numbers(topology), source, destination, choice)
        (_, port), *onward = links
        via = tuple(switch for switch, _ in onward)
        return Path(source, (Step(port, destination, via),))
