"""Guo 2008, Theorem 5: distribution of all-to-all traffic over the levels of a DCell's links.

Every server sends one flow to every other by DCellRouting. The theorem: a link of level i has fewer
than 2^(k-i) t_k flows. Level 0 are the links between servers and mini-switches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy

from pillarbox.experiments.apps.papers.shared.draws import task_results
from pillarbox.experiments.apps.papers.shared.figure import Claim, Made, figure, quoted
from pillarbox.experiments.models.arrays import Ints
from pillarbox.experiments.models.fluid.directed_links import link_count
from pillarbox.experiments.models.fluid.rates import link_loads
from pillarbox.experiments.models.simulator.paths import routes
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.experiments.runs.trials.statistics import estimate
from pillarbox.topos.base.spec import parse
from pillarbox.topos.dcell import DCell

# Number of servers that send to all others, by network; 0 for all servers.
NETWORKS = {"dcell,4,2": 0, "dcell,6,2": 0, "dcell,2,3": 0, "dcell,4,3": 16, "dcell,6,3": 4}
QUICK_NETWORKS = {"dcell,4,2": 0, "dcell,2,2": 0, "dcell,3,3": 4}
FLOWS = 1 << 18  # number of flows simulated per block
LESS = 1e-9  # relative margin for "less than" in the theorem's bound
RATIO = "fullest over emptiest"
BY_LEVEL, BY_RATIO = (
    quoted(sentence, f"Guo 2008, {section}")
    for sentence, section in (
        (
            "The number of flows carried on a level-i link is less than t_k 2^(k-i) when using "
            "DCellRouting.",
            "Theorem 5",
        ),
        (
            "the difference among the number of flows at different levels is bounded by a small "
            "constant (e.g., 2^3 = 8)",
            "4.1.2",
        ),
    )
)


class Theorem5Task(NamedTuple):
    """A DCell, and the number of servers that send to all others."""

    network: str
    senders: int
    seed: int


class LevelLoads(NamedTuple):
    """Flows on a DCell's links by level: minimum, mean and maximum.

    For random senders, `least` and `most` are the mean's confidence interval, and `draws` their
    number.
    """

    least: list[float]
    mean: list[float]
    most: list[float]
    draws: int = 0


@figure(
    "dcell-theorem5",
    "flows on the links of each level under all-to-all traffic (Guo 2008, Theorem 5)",
    "All-to-all traffic by level of links",
    "level of the link",
    "flows on a link, for each server",
    log_y=True,
)
def theorem5(settings: Settings) -> Made:
    """Check Guo 2008, Theorem 5: count the flows on the links of each level in all networks."""
    networks = QUICK_NETWORKS if settings.quick else NETWORKS
    tasks = [Theorem5Task(network, count, settings.seed) for network, count in networks.items()]
    points: list[Point] = []
    rows: list[Point] = []
    for task, found in zip(tasks, task_results(settings, measure, tasks), strict=True):
        dcell = _dcell(task.network)
        points += _relative_points(dcell, LevelLoads(*found))
        rows += _table_rows(dcell, LevelLoads(*found))
    claims = [
        Claim(
            row,
            -LESS * (row.paper or 0.0),
            at_most=True,
            sentence=BY_RATIO if row.x == RATIO else BY_LEVEL,
        )
        for row in rows
    ]
    return Made(points, claims, notes=_notes(networks, settings))


def measure(task: Theorem5Task) -> LevelLoads:
    """Count the flows per link level from every server, or from some servers, to all others."""
    dcell = _dcell(task.network)
    return (
        _loads_of_sample(dcell, task.senders, task.seed) if task.senders else _loads_of_all(dcell)
    )


def _loads_of_all(dcell: DCell) -> LevelLoads:
    """Count the all-to-all flows on every link of a DCell."""
    loads = numpy.zeros(link_count(dcell))
    for sources, destinations in _flow_blocks(dcell, numpy.arange(dcell.servers)):
        loads += link_loads(routes(dcell, "dcell", sources, destinations), None, len(loads))
    # A server's port number is its link's level. Links from switches have level 0.
    of_servers, of_switches = numpy.split(loads, [dcell.servers * dcell.ports])
    levels = list(of_servers.reshape(-1, dcell.ports).T)
    levels[0] = numpy.concatenate([levels[0], of_switches])
    ends = (numpy.min, numpy.mean, numpy.max)
    least, mean, most = ([float(of(level)) for level in levels] for of in ends)
    return LevelLoads(least, mean, most)


def _loads_of_sample(dcell: DCell, senders: int, seed: int) -> LevelLoads:
    """Estimate flows per link from some senders; each server has one link of every level."""
    random = numpy.random.default_rng(seed)
    taken = []
    for sender in random.choice(dcell.servers, senders, replace=False):
        own = numpy.zeros(dcell.ports)
        for ends in _flow_blocks(dcell, numpy.array([sender])):
            links = routes(dcell, "dcell", *ends).links
            of_servers = links[links < dcell.servers * dcell.ports]
            own += numpy.bincount(of_servers % dcell.ports, minlength=dcell.ports)
        taken.append(own)
    levels = [estimate(level) for level in numpy.transpose(taken)]
    least, mean, most = ([getattr(one, end) for one in levels] for end in ("low", "value", "high"))
    return LevelLoads(least, mean, most, senders)


def _flow_blocks(dcell: DCell, senders: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield blocks of flows from these servers to all others."""
    every = numpy.arange(dcell.servers)
    at_once = max(1, FLOWS // dcell.servers)
    for first in range(0, len(senders), at_once):
        some = senders[first : first + at_once]
        sources, destinations = numpy.repeat(some, len(every)), numpy.tile(every, len(some))
        different = sources != destinations
        ends = sources[different], destinations[different]
        for start in range(0, len(ends[0]), FLOWS):
            part = slice(start, start + FLOWS)
            yield ends[0][part], ends[1][part]


def _dcell(spec: str) -> DCell:
    found = parse(spec)
    assert isinstance(found, DCell)
    return found


def _flow_bound(dcell: DCell, level: int) -> int:
    """Return the theorem's upper bound of flows on a link of a level, 2^(k-i) t_k."""
    return dcell.servers << (dcell.k - level)


def _relative_points(dcell: DCell, found: LevelLoads) -> list[Point]:
    """Return a DCell's curve of the figure: flows per link level, divided by its servers."""
    return [
        Point(
            dcell.spec,
            level,
            found.mean[level] / dcell.servers,
            _flow_bound(dcell, level) / dcell.servers,
            found.least[level] / dcell.servers,
            found.most[level] / dcell.servers,
            draws=found.draws,
        )
        for level in range(dcell.ports)
    ]


def _table_rows(dcell: DCell, found: LevelLoads) -> list[Point]:
    """Return the flows on the fullest link of each level, and the ratio of fullest to emptiest."""
    rows = [
        Point(dcell.spec, f"level {level}", most, _flow_bound(dcell, level))
        for level, most in enumerate(found.most)
    ]
    if found.draws:
        between = zip(rows, found.mean, found.least, strict=True)
        rows = [
            replace(row, ours=mean, low=least, high=row.ours, draws=found.draws)
            for row, mean, least in between
        ]
    ratio = max(found.most) / min(found.least)
    return [*rows, Point(dcell.spec, RATIO, ratio, 2**dcell.k)]


def _notes(networks: dict[str, int], settings: Settings) -> tuple[str, ...]:
    whole = [spec for spec, senders in networks.items() if not senders]
    some = [f"{spec} ({senders})" for spec, senders in networks.items() if senders]
    return (
        f"{', '.join(whole)}: all flows are counted, and each level's maximum link load is given. "
        f"{', '.join(some)}: the number in brackets is that of random senders, seed "
        f"{settings.seed}; the mean link load of each level is given.",
        "The paper's numbers are upper bounds. Fullest over emptiest: of all links; the paper "
        "gives 2^k as the largest difference between levels.",
    )
