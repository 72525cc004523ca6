"""DPillarMP's decisions: tunnels, reserve paths, path choice, reverse hops (Liao 2012, 4.5).

All functions compute from addresses and measurements passed to them; the routers (tunnel.py,
multipath.py, light_weight.py, traffic_aware.py) hold the state and handle packets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.ports import arrival_port
from pillarbox.hosts.base.probing import Candidate, measured
from pillarbox.hosts.base.rules import NONE
from pillarbox.hosts.dpillar.paths import (
    Proxies,
    far_side_tunnels,
    mp_step,
    mp_tunnels,
    pairing_tunnels,
)
from pillarbox.hosts.dpillar.rules import booked
from pillarbox.topos.dpillar import DPillar

# A directed link of a path: a server, and its hop (port and next server).
Link = tuple[int, Step]


def tunnels(
    dpillar: DPillar, source: int, destination: int, ports: Iterable[int]
) -> dict[Path, Proxies]:
    """Return the disjoint paths of the given directions, shortest first, each with its tunnel.

    Paths of one direction are disjoint; a path of the other direction may cross them.

    >>> dpillar = DPillar(8, 2)
    >>> s, d = dpillar.server("0.0.0"), dpillar.server("0.3.3")
    >>> [len(path) for path in tunnels(dpillar, s, d, (0, 1))]
    [2, 2, 4, 4, 4, 4, 4, 4]
    """
    found: dict[Path, Proxies] = {}
    for port in ports:
        found.update(mp_tunnels(dpillar, source, destination, port))
    return _shortest_first(found)


def far_side_reserves(
    dpillar: DPillar, source: int, destination: int, ports: Iterable[int]
) -> dict[Path, Proxies]:
    """Return the paths to the destination's far port, each with its tunnel.

    >>> dpillar = DPillar(4, 2)
    >>> s, d = dpillar.server("0.0.0"), dpillar.server("0.1.0")
    >>> [len(path) for path in far_side_reserves(dpillar, s, d, (0, 1))]
    [1, 3]
    """
    return _others_than_disjoint(far_side_tunnels, dpillar, source, destination, ports)


def pairing_reserves(
    dpillar: DPillar, source: int, destination: int, ports: Iterable[int]
) -> dict[Path, Proxies]:
    """Return the paths of other pairings of s' and d' (footnote 3), each with its tunnel.

    >>> dpillar = DPillar(4, 3)
    >>> s, d = dpillar.server("0.0.0.0"), dpillar.server("1.0.1.1")
    >>> [len(path) for path in pairing_reserves(dpillar, s, d, (0, 1))]
    [5, 5, 7]
    """
    return _others_than_disjoint(pairing_tunnels, dpillar, source, destination, ports)


def _others_than_disjoint(
    tunnels_by: Callable[[DPillar, int, int, int], dict[Path, Proxies]],
    dpillar: DPillar,
    source: int,
    destination: int,
    ports: Iterable[int],
) -> dict[Path, Proxies]:
    """Return the paths of all ports, shortest first, without those that `tunnels` returns."""
    known = tunnels(dpillar, source, destination, ports)
    found: dict[Path, Proxies] = {}
    for port in ports:
        found |= tunnels_by(dpillar, source, destination, port)
    return _shortest_first({path: by for path, by in found.items() if path not in known})


def _shortest_first(found: dict[Path, Proxies]) -> dict[Path, Proxies]:
    return dict(sorted(found.items(), key=lambda tunnel: len(tunnel[0])))


def step_back(dpillar: DPillar, server: int, origin: int, end: int, by: Proxies) -> Step | None:
    """Return the hop from a relay back towards the origin of a tunnel through the relay.

    The hop is the reverse of the link by which packets go from `origin` to `end`, which is the
    destination, or a relay that met a failure. (DPillarSP in the opposite direction would not find
    that link: on paths of more than k hops it sets the symbols in another order.) The result is
    None if the server is not on the path, or if a forged tunnel names a link that does not exist.
    """
    at = origin
    for _ in range(2 * dpillar.k + 1):
        step = mp_step(dpillar, at, origin, end, by)
        if step is None or step.peer not in dpillar.peers(at, step.port):
            return None
        if step.peer == server:
            return Step(arrival_port(dpillar, at, step), at)
        at = step.peer
    return None


def links(path: Path) -> Iterator[Link]:
    """Return the directed links of a path."""
    return zip(path.servers, path.steps, strict=False)


def schedule(candidates: list[Candidate], using: int | None, own_bps: float) -> int | None:
    """Return the path with the most available bandwidth for a flow, and subtract its rate there.

    Parameters
    ----------
    candidates : list of Candidate
        Paths with their last measurements, which are updated.
    using : int or None
        Index of the flow's current path; None for a new flow.
    own_bps : float
        Rate of the flow on its current path, in bit/s.

    >>> from pillarbox.hosts.base.probing import PathState
    >>> paths = [Candidate(Path(0, ()), PathState.WORKING, 1e9) for _ in range(3)]
    >>> [schedule(paths, None, 0.0) for _ in range(6)]
    [0, 1, 2, 0, 1, 2]
    """
    free, works, hops = measured(candidates)
    chosen = booked(free, works, hops, NONE if using is None else using, own_bps)
    for candidate, available_bps in zip(candidates, free, strict=True):
        candidate.available_bps = available_bps
    return None if chosen == NONE else chosen
