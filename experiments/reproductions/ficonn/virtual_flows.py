"""Li 2009, Fig. 6 to 9 by every reading of virtual flows (section IV.D).

The text and Algorithm 3 let a virtual flow end in more than one way (`hosts.ficonn.tar.READINGS`).
Each reading is held against all that section V says of the four figures; how near it comes is the
worst of its misses, as a share of the paper's value. The routers take the one that comes nearest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from experiments.reporting.reproduced.result import AGREES, DIFFERS, Settings
from experiments.reproductions.ficonn.flows import (
    TAKEN,
    ahead,
    carried,
    longer,
    notes,
    simulated,
)
from experiments.reproductions.shared.figure import Claim, Made, figure
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
    misses = {reading: max(map(missed, claims)) for reading, claims in held.items()}
    nearest = min(misses, key=misses.__getitem__)
    reasons = [
        f"{reading}: {sum(claim.holds for claim in claims)} of {len(claims)} claims hold, and the "
        f"worst is missed by {misses[reading]:.0%} of the paper's value."
        for reading, claims in held.items()
    ]
    reasons.append(f"The routers take the reading {TAKEN!r}; {nearest!r} comes nearest.")
    return Made(
        [claim.row for claims in held.values() for claim in claims],
        rows=(),
        judged=(AGREES if nearest == TAKEN else DIFFERS, reasons),
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


def missed(claim: Claim) -> float:
    """Return by what share of the paper's value a claim is missed, 0 where it holds."""
    assert claim.row.ours is not None and claim.row.paper is not None
    return 0.0 if claim.holds else abs(claim.row.ours / claim.row.paper - 1)
