"""Time dilation of a trial: conversion between the network's own time and the lab's time.

A lab with dilation k runs k times slower than the network that it stands for. `lab_order` converts
a trial's order to seconds of the lab, and `own_measurements` the lab's measurements back, so that
records have the network's own times and rates. Readings for the verdict stay in seconds of the
lab: they say whether this machine kept up with the lab.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pillarbox.experiments.lab.linux.queueing import SECONDS
from pillarbox.experiments.lab.linux.shaping import scaled_delay
from pillarbox.experiments.models.workloads.flows import FlowResult
from pillarbox.experiments.runs.plans.experiment import System
from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder

Scaled = TypeVar("Scaled")


def lab_order(order: TrialOrder) -> TrialOrder:
    """Return an order with all times and rates in seconds of the lab."""
    k = order.trial.system.dilation
    if k == 1:
        return order
    workload = ("duration_s", "interval_s", "timeout_s", "warm_up_s", "cool_down_s")
    return replace(
        order,
        trial=order.trial._replace(system=lab_system(order.trial.system)),
        workload=_scaled(order.workload, k, workload),
        flows=tuple(_scaled(one, k, ("start_s", "duration_s")) for one in order.flows),
        faults=tuple(_scaled(one, k, ("at_s", "until_s")) for one in order.faults),
    )


def lab_system(system: System) -> System:
    """Return a system with the rate, delay and bursts of its cables in seconds of the lab."""
    k, length = system.dilation, system.queue_length
    if k == 1:
        return system
    assert system.rate_mbit is not None  # see `setting_checks`
    return replace(
        system,
        rate_mbit=system.rate_mbit / k,
        delay=scaled_delay(system.delay, k),
        catch_up=scaled_delay(system.catch_up, k) or "",
        queue_length=_scaled_length(length, k),
    )


def _scaled_length(length: str, k: float) -> str:
    """Return the length of a queue, times k if it is a time.

    >>> _scaled_length("10ms", 20), _scaled_length("100 packets", 20)
    ('200ms', '100 packets')
    """
    unit = length.lstrip("0123456789. ")
    return f"{float(length[: -len(unit)]) * k:.12g}{unit}" if unit in SECONDS else length


def own_measurements(order: TrialOrder, found: TrialMeasurements) -> TrialMeasurements:
    """Return a lab's measurements in the network's own time; `order` is in that time too."""
    share = 1 / order.trial.system.dilation
    if share == 1:
        return found
    planned = {flow.number: flow for flow in order.flows}
    for result in found.results:
        result.flow = planned.get(result.flow.number, result.flow)
    times = ("ready_s", "begin_s", "end_s")
    return replace(
        found,
        results=tuple(_own_result(one, share) for one in found.results),
        events=tuple(_own_event(one, share) for one in found.events),
        steps=tuple(_scaled(one, share, times) for one in found.steps),
        sampled=tuple(_scaled(one, share, ("at_s",)) for one in found.sampled),
    )


def _own_result(result: FlowResult, share: float) -> FlowResult:
    ends = ("begin_s", "end_s")
    return replace(
        _scaled(result, share, (*ends, "connect_s")),
        intervals=[
            _scaled(one, share, ends)._replace(rtt_us=_microseconds(one.rtt_us, share))
            for one in result.intervals
        ],
    )


def _microseconds(lab_us: int | None, share: float) -> int | None:
    return None if lab_us is None else round(lab_us * share)


def _own_event(event: dict[str, Any], share: float) -> dict[str, Any]:
    times = {key: value for key, value in event.items() if key.endswith("_s") and value is not None}
    return event | {key: value * share for key, value in times.items()}


def _scaled(one: Scaled, factor: float, names: Sequence[str]) -> Scaled:
    """Return a dataclass or named tuple with some times multiplied by a factor."""
    times = {name: getattr(one, name) for name in names if getattr(one, name) is not None}
    scaled = {name: value * factor for name, value in times.items()}
    source: Any = one
    made: Scaled = (
        source._replace(**scaled) if isinstance(one, tuple) else replace(source, **scaled)
    )
    return made
