"""Liao 2012, Fig. 8, 11 and 12 by every reading of DPillarMP's paths (sections 4.3 and 5.4).

Algorithm 2 pairs the n/2 neighbours s' of the source with the n/2 neighbours d' of the destination;
footnote 3 permits other pairings. So a routing failure may be that of one pairing's paths, or of
the paths of all pairings, of which a source tries the others if those of the first have failed. The
paths may be those of one direction or of both, and pairs with an end that has no working switch may
be counted or not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from pillarbox.experiments.apps.papers.dpillar import lengths, paths
from pillarbox.experiments.apps.papers.dpillar.paths import lost_with_switches
from pillarbox.experiments.apps.papers.shared.draws import (
    Found,
    Runs,
    seeded_task_function,
    simulation_run_count,
    simulation_runs,
)
from pillarbox.experiments.apps.papers.shared.figure import Claim, Made, figure, point
from pillarbox.experiments.apps.papers.shared.joint_table import ClaimsByFigure, joint_table
from pillarbox.experiments.models.simulator.flow_arrays import random_flows
from pillarbox.experiments.models.simulator.paths import lengths as path_lengths
from pillarbox.experiments.models.simulator.paths import routing_by_name
from pillarbox.experiments.runs.reporting.reproduced.result import Settings


class Reading(NamedTuple):
    """An interpretation of DPillarMP: names of its results in the simulations."""

    lost: str  # pairs without a working path (`paths.measure`)
    hops: str  # routing whose mean path length counts (`measure`)
    ends_have_switches: bool = False  # whether only pairs count whose ends have a working switch


READINGS = {
    "one pairing, clockwise": Reading("mp_lost", "mp"),
    "one pairing, both ways": Reading("both_lost", "mp-both"),
    "one pairing, both ways, ends with a switch": Reading("both_lost", "mp-both", True),
    "any pairing, clockwise": Reading("any_mp_lost", "mp"),
    "any pairing, both ways": Reading("any_lost", "mp-both"),
    "any pairing, both ways, ends with a switch": Reading("any_lost", "mp-both", True),
}
TAKEN = "any pairing, both ways, ends with a switch"
NETWORK_K = 3  # number of columns of `paths.SPEC`
FAILED_SERVERS, FAILED_SWITCHES = (300, 500), 20
LIVE = (
    "The servers' mp-any tries the other pairings if all disjoint paths of both directions have "
    "failed. Fig. 8 as printed, without the repairs of Algorithm 2, is in `dpillar-fig8`."
)


@seeded_task_function
def measure(spec: str, random: numpy.random.Generator) -> Found:
    """Return the mean hops of a random path of random pairs, by routing."""
    dpillar = paths.network(spec)
    ends = random_flows(dpillar.servers, paths.PAIRS, random)
    found = {}
    for name in dict.fromkeys(reading.hops for reading in READINGS.values()):
        choices = routing_by_name(dpillar, name).choices(dpillar)
        number = random.integers(0, choices, len(ends[0]))
        found[name] = float(path_lengths(dpillar, name, *ends, number).mean())
    return found


@figure(
    "dpillar-readings",
    "readings of DPillarMP's pairing and directions, and three figures (Liao 2012)",
    "Interpretations of DPillarMP",
    "paths of a pair",
    "as each row says",
    kind="table",
)
def readings(settings: Settings) -> Made:
    """Compare all readings of DPillarMP with the claims on Fig. 8, 11 and 12."""
    count = simulation_run_count(settings, paths.RUNS, paths.QUICK_RUNS)
    (hops,) = simulation_runs(settings, measure, [(paths.SPEC,)], count)
    cases = [*((paths.SPEC, many, 0) for many in FAILED_SERVERS), (paths.SPEC, 0, FAILED_SWITCHES)]
    failures = paths.runs_of(settings, cases)
    return joint_table(
        {name: _claims(reading, hops, failures) for name, reading in READINGS.items()},
        TAKEN,
        paths.notes(settings),
        [LIVE],
    )


def _claims(reading: Reading, hops: Runs, failures: list[Runs]) -> ClaimsByFigure:
    bound = 2 * NETWORK_K + 1
    below = [(1 - length / bound) * 100 for length in hops.values(reading.hops)]
    shorter = point("below the bound, %", f"k = {NETWORK_K}", below, 25.0)
    lost = [
        point(
            "pairs without a working path, %",
            f"{servers} servers" if servers else f"{switches} switches",
            lost_with_switches(runs, reading.lost)
            if reading.ends_have_switches
            else runs.values(reading.lost),
            paths.FIG11[paths.ANY, servers] if servers else paths.FIG12[paths.ANY, switches],
        )
        for runs in failures
        for _, servers, switches in (runs.case,)
    ]
    of_servers, of_switches = lost[: len(FAILED_SERVERS)], lost[len(FAILED_SERVERS) :]
    return {
        "Fig. 8": [Claim(shorter, lengths.NEAR)],
        "Fig. 11": [Claim(row, paths.NEAR_MP) for row in of_servers],
        "Fig. 12": [Claim(row, paths.NEAR_MP) for row in of_switches],
    }
