"""Networks whose servers are addressed by digits, each digit with a radix of its own.

Level l of such a network connects the servers whose addresses differ only in digit l: by a switch
(BCube, Rail-only), or by a cable between every two of them (UB-Mesh). The number of a server is the
sum of its digits times their weights. This module holds the arithmetic that does not depend on the
cables.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from operator import mul
from typing import Any

from pillarbox.topos.base.polymorphic import NOTHING, Number
from pillarbox.topos.base.topology import Topology


class DigitNetwork(Topology):
    """Base class of networks whose servers are addressed by digits (`pillarbox.hosts.bcube` routes
    in them).

    A subclass sets `sizes`, and overrides `level_of_port` and `port_towards` if a server has
    several ports per level.
    """

    sizes: tuple[int, ...]  # number of values of each digit, level 0 first

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """Weight of each digit, level 0 first, and at last the number of servers."""
        return tuple(accumulate(self.sizes, mul, initial=1))

    @property
    def k(self) -> int:
        """Number of the top level; the lowest is level 0."""
        return len(self.sizes) - 1

    def digits(self, server: Number) -> tuple[Number, ...]:
        """Return the digits of a server's address, that of the top level first."""
        places = zip(self.weights, self.sizes, strict=False)
        return tuple(server // weight % size for weight, size in places)[::-1]

    def server_at(self, digits: Sequence[Number]) -> Any:
        """Return the server with these digits: the sum of digits times weights."""
        places = zip(reversed(digits), self.weights, strict=False)
        return sum(digit * weight for digit, weight in places)

    def radices(self) -> tuple[int, ...]:
        """Return the number of values of each digit, that of the top level first."""
        return self.sizes[::-1]

    def level_of_port(self, port: int) -> int:
        """Return the level of a server's port: the digit that changes over the port's cable."""
        return port

    def port_towards(self, server: int, level: int, value: int) -> int:
        """Return the port of a server towards the server whose digit at a level is `value`."""
        return level

    def switch_of(self, server: int, level: int) -> int:
        """Return the node number of a server's switch of a level, NOTHING if cables replace it."""
        return NOTHING
