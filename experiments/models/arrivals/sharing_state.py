"""Links, active flows and their ends: the memory of a simulation of fluids.

A flow has a *slot* while it is in progress: millions of flows use only the memory that some
thousands need. Arrays have room for all flows simultaneously; unused parts are never touched and
cost nothing. A link's numbers are in one cache line.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from pillarbox.experiments.models.arrays import (
    Float64,
    Floats,
    Int8,
    Int32,
    Int64,
    Ints,
    Records,
    zero_records,
)
from pillarbox.experiments.models.arrivals.event_heap import EventHeap, empty_event_heap
from pillarbox.experiments.models.fluid.directed_links import Routes
from pillarbox.topos.base.errors import require

FIRST = 4  # initial capacity of a link's list of flows
NONE = -1


class Link:
    """Record of a link; rates are in the unit of the capacity."""

    level: Float64  # rate of the flows that the link limits; infinite if it limits none
    room: Float64  # capacity that the flows leave that other links limit
    top: Float64  # no such flow is faster, if the link has a level
    capacity: Float64
    begin: Int64  # start of the link's list of flows
    flows: Int32  # number of flows on the link
    fits: Int32  # number of flows for which the list has room
    # number of flows that the link limits; a flow that passes the link twice counts twice
    shares: Int32
    additions: Int32  # number of additions to `room` since it was computed from all flows
    queued: Int8  # 1 if the link is in the queue of links to update
    # 1 if the link has changed in the present event; 1 if it limits a flow, and is in `due`
    changed: Int8
    listed: Int8


class Progress:
    """Bits that a flow has sent while a link limited it, up to a time; its rate from then on."""

    bits: Float64
    since_s: Float64
    rate: Float64  # 0 if the link limits no flow


class Slot:
    """Record of a flow in progress."""

    where: Int32  # the link that limits the flow: it has the lowest level on the path
    length: Int32  # number of links


class SharingState(NamedTuple):
    """Links, active flows, and the update queue: arrays that functions change in place."""

    links: Records[Link]
    # The flows of link l: entries[begin : begin + flows], with room for `fits`. An entry is a slot
    # and the position of link l on the flow's path: slot << bits | position. In the same place in
    # `limited`: the slots of the flows that link l limits, a heap by the flows' targets.
    bits: int
    entries: Ints
    limited: Ints
    sizes: Ints  # number of flows in each link's heap
    free: Ints  # [0]: start of the entries that no link uses yet
    slots: Records[Slot]
    # For each slot: the links; the flow's index among each link's entries; the progress of its link
    # at which the flow ends; its position in the heap of the link
    paths: Ints
    place: Ints
    target_bits: Floats
    at: Ints
    queue: EventHeap  # links to update, by their levels in place of a time
    progress: Records[Progress]  # each link's progress
    due: EventHeap  # links that limit flows, by the time at which the first of these flows ends
    changed: Ints  # links that have changed in the present event
    total: Floats  # [0]: total rate of all flows of links that have not changed
    counts: Ints  # [0]: number of changed links
    bounds: Floats  # work arrays: rates of a link's flows; slots that leave a link
    leaving: Ints


def initial_sharing_state(routes: Routes, slots: int, capacity_bps: Floats) -> SharingState:
    """Return the initial max-min sharing state of idle links, for at most `slots` active flows."""
    count, longest = len(capacity_bps), int(numpy.diff(routes.starts).max(initial=1))
    bits = (longest - 1).bit_length()
    width = 1 << bits
    require(
        max(slots * width, count) < 2**31,
        f"{slots} flows at a time over up to {width} links are more than the simulator can count",
    )
    whole, empty = numpy.int32, numpy.empty
    links = zero_records(Link, count)
    links["level"] = links["top"] = numpy.inf
    links["room"] = links["capacity"] = capacity_bps
    links["begin"], links["fits"] = numpy.arange(count) * FIRST, FIRST
    # A link that needs more room gets twice as much; its earlier rooms add up to less.
    entries = count * FIRST + 4 * len(routes.links)
    return SharingState(
        links=links,
        bits=bits,
        entries=empty(entries, whole),
        limited=empty(entries, whole),
        sizes=numpy.zeros(count, whole),
        free=numpy.array([count * FIRST]),
        slots=zero_records(Slot, slots),
        paths=empty((slots, width), whole),
        place=empty((slots, width), whole),
        target_bits=empty(slots),
        at=empty(slots, whole),
        queue=empty_event_heap(count),
        progress=zero_records(Progress, count),
        due=empty_event_heap(count),
        changed=empty(count, whole),
        total=numpy.zeros(1),
        counts=numpy.zeros(1, numpy.int64),
        bounds=empty(slots * width),
        leaving=empty(slots, whole),
    )
