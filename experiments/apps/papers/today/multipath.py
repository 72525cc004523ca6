"""Wischik 2011: Multipath TCP between the 125 servers of a BCube, simulated packet by packet.

Wischik, Raiciu, Greenhalgh, Handley: "Design, implementation and evaluation of congestion control
for multipath TCP", NSDI 2011. Of the paper only the abstract was available, so its table of BCube's
throughputs is not compared; the abstract's sentence is tested. The network and the traffic are
those of the authors' simulator (htsim 0.1, datacentre/bcube_topology, connection_matrix and main):
BCube_2 of 5-port switches, cables of 8,000 packets/s and queues of 100 packets; a single path is a
shortest one of BuildPathSet. Departs from it: fewer subflows than paths take the shortest ones, not
random ones, and the increase is that of RFC 6356.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from pillarbox.experiments.apps.papers.shared.draws import (
    Found,
    Runs,
    seeded_task_function,
    simulation_run_count,
    simulation_runs,
    values_by_run,
)
from pillarbox.experiments.apps.papers.shared.figure import Claim, Made, figure, point, quoted
from pillarbox.experiments.models.fluid.ideal import ETHERNET_BYTES
from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters, simulate_tcp_flows
from pillarbox.experiments.models.packets.subflow_paths import subflow_paths
from pillarbox.experiments.models.workloads.patterns import pairs_of
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.experiments.runs.trials.statistics import jain
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology

NETWORK, QUICK_NETWORK = "bcube,5,2", "bcube,3,2"
RATE_BPS, MTU, QUEUE_PACKETS, DELAY_S = 96e6, 1500, 100, 100e-6
LASTING_S, QUICK_LASTING_S = 1.0, 0.5
SPREAD_S = 0.05  # interval within which all connections start, in seconds
PERMUTATION, NEIGHBOURS, SPARSE = "permutation", "neighbours", "sparse"
# Repeats of each pattern: few connections differ more from draw to draw, and take less time.
RUNS = {PERMUTATION: 3, NEIGHBOURS: 2, SPARSE: 8}
QUICK_RUNS = 2
SPARSE_SHARE = 0.3  # fraction of servers that send in the sparse pattern
# Most cables' worth of data per connection: a volume that no connection completes.
CABLES = {PERMUTATION: 3, NEIGHBOURS: 1, SPARSE: 3}
RATIOS = ("throughput", "fairness")
WHY = (
    "Neighbours: single paths have one hop and fill all cables, so no transport can carry more. "
    "The other paths of a connection have three hops through the same cables. LIA uses them "
    'although they are more congested: "an excessive amount of traffic transmitted over congested '
    'paths" (Khalili, Gast, Popovic, Le Boudec: MPTCP is not Pareto-optimal, 2012, abstract). It '
    "also converges slowly: in bcube,3,2 a server has 173 Mbit/s in the first second and 203 in "
    "the first eight (TCP: 268 and 269), and the fairness of connections rises from 0.97 to 0.99."
)


class System(NamedTuple):
    """A transport: number of subflows, and congestion control of each."""

    subflows: int
    congestion: str


SINGLE, COUPLED = "TCP", "MPTCP, 3 subflows, LIA"
SYSTEMS = {
    SINGLE: System(1, "reno"),
    "MPTCP, 2 subflows, LIA": System(2, "lia"),
    COUPLED: System(3, "lia"),
    "MPTCP, 2 subflows, uncoupled": System(2, "reno"),
    "MPTCP, 3 subflows, uncoupled": System(3, "reno"),
}
IMPROVES = quoted(
    "our algorithm improves throughput and fairness compared to single-path TCP",
    "Wischik 2011, abstract",
)


def pairs(network: Topology, pattern: str, seed: int) -> list[tuple[int, int]]:
    """Return source and destination of a pattern's connections.

    >>> from pillarbox import topos
    >>> bcube = topos.parse("bcube,5,2")
    >>> [len(pairs(bcube, pattern, seed=1)) for pattern in CABLES]
    [125, 1500, 38]
    """
    options = {"share": SPARSE_SHARE} if pattern == SPARSE else {}
    name = PERMUTATION if pattern == SPARSE else pattern
    return pairs_of(network, Workload(name, volume_bytes=1, options=options), seed)


@seeded_task_function
def measure(
    spec: str,
    pattern: str,
    subflows: int,
    congestion: str,
    lasting_s: float,
    random: numpy.random.Generator,
) -> Found:
    """Return the throughput of a sending server in Mbit/s, and the fairness of connections."""
    network = parse(spec)
    seed = int(random.integers(1_000_000))
    ends = pairs(network, pattern, seed)
    starts_s = random.random(len(ends)) * SPREAD_S
    queue_bytes = QUEUE_PACKETS * (MTU + ETHERNET_BYTES)
    tcp = TcpParameters(RATE_BPS, queue_bytes, MTU, delay_s=DELAY_S, congestion=congestion)
    forth, back, counts = subflow_paths(network, ends, subflows, shortest=True)
    volumes = numpy.full(len(ends), round(CABLES[pattern] * RATE_BPS * lasting_s / 8))
    found = simulate_tcp_flows(
        network, forth, back, starts_s, volumes, tcp, None, seed, lasting_s, subflows=counts
    )
    goodput_bps = found.arrived_bytes * 8 / (lasting_s - starts_s)
    senders = len({source for source, _ in ends})
    return {
        "throughput": float(goodput_bps.sum()) / senders / 1e6,
        "fairness": float(jain(goodput_bps)),
        "drops": int(found.drops.sum()) / int(found.passed.sum()),
        "timeouts": int(found.timeouts.sum()) / len(ends),
        "events": found.events,
    }


@figure(
    "mptcp-bcube",
    "Multipath TCP in a BCube of 125 servers, coupled and uncoupled (Wischik 2011)",
    "Multipath TCP and TCP in BCube",
    "traffic pattern",
    "throughput of a sending server, Mbit/s",
    kind="bars",
)
def mptcp_bcube(settings: Settings) -> Made:
    """Simulate TCP and Multipath TCP under three traffic patterns."""
    spec, lasting_s = (QUICK_NETWORK, QUICK_LASTING_S) if settings.quick else (NETWORK, LASTING_S)
    count = {name: simulation_run_count(settings, most, QUICK_RUNS) for name, most in RUNS.items()}
    series = [(name, pattern) for name in SYSTEMS for pattern in CABLES]
    cases = [(spec, pattern, *SYSTEMS[name], lasting_s) for name, pattern in series]
    counts = [count[pattern] for _, pattern in series]
    runs = dict(zip(series, simulation_runs(settings, measure, cases, counts), strict=True))
    points = [of.point(*named, "throughput") for named, of in runs.items()]
    ratios = [_ratio(runs, pattern, what) for what in RATIOS for pattern in CABLES]
    claims = [Claim(row, at_least=True, wanted=1.0, sentence=IMPROVES) for row in ratios]
    return Made(
        points,
        claims,
        rows=[*points, *ratios, *_other_rows(runs)],
        why=WHY,
        notes=(
            f"Means and their 95 % confidence intervals, seed {settings.seed}, of "
            f"{', '.join(f'{runs} runs ({name})' for name, runs in count.items())}.",
            f"{spec}, cables of {RATE_BPS / 1e6:g} Mbit/s with a delay of {DELAY_S * 1e6:g} us, "
            f"queues of {QUEUE_PACKETS} packets, MTU {MTU}, NewReno; mean of the first "
            f"{lasting_s:g} s. Permutation: every server sends to one and receives from one. "
            "Neighbours: every server sends to all its one-hop neighbours. Sparse: "
            f"{SPARSE_SHARE:.0%} of a permutation's connections; this share is Pillarbox's. Two "
            "subflows take the two shortest of the three disjoint paths. The paper's table was "
            "not available and is not compared: the network and the patterns are those of the "
            "authors' simulator, the sentence is in the abstract.",
        ),
    )


def _ratio(runs: dict[tuple[str, str], Runs], pattern: str, what: str) -> Point:
    """Return a measure of coupled subflows, relative to a single path."""
    both = (runs[COUPLED, pattern], what), (runs[SINGLE, pattern], what)
    times = values_by_run(lambda several, single: several / single, *both)
    return point(f"{COUPLED} / {SINGLE}: {what}", pattern, times)


def _other_rows(runs: dict[tuple[str, str], Runs]) -> list[Point]:
    return [
        of.point(f"{name}: {what}", pattern, key, least=0.0)
        for what, key in (
            ("fairness", "fairness"),
            ("dropped, share of packets", "drops"),
            ("timeouts a connection", "timeouts"),
        )
        for (name, pattern), of in runs.items()
    ]
