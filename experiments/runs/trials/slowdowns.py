"""Slowdowns of arriving flows by system and size, with confidence intervals over repeats.

Classes with flows that fit into the burst of an idle port are marked: such a flow does not wait for
the rate, and its slowdown may be below 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pillarbox.experiments.base import units
from pillarbox.experiments.base.text import columns, paragraphs
from pillarbox.experiments.base.units import three_figures
from pillarbox.experiments.models.workloads.sizes import CLASSES
from pillarbox.experiments.runs.trials.statistics import Estimate, estimate

if TYPE_CHECKING:
    import pandas

    from pillarbox.experiments.runs.trials.records import Run

SHOWN = {"slowdown_median": "median", "slowdown_p95": "95th", "slowdown_p99": "99th"}
TOOK = {"completion_median_s": "median ms", "completion_p99_s": "99th ms"}
IN_BURST = " *"  # mark of a class with flows that fit into the burst of an idle port


class Slowdown(NamedTuple):
    """Slowdowns of one size class of one system: means over valid trials, with intervals."""

    system: str
    sizes: str
    flows: int  # Number of flows in all valid trials.
    failed_flows: int
    mean_bytes: float
    burst_bytes: float | None  # Largest burst of the flows' ports; None if unknown.
    burst_flows: int  # Number of flows that fit into the burst of their port.
    estimates: dict[str, Estimate]  # Mean and interval by column of schema.CLASSES.

    @property
    def named_sizes(self) -> str:
        """Name of the size class, marked if flows of the class fit into a port's burst."""
        return self.sizes + IN_BURST * bool(self.burst_flows)

    def as_json(self) -> dict[str, Any]:
        """Return the slowdowns as JSON data: value and interval of each figure."""
        return {
            "system": self.system,
            "sizes": self.sizes,
            "flows": self.flows,
            "failed_flows": self.failed_flows,
            "mean_bytes": self.mean_bytes,
            "burst_bytes": self.burst_bytes,
            "burst_flows": self.burst_flows,
            **{
                name: {
                    "value": one.value,
                    "low": _finite_or_none(one.low),
                    "high": _finite_or_none(one.high),
                }
                for name, one in self.estimates.items()
                if one.repeats
            },
        }


def slowdowns(run: Run) -> list[Slowdown]:
    """Return the slowdowns of every system and size class of a run, over its valid trials."""
    return slowdowns_in(run.classes, run.systems)


def slowdowns_in(classes: pandas.DataFrame, systems: Sequence[str]) -> list[Slowdown]:
    """Return the slowdowns of systems by size class, from a table of classes."""
    valid = classes[classes.valid.fillna(False).astype(bool)]
    return [one for name in systems for one in _system_slowdowns(valid[valid.system == name], name)]


def _system_slowdowns(rows: pandas.DataFrame, system: str) -> Iterator[Slowdown]:
    for sizes in CLASSES:
        of_size = rows[rows.sizes == sizes]
        if of_size.empty:
            continue
        names = [name for name in of_size if name.startswith(("slowdown_", "completion_"))]
        yield Slowdown(
            system,
            sizes,
            int(of_size.flows.sum()),
            int(of_size.failed_flows.sum()),
            float(of_size.mean_bytes.mean()),
            _finite_or_none(float(of_size.burst_bytes.max())),
            int(of_size.burst_flows.fillna(0).sum()),
            {name: estimate(of_size[name].astype(float), least=0.0) for name in names},
        )


def burst_note(found: Sequence[Slowdown]) -> str:
    """Return a sentence about the bursts of marked classes; empty if no class is marked."""
    bursts: dict[str, list[str]] = {}
    for one in found:
        if one.burst_flows and one.burst_bytes is not None:
            bursts.setdefault(units.size(one.burst_bytes), []).append(one.system)
    if not bursts:
        return ""
    sizes = [
        size if len(bursts) == 1 else f"{size} ({', '.join(dict.fromkeys(systems))})"
        for size, systems in bursts.items()
    ]
    return (
        f"{IN_BURST.strip()} The class has flows of at most {', '.join(sizes)}, the burst that an "
        "idle port forwards without waiting: their slowdown is that of queues, and may be below 1."
    )


def text_of(run: Run) -> str:
    """Return the slowdowns of a run as a text table; empty without arriving flows."""
    found = slowdowns(run)
    if not found:
        return ""
    rows = [["slowdown of", "flows", *SHOWN.values(), *TOOK.values()]]
    for one in found:
        figures = [_estimate_text(one.estimates[name]) for name in SHOWN]
        figures += [_estimate_text(one.estimates[name], 1e3) for name in TOOK]
        rows.append([f"{one.system}, {one.named_sizes}", f"{one.flows}", *figures])
    table, note = columns(rows, range(1, len(rows[0]))), burst_note(found)
    return f"{table}\n{paragraphs([note])}" if note else table


def _estimate_text(found: Estimate, scale: float = 1.0) -> str:
    """Return an estimate as text: the value and its confidence interval.

    >>> _estimate_text(Estimate(2.0, 1.5, 2.5, 3))
    '2.00 (1.50-2.50)'
    >>> _estimate_text(Estimate(2.0, float("nan"), float("nan"), 1))
    '2.00'
    """
    if not found.repeats:
        return "-"
    value, low, high = (three_figures(end * scale) for end in found[:3])
    return value if found.repeats < 2 else f"{value} ({low}-{high})"


def _finite_or_none(value: float) -> float | None:
    return value if value == value else None  # NaN becomes None.
