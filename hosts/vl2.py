"""Paths through the switches of VL2: over a random intermediate switch (Greenberg 2011, 4.1).

A packet between two ToR switches goes up to an intermediate switch that is chosen without regard to
its destination, and down to the destination's ToR switch (Valiant load balancing). Here a hash of
the flow's source and destination chooses the first aggregation switch, the intermediate switch and
the last aggregation switch. If that path has failed, the next path that works is used.
"""

from __future__ import annotations

from collections.abc import Iterator

from pillarbox.hosts.base.algorithms import Algorithm, Routed
from pillarbox.hosts.base.direct import PORT, Direct
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.hashed import first_working, hashed_paths
from pillarbox.hosts.base.network import Network
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.rules import SwitchPath
from pillarbox.topos.vl2 import UPLINKS, VL2

Links = Iterator[tuple[int, int]]


def numbers(vl2: VL2) -> tuple[int, int, int, int]:
    """Return servers per ToR, D_A / 2, D_I and ToR switches of a VL2 network, for its rule."""
    return vl2.tor, vl2.half, vl2.i, vl2.tors


def balanced(
    tor: int, half: int, i: int, tors: int, source: int, destination: int, choice: int
) -> Links:
    """Yield the links of a path: `choice` gives both aggregation switches and the intermediate."""
    servers = tors * tor
    near, far = source // tor, destination // tor
    yield source, PORT
    if near != far:
        up, down, intermediate = choice % 2, choice // 2 % 2, choice // 4 % half
        first = servers + tors
        last = far // half * 2 + down  # number of the last aggregation switch
        yield servers + near, tor + up
        yield first + near // half * 2 + up, half + intermediate
        yield first + i + intermediate, last
        yield first + last, far % half
    yield servers + far, destination % tor


BALANCED = SwitchPath(balanced, numbers, lambda _: 6, lambda vl2: UPLINKS * UPLINKS * vl2.half)


def balanced_path(vl2: VL2, source: int, destination: int, flow: int = 0) -> Path:
    """Return the path that a flow's hash selects if nothing has failed.

    >>> vl2 = VL2(4, 4, tor=2)
    >>> path = balanced_path(vl2, vl2.server("0.0"), vl2.server("3.1"))
    >>> print(*(vl2.switch_label(node - vl2.servers) for node in path.steps[0].via), sep=", ")
    ToR 0, aggregation 0, intermediate 1, aggregation 3, ToR 3
    """
    return next(_hashed_paths(vl2, source, destination, flow))


def balanced_around(
    vl2: VL2,
    source: int,
    destination: int,
    failures: Failures,
    _several: bool = False,
    flow: int = 0,
) -> Routed:
    """Return a flow's hashed path, or the next working path if that path has failed."""
    return first_working(vl2, _hashed_paths(vl2, source, destination, flow), failures)


def _hashed_paths(vl2: VL2, source: int, destination: int, flow: int) -> Iterator[Path]:
    """Return every path, starting with the path that the flow's hash selects."""
    count = 1 if source // vl2.tor == destination // vl2.tor else BALANCED.choices(vl2)
    return hashed_paths(BALANCED, vl2, count, source, destination, flow)


NETWORK = Network(
    algorithms={
        "vlb": Algorithm(
            "Valiant load balancing: over an intermediate switch by a hash, the next path if that "
            "one has failed",
            balanced_path,
            around=balanced_around,
            router=Direct,
        ),
    },
    rules={"vlb": BALANCED},
)
