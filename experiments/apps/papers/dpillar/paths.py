"""DPillar's paths while servers or switches fail: Liao 2012, Fig. 9-12, and larger networks.

Each run draws new failures, and pairs of working servers as sources and destinations (section 5.4).
A working server may have lost both of its switches: then it is cut off, and no routing reaches it.

The figures' curves are not printed as numbers; the claims here are from sections 5.3.2 and 5.4. The
paper does not say whether MP may use the paths of one direction or of both, nor whether a source
whose disjoint paths have all failed tries other pairings of s' and d', as footnote 3 permits.
`readings.py` compares these readings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import truediv

import numpy
from numpy.typing import NDArray

from pillarbox.experiments.apps.papers.shared.draws import (
    Found,
    Runs,
    drawn_note,
    seeded_task_function,
    simulation_run_count,
    simulation_runs,
    values_by_run,
)
from pillarbox.experiments.apps.papers.shared.figure import (
    Claim,
    Made,
    Papers,
    by_series,
    figure,
    find,
    point,
    quoted,
    verdict,
    with_paper_values,
)
from pillarbox.experiments.models.arrays import Bools, Ints
from pillarbox.experiments.models.fluid.directed_links import link_at
from pillarbox.experiments.models.simulator.failure_sets import draw, intact_flows
from pillarbox.experiments.models.simulator.flow_arrays import random_flows
from pillarbox.experiments.models.simulator.paths import routes, routing_by_name
from pillarbox.experiments.models.simulator.walks import disconnected_flows, path_sets
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.topos.base.spec import parse
from pillarbox.topos.dpillar import DPillar

SPEC = "dpillar,16,3"
PAIRS = 10_000  # number of pairs of servers per run (section 5.3)
RUNS, QUICK_RUNS = 20, 3
SP, CLOCKWISE, BOTH, ANY = "SP", "MP, clockwise", "MP, both ways", "MP, any pairing"
CUT_OFF = "cut off from all"
# Key of simulation results: percentage of server pairs without a working path.
SERIES = {
    SP: "sp_lost",
    CLOCKWISE: "mp_lost",
    BOTH: "both_lost",
    ANY: "any_lost",
    CUT_OFF: "cut_off",
}
DIRECTIONS = (
    "The paper does not say whether a pair uses the paths of one direction or of both, nor whether "
    "it tries other pairings of s' and d' if its disjoint paths have failed (footnote 3). The "
    "curve of any pairing, in both directions, is nearest to the paper (`dpillar-readings`)."
)
# Larger networks are not searched for disconnected pairs.
MOST_CUT_OFF = 100_000


@seeded_task_function
def measure(spec: str, servers: int, switches: int, random: numpy.random.Generator) -> Found:
    """Draw random failures and pairs of servers, and check all paths of each pair.

    Hops are the mean over working paths, None if no path works; `mp_available` is the mean number
    of a pair's working clockwise paths. Lost values are percentages of pairs: with DPillarSP, with
    the disjoint clockwise paths, with those of both directions, and with any pairing of s' and d'.
    `no_switch` are the pairs of which an end has no working switch. `cut_off`, pairs that are
    disconnected, and `any_mp_lost`, any pairing clockwise, are None if the network is too large.
    """
    dpillar = network(spec)
    broken = draw(
        dpillar, random, servers=servers / dpillar.servers, switches=switches / dpillar.switches
    )
    alive = numpy.flatnonzero(~broken.servers)
    sources, destinations = random_flows(len(alive), PAIRS, random)
    ends = alive[sources], alive[destinations]
    single = path_sets(dpillar, "sp-cw", *ends, broken)
    both = path_sets(dpillar, "mp-both", *ends, broken)
    # results of clockwise paths
    hops, works = both.hops[:, : dpillar.half], both.works[:, : dpillar.half]
    count = works.sum(axis=1)
    small = dpillar.servers <= MOST_CUT_OFF
    working_links = broken.works(dpillar)
    ports = working_links[link_at(dpillar, numpy.arange(dpillar.servers)[:, None], (0, 1))]
    no_switch = ~(ports.any(axis=1)[ends[0]] & ports.any(axis=1)[ends[1]])
    any_lost = numpy.asarray(~both.works.any(axis=1))
    any_lost[any_lost] = pairing_failures(dpillar, working_links, *(end[any_lost] for end in ends))
    any_clockwise_lost = numpy.asarray(count == 0)
    if small:
        left = (end[any_clockwise_lost] for end in ends)
        any_clockwise_lost[any_clockwise_lost] = pairing_failures(
            dpillar, working_links, *left, clockwise=True
        )
    return {
        "sp_hops": _mean(single.hops[single.works]),
        # The mean of a random path of a pair is the mean of the pair's paths.
        "mp_hops": _mean((hops * works).sum(axis=1)[count > 0] / count[count > 0]),
        "mp_available": float(count.mean()),
        "sp_lost": float(1 - single.works.mean()) * 100,
        "mp_lost": float((count == 0).mean()) * 100,
        "both_lost": float(1 - both.works.any(axis=1).mean()) * 100,
        "any_lost": float(any_lost.mean()) * 100,
        "any_mp_lost": float(any_clockwise_lost.mean()) * 100 if small else None,
        "no_switch": float(no_switch.mean()) * 100,
        "cut_off": float(disconnected_flows(dpillar, broken, *ends).mean()) * 100
        if small
        else None,
    }


def _mean(values: Ints | NDArray[numpy.float64]) -> float | None:
    return float(values.mean()) if len(values) else None


def pairing_failures(
    dpillar: DPillar, works: Bools, sources: Ints, destinations: Ints, *, clockwise: bool = False
) -> Bools:
    """Return for each pair of servers whether the paths of all pairings of s' and d' fail.

    Both directions are tried, or the clockwise one only.
    """
    failed = numpy.ones(len(sources), bool)
    choices = routing_by_name(dpillar, "mp-any").choices(dpillar)
    for choice in range(choices // 2 if clockwise else choices):
        left = numpy.flatnonzero(failed)
        if not len(left):
            break
        found = routes(dpillar, "mp-any", sources[left], destinations[left], choice)
        failed[left] = ~intact_flows(works, found)
    return failed


def network(spec: str) -> DPillar:
    """Return the DPillar of a network specification such as "dpillar,16,3"."""
    dpillar = parse(spec)
    assert isinstance(dpillar, DPillar)
    return dpillar


def label(spec: str) -> str:
    """Return the paper's label (n, k) of a DPillar.

    >>> label("dpillar,16,3")
    '(16, 3)'
    """
    dpillar = network(spec)
    return f"({dpillar.n}, {dpillar.k})"


def runs_of(
    settings: Settings, cases: Iterable[tuple[str, int, int]], runs: int = RUNS
) -> list[Runs]:
    """Simulate each case (network, failed servers, failed switches); return a `Runs` per case."""
    return simulation_runs(
        settings, measure, cases, simulation_run_count(settings, runs, QUICK_RUNS)
    )


def routing_failure_points(runs: Sequence[Runs], xs: Sequence[float]) -> list[Point]:
    """Return routing failure ratios in percent: of SP, of MP, and of disconnected pairs."""
    return [
        one.point(name, x, what)
        for name, what in SERIES.items()
        for one, x in zip(runs, xs, strict=True)
    ]


def notes(settings: Settings, runs: int = RUNS) -> tuple[str, str]:
    """Return the figures' notes on runs and pairs of servers."""
    return (
        drawn_note(settings, simulation_run_count(settings, runs, QUICK_RUNS)),
        f"In each run other servers or switches fail; {PAIRS} random pairs of working servers are "
        "evaluated.",
    )


# -- Fig. 9: the length of MP's working paths ------------------------------------------------------

FIG9_NETWORKS = ("dpillar,16,3", "dpillar,24,3", "dpillar,16,4", "dpillar,24,4")
FIG9_QUICK_NETWORKS = ("dpillar,16,3", "dpillar,16,4")
FIG9_PERCENT, FIG9_QUICK_PERCENT = (0, 5, 10, 15, 20), (0, 20)
FIG9_RUNS = 10
SAME = 0.1  # tolerance of lengths per column, which should be proportional
PROPORTIONAL, DECREASES = (
    quoted(sentence, "Liao 2012, 5.3.2")
    for sentence in (
        "the path length is still proportional to the number of server columns",
        "it slightly decreases as there are more failed servers",
    )
)


@figure(
    "dpillar-fig9",
    "length of DPillar's working paths while servers fail (Liao 2012)",
    "Lengths of DPillarMP's working paths",
    "failed servers, %",
    "server-to-server hops",
)
def fig9(settings: Settings) -> Made:
    """Reproduce Liao 2012, Fig. 9: fail servers of DPillars with different numbers of columns."""
    networks = FIG9_QUICK_NETWORKS if settings.quick else FIG9_NETWORKS
    percents = FIG9_QUICK_PERCENT if settings.quick else FIG9_PERCENT
    drawn_at = [(spec, percent) for spec in networks for percent in percents]
    cases = [(spec, round(network(spec).servers * percent / 100), 0) for spec, percent in drawn_at]
    runs = runs_of(settings, cases, FIG9_RUNS)
    points = [
        one.point(label(spec), percent, "mp_hops")
        for one, (spec, percent) in zip(runs, drawn_at, strict=True)
    ]
    none, most = percents[0], percents[-1]
    lengths = {at: (one, "mp_hops") for at, one in zip(drawn_at, runs, strict=True)}
    claims = []
    for spec in networks:
        ratios = values_by_run(truediv, lengths[spec, most], lengths[spec, none])
        row = point(label(spec), f"length at {most} % over that at none", ratios, 1.0)
        claims.append(Claim(row, 0.0, at_most=True, sentence=DECREASES))
    for percent in (none, most):  # paths in four columns are 4/3 as long as in three columns
        four, three = lengths["dpillar,16,4", percent], lengths["dpillar,16,3", percent]
        ratios = values_by_run(lambda a, b: a / b * 3 / 4, four, three)
        row = point("(16, 4) over (16, 3)", f"length a column at {percent} %", ratios, 1.0)
        claims.append(Claim(row, SAME, sentence=PROPORTIONAL))
    what = (
        "Length of a random working clockwise path of each pair that has one. The paper gives no "
        "numbers: its statements about the curves are compared."
    )
    return Made(points, claims, notes=(*notes(settings, FIG9_RUNS), what))


# -- Fig. 10: how many of the n/2 clockwise disjoint paths of a pair work --------------------------

PAPERS_PATHS = 8.0  # paper's number of clockwise paths of a pair: n / 2
SERVERS, SWITCHES = "servers failed", "switches failed"
COUNTS = {SERVERS: (0, 20, 100, 200, 300, 400, 500), SWITCHES: (0, 5, 10, 15, 20, 30, 40, 50)}
QUICK_COUNTS = {SERVERS: (0, 20, 300), SWITCHES: (0, 20)}
EQUAL_FAILURES = 20
# A tolerance, since a few pairs of the 1536 servers share a switch and have fewer paths.
ALL = 0.1
# times as many paths lost; a switch has n / 2 times as many cables as a server
MUCH_LARGER = 4.0
MUCH = quoted("Switch failures have much larger impact than server failures", "Liao 2012, 5.4")


@figure(
    "dpillar-fig10",
    "disjoint paths of DPillar that work while servers or switches fail (Liao 2012)",
    "Working disjoint paths, DPillar (16, 3)",
    "number of failures",
    "clockwise paths of a pair",
)
def fig10(settings: Settings) -> Made:
    """Reproduce Liao 2012, Fig. 10: fail servers, then switches, and count failed paths."""
    counts = QUICK_COUNTS if settings.quick else COUNTS
    drawn_at = [(name, many) for name in counts for many in counts[name]]
    cases = [(SPEC, *((many, 0) if name == SERVERS else (0, many))) for name, many in drawn_at]
    runs = runs_of(settings, cases)
    points = [
        one.point(name, many, "mp_available", None if many else PAPERS_PATHS)
        for one, (name, many) in zip(runs, drawn_at, strict=True)
    ]
    available = {at: (one, "mp_available") for at, one in zip(drawn_at, runs, strict=True)}
    shares = values_by_run(
        lambda whole, servers, switches: (whole - servers) / (whole - switches),
        available[SERVERS, 0],
        available[SERVERS, EQUAL_FAILURES],
        available[SWITCHES, EQUAL_FAILURES],
    )
    what = f"paths lost by {EQUAL_FAILURES} failures, of those by as many switches"
    impact = point(SERVERS, what, shares, 1 / MUCH_LARGER)
    claims = [Claim(find(points, name, 0), ALL) for name in counts]
    claims.append(Claim(impact, 0.0, at_most=True, sentence=MUCH))
    much = f'"Much larger": a server costs at most 1/{MUCH_LARGER:g} of the paths of a switch.'
    return Made(points, claims, notes=(*notes(settings), much))


# -- Fig. 11 and 12: pairs of servers that find no working path ------------------------------------

FIG11_COUNTS, FIG11_QUICK_COUNTS = tuple(range(50, 501, 50)), (100, 300, 500)
# Paper's percentages of pairs without a working path (section 5.4).
FIG11: Papers = {
    (SP, 300): 45.0,
    **{
        (mp, many): lost for mp in (CLOCKWISE, BOTH, ANY) for many, lost in ((300, 0.0), (500, 0.1))
    },
}
NEAR_SP, NEAR_MP = 3.0, 0.5  # tolerances in percentage points of pairs


@figure(
    "dpillar-fig11",
    "routing failures of DPillar while servers fail (Liao 2012)",
    "DPillar (16, 3) while servers fail",
    "failed servers of 1536",
    "pairs without a working path, %",
)
def fig11(settings: Settings) -> Made:
    """Reproduce Liao 2012, Fig. 11: fail increasing numbers of servers."""
    counts = FIG11_QUICK_COUNTS if settings.quick else FIG11_COUNTS
    runs = runs_of(settings, [(SPEC, many, 0) for many in counts])
    points = with_paper_values(routing_failure_points(runs, counts), FIG11)
    claims = [Claim(find(points, *key), NEAR_SP if key[0] == SP else NEAR_MP) for key in FIG11]
    return Made(
        points,
        claims,
        judged=verdict(claim for claim in claims if claim.row.series in (SP, ANY)),
        notes=(*notes(settings), DIRECTIONS),
    )


FIG12_COUNTS, FIG12_QUICK_COUNTS = tuple(range(2, 21, 2)), (4, 20)
# Percentages of the paper (section 5.4).
FIG12: Papers = {(mp, 20): 1.0 for mp in (CLOCKWISE, BOTH, ANY)}
NO_SWITCH, WITH_SWITCH = "an end has no switch", "MP, any pairing, ends with a switch"


def lost_with_switches(runs: Runs, what: str) -> list[float]:
    """Return the percentage of pairs lost, of those whose ends both have a working switch.

    >>> lost_with_switches(Runs((), [{"any_lost": 3.0, "no_switch": 2.0}]), "any_lost")[0]
    1.0204081632653061
    """
    return values_by_run(
        lambda lost, none: (lost - none) / (100 - none) * 100, (runs, what), (runs, "no_switch")
    )


@figure(
    "dpillar-fig12",
    "routing failures of DPillar while switches fail (Liao 2012)",
    "DPillar (16, 3) while switches fail",
    "failed switches of 192",
    "pairs without a working path, %",
)
def fig12(settings: Settings) -> Made:
    """Reproduce Liao 2012, Fig. 12: fail increasing numbers of switches."""
    counts = FIG12_QUICK_COUNTS if settings.quick else FIG12_COUNTS
    runs = runs_of(settings, [(SPEC, 0, many) for many in counts])
    points = with_paper_values(routing_failure_points(runs, counts), FIG12)
    rows = [find(points, name, 20) for name in (CLOCKWISE, BOTH, ANY, CUT_OFF)]
    last = dict(zip(counts, runs, strict=True))[20]
    none = last.point(NO_SWITCH, 20, "no_switch")
    apart = point(WITH_SWITCH, 20, lost_with_switches(last, "any_lost"), FIG12[ANY, 20])
    return Made(
        points,
        [Claim(apart, NEAR_MP)],
        rows=(*rows, none, apart),
        why=f"With 20 failed switches, {none.ours:.1f} % of all pairs have an end without a "
        "switch: no routing reaches those. Most of the others that are lost have the same port of "
        "both ends failed: a path that keeps its direction leaves by one port and arrives by the "
        "other.",
        notes=(*notes(settings), DIRECTIONS),
    )


# -- beyond the paper: up to 40 million servers ----------------------------------------------------

LARGE_NETWORKS = ("dpillar,16,3", "dpillar,24,4", "dpillar,48,4", "dpillar,48,5")
LARGE_RUNS = 5
# Failures as in section 5.4: the share of servers, and that of switches.
NONE, SOME = "no failures", "20 % of servers failed"
SHARES = {NONE: (0.0, 0.0), SOME: (0.2, 0.0), "10 % of switches failed": (0.0, 0.1)}
LARGE: Papers = {(SOME, BOTH): 0.0}  # paper's percentage of pairs without a working path


@figure(
    "dpillar-large",
    "DPillar's path lengths and routing failures up to 40 million servers",
    "Routing failures in larger DPillars",
    "servers",
    "pairs without a working path, %",
    log_x=True,
)
def large(settings: Settings) -> Made:
    """Sample pairs of servers in increasingly large DPillars, with and without failures.

    The paper simulates up to 82,944 servers, and aims at millions. Sampled pairs represent (48, 5),
    as only the failed servers and switches of a network are stored. The results are compared with
    the claims of section 5.4 on (16, 3).
    """
    networks = [network(spec) for spec in LARGE_NETWORKS[: 2 if settings.quick else None]]
    drawn_at = [(dpillar, what) for dpillar in networks for what in SHARES]
    cases = [
        (dpillar.spec, round(share * dpillar.servers), round(of_switches * dpillar.switches))
        for dpillar in networks
        for share, of_switches in SHARES.values()
    ]
    points, rows, claims = [], [], []
    runs = runs_of(settings, cases, LARGE_RUNS)
    for (dpillar, what), one in zip(drawn_at, runs, strict=True):
        name = f"{label(dpillar.spec)}: {dpillar.servers} servers"
        if what == NONE:
            rows += [one.point(name, f"hops of {mp}", f"{mp.lower()}_hops") for mp in ("SP", "MP")]
            continue
        for lost in routing_failure_points([one], [dpillar.servers])[:-1]:
            paper = LARGE.get((what, lost.series))
            row = replace(lost, series=name, x=f"{what}: lost by {lost.series}, %", paper=paper)
            rows.append(row)
            claims += [] if paper is None else [Claim(row, NEAR_MP)]
            points.append(replace(lost, series=f"{lost.series}, {what}"))
    return Made(
        by_series(points), claims, rows=rows, notes=(*notes(settings, LARGE_RUNS), DIRECTIONS)
    )
