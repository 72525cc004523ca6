"""Which faults happen when: a schedule, drawn where it is to be random, from a seed.

Moments and lengths of random faults depend on the seed alone, and not on the network: so several
networks can be compared under the same faults, each at nodes of its own.

No two faults of a schedule hold the same thing at the same time (a rack's fault holds its servers
as well): each can be undone without a thought to others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from experiments.traffic.workload import Workload
from experiments.trials.plans.experiment import FaultAt, FaultRate
from hosts.base.failures import Failures, rack
from hosts.base.faults import Fault, kind_of, read
from topos.base.errors import require
from topos.base.topology import Topology

CUTS = ("cut", "silent cut")
FOR_EVER = float("inf")
MOST_DRAWN = 10_000  # faults at random, on average

# What each kind of fault names, for error messages.
FORMS = {
    "cut": "the two ends of a cable",
    "silent cut": "the two ends of a cable",
    "server": "a server",
    "switch": "a switch",
    "rack": "the switch of a rack",
}


def schedule(
    topology: Topology, faults: Sequence[FaultAt | FaultRate], workload: Workload, seed: int
) -> list[Fault]:
    """Return the faults in the order in which they begin.

    Those at given moments come as they are, with the names that `Topology.name` gives. Those at
    random are a Poisson process; whatever it would break while all its like are broken already is
    left out.

    Raises
    ------
    PillarboxError
        Where a fault is about what the network does not have, or two hold the same thing at once.

    >>> import topos
    >>> found = schedule(
    ...     topos.parse("dcell,4,1"),
    ...     [FaultAt("cut h3-h16 at 1 until 2"), FaultRate("kill", 60.0, 0.5)],
    ...     Workload(duration_s=4.0),
    ...     seed=1,
    ... )
    >>> [(fault.kind, *fault.what) for fault in found]  # doctest: +ELLIPSIS
    [('cut', '0.3', '4.0'), ('server', ...), ...]
    """
    planned: list[_Planned] = []
    for fault in faults:
        if isinstance(fault, FaultAt):
            planned.append(_checked(topology, read(fault.fault), planned))
    for number, fault in enumerate(faults):
        if isinstance(fault, FaultRate):
            planned += _drawn(topology, fault, workload, f"{seed}.{number}", planned)
    return sorted((one.fault for one in planned), key=lambda fault: fault.at_s)


def nodes_of(topology: Topology, fault: Fault) -> tuple[int, ...]:
    """Return the nodes that a fault names, or raise PillarboxError for what is not there."""
    form = FORMS[fault.kind]
    cable = fault.kind in CUTS
    named = " ".join(fault.what)
    require(
        len(fault.what) == 1 + cable, f"a fault {fault.kind!r} is about {form}, not {named or '-'}"
    )
    nodes = tuple(topology.node(text) for text in fault.what)
    if cable:
        around = sorted(plug.node for _, plug in topology.neighbours(nodes[0]))
        require(
            nodes[1] in around,
            f"no cable joins {fault.what[0]} and {fault.what[1]} in {topology.spec}: "
            f"{fault.what[0]}'s lead to {', '.join(map(topology.name, around))}",
        )
    else:
        is_server = nodes[0] < topology.servers
        require(
            is_server == (fault.kind == "server"),
            f"a fault {fault.kind!r} is about {form}, which {named} is not",
        )
    return nodes


def failures_of(topology: Topology, fault: Fault) -> Failures:
    """Return what a fault breaks, as the algorithms take it."""
    nodes = nodes_of(topology, fault)
    if fault.kind in CUTS:
        return Failures(links=frozenset([frozenset(nodes)]))
    servers = rack(topology, *nodes) if fault.kind == "rack" else []
    return Failures(frozenset([*nodes, *servers]))


class _Planned(NamedTuple):
    """A fault, and what no other fault may break meanwhile."""

    fault: Fault
    broken: Failures

    def clashes(self, other: _Planned) -> bool:
        """Tell whether both hold something together; one may begin where the other ends."""
        a, b = self.fault, other.fault
        both = self.broken.nodes & other.broken.nodes or self.broken.links & other.broken.links
        return bool(both) and a.at_s < _end(b) and b.at_s < _end(a)


def _planned(topology: Topology, fault: Fault) -> _Planned:
    named = tuple(topology.name(node) for node in nodes_of(topology, fault))
    return _Planned(fault._replace(what=named), failures_of(topology, fault))


def _checked(topology: Topology, fault: Fault, others: Sequence[_Planned]) -> _Planned:
    named = f"the {fault.kind} of {' '.join(fault.what)}"
    require(fault.at_s >= 0, f"{named} begins before the barrier: at_s is {fault.at_s:g}")
    require(
        _end(fault) > fault.at_s,
        f"{named} ends at {_end(fault):g} s, which is not after its beginning at {fault.at_s:g} s",
    )
    planned = _planned(topology, fault)
    for other in others:
        require(
            not planned.clashes(other),
            f"{named} at {fault.at_s:g} s begins while the {other.fault.kind} of "
            f"{' '.join(other.fault.what)} is in effect: let one end first",
        )
    return planned


def _drawn(
    topology: Topology,
    rate: FaultRate,
    workload: Workload,
    seed: str,
    others: Sequence[_Planned],
) -> list[_Planned]:
    """Return the faults of a rate; none holds what another has."""
    kind = kind_of(rate.fault)
    targets = _TARGETS[kind](topology)
    require(bool(targets), f"{topology.spec} has nothing that a fault {rate.fault!r} could hit")
    chosen = random.Random(f"{seed} targets")  # apart from the moments, which all networks share
    found: list[_Planned] = []
    for at_s in _moments(rate, workload, random.Random(f"{seed} moments")):
        for nodes in chosen.sample(targets, len(targets)):
            named = tuple(topology.name(node) for node in nodes)
            fault = Fault(kind, named, at_s, at_s + rate.lasting_s)
            planned = _planned(topology, fault)
            if not any(map(planned.clashes, (*others, *found))):
                found.append(planned)
                break
    return found


def _moments(rate: FaultRate, workload: Workload, drawn: random.Random) -> Iterator[float]:
    """Yield when a Poisson process strikes; to the millisecond, which people can read."""
    named = f"faults {rate.fault!r} at random"
    end_s = workload.duration_s if rate.until_s is None else rate.until_s
    require(
        end_s is not None,
        f"{named} need until_s: it is not known when a workload of fixed volume will end",
    )
    assert end_s is not None
    require(
        0 <= rate.from_s < end_s,
        f"{named} go from {rate.from_s:g} s to {end_s:g} s: nothing is between",
    )
    require(rate.per_minute > 0, f"{named} have a rate above 0 a minute, not {rate.per_minute:g}")
    expected = rate.per_minute / 60 * (end_s - rate.from_s)
    require(
        expected <= MOST_DRAWN,
        f"{named} are about {expected:.3g}, more than {MOST_DRAWN}: choose fewer a minute",
    )
    require(rate.lasting_s > 0, f"{named} last longer than 0 s, not {rate.lasting_s:g}")
    at_s = rate.from_s
    while (at_s := at_s + drawn.expovariate(rate.per_minute / 60)) < end_s:
        yield round(at_s, 3)


def _cables(topology: Topology) -> list[tuple[int, ...]]:
    return [(cable.a, cable.b) for cable in topology.links()]


def _servers(topology: Topology) -> list[tuple[int, ...]]:
    return [(server,) for server in range(topology.servers)]


def _switches(topology: Topology) -> list[tuple[int, ...]]:
    return [(switch,) for switch in range(topology.servers, topology.nodes)]


def _racks(topology: Topology) -> list[tuple[int, ...]]:
    """Return the switches that have servers in their rack."""
    return [(switch,) for (switch,) in _switches(topology) if rack(topology, switch)]


_TARGETS: dict[str, Callable[[Topology], list[tuple[int, ...]]]] = {
    "cut": _cables,
    "silent cut": _cables,
    "server": _servers,
    "switch": _switches,
    "rack": _racks,
}


def _end(fault: Fault) -> float:
    return FOR_EVER if fault.until_s is None else fault.until_s
