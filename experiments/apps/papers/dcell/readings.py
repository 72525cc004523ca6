"""Guo 2008, Fig. 7 to 9 and Table 2 by every reading of DFR (section 4.3).

Of the servers that have a link of the preferred level, DFR chooses as proxy "the closest one to
self.uid": the one with the fewest hops, or with the numerically nearest uid. The retry count of the
simulations is not given: the implementation's 5, or up to 15, which the header holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import sub
from typing import NamedTuple

import numpy

from pillarbox.experiments.apps.papers.dcell import failures
from pillarbox.experiments.apps.papers.dcell.failures import CABLES, MOST_RETRIES, RACKS, SERVERS
from pillarbox.experiments.apps.papers.shared.draws import (
    Found,
    Runs,
    seeded_task_function,
    simulation_run_count,
    simulation_runs,
    values_by_run,
)
from pillarbox.experiments.apps.papers.shared.figure import Claim, Made, figure, point
from pillarbox.experiments.apps.papers.shared.joint_table import ClaimsByFigure, joint_table
from pillarbox.experiments.runs.reporting.reproduced.result import Settings
from pillarbox.hosts.dcell.dfr import RETRY
from pillarbox.topos.base.spec import parse
from pillarbox.topos.dcell import DCell


class Reading(NamedTuple):
    """An interpretation of DFR: how near a proxy is, and the retry count."""

    by_uid: bool
    lost: str  # result of `simulate_failures`: packets lost
    hops: str  # result of `simulate_failures`: mean hops of the others


READINGS = {
    f"{name}, retries {retries}": Reading(by_uid, f"{count}_lost", f"{count}_hops")
    for name, by_uid in (("fewest hops", False), ("nearest uid", True))
    for retries, count in ((MOST_RETRIES, "dfr"), (RETRY, "few"))
}
TAKEN = f"fewest hops, retries {MOST_RETRIES}"
PERCENT = (2, 20)  # failed shares of Table 2
FIG9_RUNS = 20  # number of runs in the smallest part, where results vary most
LIVE = (
    f"The servers' DFR uses the fewest hops, and the implementation's retry count, {RETRY}. With "
    "the nearest uid, packets would make detours inside their DCell_1."
)

Case = tuple[str, str, float]  # network, kind of failure, failed share


@seeded_task_function
def measure_by_uid(spec: str, kind: str, share: float, random: numpy.random.Generator) -> Found:
    """Send packets around failures; DFR's nearest proxies are those with the nearest uid."""
    return failures.simulate_failures(spec, kind, share, random, by_uid=True)


@figure(
    "dcell-readings",
    "readings of DFR's nearest proxy and retry count, three figures and a table (Guo 2008)",
    "Interpretations of DFR",
    "nearest proxy, retry count",
    "as each row says",
    kind="table",
)
def readings(settings: Settings) -> Made:
    """Compare all readings of DFR with the claims on Fig. 7 to 9 and Table 2."""
    name = failures.FIG9_QUICK_NETWORK if settings.quick else failures.FIG9_NETWORK
    whole = parse(name)
    assert isinstance(whole, DCell)
    partial = failures.partial_dcell_spec(whole, failures.DEPLOYED[0])
    spec = failures.TABLE2_NETWORK
    cases: list[Case] = [
        *((spec, kind, percent / 100) for kind in failures.TABLE2_NAMES for percent in PERCENT),
        (spec, SERVERS, 0.08),
        (spec, CABLES, 0.04),
        *((partial, kind, failures.FIG9_SHARE) for kind in failures.FIG9_NAMES),
    ]
    quick = failures.QUICK_RUNS
    counts = [
        simulation_run_count(settings, FIG9_RUNS if case[0] == partial else failures.RUNS, quick)
        for case in cases
    ]
    by_uid = {
        by_uid: {run.case: run for run in simulation_runs(settings, measure, cases, counts)}
        for by_uid, measure in ((False, failures.measure), (True, measure_by_uid))
    }
    notes = failures.notes(settings, by_uid[False].values())[:1]
    deployed = f"Fig. 9: {partial}, the smallest part, where DFR loses most."
    return joint_table(
        {name: _claims(one, by_uid[one.by_uid], partial) for name, one in READINGS.items()},
        TAKEN,
        (*notes, deployed),
        [LIVE],
    )


def _claims(reading: Reading, runs: dict[Case, Runs], partial: str) -> ClaimsByFigure:
    spec = failures.TABLE2_NETWORK

    def above(kind: str, percent: int, near: float) -> Claim:
        one = runs[spec, kind, percent / 100]
        values = values_by_run(sub, (one, reading.lost), (one, "own_spf_lost"))
        return Claim(point("lost above SPF, %", f"{percent} % of {kind}", values, 0.0), near)

    def table2() -> Iterator[Claim]:
        for kind, name in failures.TABLE2_NAMES.items():
            for percent in PERCENT:
                paper = failures.TABLE2[name][0][failures.TABLE2_PERCENT.index(percent)]
                values = runs[spec, kind, percent / 100].values(reading.hops)
                row = point("hops", f"{percent} % of {kind}", values, paper)
                yield Claim(row, failures.NEAR_HOPS)

    key = "DFR, n = 4"
    lost = runs[spec, SERVERS, 0.2].values(reading.lost)
    at_most = {
        kind: point(
            "lost, %",
            f"5 % of {kind}",
            runs[partial, kind, failures.FIG9_SHARE].values(reading.lost),
            failures.FIG9[name][0],
        )
        for kind, name in failures.FIG9_NAMES.items()
    }
    return {
        "Fig. 7": [
            Claim(
                point("lost, %", f"20 % of {SERVERS}", lost, failures.FIG7[key, 20]),
                failures.NEAR[key],
            ),
            above(SERVERS, 8, failures.ALMOST_THE_SAME),
        ],
        "Fig. 8": [above(CABLES, 4, failures.VERY_CLOSE)],
        "Fig. 9": [Claim(at_most[kind], 0.0, at_most=True) for kind in (SERVERS, RACKS, CABLES)],
        "Table 2": list(table2()),
    }
