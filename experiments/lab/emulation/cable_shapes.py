"""Individual rates, delays and losses of the cables of a running network."""

from __future__ import annotations

from typing import Any, NamedTuple

from pillarbox.experiments.lab.linux import shaping
from pillarbox.topos.base.errors import UnknownNameError, UnsupportedError, require
from pillarbox.topos.base.topology import Topology


class CableShape(NamedTuple):
    """The rate, delay and loss of a cable in each direction; None if unset."""

    rate_mbit: float | None
    delay: str | None
    loss: float | None

    def __str__(self) -> str:
        """Return a cable's rate, delay and loss as text.

        >>> str(CableShape(20.0, "5ms", None)), str(CableShape(None, None, 1.5))
        ('20 Mbit/s, 5ms late', 'any rate, loses 1.5 %')
        """
        rate = "any rate" if self.rate_mbit is None else f"{self.rate_mbit:g} Mbit/s"
        late = [f"{self.delay} late"] if self.delay else []
        lossy = [f"loses {self.loss:g} %"] if self.loss else []
        return ", ".join([rate, *late, *lossy])


def rates_mbit_of_levels(topology: Topology, rate_mbit: float | None) -> list[float]:
    """Return the rate of each level's cables in Mbit/s; empty if equal or without a limit."""
    return [rate_mbit * factor for factor in topology.factors.rates] if rate_mbit else []


def usual_shape(topology: Topology | None, wanted: CableShape, level: int) -> CableShape:
    """Return the initial shape of the cables of a level, given that of relative rate and delay 1.

    >>> from pillarbox import topos
    >>> str(usual_shape(topos.parse("bcube,4,1,rates=9:1"), CableShape(10.0, None, None), 0))
    '90 Mbit/s'
    """
    if topology is None:
        return wanted
    rate_mbit, delay = wanted.rate_mbit, wanted.delay
    if rate_mbit is not None:
        rate_mbit *= topology.rate_of_level(level)
    delay = shaping.scaled_delay(delay, topology.delay_of_level(level))
    return wanted._replace(rate_mbit=rate_mbit, delay=delay)


class CableShapes:
    """Rate, delay and loss of each cable of a network; nodes are given by their Mininet names.

    Attributes
    ----------
    changed
        Current shapes of cables that differ from their initial shape, by the two ends of the cable.
    """

    def __init__(self, net: Any, usual: CableShape) -> None:
        # `_usual` is the initial shape of cables of relative rate and delay 1.
        self._net, self._usual = net, usual
        self.changed: dict[frozenset[str], CableShape] = {}

    def usual(self, a: str, b: str) -> CableShape:
        """Return the initial shape of the cable between two nodes, that of its level."""
        # A network that was made by Mininet's methods has no topology, and no levels.
        topology: Topology | None = getattr(self._net, "topology", None)
        if topology is None:
            return self._usual
        far = topology.node(b)
        plugs = (plug for _, plug in topology.neighbours(topology.node(a)) if plug.node == far)
        level = next((int(plug.level) for plug in plugs), 0)
        return usual_shape(topology, self._usual, level)

    def of(self, a: str, b: str) -> CableShape:
        """Return the rate, delay and loss of the cable between two nodes."""
        return self.changed.get(frozenset([a, b])) or self.usual(a, b)

    def change(self, a: str, b: str, wanted: CableShape) -> None:
        """Set the rate, delay and loss of the cable between two nodes, in both directions."""
        self.shape(self.links(a, b), wanted)
        self.note(a, b, wanted)

    def links(self, a: str, b: str) -> list[Any]:
        """Return the cables between two nodes; raise PillarboxError if there are none."""
        for name in (a, b):
            require(
                name in self._net, f"there is no node {name!r} in this network", UnknownNameError
            )
        links: list[Any] = self._net.linksBetween(self._net[a], self._net[b])
        require(bool(links), f"no cable joins {a} and {b}", UnknownNameError)
        return links

    def shape(self, links: list[Any], wanted: CableShape) -> None:
        """Set the rate, delay and loss of cables at all cable ends on this machine."""
        _check(wanted, links)
        packets = self._net.cable["max_queue_size"]
        for link in links:
            for intf in (link.intf1, link.intf2):
                delay, loss = wanted.delay, wanted.loss or 0.0
                link.shape(intf, wanted.rate_mbit, delay, None, loss, packets)

    def note(self, a: str, b: str, wanted: CableShape) -> None:
        """Record the current rate, delay and loss of the cable between two nodes."""
        self.changed.pop(frozenset([a, b]), None)
        if wanted != self.usual(a, b):
            self.changed[frozenset([a, b])] = wanted


def _check(wanted: CableShape, links: list[Any]) -> None:
    """Raise PillarboxError if a cable's new rate, delay or loss is invalid."""
    shaping.check_rate(wanted.rate_mbit)
    shaping.check_loss(wanted.loss)
    delay = shaping.checked_delay(wanted.delay, None)
    can = not delay or shaping.kernel_has_netem() or all(link.delay for link in links)
    require(
        can,
        "this kernel has no netem, so a cable has its delay from the start or not at all: start "
        "the lab with --delay 1us, and change it then",
        UnsupportedError,
    )
