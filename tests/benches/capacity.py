"""Largest cable rate with valid trials for each network, and the CPU time per Mbit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING

from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.spec import parse
from tests.benches._frame import Row

if TYPE_CHECKING:
    from pillarbox.experiments.runs.trials.greedy import Tried

NETWORKS = ("bcube,4,1", "dcell,4,1", "ficonn,4,2", "dpillar,4,3", "tree,4,4")
QUICK_NETWORKS = ("bcube,2,1", "tree,2,2")
MTUS, QUICK_MTUS = (1500, 9000), (9000,)
LEAST_OF_IDEAL = 0.9
VALID = 3  # valid trials required at the largest cable rate
START_MBIT = 1000.0
# Builders of a network, each with the tool that sends its flows and the program of a trial.
OURS, STOCK = "pillarbox", "mininet"
BUILDERS = {OURS: ("generator", ""), STOCK: ("iperf3", "tests.benches._stock")}
# Goals for a machine with two processors: rate per cable in Mbit/s, by network and MTU.
GOALS = {("bcube,4,1", 1500): 100.0, ("bcube,4,1", 9000): 400.0}
# Flows send until each, at its fair share, has carried as much as a cable carries in SECONDS: the
# 1.5 MB of `run all-to-all` at 100 Mbit/s. With 2,256 flows, each flow sends a packet every 10 ms.
# Flows need this time to converge to their shares. Fixed-size flows, with their start and
# end, are another case. LEAST_S, in seconds, is long compared with the start of the flows.
SECONDS, LEAST_S = 0.12, 6.0
QUICK_S, QUICK_MBIT = 0.6, 10.0
NOTES = f"""
All-to-all, greedy flows: until each could carry {SECONDS:.2f} s of a cable's rate, at least
{LEAST_S:.0f} s. Fast timers; all other settings are the defaults of `run`.
rate_mbit: the largest rate of the cables at which three trials are valid (docs/trust.md) and carry
at least {LEAST_OF_IDEAL:.0%} of their ideal, with at most one failed trial in between. Rates are 1,
2, 3, 5, 7, 10 ... {START_MBIT:.0f} Mbit/s, tried from above. The other columns are means of these
trials: goodput_mbit of all flows, of_ideal relative to the ideal over the paths in use,
busy_percent of all processors, and us_per_mbit, the processor time for each Mbit on each cable,
headers and acknowledgements included.
In networks whose servers do not relay, the builder mininet is measured too: stock Mininet with
Host, LinuxBridge and TCLink, and iperf3 as the sender.
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each network and MTU."""
    for network in QUICK_NETWORKS if quick else NETWORKS:
        for mtu in QUICK_MTUS if quick else MTUS:
            for builder in BUILDERS if parse(network).ports == 1 else (OURS,):
                if os.geteuid():
                    why = "skipped: network namespaces need root"
                    yield _row(network, mtu, builder, [], outcome=why)
                else:
                    yield _measured(network, mtu, builder, quick)


def _measured(network: str, mtu: int, builder: str, quick: bool) -> Row:
    tries: dict[float, list[Tried]] = {}
    length_s = QUICK_S if quick else _flow_duration_s(network, mtu)
    try_at = partial(_run_trial, tries, network, mtu, builder, length_s)
    if quick:  # a quick run only checks that the benchmark works
        try_at(QUICK_MBIT)
        return _row(network, mtu, builder, tries[QUICK_MBIT], rate_mbit=QUICK_MBIT)
    try:
        rate_mbit = _largest_rate_mbit(try_at)
    except PillarboxError as error:
        return _row(network, mtu, builder, [], outcome=f"failed: {error}")
    goal = GOALS.get((network, mtu), 0.0)
    outcome = "ok" if rate_mbit >= goal else f"missed: {goal:g} Mbit/s wanted"
    believed = [one for one in tries[rate_mbit] if _with_goodput_bound(one).verdict.valid]
    return _row(network, mtu, builder, believed, rate_mbit=rate_mbit, outcome=outcome)


def _largest_rate_mbit(try_at: Callable[[float], Tried]) -> float:
    """Return the largest cable rate with valid trials in Mbit/s; high rates are tried first.

    A binary search is wrong: at low rates, where TCP sends single segments, trials may be worse
    again.
    """
    from pillarbox.experiments.runs.trials.calibration import SCALE_MBIT, confirmed

    def good(rate_mbit: float) -> bool:
        tried = _with_goodput_bound(try_at(rate_mbit))
        reasons.extend(tried.verdict.reasons)
        return tried.verdict.valid

    reasons: list[str] = []
    for rate_mbit in reversed([rate for rate in SCALE_MBIT if rate <= START_MBIT]):
        if confirmed(partial(good, rate_mbit), VALID):
            return rate_mbit
    raise PillarboxError(f"no valid rate; the last reason: {reasons[-1]}")


def _flow_duration_s(network: str, mtu: int) -> float:
    """Return the duration of the flows in seconds, which is equal for all cable rates."""
    from pillarbox.experiments.models.fluid.ideal import ideal
    from pillarbox.experiments.models.workloads.flows import Flow

    topology, rate_bps = parse(network), 1e9
    pairs = enumerate(permutations(range(topology.servers), 2))
    flows = [Flow(number, *pair) for number, pair in pairs]
    mean_bps = float(ideal(topology, "", flows, rate_bps, mtu).goodput_bps.mean())
    return max(LEAST_S, SECONDS * rate_bps / mean_bps)


def _run_trial(
    tries: dict[float, list[Tried]],
    network: str,
    mtu: int,
    builder: str,
    length_s: float,
    rate_mbit: float,
) -> Tried:
    """Run a trial at a cable rate, append the result to `tries`, and return it."""
    from pillarbox.experiments.runs.plans.experiment import System
    from pillarbox.experiments.runs.trials.greedy import all_to_all, tried

    tool, worker = BUILDERS[builder]
    workload = replace(all_to_all(length_s), tool=tool)
    found = tried(System(network, rate_mbit=rate_mbit, mtu=mtu), workload, worker=worker)
    tries.setdefault(rate_mbit, []).append(found)
    return found


def _with_goodput_bound(found: Tried) -> Tried:
    """Return the trial, marked invalid if its goodput is below LEAST_OF_IDEAL of its ideal."""
    of_ideal = found.verdict.figures.get("of_ideal", 0.0)
    if not found.verdict.valid or of_ideal >= LEAST_OF_IDEAL:
        return found
    reason = f"it carried {of_ideal:.0%} of its ideal, less than {LEAST_OF_IDEAL:.0%}"
    return found._replace(verdict=replace(found.verdict, valid=False, reasons=(reason,)))


def _row(
    network: str,
    mtu: int,
    builder: str,
    tries: list[Tried],
    *,
    rate_mbit: float | None = None,
    outcome: str = "ok",
) -> Row:
    def mean(values: list[float]) -> float | None:
        return sum(values) / len(values) if values else None

    figures = [one.verdict.figures for one in tries]
    busy = [1.0 - each["idle"] for each in figures if "idle" in each]
    cpus = os.cpu_count() or 1
    costs = [
        share * cpus * one.verdict.figures["duration_s"] * 1e6 / (one.carried_bits / 1e6)
        for share, one in zip(busy, tries, strict=False)
        if one.carried_bits
    ]
    of_ideal = mean([each["of_ideal"] for each in figures if "of_ideal" in each])
    share = mean(busy)
    return {
        "network": network,
        "mtu": mtu,
        "builder": builder,
        "rate_mbit": rate_mbit,
        "goodput_mbit": mean([one.goodput_bps / 1e6 for one in tries]),
        "of_ideal": of_ideal,
        "busy_percent": None if share is None else 100 * share,
        "us_per_mbit": mean(costs),
        "outcome": outcome,
    }
