"""TOR and TAR under random and burst traffic: what Li 2009, Fig. 6-9 share.

The paper's network is FiConn_2 of 32-port switches, 74,528 servers, every link at 1 Gbit/s. Flows
start one after the other in the first 30 seconds; after that every flow is probed every 30 seconds.

How the paper computes throughput is not said, nor how a server knows the available bandwidth. Ours
is max-min fair, with equal shares beside it (a flow has the least of its links' equal parts, and
what it cannot use is lost), and available bandwidth is told by the number of flows
(`experiments.analysis.simulator.tar`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy

from experiments.analysis.fluid.links import Routes, link_count
from experiments.analysis.fluid.rates import equal_share, max_min
from experiments.analysis.simulator.hops import Ints
from experiments.analysis.simulator.paths import lengths, routes
from experiments.analysis.simulator.tar import Tar
from experiments.reporting.reproduced.result import AGREES, AMBIGUOUS, Point, Reproduction, Settings
from experiments.reproductions.shared.sampled import Claim, by_series, point, verdict
from experiments.reproductions.shared.sweep import swept
from topos.base.spec import parse
from topos.ficonn import FiConn

NETWORK = "ficonn,32,2"
ROUND_S, ROUNDS, QUICK_ROUNDS = 30, 10, 4
STEADY = 3  # rounds at the end
RUNS = 3
TOR, TAR, PRINTED = "TOR", "TAR", "TAR, virtual flows as printed"


class Sample(NamedTuple):
    """All flows after a round: rates in links, and hops."""

    max_min: float
    equal: float
    hops: float


class Run(NamedTuple):
    """One draw of the flows, and what became of them; a list has a sample of each round."""

    flows: int
    tor: Sample
    tar: list[Sample]
    printed: list[Sample]

    def samples(self, routing: str) -> list[Sample]:
        """Return what a routing came to, round by round; TOR never changes."""
        return {TOR: [self.tor] * len(self.tar), TAR: self.tar, PRINTED: self.printed}[routing]


Ends = tuple[Ints, Ints]


def random_traffic(ficonn: FiConn, random: numpy.random.Generator) -> Ends:
    """Return N/2 flows between pairs of servers; every server is in one pair."""
    drawn = random.permutation(ficonn.servers)
    return drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]


def burst_traffic(ficonn: FiConn, random: numpy.random.Generator) -> Ends:
    """Return a flow from every server of a random FiConn_{k-1} to every one of another."""
    size = ficonn.sizes[-2]
    first, second = random.choice(ficonn.servers // size, 2, replace=False) * size
    members = numpy.arange(size)
    return numpy.repeat(first + members, size), numpy.tile(second + members, size)


TRAFFIC = {"random": random_traffic, "burst": burst_traffic}


class Task(NamedTuple):
    """One run."""

    network: str
    traffic: str
    rounds: int
    seed: int
    run: int


def measure(task: Task) -> Run:
    """Draw flows, and let them look for paths, round by round."""
    ficonn = parse(task.network)
    assert isinstance(ficonn, FiConn)
    random = numpy.random.default_rng([task.seed, task.run])
    ends = TRAFFIC[task.traffic](ficonn, random)
    tor = routes(ficonn, "tor", *ends)
    return Run(
        len(ends[0]),
        _sample(ficonn, tor, float(lengths(ficonn, "tor", *ends).mean())),
        _rounds(Tar(ficonn, *ends, random), task.rounds),
        _rounds(Tar(ficonn, *ends, random, printed=True), task.rounds),
    )


def _rounds(flows: Tar, rounds: int) -> list[Sample]:
    samples = []
    for _ in range(rounds):
        flows.probe()
        samples.append(_sample(flows.ficonn, flows.routes(), float(flows.counts.mean())))
    return samples


def _sample(ficonn: FiConn, found: Routes, hops: float) -> Sample:
    links = link_count(ficonn)
    return Sample(
        float(max_min(found, 1.0, links).sum()),
        float(equal_share(found, numpy.ones(links)).sum()),
        hops,
    )


def simulated(settings: Settings, traffic: str) -> list[Run]:
    """Return the runs, each with flows of its own."""
    rounds = QUICK_ROUNDS if settings.quick else ROUNDS
    count = settings.repeats or (1 if settings.quick else RUNS)
    tasks = [Task(NETWORK, traffic, rounds, settings.seed, run) for run in range(count)]
    return [
        Run(flows, Sample(*tor), *([Sample(*one) for one in each] for each in rounds_of))
        for flows, tor, *rounds_of in swept(settings, measure, tasks)
    ]


# -- from runs to points ---------------------------------------------------------------------------


def curves(
    runs: list[Run],
    value: Callable[[Sample], float],
    routings: Sequence[str] = (TOR, TAR, PRINTED),
    model: str = "",
) -> list[Point]:
    """Return each routing's value at the end of every round; its name says the model."""
    rounds = range(len(runs[0].tar))
    return by_series(
        point(
            f"{routing}{model}", (i + 1) * ROUND_S, [value(run.samples(routing)[i]) for run in runs]
        )
        for routing in routings
        for i in rounds
    )


def after(
    runs: list[Run],
    series: str,
    value: Callable[[Sample, Sample], float],
    routing: str,
    first: bool,
    paper: float,
) -> Point:
    """Return a value of TOR's sample and a routing's: after the first round, or in steady state."""
    values = []
    for run in runs:
        samples = run.samples(routing)
        part = samples[:1] if first else samples[-STEADY:]
        values.append(float(numpy.mean([value(run.tor, sample) for sample in part])))
    when = "after 30 s" if first else "steady"
    return point(f"{series}, {routing}", when, values, paper)


def judged(of_routing: Callable[[str], list[Claim]]) -> tuple[str, tuple[str, ...], list[Point]]:
    """Return the verdict, its reasons, and the rows.

    Where the claims hold only with virtual flows as printed, the paper is ambiguous.
    """
    ours, printed = of_routing(TAR), of_routing(PRINTED)
    rows = [claim.row for claim in [*ours, *printed]]
    word, reasons = verdict(ours)
    if word != AGREES and verdict(printed)[0] == AGREES:
        word = AMBIGUOUS
    if word != AGREES:
        reasons += tuple(reason for reason in verdict(printed)[1] if reason not in reasons)
    return word, reasons, rows


def notes(settings: Settings, runs: list[Run]) -> tuple[str, ...]:
    """Return how it was measured."""
    return (
        f"{NETWORK}, {runs[0].flows:,} flows, links of "
        f"1 Gbit/s; mean of {len(runs)} run{'s' * (len(runs) > 1)} and its 95 % confidence "
        f"interval, seed {settings.seed}. Steady is the mean of the last {STEADY} rounds.",
        "Throughput is max-min fair. A probe sees how many flows leave a server by each port; its "
        "own does not count. The paper states neither model.",
        "A virtual flow ends when its flow is probed again. As printed (Algorithm 3) the counter "
        "only falls when a flow takes the level-0 link; so it grows from round to round, and ever "
        "fewer flows bypass.",
    )


def longer_paths(
    settings: Settings,
    runs: list[Run],
    *,
    name: str,
    title: str,
    papers_hops: float,
    near_hops: float,
) -> Reproduction:
    """Return average path lengths, and by how much TAR's are longer than TOR's in the end."""

    def claims(routing: str) -> list[Claim]:
        def longer(tor: Sample, tar: Sample) -> float:
            return tar.hops - tor.hops

        row = after(runs, "hops more than TOR", longer, routing, False, papers_hops)
        return [Claim(row, near_hops, at_most=True)]

    word, reasons, rows = judged(claims)
    return Reproduction(
        name=name,
        title=title,
        x_label="time, s",
        y_label="average path length, hops",
        points=tuple(curves(runs, lambda sample: sample.hops)),
        rows=tuple(rows),
        verdict=word,
        reasons=reasons,
        notes=notes(settings, runs),
    )
