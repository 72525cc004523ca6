"""Mapping of a server's ports to levels, drawn for each student of labs 3 to 5.

Papers number a server's ports by level. A machine numbers them in the order in which it detects its
network cards, and a router has a table that maps one to the other. A file with the table of one
student fails on the servers of another.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, NamedTuple

from pillarbox.hosts.base.path import Path
from pillarbox.topos.base.topology import Topology

Link = tuple[int, int, int]  # server, port (or the port's level in the network), peer server


class Cabling(NamedTuple):
    """A student's mapping of network levels to server ports: a rotation, ascending or descending.

    Inside the grader, and in a `Path`, a port number is the level.

    >>> cabling = Cabling(2, -1)
    >>> print(cabling)
    port (2 - level) mod ports
    >>> [cabling.port(level, 3) for level in range(3)]
    [2, 1, 0]
    >>> [cabling.level(port, 3) for port in (2, 1, 0)]
    [0, 1, 2]
    """

    first: int  # port number of level 0
    turn: int  # 1 if port numbers ascend with the levels, -1 if they descend

    def __str__(self) -> str:
        """Return the mapping of levels to ports as a formula for the lab sheet."""
        return f"port ({self.first} {'+' if self.turn > 0 else '-'} level) mod ports"

    def port(self, level: int, ports: int) -> int:
        """Return the student's port number of a level, on a server with `ports` ports."""
        return (self.first + self.turn * level) % ports

    def level(self, port: int, ports: int) -> int:
        """Return the level of a student's port number, on a server with `ports` ports."""
        return self.turn * (port - self.first) % ports

    def hops_in_student_ports(self, network: Topology, path: Path) -> list[list[int]]:
        """Return a path's hops (port, peer) with the port numbers of the student's lab sheet."""
        return [[self.port(step.port, network.ports), step.peer] for step in path.steps]

    def links_in_student_ports(self, network: Topology, links: Iterable[Link]) -> list[Link]:
        """Return links (server, port, peer) with the port numbers of the student's lab sheet."""
        return [(at, self.port(level, network.ports), peer) for at, level, peer in links]


PLAIN = Cabling(0, 1)
# Number of ports that a lab sheet may assign to level 0: with 4, ports 0 and 3 of a server with
# three ports would be equal.
MOST_FIRST = 3
NAME = "cabling"


def random_cabling(draw: random.Random, network: Topology) -> Cabling:
    """Draw a student's mapping of levels to ports, distinct in larger networks too."""
    return Cabling(draw.randrange(min(network.ports, MOST_FIRST)), draw.choice((1, -1)))


def cabling_of_sheet(values: Any) -> Cabling:
    """Return the mapping of levels to ports from the values of a lab sheet."""
    return Cabling(*values[NAME])
