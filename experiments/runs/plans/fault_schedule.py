"""Fault schedule of a trial: faults at given times and random faults drawn from a seed.

Times and durations of random faults depend on the seed alone, and not on the network: so several
networks can be compared under the same faults, each with its own failed nodes.

Two faults of a schedule never break the same node or cable at the same time (a rack's fault breaks
its servers as well): each fault can be repaired independently of the others.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import FaultAt, FaultRate
from pillarbox.hosts.base.failures import Failures, affected, rack
from pillarbox.hosts.base.fault_kinds import CABLE, LOST_ONE_WAY, RACK, SERVER, SWITCH, fault_kind
from pillarbox.hosts.base.faults import Fault, kind_of, read
from pillarbox.topos.base.errors import UnknownNameError, require
from pillarbox.topos.base.topology import Topology

FOR_EVER = float("inf")
MOST_DRAWN = 10_000  # Upper bound for the expected number of random faults.

# Syntax of each kind of target, for error messages.
TARGET_FORMS = {
    CABLE: "the two ends of a cable",
    SERVER: "a server",
    SWITCH: "a switch",
    RACK: "the switch of a rack",
}


def schedule(
    topology: Topology, faults: Sequence[FaultAt | FaultRate], workload: Workload, seed: int
) -> list[Fault]:
    """Return the faults of a trial, in the order in which they begin.

    Faults at given times are kept, with node names as of `Topology.name`. Random faults are a
    Poisson process; a random fault is skipped if all its possible targets are broken at that time.

    Raises
    ------
    PillarboxError
        If a fault names a node or cable that the network does not have, or if two faults break the
        same node or cable at the same time.

    >>> from pillarbox import topos
    >>> found = schedule(
    ...     topos.parse("dcell,4,1"),
    ...     [FaultAt("cut h3-h16 at 1 until 2"), FaultRate("kill", 60.0, 0.5)],
    ...     Workload(duration_s=4.0),
    ...     seed=1,
    ... )
    >>> [(fault.kind, *fault.what) for fault in found]  # doctest: +ELLIPSIS
    [('cut', '0.3', '4.0'), ('server', ...), ...]
    """
    planned: list[_PlannedFault] = []
    for fault in faults:
        if isinstance(fault, FaultAt):
            planned.append(_checked_fault(topology, read(fault.fault), planned))
    for number, fault in enumerate(faults):
        if isinstance(fault, FaultRate):
            planned += _random_faults(topology, fault, workload, f"{seed}.{number}", planned)
    return sorted((one.fault for one in planned), key=lambda fault: fault.at_s)


def nodes_of(topology: Topology, fault: Fault) -> tuple[int, ...]:
    """Return the nodes that a fault names, or raise PillarboxError for unknown nodes or cables."""
    target = fault_kind(fault.kind).target
    form = TARGET_FORMS[target]
    named = " ".join(fault.what)
    require(
        len(fault.what) == 1 + (target == CABLE),
        f"a fault {fault.kind!r} needs {form}, not {named or '-'}",
    )
    nodes = tuple(topology.node(text) for text in fault.what)
    if target == CABLE:
        around = sorted(plug.node for _, plug in topology.neighbours(nodes[0]))
        require(
            nodes[1] in around,
            f"no cable joins {fault.what[0]} and {fault.what[1]} in {topology.spec}: "
            f"{fault.what[0]}'s cables lead to {', '.join(map(topology.name, around))}",
            UnknownNameError,
        )
    else:
        is_server = nodes[0] < topology.servers
        require(
            is_server == (target == SERVER),
            f"a fault {fault.kind!r} needs {form}, and {named} is another kind of node",
        )
    return nodes


def failures_of(topology: Topology, fault: Fault) -> Failures:
    """Return the failed nodes and links of a fault, as the routing algorithms expect them.

    A fault that lets some packets through, such as bit errors, is no failure.
    """
    return _affected(topology, fault) if fault_kind(fault.kind).breaks else Failures()


def _affected(topology: Topology, fault: Fault) -> Failures:
    """Return the nodes and links that a fault affects."""
    return affected(topology, fault_kind(fault.kind).target, nodes_of(topology, fault))


class _PlannedFault(NamedTuple):
    """A planned fault and the nodes and links it breaks, which other faults may not break then."""

    fault: Fault
    broken: Failures

    def clashes(self, other: _PlannedFault) -> bool:
        """Return True if this and another fault break the same node or link at the same time.

        A fault may begin at the time at which the other ends.
        """
        a, b = self.fault, other.fault
        both = self.broken.nodes & other.broken.nodes or self.broken.links & other.broken.links
        return bool(both) and a.at_s < _end_s(b) and b.at_s < _end_s(a)


def _planned_fault(topology: Topology, fault: Fault) -> _PlannedFault:
    named = tuple(topology.name(node) for node in nodes_of(topology, fault))
    return _PlannedFault(fault._replace(what=named), _affected(topology, fault))


def _checked_fault(
    topology: Topology, fault: Fault, others: Sequence[_PlannedFault]
) -> _PlannedFault:
    named = f"the {fault.kind} of {' '.join(fault.what)}"
    require(fault.at_s >= 0, f"{named} begins before the barrier: at_s is {fault.at_s:g}")
    require(
        _end_s(fault) > fault.at_s,
        f"{named} ends at {_end_s(fault):g} s, which is not after it begins at {fault.at_s:g} s",
    )
    planned = _planned_fault(topology, fault)
    for other in others:
        require(
            not planned.clashes(other),
            f"{named} at {fault.at_s:g} s begins while the {other.fault.kind} of "
            f"{' '.join(other.fault.what)} is in effect: let one end first",
        )
    return planned


def _random_faults(
    topology: Topology,
    rate: FaultRate,
    workload: Workload,
    seed: str,
    others: Sequence[_PlannedFault],
) -> list[_PlannedFault]:
    """Return the random faults of a fault rate; none overlaps another fault."""
    kind, amounts = kind_of(rate.fault)
    targets = fault_targets(topology, kind)
    require(bool(targets), f"{topology.spec} has no target for a fault {rate.fault!r}")
    # Random targets have a separate seed, so that random fault times are equal in all networks.
    target_draw = random.Random(f"{seed} targets")
    found: list[_PlannedFault] = []
    for at_s in _fault_times(rate, workload, random.Random(f"{seed} moments")):
        for nodes in target_draw.sample(targets, len(targets)):
            named = tuple(topology.name(node) for node in nodes)
            fault = Fault(kind, named, at_s, at_s + rate.lasting_s, amounts)
            planned = _planned_fault(topology, fault)
            if not any(map(planned.clashes, (*others, *found))):
                found.append(planned)
                break
    return found


def _fault_times(rate: FaultRate, workload: Workload, drawn: random.Random) -> Iterator[float]:
    """Yield the times of random faults (a Poisson process), rounded to milliseconds."""
    named = f"random faults {rate.fault!r}"
    end_s = workload.duration_s if rate.until_s is None else rate.until_s
    require(
        end_s is not None,
        f"{named} need until_s: the end of a workload with a fixed volume is unknown",
    )
    assert end_s is not None
    require(
        0 <= rate.from_s < end_s,
        f"{named} have an empty window, {rate.from_s:g} s to {end_s:g} s: choose from_s below "
        "until_s",
    )
    require(
        rate.per_minute > 0,
        f"{named} need per_minute above 0, not {rate.per_minute:g}",
    )
    expected = rate.per_minute / 60 * (end_s - rate.from_s)
    require(
        expected <= MOST_DRAWN,
        f"{named} would be about {expected:.3g} faults, more than {MOST_DRAWN}: lower per_minute",
    )
    require(
        rate.lasting_s > 0,
        f"{named} need lasting_s above 0, the length of each fault, not {rate.lasting_s:g}",
    )
    at_s = rate.from_s
    while (at_s := at_s + drawn.expovariate(rate.per_minute / 60)) < end_s:
        yield round(at_s, 3)


def fault_targets(topology: Topology, kind: str) -> list[tuple[int, ...]]:
    """Return the nodes of each single fault of a kind: ends of a cable, a server, or a switch.

    A fault in one direction is listed for both directions of each cable.
    """
    target, effect = fault_kind(kind).target, fault_kind(kind).effect
    if target == CABLE:
        cables = [(cable.a, cable.b) for cable in topology.links()]
        return [*cables, *((b, a) for a, b in cables if effect == LOST_ONE_WAY)]
    if target == SERVER:
        return [(server,) for server in range(topology.servers)]
    switches = range(topology.servers, topology.nodes)
    return [(switch,) for switch in switches if target == SWITCH or rack(topology, switch)]


def _end_s(fault: Fault) -> float:
    return FOR_EVER if fault.until_s is None else fault.until_s
