"""Cables that differ from the others of a running network: their rate, delay and loss."""

from __future__ import annotations

from typing import Any, NamedTuple

from experiments.linux import shaping
from topos.base.errors import require


class CableShape(NamedTuple):
    """What a cable is like, in each direction; None where it has no such limit."""

    rate_mbit: float | None
    delay: str | None
    loss: float | None

    def __str__(self) -> str:
        """Return it in words.

        >>> str(CableShape(20.0, "5ms", None)), str(CableShape(None, None, 1.5))
        ('20 Mbit/s, 5ms late', 'any rate, loses 1.5 %')
        """
        rate = "any rate" if self.rate_mbit is None else f"{self.rate_mbit:g} Mbit/s"
        late = [f"{self.delay} late"] if self.delay else []
        lossy = [f"loses {self.loss:g} %"] if self.loss else []
        return ", ".join([rate, *late, *lossy])


class CableShapes:
    """The shapes of one network's cables; nodes are given by their Mininet names.

    Attributes
    ----------
    usual
        What all cables were made like.
    changed
        By the two ends of a cable: what it is like now, where that is not as usual.
    """

    def __init__(self, net: Any, usual: CableShape) -> None:
        self._net, self.usual = net, usual
        self.changed: dict[frozenset[str], CableShape] = {}

    def of(self, a: str, b: str) -> CableShape:
        """Return what the cable between two nodes is like."""
        return self.changed.get(frozenset([a, b]), self.usual)

    def change(self, a: str, b: str, wanted: CableShape) -> None:
        """Give the cable between two nodes that shape, in both directions, at once."""
        self.shape(self.links(a, b), wanted)
        self.note(a, b, wanted)

    def links(self, a: str, b: str) -> list[Any]:
        """Return the cables between two nodes, or refuse where there is none."""
        for name in (a, b):
            require(name in self._net, f"there is no node {name!r} in this network")
        links: list[Any] = self._net.linksBetween(self._net[a], self._net[b])
        require(bool(links), f"no cable joins {a} and {b}")
        return links

    def shape(self, links: list[Any], wanted: CableShape) -> None:
        """Give cables that shape, as far as their ends are here."""
        _check(wanted, links)
        packets = self._net.cable["max_queue_size"]
        for link in links:
            for intf in (link.intf1, link.intf2):
                delay, loss = wanted.delay, wanted.loss or 0.0
                link.shape(intf, wanted.rate_mbit, delay, None, loss, packets)

    def note(self, a: str, b: str, wanted: CableShape) -> None:
        """Keep in mind what the cable between two nodes is like."""
        self.changed.pop(frozenset([a, b]), None)
        if wanted != self.usual:
            self.changed[frozenset([a, b])] = wanted


def _check(wanted: CableShape, links: list[Any]) -> None:
    """Refuse a shape before any of it is made."""
    shaping.check_rate(wanted.rate_mbit)
    shaping.check_loss(wanted.loss)
    delay = shaping.checked_delay(wanted.delay, None)
    can = not delay or shaping.kernel_has_netem() or all(link.delay for link in links)
    require(
        can,
        "this kernel has no netem, so a cable has its delay from the start or not at all: start "
        "the lab with --delay 1us, and change it then",
    )
