"""Routing that adapts to traffic, over time; one file a network: ``bcube.py`` is topos/bcube.py's.

Each file has ADAPTING, by the names that hosts/NETWORK.py gives the routings: functions that make
`Adapting` flows of a network, the flows' ends, a random source, what works, and `Times`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

from numpy.random import Generator

from experiments.analysis.fluid.links import Routes
from experiments.analysis.simulator.failures import Bools
from experiments.analysis.simulator.hops import Ints
from experiments.analysis.simulator.own import own
from topos.base.errors import require
from topos.base.topology import Topology


class Times(NamedTuple):
    """When flows begin and are probed; where probes follow one another (TAR) nothing is at once."""

    at_once: bool = False  # whether flows begin in the same moment, or in the course of a round
    random_part: bool = True  # whether the time between two probes has one, against oscillation


class Adapting(Protocol):
    """Flows that look for their paths again and again."""

    def probe(self) -> None:
        """Let every flow be probed once more: a round."""

    def routes(self) -> Routes:
        """Return the links of the present paths; a flow without a path has none."""


Begin: TypeAlias = Callable[[Any, Ints, Ints, Generator, "Bools | None", Times], Adapting]


def routings(topology: Topology) -> dict[str, Begin]:
    """Return the network's routings that adapt to traffic, by name."""
    return own("adapting", topology.kind, "ADAPTING")


def adapting(
    topology: Topology,
    name: str,
    sources: Ints,
    destinations: Ints,
    random: Generator,
    works: Bools | None = None,
    times: Times = Times(),  # noqa: B008
) -> Adapting:
    """Return flows that adapt.

    Parameters
    ----------
    topology : Topology
        The network.
    name : str
        Of the routing, as in `pillarbox path`.
    sources, destinations : arrays
        Of the flows; the two ends of a flow differ.
    random : Generator
        Of all that is random.
    works : array, optional
        By the number of each link, whether it works (see `analysis.simulator.failures`); servers
        have learned it.
    times : Times
        When flows begin and are probed.

    Examples
    --------
    By BCubeRouting two flows would share the last link; the second one sees that, and each has its
    own.

    >>> import numpy
    >>> import topos
    >>> from experiments.analysis.fluid.rates import max_min
    >>> bcube = topos.parse("bcube,4,1")
    >>> ends = numpy.array([0, 1]), numpy.array([13, 13])
    >>> flows = adapting(bcube, "bsr", *ends, numpy.random.default_rng(1))
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
