"""DFR and shortest paths around failures: Guo 2008, Fig. 7-9 and Table 2.

Each run draws new failures, and working servers as sources. Shortest paths (SPF, which knows every
failure) go to all servers, DFR's packets to a sample of them. A failed destination counts as a path
failure of both, as in the paper.

The paper does not give DFR's retry count in its simulations. Its header has four bits for it, and
its implementation starts with 5 (section 7.1). It matters only at high failure ratios; there the
paper's numbers result from the maximum that the header holds. `readings.py` compares both counts,
and two readings of the nearest proxy.

The figures' curves are not printed as numbers; the claims here are from sections 6.1 and 6.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import sub

import numpy

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
    interval,
    largest_point,
    point,
    quoted,
    smallest_point,
    with_paper_values,
)
from pillarbox.experiments.models.arrays import Ints
from pillarbox.experiments.models.simulator import compiled_dfr
from pillarbox.experiments.models.simulator.breadth_first import distances, mean_and_deviation
from pillarbox.experiments.models.simulator.failure_sets import draw
from pillarbox.experiments.models.simulator.hops import count_hops
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.hosts.dcell.dfr import RETRY, TTL
from pillarbox.topos.base.spec import parse
from pillarbox.topos.dcell import DCell

MOST_RETRIES = 15  # maximum retry count of a 4-bit header field
# Results vary more with the drawn failures and sources than with the destinations.
RUNS, QUICK_RUNS = 6, 3
SOURCES, DESTINATIONS = 64, 250  # number of DFR's sources per run, and of destinations per source
# Section 6.1: DCell_3 of 176,820 and 865,830 servers.
NETWORKS = {"n = 4": "dcell,4,3", "n = 5": "dcell,5,3"}
PERCENT, QUICK_PERCENT = range(2, 21, 2), (4, 8, 20)
SERVERS, RACKS, CABLES = "servers", "racks", "cables"  # kinds of failure


@seeded_task_function
def measure(spec: str, kind: str, share: float, random: numpy.random.Generator) -> Found:
    """Send packets around failures; DFR's nearest proxies are those with the fewest hops."""
    return simulate_failures(spec, kind, share, random, by_uid=False)


def simulate_failures(
    spec: str, kind: str, share: float, random: numpy.random.Generator, *, by_uid: bool
) -> Found:
    """Draw failures and send packets around them; return percentages lost, and hops of the others.

    `by_uid` is the reading of DFR's nearest proxy (`compiled_dfr.fill`). `few_lost` and `few_hops`
    are DFR's with the implementation's retry count, `own_spf_lost` is the loss of shortest paths
    from the same sources as DFR's. A single disconnected source among them is 1.6 %, so `spf_lost`
    counts all sources: all but a few working servers reach one another, and each of these knows the
    size of the connected part.
    """
    dcell = parse(spec)
    assert isinstance(dcell, DCell)
    # A rack is a DCell_1, of which all servers and links fail.
    broken = draw(dcell, random, rack_servers=dcell.unit, **{kind: share})
    works = broken.works(dcell)
    sources = random.choice(numpy.flatnonzero(~broken.servers), SOURCES, replace=False)
    counts = distances(dcell, sources, works)
    ends = numpy.repeat(sources, DESTINATIONS), _random_destinations(dcell, sources, random)
    up = ~broken.servers[ends[1]]
    often: list[Ints] = []
    hops = count_hops(
        compiled_dfr.fill(dcell, works, retry=MOST_RETRIES, rerouted=often, by_uid=by_uid),
        TTL,
        *(end[up] for end in ends),
    )
    lost = hops == 0
    # Packets to failed servers are counted as lost; only those to working ones are simulated.
    failed = float(broken.servers.sum()) / (dcell.servers - 1)
    with_few = lost | (numpy.concatenate(often) >= RETRY)
    many_lost, few_lost = (
        failed + (1 - failed) * float(which.mean()) for which in (lost, with_few)
    )
    together, all_up = int(counts.sum(axis=1).max()), int((~broken.servers).sum())
    own_reached, reached = float(counts[:, 1:].sum()) / SOURCES, together * (together - 1) / all_up
    return {
        "spf_lost": (1 - reached / (dcell.servers - 1)) * 100,
        "own_spf_lost": (1 - own_reached / (dcell.servers - 1)) * 100,
        "spf_hops": mean_and_deviation(counts)[0],
        "dfr_lost": many_lost * 100,
        "dfr_hops": float(hops[~lost].mean()),
        "dfr_deviation": float(hops[~lost].std()),
        "few_lost": few_lost * 100,
        "few_hops": float(hops[~with_few].mean()),
    }


def _random_destinations(
    dcell: DCell, sources: numpy.ndarray, random: numpy.random.Generator
) -> numpy.ndarray:
    """Return random destination servers for each source, never the source itself."""
    destinations = random.integers(0, dcell.servers - 1, (len(sources), DESTINATIONS))
    return (destinations + (destinations >= sources[:, None])).ravel()


def runs_of(settings: Settings, cases: Iterable[tuple[str, str, float]]) -> list[Runs]:
    """Simulate each case (network, kind of failure, failed share); return the runs by case."""
    return simulation_runs(
        settings, measure, cases, simulation_run_count(settings, RUNS, QUICK_RUNS)
    )


def path_failure_points(runs: Runs, x: float, label: str) -> list[Point]:
    """Return path failure ratios in percent: of DFR, and the minimum of any routing (SPF)."""
    return [runs.point(f"{name.upper()}, {label}", x, f"{name}_lost") for name in ("dfr", "spf")]


def notes(settings: Settings, runs: Iterable[Runs]) -> tuple[str, ...]:
    """Return the figures' notes on runs, sources, destinations and DFR's retry count."""
    return (
        drawn_note(settings, len(next(iter(runs)).found)),
        f"In each run {SOURCES} random working servers send: shortest paths to all servers, DFR's "
        f"packets to {DESTINATIONS} random ones each. A failed destination is a path failure. DFR "
        f"has link states inside DCell_1 and a retry count of {MOST_RETRIES}, the maximum of the "
        "header's four bits. The paper does not give the count of its simulation; its "
        f"implementation begins with {RETRY}, which loses more packets at high failure ratios.",
    )


# -- Fig. 7 and 8: by failed share -----------------------------------------------------------------


ByShare = dict[tuple[str, int], Runs]  # runs by network and failed percentage


def path_failures_by_share(
    settings: Settings, kind: str, papers: Papers
) -> tuple[ByShare, list[Point]]:
    """Return the runs, and DFR's and SPF's path failure ratios, by failed percentage."""
    networks = dict([*NETWORKS.items()][: 1 if settings.quick else None])
    labels = {spec: label for label, spec in networks.items()}
    percents = QUICK_PERCENT if settings.quick else PERCENT
    runs = runs_of(settings, [(spec, kind, p / 100) for spec in labels for p in percents])
    points, by_share = [], {}
    for one in runs:
        spec, _, share = one.case
        x, label = round(share * 100), labels[spec]
        by_share[label, x] = one
        points += path_failure_points(one, x, label)
        if label == next(iter(networks)):
            points.append(one.point(f"DFR, {label}, retries {RETRY}", x, "few_lost"))
    return by_share, with_paper_values(by_series(points), papers)


def _excess_claim(runs: ByShare, percent: int, near: float, sentence: str) -> Claim:
    """Claim that DFR's failure ratio exceeds that of shortest paths by at most `near`."""
    one = runs["n = 4", percent]
    above = values_by_run(sub, (one, "dfr_lost"), (one, "own_spf_lost"))
    row = point("DFR above SPF, n = 4", percent, above, 0.0)
    return Claim(row, near, sentence=quoted(sentence, FULL))


FULL, PARTIAL = "Guo 2008, 6.1", "Guo 2008, 6.2"  # sections on full and partly built DCells
# Section 6.1, in percent: DFR's ratio at 20 % for n = 4, and that of any routing.
FIG7: Papers = {("DFR, n = 4", 20): 22.3, ("SPF, n = 4", 20): 20.0}
NEAR = {"DFR, n = 4": 1.0, "SPF, n = 4": 0.1}  # tolerance as a percentage of all packets
ALMOST_THE_SAME = 0.5  # tolerance in percent, below 10 % of failures


@figure(
    "dcell-fig7",
    "path failures of DFR and shortest paths while servers fail (Guo 2008)",
    "Path failures in a DCell_3 while servers fail",
    "failed servers, %",
    "path failure ratio, %",
)
def fig7(settings: Settings) -> Made:
    """Reproduce Guo 2008, Fig. 7: fail servers of both DCells; with a larger n DFR loses less."""
    runs, points = path_failures_by_share(settings, SERVERS, FIG7)
    claims = [Claim(find(points, *key), NEAR[key[0]]) for key in FIG7]
    claims.append(_excess_claim(runs, 8, ALMOST_THE_SAME, "DFR performs almost identical to SPF."))
    if ("n = 5", 20) in runs:
        larger, smaller = ((runs[label, 20], "dfr_lost") for label in ("n = 5", "n = 4"))
        row = point("DFR, n = 5 above n = 4", 20, values_by_run(sub, larger, smaller), 0.0)
        better = quoted("DFR performs even better as n gets larger.", FULL)
        claims.append(Claim(row, 0.0, at_most=True, sentence=better))
    return Made(points, claims, notes=notes(settings, runs.values()))


FIG8: Papers = {("SPF, n = 4", 20): 0.0}  # section 6.1: shortest paths almost never fail
ALMOST_NONE, VERY_CLOSE = 0.5, 1.0  # tolerances in percent; the latter below 5 % of failures


@figure(
    "dcell-fig8",
    "path failures of DFR and shortest paths while links fail (Guo 2008)",
    "Path failures in a DCell_3 while links fail",
    "failed links, %",
    "path failure ratio, %",
)
def fig8(settings: Settings) -> Made:
    """Reproduce Guo 2008, Fig. 8: fail cables of both DCells, those to switches included."""
    runs, points = path_failures_by_share(settings, CABLES, FIG8)
    almost_none = quoted("the path failure ratio of SPF is almost 0", FULL)
    claims = [Claim(find(points, *key), ALMOST_NONE, sentence=almost_none) for key in FIG8]
    claims.append(
        _excess_claim(runs, 4, VERY_CLOSE, "the performance of DFR is still very close to SPF")
    )
    all_links = "Links between servers and switches can fail too."
    return Made(points, claims, notes=(*notes(settings, runs.values()), all_links))


# -- Fig. 9: in a DCell_3 of n = 6 that AddDCell has partly built ----------------------------------

FIG9_NETWORK, FIG9_QUICK_NETWORK = "dcell,6,3", "dcell,4,3"
DEPLOYED, QUICK_DEPLOYED = (10, 20, 40, 60, 80, 100), (10, 50, 100)
# In the smallest part losses are largest, and draws of racks and links vary most: with a third as
# many runs, one seed in twenty would leave open whether the bound is kept.
FIG9_SHARE, FIG9_RUNS, FIG9_WORST_RUNS = 0.05, 5, 60
FIG9_NAMES = {SERVERS: "nodes", RACKS: "racks", CABLES: "links"}
# Section 6.2, in percent: an upper bound of DFR's ratio, and shortest paths' ratio.
FIG9 = {"nodes": (6.0, 5.0), "racks": (6.0, 5.0), "links": (0.9, 0.0)}
FIG9_NEAR = 0.1
FIG9_SENTENCE = quoted(
    "DFR has its path failure ratios smaller than 0.9% under link failures, and smaller than 6% "
    "under node and rack failures, respectively.",
    PARTIAL,
)
NEAREST = (
    "Of equally near proxies DFR takes the one with the lowest uid, which the paper leaves open. "
    "In small deployments, with upper ports first, packets circle through the same racks, and 9 % "
    "are lost if 5 % of the racks fail."
)


@figure(
    "dcell-fig9",
    "path failures in a partly built DCell (Guo 2008)",
    "Path failures in a partial DCell, 5 % failed",
    "servers deployed, %",
    "path failure ratio, %",
)
def fig9(settings: Settings) -> Made:
    """Reproduce Guo 2008, Fig. 9: fail servers, racks and cables of partly built DCells."""
    whole = parse(FIG9_QUICK_NETWORK if settings.quick else FIG9_NETWORK)
    assert isinstance(whole, DCell)
    shares = QUICK_DEPLOYED if settings.quick else DEPLOYED
    deployed = {partial_dcell_spec(whole, percent): percent for percent in shares}
    cases = [(spec, kind, FIG9_SHARE) for spec in deployed for kind in FIG9_NAMES]
    counts = [
        simulation_run_count(
            settings, FIG9_WORST_RUNS if _varies_most(case, deployed) else FIG9_RUNS, QUICK_RUNS
        )
        for case in cases
    ]
    runs = simulation_runs(settings, measure, cases, counts)
    points = by_series(
        point
        for one in runs
        for point in path_failure_points(one, deployed[one.case[0]], FIG9_NAMES[one.case[1]])
    )
    claims = [claim for name in FIG9_NAMES.values() for claim in _fig9_claims(points, name)]
    title = f"Path failures in a partial {whole.spec}, 5 % failed"
    how = f"Racks and links of the smallest part: {max(counts)} runs. Bounds have no tolerance."
    return Made(points, claims, notes=(*notes(settings, runs), how, NEAREST), title=title)


def _varies_most(case: tuple[str, str, float], deployed: Mapping[str, int]) -> bool:
    spec, kind, _ = case
    return kind in (RACKS, CABLES) and deployed[spec] == min(deployed.values())


def partial_dcell_spec(whole: DCell, percent: int) -> str:
    """Return the partial network of that percentage, in whole DCell_1s, as AddDCell builds it."""
    if percent == 100:
        return whole.spec
    units = round(whole.servers // whole.unit * percent / 100)
    return f"{whole.spec},servers={units * whole.unit}"


def _fig9_claims(points: list[Point], name: str) -> list[Claim]:
    """Return the paper's claims on one kind of failure in a partly built DCell."""
    most, least = FIG9[name]
    dfr, spf = (
        [point for point in points if point.series == f"{routing}, {name}"]
        for routing in ("DFR", "SPF")
    )
    return [
        Claim(
            replace(deciding_point(dfr, most), x="most", paper=most),
            at_most=True,
            sentence=FIG9_SENTENCE,
        ),
        Claim(replace(largest_point(spf), x="most", paper=least), FIG9_NEAR),
        Claim(replace(smallest_point(spf), x="least", paper=least), FIG9_NEAR),
    ]


def deciding_point(points: list[Point], most: float) -> Point:
    """Return the point that decides an upper bound: one significantly above it, or the highest.

    The largest mean alone would often be that of the widest confidence interval.
    """
    low = max(points, key=lambda point: interval(point)[0])
    return low if interval(low)[0] > most else max(points, key=lambda point: interval(point)[1])


# -- Table 2: path lengths around failures, n = 4 --------------------------------------------------

TABLE2_NETWORK = NETWORKS["n = 4"]
TABLE2_PERCENT = (2, 4, 8, 12, 20)
TABLE2_NAMES = {SERVERS: "node", RACKS: "rack", CABLES: "link"}
# By kind of failure: DFR's and SPF's mean hops at these percentages.
TABLE2 = {
    "node": ((11.60, 12.00, 12.78, 13.60, 16.05), (10.00, 10.16, 10.32, 10.50, 11.01)),
    "rack": ((11.37, 11.55, 11.74, 11.96, 12.50), (10.00, 10.01, 10.09, 10.14, 10.32)),
    "link": ((11.72, 12.40, 13.73, 14.97, 17.90), (10.14, 10.26, 10.55, 10.91, 11.55)),
}
NEAR_HOPS = 0.3
# Where most links fail, DFR's lengths vary most between draws, and differ most from the paper's.
TABLE2_RUNS, TABLE2_WIDEST = 160, (CABLES, TABLE2_PERCENT[-1])
# maximum standard deviation of DFR's lengths, up to 20 % of failures (section 6.1)
MOST_DEVIATION = 5.0


@figure(
    "dcell-table2",
    "path lengths of DFR and shortest paths around failures (Guo 2008)",
    "Average path lengths in a DCell_3, n = 4",
    "failed, %",
    "hops",
    kind="table",
)
def table2(settings: Settings) -> Made:
    """Reproduce Guo 2008, Table 2: path lengths with failed servers, racks and cables."""
    cases = [(kind, percent) for kind in TABLE2_NAMES for percent in TABLE2_PERCENT]
    counts = [
        simulation_run_count(settings, TABLE2_RUNS if case == TABLE2_WIDEST else RUNS, QUICK_RUNS)
        for case in cases
    ]
    tasks = [(TABLE2_NETWORK, kind, percent / 100) for kind, percent in cases]
    runs = simulation_runs(settings, measure, tasks, counts)
    points = []
    for (kind, percent), one in zip(cases, runs, strict=True):
        name, at = TABLE2_NAMES[kind], TABLE2_PERCENT.index(percent)
        for routing, papers in zip(("DFR", "SPF"), TABLE2[name], strict=True):
            what = f"{name} failures, {routing}", percent, f"{routing.lower()}_hops"
            points.append(one.point(*what, papers[at]))
    worst = runs[cases.index((SERVERS, TABLE2_PERCENT[-1]))]
    spread = worst.point(
        "node failures, DFR's deviation", TABLE2_PERCENT[-1], "dfr_deviation", MOST_DEVIATION
    )
    points = by_series(points)
    less = quoted("the standard deviation is still less than 5", FULL)
    claims = [
        *(Claim(row, NEAR_HOPS) for row in points),
        Claim(spread, 0.0, at_most=True, sentence=less),
    ]
    kind, percent = TABLE2_WIDEST
    near = (
        f"Agreement is within {NEAR_HOPS} hops. With {percent} % of the {TABLE2_NAMES[kind]}s "
        f"failed: {max(counts)} runs."
    )
    return Made([*points, spread], claims, rows=(), notes=(*notes(settings, runs), near))
