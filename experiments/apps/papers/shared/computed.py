"""Values of live figures that follow from paths and cables alone, without a measurement."""

from __future__ import annotations

from collections.abc import Callable

from pillarbox.experiments.models.comparison import speedups
from pillarbox.experiments.models.fluid.collective import phases_duration_s
from pillarbox.experiments.models.workloads.collectives.phases import of_digits, of_ring
from pillarbox.experiments.models.workloads.collectives.schedules import bml_threads
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology


def bml_time(network: Topology, routing: str) -> float:
    """Return BML's time in a BCube, relative to a ring or parameter servers without contention."""
    phases = of_digits(bml_threads(network.radices()[::-1]))
    ours = phases_duration_s(network, phases, range(network.servers), routing)
    return ours / sum(phase.times * phase.share for phase in of_ring(network.servers))


def switch_share(network: Topology, _routing: str) -> float:
    """Return the switches per server, relative to a fat-tree of equally large switches.

    Al-Fares's fat-tree has five switches of n ports for n servers.
    """
    fattree = parse(f"fattree,{network.switch_ports}")
    return network.switches / network.servers / (fattree.switches / fattree.servers)


# Functions of a network and its routing, by the name of the quantity.
COMPUTED: dict[str, Callable[[Topology, str], float]] = {
    "rate to groups": speedups.speedup_to_groups,
    "BML's time": bml_time,
    "switches per server": switch_share,
}
