"""Li 2009, Fig. 6 to 9 by every reading of virtual flows (section IV.D).

The text and Algorithm 3 let a virtual flow end in more than one way (`hosts.ficonn.tar.READINGS`).
Each reading is held against all that section V says of the four figures; how near it comes is the
worst of its misses, as a share of the paper's value. The routers take the one that comes nearest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from experiments.reporting.reproduced.result import AGREES, DIFFERS, UNDECIDED, Settings
from experiments.reproductions.ficonn.flows import (
    TAKEN,
    ahead,
    carried,
    longer,
    notes,
    simulated,
)
from experiments.reproductions.shared.figure import Claim, Made, figure, interval
from hosts.ficonn.tar import READINGS


@figure(
    "ficonn-virtual-flows",
    "readings of FiConn's virtual flows, held against four figures (Li 2009)",
    "Readings of FiConn's virtual flows",
    "a virtual flow lasts",
    "as each row says",
    kind="table",
)
def readings(settings: Settings) -> Made:
    """Let flows look for paths by each reading."""
    held = {reading: list(_claims(settings, reading)) for reading in READINGS}
    misses = {reading: max(missed(claim) for claim in held[reading]) for reading in held}
    nearest = min(misses, key=misses.__getitem__)
    reasons = [
        f"{reading}: {_holding(claims)} of {len(claims)} claims hold, and the "
        f"worst is missed by {misses[reading]:.0%} of the paper's value."
        for reading, claims in held.items()
    ]
    reasons.append(f"The routers take the reading {TAKEN!r}; {nearest!r} comes nearest.")
    return Made(
        [claim.row for claims in held.values() for claim in claims],
        rows=(),
        judged=(judged(held), reasons),
        notes=notes(simulated(settings, "random"), settings)[:2],
    )


def _claims(settings: Settings, reading: str) -> Iterator[Claim]:
    random, burst = (simulated(settings, traffic, reading) for traffic in ("random", "burst"))
    of_figures = {
        "Fig. 6": ahead(random),
        "Fig. 7": longer(random, "random"),
        "Fig. 8": carried(burst),
        "Fig. 9": longer(burst, "burst"),
    }
    for name, claims in of_figures.items():
        for claim in claims:
            row = claim.row
            series = f"{name}: {row.series}, {row.x}"
            yield claim._replace(row=replace(row, series=series, x=reading))


def judged(held: Mapping[str, Sequence[Claim]]) -> str:
    """Tell whether the reading taken comes nearest, whatever other draws would bring."""
    ends = {
        reading: [max(end) for end in zip(*map(_between, claims), strict=True)]
        for reading, claims in held.items()
    }
    least, most = ends.pop(TAKEN)
    if all(most <= other for other, _ in ends.values()):
        return AGREES
    return DIFFERS if any(other < least for _, other in ends.values()) else UNDECIDED


def missed(claim: Claim) -> float:
    """Return by what share of the paper's value a claim is missed, 0 where it holds."""
    ours = claim.row.ours
    assert ours is not None
    return _missed(claim, ours)


def _missed(claim: Claim, ours: float) -> float:
    paper = claim.row.paper
    assert paper is not None
    own = claim._replace(row=replace(claim.row, ours=ours, draws=0))
    return 0.0 if own.holds else abs(ours / paper - 1)


def _between(claim: Claim) -> tuple[float, float]:
    """Return by how much a claim is missed at least, and at most."""
    low, high = interval(claim.row)
    ends = sorted(_missed(claim, end) for end in (low, high))
    assert claim.row.paper is not None
    beyond = low <= claim.row.paper <= high  # so that it may be met as well
    return (0.0 if beyond else ends[0]), ends[1]


def _holding(claims: Sequence[Claim]) -> int:
    return sum(claim.holds is True for claim in claims)
