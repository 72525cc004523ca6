"""Verdicts of live figures, and the sentences that explain them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pillarbox.experiments.apps.papers.shared.figure import Judged, verdict
from pillarbox.experiments.apps.papers.shared.figure_rows import Measured
from pillarbox.experiments.apps.papers.shared.quantities import Part
from pillarbox.experiments.runs.reporting.reproduced.result import DIFFERS
from pillarbox.hosts.base.fault_kinds import FAULT_KINDS


def by_claims(measured: Sequence[Measured], _parts: Sequence[Part]) -> Judged:
    """Return the verdict on the claims of the figure's rows."""
    return verdict(claim for one in measured for claim in one.claims)


def shares_of_ideals(measured: Sequence[Measured], parts: Sequence[Part]) -> Judged:
    """Return the verdict on the claims, with each value's share of its ideal."""
    word, reasons = by_claims(measured, parts)
    known = [one.point for one in measured if one.claims and one.point.ours and one.point.ideal]
    shares = [f"{p.x}: {(p.ours or 0) / (p.ideal or 1):.2f} of its ideal" for p in known]
    if known:
        best, worst = (choose(known, key=lambda p: p.ours or 0) for choose in (max, min))
        times = (best.ours or 0) / (worst.ours or 1)
        series = best.series.capitalize()
        shares.append(f"{series}: {best.x} {times:.2f} times {worst.x}.")
    return word, [*reasons, *shares]


def outages(measured: Sequence[Measured], parts: Sequence[Part]) -> Judged:
    """Return the verdict on the claims, with detection, waiting and recovery by fault."""
    word, reasons = by_claims(measured, parts)
    # Texts of the rows, such as "death: stood still for, s", begin with the event's name.
    names = {one.row.event: one.row.x.partition(":")[0] for one in measured if one.row.event}
    (part,) = parts
    sentences = [
        _outage_sentence(part, system, event, name)
        for system in part.systems
        for event, name in names.items()
    ]
    return word, [*reasons, *sentences]


def _outage_sentence(part: Part, system: str, event: str, name: str) -> str:
    events = part.runs[system].events
    happened = events[(events.event == event) & (events.reason == "")]
    found = happened.mean(numeric_only=True).astype(float)
    sentence = f"{system}, {name}: detected after {found.detected_s:.3f} s"
    if not found.stopped_flows:
        return f"{sentence}; no interruption of {part.experiment.workload.interval_s:g} s"
    return (
        f"{sentence}; the connection continued {found.rerouted_s - found.detected_s:.2f} s later, "
        "with TCP's next retransmission, at its former rate after "
        f"{found.recovered_s - found.rerouted_s:.2f} s more"
    )


def all_flows_moved(measured: Sequence[Measured], parts: Sequence[Part]) -> Judged:
    """Return the verdict on the claims; it is "differs" if a stopped flow did not continue.

    Systems in which no fault stopped a flow that had a path are not judged.
    """
    claims = [claim for one in measured for claim in one.claims if one.point.ours is not None]
    word, reasons = verdict(claims)
    stuck = [
        f"{system}, {kind.name} of {row.what}: not all of the {row.stopped_flows} stopped flows "
        "continued"
        for part in parts
        for kind in FAULT_KINDS
        for system, found in part.flow_effects.items()
        for row in found[(found.event == kind.event) & found.rerouted_s.isna()].itertuples()
        if row.stopped_flows > 0
    ]
    return DIFFERS if stuck else word, [*reasons, *stuck]


VERDICTS: dict[str, Callable[[Sequence[Measured], Sequence[Part]], Judged]] = {
    "claims": by_claims,
    "shares of ideals": shares_of_ideals,
    "outages": outages,
    "all flows moved": all_flows_moved,
}
