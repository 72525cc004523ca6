"""Joint tables: each reading of an ambiguous paper, compared with all claims on its figures.

A reading is one interpretation of a text that allows several. Its distance from the paper is the
largest deviation from any claim, relative to the paper's value. The reading in use agrees with the
paper if no other reading is nearer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pillarbox.experiments.apps.papers.shared.figure import Claim, Judged, Made, interval
from pillarbox.experiments.runs.reporting.reproduced.result import AGREES, DIFFERS, UNDECIDED

ClaimsByFigure = Mapping[str, Sequence[Claim]]  # claims by figure, such as "Fig. 6"


def joint_table(
    by_reading: Mapping[str, ClaimsByFigure],
    taken: str,
    notes: Iterable[str],
    reasons: Sequence[str] = (),
) -> Made:
    """Return the table of all readings and figures: a row for each claim of each reading.

    Parameters
    ----------
    by_reading : mapping
        Claims of each figure, with our values, by reading.
    taken : str
        Reading that the paper's figures use.
    notes, reasons : str
        Sentences on the simulations, and on the reading that is taken.
    """
    held = {
        reading: [
            claim._replace(
                row=replace(claim.row, series=f"{name}: {_label(claim)}", x=reading),
            )
            for name, claims in by_figure.items()
            for claim in claims
        ]
        for reading, by_figure in by_reading.items()
    }
    word, summary = judged(held, taken)
    return Made(
        [claim.row for claims in held.values() for claim in claims],
        rows=(),
        judged=(word, [*summary, *reasons]),
        notes=notes,
    )


def _label(claim: Claim) -> str:
    return f"{claim.row.series}, {claim.row.x}"


def judged(held: Mapping[str, Sequence[Claim]], taken: str) -> Judged:
    """Return the verdict whether the reading in use is nearest, and a sentence on each reading."""
    largest = {
        reading: max(relative_deviation(claim) for claim in claims)
        for reading, claims in held.items()
    }
    reasons = [
        f"{reading}: {sum(claim.holds is True for claim in claims)} of {len(claims)} claims hold; "
        f"the largest deviation is {largest[reading]:.0%} of the paper's value."
        for reading, claims in held.items()
    ]
    nearest = min(largest, key=largest.__getitem__)
    reasons.append(f"The figures use {taken!r}; {nearest!r} is nearest to the paper.")
    ends = {
        reading: [max(end) for end in zip(*map(_deviation_range, claims), strict=True)]
        for reading, claims in held.items()
    }
    least, most = ends.pop(taken)
    if all(most <= other for other, _ in ends.values()):
        return AGREES, reasons
    return DIFFERS if any(other < least for _, other in ends.values()) else UNDECIDED, reasons


def relative_deviation(claim: Claim) -> float:
    """Return the deviation from a claim, relative to the paper's value; 0 if the claim holds."""
    ours = claim.row.ours
    assert ours is not None
    return _deviation(claim, ours)


def _deviation(claim: Claim, ours: float) -> float:
    paper = claim.row.paper
    assert paper is not None
    own = claim._replace(row=replace(claim.row, ours=ours, draws=0))
    # a value that should be 0 is compared with its tolerance
    return 0.0 if own.holds else abs(ours - paper) / (abs(paper) or claim.tolerance or 1.0)


def _deviation_range(claim: Claim) -> tuple[float, float]:
    """Return the minimum and maximum deviation from a claim within its confidence interval."""
    low, high = interval(claim.row)
    ends = sorted(_deviation(claim, end) for end in (low, high))
    assert claim.row.paper is not None
    contains_papers = low <= claim.row.paper <= high  # then the deviation may be 0
    return (0.0 if contains_papers else ends[0]), ends[1]
