"""Late days: submission times, and the points that late submissions lose."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pillarbox.topos.base.errors import PillarboxError, require

DAY_S = 86400.0


@dataclass(frozen=True)
class Deadline:
    """Deadline of a lab; each day after it, also a partial day, costs a percentage of the points.

    The submission time is a file's modification time, unless `times` has the student's time.
    """

    due: datetime
    percent_a_day: float = 10.0
    free_days: int = 0
    times: Mapping[str, datetime] = field(default_factory=dict)

    def days_late(self, student: str, changed_s: float) -> int:
        """Return the number of started days between the deadline and a submission."""
        came = self.times.get(student)
        came_s = came.timestamp() if came else changed_s
        return max(0, math.ceil((came_s - self.due.timestamp()) / DAY_S))

    def kept(self, days_late: int) -> float:
        """Return the fraction of its points that a late submission keeps.

        >>> due = time_of_text("2026-03-01T23:59+00:00")
        >>> [Deadline(due, 20.0, free_days=1).kept(days) for days in (0, 1, 2, 9)]
        [1.0, 1.0, 0.8, 0.0]
        """
        return max(0.0, 1.0 - self.percent_a_day / 100 * max(0, days_late - self.free_days))


def time_of_text(text: str) -> datetime:
    """Return the time in an ISO 8601 text, in this machine's time zone if the text has none.

    >>> time_of_text("2026-03-01T23:59+00:00").hour
    23
    """
    try:
        return datetime.fromisoformat(text.strip().replace("Z", "+00:00")).astimezone()
    except (ValueError, OverflowError):
        raise PillarboxError(f"{text!r:.40} is not a time: write it as 2026-03-01T23:59") from None


def times_of(file: Path) -> dict[str, datetime]:
    """Return submission times by student, from a CSV with the columns student and handed_in."""
    try:
        rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    except (OSError, ValueError, csv.Error) as error:
        raise PillarboxError(f"{file} cannot be read: {error}") from None
    columns = "student", "handed_in"
    require(
        all(row.get(name) for row in rows for name in columns),
        f"the CSV file {file} needs the columns {' and '.join(columns)}, filled in every row",
    )
    return {row["student"]: time_of_text(row["handed_in"]) for row in rows}


def lateness_text(days_late: int, kept: float) -> str:
    """Return a phrase with a submission's days late and remaining percentage, empty if on time."""
    days = f"{days_late} day{'s' if days_late > 1 else ''} late"
    return f"{days}, {kept:.0%} of the points count" if days_late else ""
