"""Li 2009, Fig. 6 to 9 by every reading of virtual flows (section IV.D).

The text and Algorithm 3 allow several ends of a virtual flow (`hosts.ficonn.tar.READINGS`). Each
reading is compared with all claims of section V on the four figures; its distance is the largest
deviation, relative to the paper's value. The routers use the reading with the smallest distance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from experiments.apps.papers.ficonn.flows import (
    TAKEN,
    fig6_claims,
    fig8_claims,
    notes,
    path_length_claims,
    simulate_flow_draws,
)
from experiments.apps.papers.shared.figure import Claim, Made, figure, interval
from experiments.runs.reporting.reproduced.result import AGREES, DIFFERS, UNDECIDED, Settings
from hosts.ficonn.tar import READINGS


@figure(
    "ficonn-virtual-flows",
    "readings of FiConn's virtual flows, held against four figures (Li 2009)",
    "Interpretations of FiConn's virtual flows",
    "a virtual flow lasts",
    "as each row says",
    kind="table",
)
def readings(settings: Settings) -> Made:
    """Compare all readings of FiConn's virtual flows with the claims on Fig. 6 to 9."""
    held = {reading: list(_claims(settings, reading)) for reading in READINGS}
    misses = {
        reading: max(relative_deviation(claim) for claim in held[reading]) for reading in held
    }
    nearest = min(misses, key=misses.__getitem__)
    reasons = [
        f"{reading}: {_held_claim_count(claims)} of {len(claims)} claims hold; "
        f"the largest deviation is {misses[reading]:.0%} of the paper's value."
        for reading, claims in held.items()
    ]
    reasons.append(f"The routers use {TAKEN!r}; {nearest!r} is nearest to the paper.")
    return Made(
        [claim.row for claims in held.values() for claim in claims],
        rows=(),
        judged=(judged(held), reasons),
        notes=notes(simulate_flow_draws(settings, "random"), settings)[:2],
    )


def _claims(settings: Settings, reading: str) -> Iterator[Claim]:
    random, burst = (
        simulate_flow_draws(settings, traffic, reading) for traffic in ("random", "burst")
    )
    of_figures = {
        "Fig. 6": fig6_claims(random),
        "Fig. 7": path_length_claims(random, "random"),
        "Fig. 8": fig8_claims(burst),
        "Fig. 9": path_length_claims(burst, "burst"),
    }
    for name, claims in of_figures.items():
        for claim in claims:
            row = claim.row
            series = f"{name}: {row.series}, {row.x}"
            yield claim._replace(row=replace(row, series=series, x=reading))


def judged(held: Mapping[str, Sequence[Claim]]) -> str:
    """Return the verdict whether our reading of virtual flows agrees best with the paper."""
    ends = {
        reading: [max(end) for end in zip(*map(_deviation_range, claims), strict=True)]
        for reading, claims in held.items()
    }
    least, most = ends.pop(TAKEN)
    if all(most <= other for other, _ in ends.values()):
        return AGREES
    return DIFFERS if any(other < least for _, other in ends.values()) else UNDECIDED


def relative_deviation(claim: Claim) -> float:
    """Return the deviation from a claim, relative to the paper's value; 0 if the claim holds."""
    ours = claim.row.ours
    assert ours is not None
    return _deviation(claim, ours)


def _deviation(claim: Claim, ours: float) -> float:
    paper = claim.row.paper
    assert paper is not None
    own = claim._replace(row=replace(claim.row, ours=ours, draws=0))
    return 0.0 if own.holds else abs(ours / paper - 1)


def _deviation_range(claim: Claim) -> tuple[float, float]:
    """Return the minimum and maximum deviation from a claim within its confidence interval."""
    low, high = interval(claim.row)
    ends = sorted(_deviation(claim, end) for end in (low, high))
    assert claim.row.paper is not None
    # the interval contains the paper's value: the deviation may be 0
    beyond = low <= claim.row.paper <= high
    return (0.0 if beyond else ends[0]), ends[1]


def _held_claim_count(claims: Sequence[Claim]) -> int:
    return sum(claim.holds is True for claim in claims)
