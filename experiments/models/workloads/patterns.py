"""Traffic patterns by name, and the flows that a workload makes of them.

All random choices come from the seed, so the same workload and seed give the same flows in the same
order. Servers in options are addresses ("0.3"), several of them a list or a text with commas; where
a pattern takes servers, a whole number is the number of servers to draw.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from random import Random
from typing import Any

from pillarbox.experiments.models.workloads.flows import Flow
from pillarbox.experiments.models.workloads.longest_matching import longest_matching
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.hosts.base.algorithms import algorithms, route
from pillarbox.topos.base.errors import UnknownNameError, meant, require
from pillarbox.topos.base.topology import Topology

MOST_FLOWS = 1_000_000  # maximum number of flows of a workload, limited by memory
MOST_PARALLEL = 1000  # maximum number of flows between two servers (one-to-one)
JITTER = "jitter_s"

Pair = tuple[int, int]


class PatternOptions:
    """Options of a workload's traffic pattern, checked and parsed for a network."""

    def __init__(self, topology: Topology, given: Mapping[str, Any], draw: Random) -> None:
        self.topology, self.draw = topology, draw
        self._given = given

    def has(self, name: str) -> bool:
        """Return True if the workload sets this option of its traffic pattern."""
        return name in self._given

    def server(self, name: str, default: int) -> int:
        """Return the number of the server whose address a traffic pattern's option gives."""
        value = self._given.get(name)
        return default if value is None else self._server_by_address(name, value)

    def count(self, name: str, default: int, most: int) -> int:
        """Return a traffic pattern's option that is a whole number from 1 to `most`."""
        value = self._given.get(name, default)
        require(
            isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most,
            f"the option {name} is a whole number from 1 to {most} in {self.topology.spec}, "
            f"not {value!r}",
        )
        return int(value)

    def seconds(self, name: str) -> float:
        """Return a traffic pattern's option that is a time in seconds, 0 by default."""
        value = self._given.get(name, 0.0)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        require(
            number and 0 <= value < 1e6, f"the option {name} is a number of seconds, not {value!r}"
        )
        return float(value)

    def share(self, name: str, default: float) -> float:
        """Return a traffic pattern's option that is a share from 0 to 1."""
        value = self._given.get(name, default)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        require(
            number and 0 <= value <= 1, f"the option {name} is a share from 0 to 1, not {value!r}"
        )
        return float(value)

    def servers(self, name: str, default: int, others: set[int]) -> list[int]:
        """Return the servers that a pattern's option lists, or random ones if it is a number.

        Random servers are not in `others`.
        """
        value = self._given.get(name, default)
        if isinstance(value, str):
            value = [word.strip() for word in value.split(",")]
        if isinstance(value, list | tuple):
            named = [self._server_by_address(name, one) for one in value]
            require(
                bool(named),
                f"the option {name} lists no server: give addresses, or a number of random servers",
            )
            require(len(set(named)) == len(named), f"the option {name} lists a server twice")
            return named
        free = self.topology.servers - len(others)
        require(free > 0, f"{self.topology.spec} has too few servers: no server is left for {name}")
        count = self.count(name, min(default, free), min(free, MOST_FLOWS))
        # Random numbers count only servers that are not in `others`: shifted to server numbers.
        before = [other - number for number, other in enumerate(sorted(others))]
        drawn = self.draw.sample(range(free), count)
        return sorted(number + bisect_right(before, number) for number in drawn)

    def _server_by_address(self, name: str, value: Any) -> int:
        example = self.topology.address(self.topology.servers - 1)
        require(
            isinstance(value, str),
            f"the option {name} is the address of a server, a text like {example!r}, not {value!r}",
        )
        return self.topology.server(value)


@dataclass(frozen=True)
class TrafficPattern:
    """Traffic pattern: a description, its pairs of sending and receiving server, and options."""

    about: str
    pairs: Callable[[PatternOptions], Iterator[Pair]]
    options: Mapping[str, str] = field(default_factory=dict)


def _one_to_one_pairs(options: PatternOptions) -> Iterator[Pair]:
    topology = options.topology
    source = options.server("source", 0)
    destination = options.server("destination", topology.servers - 1 if source == 0 else 0)
    require(
        source != destination,
        f"the flow's source and destination are both {topology.address(source)}",
    )
    flows = 0 if options.has("flows") else disjoint_paths(topology, source, destination)
    for _ in range(flows or options.count("flows", 1, MOST_PARALLEL)):
        yield source, destination


def disjoint_paths(topology: Topology, source: int, destination: int) -> int:
    """Return the number of disjoint paths over which the network's routing spreads flows.

    It is 1 in networks whose routings send all packets between two servers along one path.

    >>> from pillarbox import topos
    >>> disjoint_paths(topos.parse("bcube,4,1"), 0, 15)
    2
    >>> disjoint_paths(topos.parse("dcell,4,1"), 0, 19)
    1
    """
    known = algorithms(topology).items()
    spreading = (name for name, algorithm in known if algorithm.path_set and not algorithm.path)
    name = next(spreading, None)
    return len(route(topology, name, source, destination, several=True).paths) if name else 1


def _one_to_several_pairs(options: PatternOptions) -> Iterator[Pair]:
    source = options.server("source", 0)
    for receiver in options.servers("receivers", 2, {source}):
        require(
            receiver != source, f"server {options.topology.address(source)} would send to itself"
        )
        yield source, receiver


def _one_to_all_pairs(options: PatternOptions) -> Iterator[Pair]:
    source = options.server("source", 0)
    return ((source, other) for other in range(options.topology.servers) if other != source)


def _several_to_one_pairs(options: PatternOptions) -> Iterator[Pair]:
    destination = options.server("destination", 0)
    for sender in options.servers("senders", 2, {destination}):
        require(
            sender != destination,
            f"server {options.topology.address(sender)} would send to itself",
        )
        yield sender, destination


def _all_to_all_pairs(options: PatternOptions) -> Iterator[Pair]:
    servers = range(options.topology.servers)
    # no itertools.permutations(): it would copy all servers into memory
    return ((a, b) for a in servers for b in servers if a != b)


def _permutation_pairs(options: PatternOptions) -> Iterator[Pair]:
    require(
        options.topology.servers <= MOST_FLOWS,
        f"a permutation of all servers of {options.topology.spec} is more than {MOST_FLOWS} flows: "
        "choose a smaller network",
    )
    order = list(range(options.topology.servers))
    while any(server == other for server, other in enumerate(order)):  # takes e shuffles on average
        options.draw.shuffle(order)
    share = options.share("share", 1.0)
    count = max(1, round(share * len(order)))
    senders = sorted(options.draw.sample(range(len(order)), count)) if share < 1 else range(count)
    return iter([(server, order[server]) for server in senders])


def _neighbour_pairs(options: PatternOptions) -> Iterator[Pair]:
    topology = options.topology
    for server in range(topology.servers):
        for port in range(topology.ports):
            yield from ((server, peer) for peer in topology.peers(server, port))


def _burst_pairs(options: PatternOptions) -> Iterator[Pair]:
    quarter = max(1, options.topology.servers // 4)
    senders = options.servers("senders", quarter, set())
    receivers = options.servers("receivers", quarter, set(senders))
    require(
        len({*senders, *receivers}) > 1,
        f"the senders and the receivers are both {options.topology.address(senders[0])} alone",
    )
    return ((a, b) for a, b in product(senders, receivers) if a != b)


_SOURCE = "sending server; the first by default"
_DESTINATION = "receiving server; the first by default"
_SENDERS = "sending servers, or number of servers to draw"
_RECEIVERS = "receiving servers, or number of servers to draw"
PATTERNS: dict[str, TrafficPattern] = {
    "one-to-one": TrafficPattern(
        "a pair of servers, with one flow for each disjoint path of the routing",
        _one_to_one_pairs,
        {
            "source": _SOURCE,
            "destination": "receiving server; the last by default",
            "flows": "number of flows; by default the number of disjoint paths that carry flows",
        },
    ),
    "one-to-several": TrafficPattern(
        "a server sends to some others",
        _one_to_several_pairs,
        {"source": _SOURCE, "receivers": f"{_RECEIVERS}; 2 by default"},
    ),
    "one-to-all": TrafficPattern(
        "a server sends to all others", _one_to_all_pairs, {"source": _SOURCE}
    ),
    "several-to-one": TrafficPattern(
        "some servers send to one",
        _several_to_one_pairs,
        {"senders": f"{_SENDERS}; 2 by default", "destination": _DESTINATION},
    ),
    "all-to-all": TrafficPattern("every server sends to every other", _all_to_all_pairs),
    "permutation": TrafficPattern(
        "every server sends to one other and receives from one, drawn at random",
        _permutation_pairs,
        {"share": "share of the servers that send, drawn at random; 1 by default"},
    ),
    "neighbours": TrafficPattern(
        "every server sends to every server one hop away", _neighbour_pairs
    ),
    "longest-matching": TrafficPattern(
        "every server sends to one other and receives from one, over the longest paths",
        lambda options: iter(longest_matching(options.topology)),
    ),
    "burst": TrafficPattern(
        "every server of one group sends to every server of another",
        _burst_pairs,
        {
            "senders": f"{_SENDERS}; a quarter of all by default",
            "receivers": f"{_RECEIVERS} from the others; a quarter of all by default",
        },
    ),
}
COMMON_OPTIONS = {JITTER: "maximum random delay of each flow's start in seconds; 0 by default"}


def flows_of(topology: Topology, workload: Workload, seed: int) -> list[Flow]:
    """Return the flows of a workload's traffic pattern, numbered from 0.

    Parameters
    ----------
    topology : Topology
        The network.
    workload : Workload
        Workload, with its pattern, options, and volume or duration of each flow.
    seed : int
        Seed of all random draws: servers, permutations, delayed starts.

    Examples
    --------
    >>> from pillarbox import topos
    >>> flows = flows_of(topos.parse("bcube,4,1"), Workload(volume_bytes=1000), seed=1)
    >>> len(flows), flows[16].source, flows[16].destination
    (240, 1, 2)
    """
    _check_volume_and_duration(workload)
    pairs = pairs_of(topology, workload, seed)
    most_s = PatternOptions(topology, workload.options, Random()).seconds(JITTER)
    late = Random(f"starts {seed}")
    starts_s = [late.uniform(0.0, most_s) if most_s else 0.0 for _ in pairs]
    return [
        Flow(number, source, destination, workload.volume_bytes, workload.duration_s, start_s)
        for number, ((source, destination), start_s) in enumerate(zip(pairs, starts_s, strict=True))
    ]


def pairs_of(topology: Topology, workload: Workload, seed: int) -> list[Pair]:
    """Return the sending and receiving server of each flow of a workload's traffic pattern."""
    pattern = pattern_of(workload, {})
    require(topology.servers > 1, f"{topology.spec} has only one server: traffic needs two")
    options = PatternOptions(topology, workload.options, Random(f"pairs {seed}"))
    pairs = list(islice(pattern.pairs(options), MOST_FLOWS + 1))
    require(
        len(pairs) <= MOST_FLOWS,
        f"the pattern {workload.pattern} on {topology.spec} is more than {MOST_FLOWS} flows: "
        "choose a smaller network, or a pattern such as permutation",
    )
    return pairs


def pattern_of(workload: Workload, others: Mapping[str, TrafficPattern]) -> TrafficPattern:
    """Return the workload's traffic pattern after checking its options.

    `others` are patterns that are allowed in addition to PATTERNS.
    """
    name, patterns = workload.pattern, {**PATTERNS, **others}
    hint = meant(name, patterns)
    require(name in patterns, f"there is no traffic pattern {name!r}: {hint}", UnknownNameError)
    known = {**patterns[name].options, **COMMON_OPTIONS}
    for option in workload.options:
        require(
            option in known,
            f"the pattern {name} has no option {option!r}: there are {', '.join(known)}",
        )
    return patterns[name]


def _check_volume_and_duration(workload: Workload) -> None:
    volume_bytes, duration_s = workload.volume_bytes, workload.duration_s
    require(
        volume_bytes is None or volume_bytes >= 1,
        f"volume_bytes is at least 1, not {volume_bytes}: each flow needs a volume",
    )
    require(
        duration_s is None or duration_s > 0,
        f"duration_s is more than 0, not {duration_s}: each flow needs a duration",
    )
