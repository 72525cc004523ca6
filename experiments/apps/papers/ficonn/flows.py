"""TOR and TAR under random and burst traffic: Li 2009, Fig. 6-9.

The paper's network is FiConn_2 of 32-port switches, 74,528 servers, every link at 1 Gbit/s. Flows
start one after the other in the first 30 seconds; then every flow is probed every 30 seconds.

The paper does not say how it computes throughput, nor how a server knows the available bandwidth.
Our throughput is by equal shares: a flow gets the minimum of its links' equal shares, and any share
that it cannot use is lost. Max-min fair, TAR fills all level-2 links of a FiConn_1 under burst
traffic, more than the paper's. The curves are not printed as numbers; the claims here are from
section V.

The lifetime of a virtual flow (section IV.D, Algorithm 3) has several readings, and so has a port's
available bandwidth: the equal share of one more flow, or the unused bandwidth, measured as on the
live servers (`pillarbox.experiments.models.simulator.compiled_tar`). `readings.py` compares each
reading with all these claims; the figures use the nearest one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy

from pillarbox.experiments.apps.papers.shared.draws import (
    seeded_task_function,
    simulation_run_count,
    simulation_runs,
)
from pillarbox.experiments.apps.papers.shared.figure import (
    Claim,
    Figure,
    Made,
    by_series,
    figure,
    point,
    quoted,
    with_paper_values,
)
from pillarbox.experiments.models.arrays import Ints
from pillarbox.experiments.models.fluid.directed_links import Routes, link_count
from pillarbox.experiments.models.simulator.compiled_tar import (
    TarFlows,
    Throughput,
    equal_share_rates,
)
from pillarbox.experiments.models.simulator.paths import lengths, routes
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.hosts.base.probing import NEARLY_BEST
from pillarbox.hosts.ficonn.tar import READINGS, VIRTUAL_FLOWS, VirtualFlows
from pillarbox.topos.base.spec import parse
from pillarbox.topos.ficonn import FiConn

NETWORK = "ficonn,32,2"
ROUND_S, ROUNDS, QUICK_ROUNDS = 30, 10, 4
STEADY = 3  # number of last rounds that count as steady state
RUNS, OTHERS_RUNS = 6, 3  # number of runs: with the reading that is taken, and with others
TOR, TAR = "TOR", "TAR"


class TarReading(NamedTuple):
    """An interpretation of TAR: end of a virtual flow, and available bandwidth (see `TarFlows`)."""

    virtual: VirtualFlows = VIRTUAL_FLOWS
    throughput: Throughput | None = None
    equal_share: float = 1.0


READINGS_OF_TAR = {
    **{f"{name}, fair share": TarReading(virtual) for name, virtual in READINGS.items()},
    "until the next probe, unused bandwidth": TarReading(throughput=equal_share_rates),
    # The rule of live servers: bandwidths within 10 % of each other count as equal.
    "until the next probe, unused bandwidth as live": TarReading(
        throughput=equal_share_rates, equal_share=NEARLY_BEST
    ),
}
TAKEN = next(name for name, reading in READINGS_OF_TAR.items() if reading == TarReading())


class RoundSample(NamedTuple):
    """Result of all flows after a round of probes: total rate in links, and mean hops."""

    rate: float
    hops: float


class FlowDraw(NamedTuple):
    """Result of one draw of flows: TOR's sample, and TAR's after each round of probes."""

    flows: int
    tor: RoundSample
    tar: list[RoundSample]

    def samples(self, routing: str) -> list[RoundSample]:
        """Return the results of TOR or TAR after each round of probes; TOR's never change."""
        return [self.tor] * len(self.tar) if routing == TOR else self.tar


Ends = tuple[Ints, Ints]


def random_traffic(ficonn: FiConn, random: numpy.random.Generator) -> Ends:
    """Return N/2 flows between pairs of servers; every server is in one pair."""
    order = random.permutation(ficonn.servers)
    return order[: len(order) // 2], order[len(order) // 2 :]


def burst_traffic(ficonn: FiConn, random: numpy.random.Generator) -> Ends:
    """Return a flow from every server of a random FiConn_{k-1} to every server of another."""
    size = ficonn.sizes[-2]
    first, second = random.choice(ficonn.servers // size, 2, replace=False) * size
    members = numpy.arange(size)
    return numpy.repeat(first + members, size), numpy.tile(second + members, size)


TRAFFIC = {"random": random_traffic, "burst": burst_traffic}


@seeded_task_function
def measure(
    spec: str, traffic: str, reading: str, rounds: int, random: numpy.random.Generator
) -> FlowDraw:
    """Draw flows, and let TAR choose their paths, one round of probes after the other."""
    ficonn = parse(spec)
    assert isinstance(ficonn, FiConn)
    ends = TRAFFIC[traffic](ficonn, random)
    tor = _round_sample(ficonn, routes(ficonn, "tor", *ends), lengths(ficonn, "tor", *ends))
    tar = TarFlows(ficonn, *ends, random, **READINGS_OF_TAR[reading]._asdict())
    return FlowDraw(len(ends[0]), tor, _samples_by_round(tar, rounds))


def _samples_by_round(flows: TarFlows, rounds: int) -> list[RoundSample]:
    samples = []
    for _ in range(rounds):
        flows.probe()
        samples.append(_round_sample(flows.ficonn, flows.routes(), flows.counts))
    return samples


def _round_sample(ficonn: FiConn, found: Routes, hops: Ints) -> RoundSample:
    rates = equal_share_rates(found, link_count(ficonn))
    return RoundSample(float(rates.sum()), float(hops.mean()))


def simulate_flow_draws(settings: Settings, traffic: str, reading: str = TAKEN) -> list[FlowDraw]:
    """Simulate TOR and TAR on random flows, the same for every reading of TAR."""
    rounds = QUICK_ROUNDS if settings.quick else ROUNDS
    cases = [(NETWORK, traffic, reading, rounds)]
    runs_each = RUNS if reading == TAKEN else OTHERS_RUNS
    (runs,) = simulation_runs(
        settings, measure, cases, simulation_run_count(settings, runs_each, 1)
    )
    return [
        FlowDraw(flows, RoundSample(*tor), [RoundSample(*one) for one in tar])
        for flows, tor, tar in runs.found
    ]


# -- from runs to points ---------------------------------------------------------------------------


def curves(
    runs: list[FlowDraw],
    value: Callable[[RoundSample], float],
    routings: Sequence[str] = (TOR, TAR),
) -> list[Point]:
    """Return each routing's value after every round of probes."""
    return by_series(
        point(routing, (i + 1) * ROUND_S, [value(run.samples(routing)[i]) for run in runs])
        for routing in routings
        for i in range(len(runs[0].tar))
    )


def tor_tar_comparison(
    runs: list[FlowDraw],
    series: str,
    value: Callable[[RoundSample, RoundSample], float],
    first: bool,
    paper: float,
    routing: str = TAR,
) -> Point:
    """Return a value of TOR's and a routing's samples after the first round or in steady state."""
    values = []
    for run in runs:
        samples = run.samples(routing)
        part = samples[:1] if first else samples[-STEADY:]
        values.append(float(numpy.mean([value(run.tor, sample) for sample in part])))
    return point(series, "after 30 s" if first else "steady", values, paper)


def notes(runs: list[FlowDraw], settings: Settings) -> tuple[str, ...]:
    """Return the figures' notes on network, flows, throughput model and virtual flows."""
    return (
        f"{NETWORK}, {runs[0].flows:,} flows, links of "
        f"1 Gbit/s; mean of {len(runs)} run{'s' * (len(runs) > 1)} and its 95 % confidence "
        f"interval, seed {settings.seed}. Steady is the mean of the last {STEADY} rounds.",
        "Throughput is by equal shares: a flow has the smallest of its links' equal shares, and "
        "the rest of the others is unused. The available bandwidth of a port is the equal share "
        "of one more flow. The paper specifies neither model.",
        f"Interpretation: {TAKEN}. `ficonn-readings` compares the interpretations.",
    )


# -- Fig. 6 and 8: throughput ----------------------------------------------------------------------

THROUGHPUT = ("time, s", "aggregate throughput, Gbit/s")
# Percentage by which TOR exceeds TAR: after 30 seconds, and at most in steady state.
PAPERS_FIRST, PAPERS_STEADY, NEAR = 8.5, 2.5, 1.0


def fig6_claims(runs: list[FlowDraw]) -> list[Claim]:
    """Return the claims of Li 2009, section V, on the throughput in Fig. 6."""

    def percent(tor: RoundSample, tar: RoundSample) -> float:
        return (tor.rate / tar.rate - 1) * 100

    first, steady = (
        tor_tar_comparison(runs, "TOR ahead, %", percent, at_first, paper)
        for at_first, paper in ((True, PAPERS_FIRST), (False, PAPERS_STEADY))
    )
    within = quoted("the difference between them is within 2.5%", "Li 2009, V")
    return [Claim(first, NEAR), Claim(steady, NEAR, at_most=True, sentence=within)]


@figure(
    "ficonn-fig6",
    "throughput of FiConn's routings, random traffic (Li 2009)",
    "Throughput in FiConn, random traffic",
    *THROUGHPUT,
)
def fig6(settings: Settings) -> Made:
    """Reproduce Li 2009, Fig. 6: throughput of TOR and TAR between random pairs of servers."""
    runs = simulate_flow_draws(settings, "random")
    points = curves(runs, lambda sample: sample.rate)
    return Made(points, fig6_claims(runs), notes=notes(runs, settings))


# With TOR all flows share the only level-2 link between the two FiConn_1s; TAR reaches 99.5 Gbit/s.
# A FiConn_1 of 32-port switches has 136 level-2 links, an upper bound for every routing.
PAPERS_TOR, PAPERS_TAR = 1.0, 99.5  # paper's throughput in Gbit/s
EXACT, NEAR_TAR = 1e-9, 5.0
MAX_MIN = "Max-min fair, TAR would fill all 136 level-2 links of a FiConn_1."


def fig8_claims(runs: list[FlowDraw]) -> list[Claim]:
    """Return the claims of Li 2009, section V, on the burst throughput in Fig. 8."""
    tor = tor_tar_comparison(runs, TOR, lambda _, now: now.rate, False, PAPERS_TOR, TOR)
    tar = tor_tar_comparison(runs, TAR, lambda _, now: now.rate, False, PAPERS_TAR)
    return [Claim(tor, EXACT), Claim(tar, NEAR_TAR)]


@figure(
    "ficonn-fig8",
    "throughput of FiConn's routings, burst traffic (Li 2009)",
    "Throughput in FiConn, burst traffic",
    *THROUGHPUT,
    log_y=True,
)
def fig8(settings: Settings) -> Made:
    """Reproduce Li 2009, Fig. 8: throughput of TOR and TAR between two FiConn_1s."""
    runs = simulate_flow_draws(settings, "burst")
    points = curves(runs, lambda sample: sample.rate)
    last = points[-1].x
    points = with_paper_values(points, {(TOR, last): PAPERS_TOR, (TAR, last): PAPERS_TAR})
    return Made(points, fig8_claims(runs), notes=(*notes(runs, settings), MAX_MIN))


# -- Fig. 7 and 9: path lengths --------------------------------------------------------------------

# maximum hops by which TAR's paths are longer than TOR's, in steady state
PAPERS_HOPS = {"random": 1.5, "burst": 3.0}
HOPS_SENTENCES = {
    "random": "the average path length of TAR is always more than that of TOR, but within 1.5 hops "
    "in steady state",
    "burst": "the average path length of TAR is longer than that of TOR, but the difference is "
    "within three hops",
}
NEAR_HOPS = 0.1
SETTLED = 0.25  # maximum distance from the steady path length, in hops


def path_length_claims(runs: list[FlowDraw], traffic: str) -> list[Claim]:
    """Return the claims of section V on Fig. 7 and 9: additional hops of TAR's paths."""

    def additional_hops(tor: RoundSample, tar: RoundSample) -> float:
        return tar.hops - tor.hops

    row = tor_tar_comparison(
        runs, "hops more than TOR", additional_hops, False, PAPERS_HOPS[traffic]
    )
    sentence = quoted(HOPS_SENTENCES[traffic], "Li 2009, V")
    return [Claim(row, NEAR_HOPS, at_most=True, sentence=sentence)]


def additional_hops_by_round(runs: list[FlowDraw]) -> list[Point]:
    """Return by how many hops TAR's paths are longer than TOR's after every round of probes."""
    return [
        point(
            "hops more than TOR",
            f"after {(i + 1) * ROUND_S} s",
            [run.tar[i].hops - run.tor.hops for run in runs],
        )
        for i in range(len(runs[0].tar))
    ]


def settling_time_s(runs: list[FlowDraw]) -> int:
    """Return the time after which TAR's mean path length stays near its steady value."""
    means = numpy.mean([[sample.hops for sample in run.tar] for run in runs], axis=0)
    apart = numpy.flatnonzero(abs(means - means[-STEADY:].mean()) > SETTLED)
    return int(apart.max(initial=-1) + 2) * ROUND_S


def _length_figure(name: str, traffic: str) -> Figure:
    about = f"path lengths of FiConn's routings, {traffic} traffic (Li 2009)"
    title = f"Path lengths in FiConn, {traffic} traffic"

    def made(settings: Settings) -> Made:
        runs = simulate_flow_draws(settings, traffic)
        points = curves(runs, lambda sample: sample.hops)
        claims = path_length_claims(runs, traffic)
        rows = [*additional_hops_by_round(runs), *(claim.row for claim in claims)]
        settled = f"TAR's paths settle after {settling_time_s(runs)} s."
        return Made(points, claims, rows, notes=(*notes(runs, settings), settled))

    return figure(name, about, title, "time, s", "average path length, hops")(made)


fig7, fig9 = _length_figure("ficonn-fig7", "random"), _length_figure("ficonn-fig9", "burst")
