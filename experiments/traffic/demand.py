"""Traffic demand: a pattern as the share of arriving flows for each pair of servers.

For a pattern of `experiments.traffic.patterns`, a list of pairs, each pair is equally likely:
all-to-all is uniform traffic. Two patterns define shares directly and exist for arrivals only:
``rack`` and ``hotspot``. With ``incast`` an arrival is a request: a server asks several others, and
all answer simultaneously in flows. With ``shuffle`` several servers send simultaneously to several
others, each to each. With ``requests`` small answers are added to uniform background traffic.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import numpy
from numpy.typing import NDArray

from experiments.traffic.patterns import Options, Pattern, pairs_of, pattern_of
from experiments.traffic.workload import Workload
from topos.base.errors import require
from topos.base.topology import Topology

if TYPE_CHECKING:
    Floats = NDArray[numpy.float64]
    Ints = NDArray[numpy.int64]

MOST_SERVERS = 8192  # maximum number of servers: their shares take half a gigabyte of memory
ALL_TO_ALL, INCAST, SHUFFLE, REQUESTS = "all-to-all", "incast", "shuffle", "requests"
SENDERS, RECEIVERS, DEADLINE = "senders", "receivers", "deadline_s"


class ArrivalPattern(NamedTuple):
    """A traffic pattern that exists for arrivals only, and its shares."""

    pattern: Pattern
    shares: Callable[[Options], Floats]


def demand_of(topology: Topology, workload: Workload, seed: int) -> Floats:
    """Return the share of flows from each server (row) to each server (column).

    >>> import topos
    >>> tree = topos.parse("tree,2,2")
    >>> demand_of(tree, Workload(duration_s=1), seed=1)[0].round(3).tolist()
    [0.0, 0.083, 0.083, 0.083]
    >>> rack = Workload("rack", duration_s=1, options={"share": 0.6})
    >>> demand_of(tree, rack, seed=1)[0].round(3).tolist()
    [0.0, 0.15, 0.05, 0.05]
    """
    servers = topology.servers
    require(servers > 1, f"{topology.spec} has only one server, which has no destination")
    require(
        servers <= MOST_SERVERS,
        f"arrivals are drawn for at most {MOST_SERVERS} servers, and {topology.spec} has {servers}",
    )
    own = ARRIVING.get(workload.pattern)
    pattern_of(workload, {name: one.pattern for name, one in ARRIVING.items()})
    if own is not None:
        options = Options(topology, workload.options, Random(f"pairs {seed}"))
        return own.shares(options)
    if workload.pattern == ALL_TO_ALL:
        return _uniform(servers)
    found = numpy.zeros((servers, servers))
    pairs = numpy.array(pairs_of(topology, workload, seed))
    numpy.add.at(found, (pairs[:, 0], pairs[:, 1]), 1.0)
    return _normalized(found)


def draw_pairs(demand: Floats, count: int, draw: numpy.random.Generator) -> tuple[Ints, Ints]:
    """Return the sources and destinations of `count` random flows."""
    cumulative = numpy.cumsum(demand.ravel())
    at = numpy.searchsorted(cumulative, draw.random(count) * cumulative[-1], side="right")
    source, destination = numpy.divmod(at, len(demand))
    return source.astype(numpy.int64), destination.astype(numpy.int64)


class Together(NamedTuple):
    """Number of senders and receivers per arrival; each sender has a flow to each receiver."""

    senders: int
    receivers: int

    @property
    def flows(self) -> int:
        """Number of flows per arrival."""
        return self.senders * self.receivers


def together(topology: Topology, workload: Workload) -> Together:
    """Return the flows per arrival: answers to a request, a shuffle, or a single flow."""
    if workload.pattern not in (INCAST, SHUFFLE):
        return Together(1, 1)
    options, others = Options(topology, workload.options, Random()), topology.servers - 1
    if workload.pattern == INCAST:
        return Together(options.count(SENDERS, min(8, others), others), 1)
    senders = options.count(SENDERS, min(4, topology.servers // 2), others)
    left = topology.servers - senders
    return Together(senders, options.count(RECEIVERS, min(4, left), left))


def draw_together(
    servers: int, each: Together, count: int, draw: numpy.random.Generator
) -> tuple[Ints, Ints]:
    """Return sources and destinations of `count` arrivals, each with its own random servers.

    >>> source, asks = draw_together(4, Together(3, 1), 2, numpy.random.default_rng(1))
    >>> [sorted({*source[:3].tolist(), int(asks[0])}), asks[0] == asks[2]]
    [[0, 1, 2, 3], np.True_]
    """
    many = each.senders + each.receivers
    drawn = [draw.choice(servers, many, replace=False) for _ in range(count)]
    found = numpy.array(drawn, numpy.int64).reshape(count, many)
    receivers, senders = found[:, : each.receivers], found[:, each.receivers :]
    to = numpy.tile(receivers, (1, each.senders))
    return numpy.repeat(senders, each.receivers, axis=1).ravel(), to.ravel()


class Requests(NamedTuple):
    """Size and rate of small answers to requests, sent in addition to other traffic."""

    volume_bytes: int
    per_s: int


def requests(topology: Topology, workload: Workload) -> Requests | None:
    """Return the answers that arrive in addition to the load; None for patterns without them."""
    if workload.pattern != REQUESTS:
        return None
    options = Options(topology, workload.options, Random())
    return Requests(options.count("bytes", 1000, 1 << 20), options.count("per_s", 100, 100_000))


def racks_of(topology: Topology) -> Ints:
    """Return each server's rack: the switch at its first port, or its own number without one."""
    first = [topology.server_plug(server, 0).node for server in range(topology.servers)]
    return numpy.array(
        [node if node >= topology.servers else at for at, node in enumerate(first)], numpy.int64
    )


def _uniform(servers: int) -> Floats:
    found = numpy.full((servers, servers), 1.0 / (servers * (servers - 1)))
    numpy.fill_diagonal(found, 0.0)
    return found


def _rack(options: Options) -> Floats:
    """Return traffic shares of which a part stays in the source's rack, and the rest leaves it."""
    topology, share = options.topology, options.share("share", 0.5)
    racks = racks_of(topology)
    inside = (racks[:, None] == racks[None, :]).astype(numpy.float64)
    outside = 1.0 - inside
    numpy.fill_diagonal(inside, 0.0)
    for part, which in ((inside, "a rack of one server"), (outside, "one rack alone")):
        require(
            bool(part.sum(axis=1).all()),
            f"{topology.spec} has {which}: choose another pattern than rack",
        )
    mixed = share * _rows_normalized(inside) + (1 - share) * _rows_normalized(outside)
    return _normalized(mixed)


def _hotspot(options: Options) -> Floats:
    """Return traffic shares of which a part goes to a few servers, the rest to all equally."""
    topology, share = options.topology, options.share("share", 0.5)
    hot = options.servers("servers", max(1, topology.servers // 16), set())
    towards = numpy.zeros((topology.servers, topology.servers))
    towards[:, hot] = 1.0
    numpy.fill_diagonal(towards, 0.0)
    mixed = share * towards / towards.sum() + (1 - share) * _uniform(topology.servers)
    return _normalized(mixed)


def _normalized(part: Floats) -> Floats:
    """Return traffic shares scaled to a total of 1."""
    found: Floats = part / part.sum()
    return found


def _rows_normalized(part: Floats) -> Floats:
    """Return traffic shares scaled to a total of 1 for every source."""
    found: Floats = part / part.sum(axis=1, keepdims=True)
    return found


ARRIVING: dict[str, ArrivalPattern] = {
    INCAST: ArrivalPattern(
        Pattern(
            "a server asks several others, and all answer simultaneously (arrivals)",
            lambda _: iter(()),
            {
                SENDERS: "number of servers that answer; 8 by default",
                DEADLINE: "deadline of a request's last byte; none by default",
            },
        ),
        lambda options: _uniform(options.topology.servers),
    ),
    SHUFFLE: ArrivalPattern(
        Pattern(
            "some servers send to some others simultaneously, each to each (arrivals)",
            lambda _: iter(()),
            {
                SENDERS: "number of senders; 4 by default",
                RECEIVERS: "number of receivers; 4 by default",
                DEADLINE: "deadline of a shuffle's last byte; none by default",
            },
        ),
        lambda options: _uniform(options.topology.servers),
    ),
    REQUESTS: ArrivalPattern(
        Pattern(
            "small answers to requests, with uniform background traffic (arrivals)",
            lambda _: iter(()),
            {
                "bytes": "size of an answer; 1000 by default",
                "per_s": "number of requests per second in the whole network; 100 by default",
                DEADLINE: "deadline of an answer's last byte; none by default",
            },
        ),
        lambda options: _uniform(options.topology.servers),
    ),
    "rack": ArrivalPattern(
        Pattern(
            "a share of each server's flows stays in its rack, the others leave it (arrivals)",
            lambda _: iter(()),
            {"share": "share of the flows that stay in the rack; 0.5 by default"},
        ),
        _rack,
    ),
    "hotspot": ArrivalPattern(
        Pattern(
            "a share of the flows goes to a few servers, the others to all (arrivals)",
            lambda _: iter(()),
            {
                "share": "share of the flows that go to the hot servers; 0.5 by default",
                "servers": "hot servers, or number of servers to draw; one in 16 by default",
            },
        ),
        _hotspot,
    ),
}
