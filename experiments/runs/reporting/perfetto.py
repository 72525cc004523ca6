"""A trial as a trace for the Perfetto UI, in the JSON of the Trace Event Format.

Servers and switches are processes. A flow is a slice (complete event, "X") of its source; flows at
the same time are on different threads. Faults, their detection and the end of re-routing are
instants ("i") of all processes, queue lengths are counters ("C"). Times are in microseconds. The
format: "Trace Event Format", linked from Perfetto's guide to external formats.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy
import pandas

from pillarbox.experiments.models.arrays import Floats, Ints
from pillarbox.experiments.models.fluid.directed_links import end_of
from pillarbox.experiments.models.packets.packet_log import NO_LINK, PacketLog
from pillarbox.experiments.runs.reporting.slow_flows import Explanation, TrialPackets, completed

QUEUE_STEP_S = 0.01  # time between two values of a queue's length
Event = dict[str, Any]


def trace_of(trial: TrialPackets, explanations: Iterable[Explanation]) -> dict[str, Any]:
    """Return the trace of a trial as JSON data; explained flows carry their sentence."""
    sentences = {one.flow: one.sentence() for one in explanations}
    events = [
        *_flow_events(trial, sentences),
        *_fault_events(trial.events),
        *_queue_events(trial),
    ]
    used = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    names = [*_process_names(trial), *_thread_names(used)]
    return {"traceEvents": [*names, *events], "displayTimeUnit": "ms"}


def _process_names(trial: TrialPackets) -> Iterator[Event]:
    topology = trial.topology
    for node in range(topology.nodes):
        kind = "server" if node < topology.servers else "switch"
        name = {"name": f"{kind} {topology.name(node)}"}
        yield {"ph": "M", "name": "process_name", "pid": node + 1, "tid": 0, "args": name}
        order = {"sort_index": node}
        yield {"ph": "M", "name": "process_sort_index", "pid": node + 1, "tid": 0, "args": order}


def _thread_names(used: Iterable[tuple[int, int]]) -> Iterator[Event]:
    for process, thread in sorted(used):
        name = {"name": f"flows {thread}"}
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": name}


def _flow_events(trial: TrialPackets, sentences: Mapping[int, str]) -> Iterator[Event]:
    """Yield a slice for each flow, on the first thread of its source that is free."""
    free: dict[int, list[int]] = {}
    busy: dict[int, list[tuple[float, int]]] = {}
    for row in completed(trial.flows).sort_values("start_s", kind="stable").itertuples():
        process = trial.topology.server(row.source) + 1
        threads, running = free.setdefault(process, []), busy.setdefault(process, [])
        while running and running[0][0] <= row.start_s:
            heapq.heappush(threads, heapq.heappop(running)[1])
        thread = heapq.heappop(threads) if threads else len(running) + 1
        heapq.heappush(running, (row.end_s, thread))
        about: dict[str, Any] = {
            "flow": int(row.flow),
            "destination": row.destination,
            "bytes": int(row.delivered_bytes),
        }
        if not pandas.isna(row.slowdown):
            about["slowdown"] = round(float(row.slowdown), 3)
        if row.flow in sentences:
            about["why"] = sentences[row.flow]
        yield {
            "ph": "X",
            "name": f"flow {row.flow} to {row.destination}",
            "cat": "flow",
            "pid": process,
            "tid": thread,
            "ts": _microseconds(row.start_s),
            "dur": _microseconds(row.end_s - row.start_s),
            "args": about,
        }


def _fault_events(events: pandas.DataFrame) -> Iterator[Event]:
    for row in events.itertuples():
        name = f"{row.event} {row.what}"
        times = {"": 0.0, "detected: ": row.detected_s, "rerouted: ": row.rerouted_s}
        for prefix, after_s in times.items():
            if pandas.isna(after_s):
                continue
            yield {
                "ph": "i",
                "name": prefix + name,
                "cat": "fault",
                "s": "g",
                "pid": 0,
                "tid": 0,
                "ts": _microseconds(row.at_s + after_s),
            }


def _queue_events(trial: TrialPackets) -> Iterator[Event]:
    """Yield the length of each port's queue, sampled, wherever it has changed."""
    for link, (at_s, queue_bytes) in _queue_lengths(trial.log).items():
        node, port = end_of(trial.topology, link)
        name = f"queue of {trial.topology.interface(node, port)}"
        for time_s, length in zip(at_s.tolist(), queue_bytes.tolist(), strict=True):
            yield {
                "ph": "C",
                "name": name,
                "pid": node + 1,
                "tid": 0,
                "ts": _microseconds(time_s),
                "args": {"bytes": length},
            }


def _queue_lengths(log: PacketLog) -> dict[int, tuple[Floats, Ints]]:
    """Return times and bytes at each port: packets that have arrived at it and not left its link.

    Dropped packets do not count, since the log does not show the port that dropped them.
    """
    order = numpy.lexsort((numpy.arange(len(log.at_s)), log.packet))
    packet, link = log.packet[order], log.link[order]
    hops = numpy.flatnonzero((packet[1:] == packet[:-1]) & (link[1:] != NO_LINK)) + 1
    found: dict[int, tuple[Floats, Ints]] = {}
    for number in numpy.unique(link[hops]).tolist():
        rows = hops[link[hops] == number]
        size = log.bytes[order[rows]].astype(numpy.int64)
        times = numpy.concatenate([log.at_s[order[rows - 1]], log.at_s[order[rows]]])
        changes = numpy.concatenate([size, -size])
        by_time = numpy.argsort(times, kind="stable")
        times, lengths = times[by_time], numpy.cumsum(changes[by_time])
        steps = numpy.floor(times / QUEUE_STEP_S).astype(numpy.int64)
        last = numpy.flatnonzero(numpy.append(steps[1:] != steps[:-1], True))
        ends_s = (steps[last] + 1) * QUEUE_STEP_S
        found[number] = ends_s.astype(numpy.float64), lengths[last].astype(numpy.int64)
    return found


def _microseconds(value_s: float) -> float:
    return round(float(value_s) * 1e6, 3)
