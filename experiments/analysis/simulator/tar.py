"""TAR for arrays of flows (hosts/ficonn/tar.py): probes, one after the other, and what they see.

A server's available bandwidth is told by how many flows it sends out by a port, virtual ones
counted with those of its level-0 link: the fewer, the more is free. So a flow weighs as much as any
other (section IV.D does the same for virtual flows), and what a probe sees is never out of date. As
with the live servers, a flow that is probed again does not count itself.

What has failed has no bandwidth at all (section IV.A), and only the servers next to it know. A
probe that finds no way is tried again, as a source does; where all tries are in vain, the flow
stays on the path that it has, if it has one.
"""

from __future__ import annotations

import numpy

from experiments.analysis.fluid.links import Routes, link_at, link_count
from experiments.analysis.simulator.failures import Bools
from experiments.analysis.simulator.hops import Hops, Ints, routes_of_hops
from experiments.analysis.simulator.tar_rules import NOWHERE, SERVER, State, probe_all
from topos.base.errors import require
from topos.ficonn import BACKUP, SWITCH, FiConn


class Tar:
    """Flows that look for their paths by probes, again and again.

    Parameters
    ----------
    ficonn : FiConn
        Of level 1 at least.
    sources, destinations : arrays
        Of the flows; the two ends of a flow differ.
    random : Generator
        Draws the third FiConns of bypasses.
    works : array, optional
        By the number of each link, whether it works (see `analysis.simulator.failures`).
    printed : bool
        Whether virtual flows are just counted, as in Algorithm 3, and do not end when their flow is
        probed again. Then they become more from round to round, and bypasses fewer.

    Examples
    --------
    Fig. 5: a flow has the link from [2,0] to [0,2], and [2,1] bypasses it.

    >>> ficonn = FiConn(4, 1)
    >>> ends = (numpy.array([ficonn.server(end) for end in ends]) for ends in (
    ...     ("2.0", "2.1"), ("0.2", "0.1")))
    >>> flows = Tar(ficonn, *ends, numpy.random.default_rng(1))
    >>> flows.probe()
    >>> print(*map(ficonn.address, flows.hops().peers[1:].tolist()))
    2.2 1.2 1.0 0.0 0.1
    """

    def __init__(
        self,
        ficonn: FiConn,
        sources: Ints,
        destinations: Ints,
        random: numpy.random.Generator,
        works: Bools | None = None,
        *,
        printed: bool = False,
    ) -> None:
        require(ficonn.k > 0, f"{ficonn.spec} has no backup links to choose: take level 1 or more")
        self.ficonn, self.sources, self.destinations = ficonn, sources, destinations
        self.random = random
        # Theorem 6; around failures a path may be some hops longer (hosts/ficonn/tar.py).
        most = (2 * 3**ficonn.k - 1) * (1 if works is None else 2)
        flows = len(sources)
        self.counts = numpy.zeros(flows, numpy.int32)
        self._ports = numpy.zeros((flows, most), numpy.int8)
        self._peers = numpy.zeros((flows, most), numpy.int64)
        # A FiConn_l bypasses once, and starts its three FiConn_{l-1}s over: B_l = 4 B_{l-1} + 1.
        # Where it falls back from a bypass that met a failure, it may bypass once more.
        places = (4**ficonn.k - 1) // 3 * (1 if works is None else 2)
        self._virtual = numpy.full((flows, 0 if printed else places, 2), NOWHERE, numpy.int64)
        if works is None:
            works = numpy.ones(link_count(ficonn), bool)
        self._servers = servers = numpy.zeros(ficonn.servers, SERVER)
        every = numpy.arange(ficonn.servers)
        servers["level"] = ficonn.level(every)
        servers["far"] = ficonn.server_plug(every, BACKUP).node
        servers["by_switch"] = works[link_at(ficonn, every, SWITCH)]
        servers["by_backup"] = works[link_at(ficonn, every, BACKUP)] & (servers["level"] > 0)
        mates = servers["by_switch"].reshape(-1, ficonn.n)
        servers["switch_works"] = (mates & (mates.sum(axis=1, keepdims=True) > 1)).ravel()
        sizes = numpy.array(ficonn.sizes, numpy.int64)
        order = numpy.empty((sizes[1:] // sizes[:-1]).max(), numpy.int64)
        self._state, self._probes = State(sizes, servers, order), 0

    def probe(self, first: int = 0, last: int | None = None) -> None:
        """Probe these flows, in their order.

        A round is all of them, at once or part by part; one ends before the next begins.
        """
        part = slice(first, last)
        self._probes = probe_all(
            self._state,
            self._probes,
            self.random,
            self.sources[part],
            self.destinations[part],
            self._ports[part],
            self._peers[part],
            self.counts[part],
            self._virtual[part],
        )

    def hops(self) -> Hops:
        """Return the present paths; flows that were not probed yet, or found none, have no hops."""
        starts = numpy.zeros(len(self.counts) + 1, numpy.int64)
        numpy.cumsum(self.counts, out=starts[1:])
        written = numpy.arange(self._ports.shape[1]) < self.counts[:, None]
        return Hops(starts, self._ports[written], self._peers[written])

    def routes(self) -> Routes:
        """Return the links of the present paths."""
        return routes_of_hops(self.ficonn, self.sources, self.hops(), (SWITCH, None))

    def virtual_flows(self) -> Ints:
        """Return how many virtual flows each server has."""
        here: Ints = self._servers["joined"] - self._servers["left"]
        return here

    def loads(self) -> Ints:
        """Return how many flows leave each server (a row) by each port."""
        return numpy.stack([self._servers["switch_flows"], self._servers["backup_flows"]], axis=1)
