"""The slowdowns of flows that arrived, by size: each system's, with intervals over repeats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.text import columns
from experiments.traffic.sizes import CLASSES
from experiments.trials.runs.statistics import Estimate, estimate
from experiments.units import three_figures

if TYPE_CHECKING:
    import pandas

    from experiments.trials.runs.records import Run

SHOWN = {"slowdown_median": "median", "slowdown_p95": "95th", "slowdown_p99": "99th"}
TOOK = {"completion_median_s": "median ms", "completion_p99_s": "99th ms"}


class Slowdown(NamedTuple):
    """One class of sizes of one system: means over the valid trials, with their intervals."""

    system: str
    sizes: str
    flows: int  # of all valid trials
    failed_flows: int
    mean_bytes: float
    estimates: dict[str, Estimate]  # by column of schema.CLASSES

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON takes it: of each figure the value and its interval."""
        return {
            "system": self.system,
            "sizes": self.sizes,
            "flows": self.flows,
            "failed_flows": self.failed_flows,
            "mean_bytes": self.mean_bytes,
            **{
                name: {"value": one.value, "low": _known(one.low), "high": _known(one.high)}
                for name, one in self.estimates.items()
                if one.repeats
            },
        }


def slowdowns(run: Run) -> list[Slowdown]:
    """Return the classes of every system, in the order of the plan; only valid trials count."""
    return slowdowns_in(run.classes, run.systems)


def slowdowns_in(classes: pandas.DataFrame, systems: Sequence[str]) -> list[Slowdown]:
    """Return the same of a table of classes."""
    valid = classes[classes.valid.fillna(False).astype(bool)]
    return [one for name in systems for one in _of_system(valid[valid.system == name], name)]


def _of_system(rows: pandas.DataFrame, system: str) -> Iterator[Slowdown]:
    for sizes in CLASSES:
        own = rows[rows.sizes == sizes]
        if own.empty:
            continue
        names = [name for name in own if name.startswith(("slowdown_", "completion_"))]
        yield Slowdown(
            system,
            sizes,
            int(own.flows.sum()),
            int(own.failed_flows.sum()),
            float(own.mean_bytes.mean()),
            {name: estimate(own[name].astype(float), least=0.0) for name in names},
        )


def text_of(run: Run) -> str:
    """Return them as a table; nothing where no flow arrived."""
    found = slowdowns(run)
    if not found:
        return ""
    rows = [["slowdown of", "flows", *SHOWN.values(), *TOOK.values()]]
    for one in found:
        figures = [_shown(one.estimates[name]) for name in SHOWN]
        figures += [_shown(one.estimates[name], 1e3) for name in TOOK]
        rows.append([f"{one.system}, {one.sizes}", f"{one.flows}", *figures])
    return columns(rows, range(1, len(rows[0])))


def _shown(found: Estimate, scale: float = 1.0) -> str:
    """Return a value and where it lies.

    >>> _shown(Estimate(2.0, 1.5, 2.5, 3)), _shown(Estimate(2.0, float("nan"), float("nan"), 1))
    ('2.00 (1.50-2.50)', '2.00')
    """
    if not found.repeats:
        return "-"
    value, low, high = (three_figures(end * scale) for end in found[:3])
    return value if found.repeats < 2 else f"{value} ({low}-{high})"


def _known(value: float) -> float | None:
    return value if value == value else None  # NaN is none
