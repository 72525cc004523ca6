"""Source routes in headers: per hop, the level of the digit that changes, and its new value.

A header names its source and its hops (section 7.1), from which a relay can compute every server on
the path, and the reverse path. Received hops are not trusted: if a hop leads to no server, the
header gives no path.
"""

from __future__ import annotations

from collections.abc import Iterable

from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.bcube.paths import step_to, width
from pillarbox.hosts.bcube.rules import digit, with_digit
from pillarbox.hosts.wire.bcube import Hop
from pillarbox.topos.base.digits import DigitNetwork


def hops_of(bcube: DigitNetwork, path: Path) -> tuple[Hop, ...]:
    """Return the hops of a path in the form of a BCube header (digit, value).

    >>> from pillarbox.hosts.bcube.paths import path
    >>> from pillarbox.topos.bcube import BCube
    >>> bcube = BCube(4, 1)
    >>> hops_of(bcube, path(bcube, bcube.server("0.0"), bcube.server("2.3")))
    (Hop(level=1, value=2), Hop(level=0, value=3))
    """
    levels = [bcube.level_of_port(step.port) for step in path.steps]
    hops = zip(levels, path.steps, strict=True)
    return tuple([Hop(level, digit(bcube.weights, step.peer, level)) for level, step in hops])


def next_server(bcube: DigitNetwork, server: int, hop: Hop) -> int | None:
    """Return the server that a BCube header's hop leads to, None if the hop does not exist."""
    level, value = hop
    if (
        level > bcube.k
        or value >= width(bcube, level)
        or value == digit(bcube.weights, server, level)
    ):
        return None
    return with_digit(bcube.weights, server, level, value)


def path_of(bcube: DigitNetwork, source: int, hops: Iterable[Hop]) -> Path | None:
    """Return the path that a BCube header's hops describe, None if the path does not exist."""
    if not 0 <= source < bcube.servers:
        return None
    at = source
    steps = []
    for hop in hops:
        peer = next_server(bcube, at, hop)
        if peer is None:
            return None
        steps.append(Step(bcube.port_towards(at, *hop), peer))
        at = peer
    return Path(source, tuple(steps))


def reverse(bcube: DigitNetwork, path: Path) -> Path:
    """Return the reverse path, over the same levels and servers."""
    back = [
        step_to(bcube, step.peer, bcube.level_of_port(step.port), server)
        for server, step in zip(path.servers, path.steps, strict=False)
    ]
    return Path(path.destination, tuple(reversed(back)))
