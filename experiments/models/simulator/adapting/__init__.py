"""Routing that adapts to traffic over time, one file per network: ``bcube.py`` is for
topos/bcube.py.

Each file has a table ADAPTING, keyed by the names that hosts/NETWORK.py gives the routings. Its
functions make `AdaptiveFlows` from a network, the flows' ends, a random source, the working links,
and `ProbeTimes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from numpy.random import Generator

from pillarbox.experiments.models.arrays import Bools, Ints
from pillarbox.experiments.models.fluid.directed_links import Routes
from pillarbox.experiments.models.simulator.compiled_networks import network_table
from pillarbox.experiments.models.simulator.probe_times import ProbeTimes
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology


class AdaptiveFlows(Protocol):
    """Interface of simulated flows that repeatedly probe for their paths."""

    def probe(self) -> None:
        """Run one round of probes: every flow probes its paths once."""

    def routes(self) -> Routes:
        """Return the links of the current paths; a flow without a path has none."""


Begin: TypeAlias = Callable[[Any, Ints, Ints, Generator, "Bools | None", ProbeTimes], AdaptiveFlows]


def routings(topology: Topology) -> dict[str, Begin]:
    """Return the network's routings that adapt to traffic, by name."""
    return network_table("adapting", topology.kind, "ADAPTING")


def adaptive_flows(
    topology: Topology,
    name: str,
    sources: Ints,
    destinations: Ints,
    random: Generator,
    works: Bools | None = None,
    times: ProbeTimes = ProbeTimes(),  # noqa: B008
) -> AdaptiveFlows:
    """Return simulated flows on the paths of a routing that adapts to traffic.

    Parameters
    ----------
    topology : Topology
        The network.
    name : str
        Name of the routing, as in `pillarbox path`.
    sources, destinations : arrays
        Ends of each flow, which differ.
    random : Generator
        Random source of all choices.
    works : array, optional
        Whether each link works, by link number (see `FailedNodes.works`); servers know
        it.
    times : ProbeTimes
        Start times of flows and intervals of probes.

    Examples
    --------
    By BCubeRouting two flows would share the last link; the second one detects this, and each flow
    gets its own link.

    >>> import numpy
    >>> from pillarbox import topos
    >>> from pillarbox.experiments.models.fluid.rates import max_min
    >>> bcube = topos.parse("bcube,4,1")
    >>> ends = numpy.array([0, 1]), numpy.array([13, 13])
    >>> flows = adaptive_flows(bcube, "bsr", *ends, numpy.random.default_rng(1))
    >>> flows.probe()
    >>> float(max_min(flows.routes(), 1.0).sum())
    2.0
    """
    known = routings(topology)
    require(
        name in known,
        f"no routing {name!r} of {topology.spec} adapts to traffic: "
        f"there {'are' if len(known) != 1 else 'is'} {', '.join(known) or 'none'}",
    )
    return known[name](topology, sources, destinations, random, works, times)
