"""Which port of a server leads to which level: drawn for each student of labs 3 to 5.

Papers number a server's ports by level. A machine numbers them as it finds its network cards, and
a router has a table between the two. A file with one student's table fails on another's servers.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, NamedTuple

from hosts.base.path import Path
from topos.base.topology import Topology

Link = tuple[int, int, int]  # server, level or port, peer


class Cabling(NamedTuple):
    """Ports in the order of the levels, round, from any port on and up or down.

    Inside the grader, and in a `Path`, what is called a port is a level.

    >>> cabling = Cabling(2, -1)
    >>> print(cabling)
    port (2 - level) mod ports
    >>> [cabling.port(level, 3) for level in range(3)]
    [2, 1, 0]
    >>> [cabling.level(port, 3) for port in (2, 1, 0)]
    [0, 1, 2]
    """

    first: int  # the port of level 0
    turn: int  # 1 where the next level's port is the next one, -1 where it is the one before

    def __str__(self) -> str:
        """Return it as a sheet shows it."""
        return f"port ({self.first} {'+' if self.turn > 0 else '-'} level) mod ports"

    def port(self, level: int, ports: int) -> int:
        """Return the port of a level, on a server with so many."""
        return (self.first + self.turn * level) % ports

    def level(self, port: int, ports: int) -> int:
        """Return the level that a port leads to."""
        return self.turn * (port - self.first) % ports

    def as_written(self, network: Topology, path: Path) -> list[list[int]]:
        """Return a path as the student writes it."""
        return [[self.port(step.port, network.ports), step.peer] for step in path.steps]

    def links_as_written(self, network: Topology, links: Iterable[Link]) -> list[Link]:
        """Return links as the student's servers list them."""
        return [(at, self.port(level, network.ports), peer) for at, level, peer in links]


PLAIN = Cabling(0, 1)
MOST_FIRST = 3  # else port 3 of four would be port 0 of three
NAME = "cabling"


def drawn(draw: random.Random, network: Topology) -> Cabling:
    """Draw one for servers of a network, that differs from others in larger networks as well."""
    return Cabling(draw.randrange(min(network.ports, MOST_FIRST)), draw.choice((1, -1)))


def of(values: Any) -> Cabling:
    """Return that of a sheet's values, which may have been JSON."""
    return Cabling(*values[NAME])
