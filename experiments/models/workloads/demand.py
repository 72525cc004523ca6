"""Traffic demand: a pattern as the share of arriving flows for each pair of servers.

For a pattern of `workloads.patterns`, a list of pairs, each pair is equally likely: all-to-all is
uniform traffic. Two patterns define shares directly and exist for arrivals only:
``rack`` and ``hotspot``. With ``incast`` an arrival is a request: a server asks several others, and
all answer simultaneously in flows. With ``shuffle`` several servers send simultaneously to several
others, each to each. With ``requests`` small answers are added to uniform background traffic.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import Floats, Ints
from pillarbox.experiments.models.workloads.patterns import (
    PatternOptions,
    TrafficPattern,
    pairs_of,
    pattern_of,
)
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

MOST_SERVERS = 8192  # maximum number of servers: the shares of all pairs take 0.5 GB
ALL_TO_ALL, INCAST, SHUFFLE, REQUESTS = "all-to-all", "incast", "shuffle", "requests"
SENDERS, RECEIVERS, DEADLINE = "senders", "receivers", "deadline_s"


class ArrivalPattern(NamedTuple):
    """A traffic pattern for arriving flows only, with the share of traffic per server pair."""

    pattern: TrafficPattern
    shares: Callable[[PatternOptions], Floats]


def demand_of(topology: Topology, workload: Workload, seed: int) -> Floats:
    """Return each server pair's share of arriving flows: rows are sources, columns destinations.

    >>> from pillarbox import topos
    >>> tree = topos.parse("tree,2,2")
    >>> demand_of(tree, Workload(duration_s=1), seed=1)[0].round(3).tolist()
    [0.0, 0.083, 0.083, 0.083]
    >>> rack = Workload("rack", duration_s=1, options={"share": 0.6})
    >>> demand_of(tree, rack, seed=1)[0].round(3).tolist()
    [0.0, 0.15, 0.05, 0.05]
    """
    servers = topology.servers
    require(servers > 1, f"{topology.spec} has only one server: traffic needs two")
    require(
        servers <= MOST_SERVERS,
        f"random arrivals are limited to {MOST_SERVERS} servers, and {topology.spec} has {servers}",
    )
    own = ARRIVING.get(workload.pattern)
    pattern_of(workload, {name: one.pattern for name, one in ARRIVING.items()})
    if own is not None:
        options = PatternOptions(topology, workload.options, Random(f"pairs {seed}"))
        return own.shares(options)
    if workload.pattern == ALL_TO_ALL:
        return _uniform_shares(servers)
    found = numpy.zeros((servers, servers))
    pairs = numpy.array(pairs_of(topology, workload, seed))
    numpy.add.at(found, (pairs[:, 0], pairs[:, 1]), 1.0)
    return _normalized(found)


def draw_pairs(demand: Floats, count: int, draw: numpy.random.Generator) -> tuple[Ints, Ints]:
    """Return the source and destination servers of `count` random flows, by shares of pairs."""
    cumulative = numpy.cumsum(demand.ravel())
    at = numpy.searchsorted(cumulative, draw.random(count) * cumulative[-1], side="right")
    source, destination = numpy.divmod(at, len(demand))
    return source.astype(numpy.int64), destination.astype(numpy.int64)


class FlowsPerArrival(NamedTuple):
    """Senders and receivers per arrival; each sender has a flow to each receiver."""

    senders: int
    receivers: int

    @property
    def flows(self) -> int:
        """Number of flows that start together at an arrival."""
        return self.senders * self.receivers


def flows_per_arrival(topology: Topology, workload: Workload) -> FlowsPerArrival:
    """Return the number of flows per arrival: of an incast, of a shuffle, or a single flow."""
    if workload.pattern not in (INCAST, SHUFFLE):
        return FlowsPerArrival(1, 1)
    options, others = PatternOptions(topology, workload.options, Random()), topology.servers - 1
    if workload.pattern == INCAST:
        return FlowsPerArrival(options.count(SENDERS, min(8, others), others), 1)
    senders = options.count(SENDERS, min(4, topology.servers // 2), others)
    left = topology.servers - senders
    return FlowsPerArrival(senders, options.count(RECEIVERS, min(4, left), left))


def draw_group_flows(
    servers: int, each: FlowsPerArrival, count: int, draw: numpy.random.Generator
) -> tuple[Ints, Ints]:
    """Return source and destination servers of all flows of `count` incasts or shuffles.

    Each arrival has its own random servers.

    >>> source, asks = draw_group_flows(4, FlowsPerArrival(3, 1), 2, numpy.random.default_rng(1))
    >>> [sorted({*source[:3].tolist(), int(asks[0])}), asks[0] == asks[2]]
    [[0, 1, 2, 3], np.True_]
    """
    many = each.senders + each.receivers
    drawn = [draw.choice(servers, many, replace=False) for _ in range(count)]
    found = numpy.array(drawn, numpy.int64).reshape(count, many)
    receivers, senders = found[:, : each.receivers], found[:, each.receivers :]
    to = numpy.tile(receivers, (1, each.senders))
    return numpy.repeat(senders, each.receivers, axis=1).ravel(), to.ravel()


class RequestAnswers(NamedTuple):
    """Size and rate of small answers to requests, sent in addition to background traffic."""

    volume_bytes: int
    per_s: int


def request_answers(topology: Topology, workload: Workload) -> RequestAnswers | None:
    """Return size and rate of answers to requests, or None for patterns without requests."""
    if workload.pattern != REQUESTS:
        return None
    options = PatternOptions(topology, workload.options, Random())
    return RequestAnswers(
        options.count("bytes", 1000, 1 << 20), options.count("per_s", 100, 100_000)
    )


def racks_of(topology: Topology) -> Ints:
    """Return each server's rack: the switch at its first port, or else the server itself."""
    first = [topology.server_plug(server, 0).node for server in range(topology.servers)]
    return numpy.array(
        [node if node >= topology.servers else at for at, node in enumerate(first)], numpy.int64
    )


def _uniform_shares(servers: int) -> Floats:
    found = numpy.full((servers, servers), 1.0 / (servers * (servers - 1)))
    numpy.fill_diagonal(found, 0.0)
    return found


def _rack_shares(options: PatternOptions) -> Floats:
    """Return each server pair's share of the traffic, of which a part stays in the rack."""
    topology, share = options.topology, options.share("share", 0.5)
    racks = racks_of(topology)
    inside = (racks[:, None] == racks[None, :]).astype(numpy.float64)
    outside = 1.0 - inside
    numpy.fill_diagonal(inside, 0.0)
    for part, which in ((inside, "a rack of one server"), (outside, "one rack alone")):
        require(
            bool(part.sum(axis=1).all()),
            f"the network {topology.spec} has {which}: choose another pattern than rack",
        )
    mixed = share * _rows_normalized(inside) + (1 - share) * _rows_normalized(outside)
    return _normalized(mixed)


def _hotspot_shares(options: PatternOptions) -> Floats:
    """Return each server pair's share of the traffic, of which a part goes to a few servers."""
    topology, share = options.topology, options.share("share", 0.5)
    hot = options.servers("servers", max(1, topology.servers // 16), set())
    towards = numpy.zeros((topology.servers, topology.servers))
    towards[:, hot] = 1.0
    numpy.fill_diagonal(towards, 0.0)
    mixed = share * towards / towards.sum() + (1 - share) * _uniform_shares(topology.servers)
    return _normalized(mixed)


def _normalized(part: Floats) -> Floats:
    """Return the traffic shares of all server pairs, scaled to a total of 1."""
    found: Floats = part / part.sum()
    return found


def _rows_normalized(part: Floats) -> Floats:
    """Return the traffic shares of server pairs, scaled to a total of 1 per source server."""
    found: Floats = part / part.sum(axis=1, keepdims=True)
    return found


ARRIVING: dict[str, ArrivalPattern] = {
    INCAST: ArrivalPattern(
        TrafficPattern(
            "a server asks several others, and all answer simultaneously (arrivals)",
            lambda _: iter(()),
            {
                SENDERS: "number of servers that answer; 8 by default",
                DEADLINE: "deadline of a request's last byte; none by default",
            },
        ),
        lambda options: _uniform_shares(options.topology.servers),
    ),
    SHUFFLE: ArrivalPattern(
        TrafficPattern(
            "some servers send to some others simultaneously, each to each (arrivals)",
            lambda _: iter(()),
            {
                SENDERS: "number of senders; 4 by default",
                RECEIVERS: "number of receivers; 4 by default",
                DEADLINE: "deadline of a shuffle's last byte; none by default",
            },
        ),
        lambda options: _uniform_shares(options.topology.servers),
    ),
    REQUESTS: ArrivalPattern(
        TrafficPattern(
            "small answers to requests, with uniform background traffic (arrivals)",
            lambda _: iter(()),
            {
                "bytes": "size of an answer; 1000 by default",
                "per_s": "number of requests per second in the whole network; 100 by default",
                DEADLINE: "deadline of an answer's last byte; none by default",
            },
        ),
        lambda options: _uniform_shares(options.topology.servers),
    ),
    "rack": ArrivalPattern(
        TrafficPattern(
            "a share of each server's flows stays in its rack, the others leave it (arrivals)",
            lambda _: iter(()),
            {"share": "share of the flows that stay in the rack; 0.5 by default"},
        ),
        _rack_shares,
    ),
    "hotspot": ArrivalPattern(
        TrafficPattern(
            "a share of the flows goes to a few servers, the others to all (arrivals)",
            lambda _: iter(()),
            {
                "share": "share of the flows that go to the hot servers; 0.5 by default",
                "servers": "hot servers, or number of servers to draw; one in 16 by default",
            },
        ),
        _hotspot_shares,
    ),
}
