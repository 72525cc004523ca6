"""Routing between scale-up domains whose rails a spine joins, without relays.

A server sends to its own domain over the domain's switch (port 0), and to all others over the leaf
switch of its own rail (port 1). A packet to another rail goes up from that leaf to a spine switch
and down to the leaf of the destination's rail. The destination's domain determines the spine
switch, so that the packets to one server always take one spine, and those to the servers of a rail
are spread evenly. If port 0 cannot reach a server of the own domain, port 1 is used.
"""

from __future__ import annotations

from collections.abc import Iterator

from pillarbox.hosts.base.algorithms import Algorithm, Routed
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.network import Network
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.rules import SwitchPath
from pillarbox.topos.domains import Domains

DOMAIN_PORT, RAIL_PORT = 0, 1
Links = Iterator[tuple[int, int]]


def numbers(domains: Domains) -> tuple[int, int, int]:
    """Return servers per domain, domains and spine switches, for the path rules."""
    return domains.g, domains.d, domains.spines


def over_rails(g: int, d: int, spines: int, source: int, destination: int, choice: int) -> Links:
    """Yield the links of a path over the rails; `choice` is added to the spine's number."""
    near, far, domain = source % g, destination % g, destination // g
    first = g * d + d  # node number of the first leaf switch
    yield source, RAIL_PORT
    if near != far:
        spine = (domain + choice) % spines
        yield first + near, d + spine
        yield first + g + spine, far
    yield first + far, domain


def over_ports(g: int, d: int, spines: int, source: int, destination: int, choice: int) -> Links:
    """Yield the links of a path: over the domain's switch within a domain, otherwise the rails."""
    if source // g == destination // g:
        yield source, DOMAIN_PORT
        yield g * d + destination // g, destination % g
    else:
        for node, port in over_rails(g, d, spines, source, destination, choice):  # noqa: UP028 - numba
            yield node, port


SPREAD = SwitchPath(over_ports, numbers, lambda _: 4)
ANY_SPINE = SwitchPath(over_ports, numbers, lambda _: 4, lambda domains: domains.spines)
RAILS = SwitchPath(over_rails, numbers, lambda _: 4)


def spread_path(domains: Domains, source: int, destination: int) -> Path:
    """Return the path between two servers if nothing has failed.

    >>> domains = Domains(4, 2)
    >>> step = spread_path(domains, domains.server("0.1"), domains.server("1.2")).steps[0]
    >>> step.port, [domains.switch_label(node - domains.servers) for node in step.via]
    (1, ['leaf 1', 'spine 1', 'leaf 2'])
    """
    return SPREAD.path(domains, source, destination)


def spread_around(
    domains: Domains, source: int, destination: int, failures: Failures, _several: bool = False
) -> Routed:
    """Return the usual path, or that over the rails if the domain's switch cannot be used."""
    paths = dict.fromkeys(rule.path(domains, source, destination) for rule in (SPREAD, RAILS))
    for path in paths:
        if not failures.first_on(domains, path):
            return Routed([path])
    return Routed([], f"all {len(paths)} paths through the switches have failed")


class TwoPorts(HopByHop):
    """Router that sends plain IP over the domain's switch or the rail, always in one hop."""

    plain_ip = True

    def next_step(self, destination: int, came_by: int | None) -> Step:
        """Return the hop to the destination server, which switches connect directly."""
        near = Step(DOMAIN_PORT, destination)
        return near if self.neighbours.works(near) else Step(RAIL_PORT, destination)


NETWORK = Network(
    algorithms={
        "spread": Algorithm(
            "own domain over its switch, others over the rails and a spine by destination",
            spread_path,
            around=spread_around,
            router=TwoPorts,
        ),
    },
    rules={"spread": SPREAD, "any": ANY_SPINE},
)
