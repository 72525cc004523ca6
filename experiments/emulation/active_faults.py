"""Faults of cables, switches and racks in a running network, and their repair.

Every fault is made in the fabric, outside the servers' control:

cut
    The fabric's ends of a cable go down. A server at the cable loses its carrier within a
    millisecond and keeps its routes, as with a pulled plug.
silent cut
    Both directions of a cable drop all frames, and no carrier changes: only heartbeats detect it.
stopped switch
    All cables of the switch are cut, as after a power failure.
stopped rack
    All cables of a switch and of the servers attached to it are cut. Programs on the servers
    continue to run, unless they are killed as well.

Faults may overlap. A cable works again when the last fault that affects it is repaired.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from experiments.linux import cable_programs
from experiments.linux.link_requests import change
from experiments.linux.namespaces import fabric
from topos.base.errors import require


@dataclass(frozen=True)
class ActiveFault:
    """A fault of a cable, switch or rack that is in effect in a lab.

    Attributes
    ----------
    kind
        ``cut``, ``silent cut``, ``switch`` or ``rack``.
    what
        Nodes that the fault affects: the ends of a cable, or a switch.
    at_s
        Start time by CLOCK_MONOTONIC, taken immediately before the request to the kernel.
    """

    kind: str
    what: tuple[str, ...]
    at_s: float

    @property
    def of_cable(self) -> bool:
        """True if the fault affects a single cable."""
        return self.kind in ("cut", "silent cut")


class Faults:
    """The active faults of one network; nodes are given by their Mininet names."""

    def __init__(self, net: Any) -> None:
        self.net = net
        self._cables: dict[ActiveFault, list[Any]] = {}

    @property
    def active(self) -> list[ActiveFault]:
        """Faults now in effect in the network, oldest first."""
        return list(self._cables)

    def cut(self, a: str, b: str) -> ActiveFault:
        """Cut the cable between two nodes: both ends lose their carrier."""
        return self._inject_fault("cut", (a, b), self._cables_between(a, b))

    def cut_silently(self, a: str, b: str) -> ActiveFault:
        """Cut the cable between two nodes silently: all frames are lost, the carrier stays up."""
        return self._inject_fault("silent cut", (a, b), self._cables_between(a, b))

    def stop_switch(self, switch: str) -> ActiveFault:
        """Power off a switch."""
        self._check_switch(switch)
        return self._inject_fault("switch", (switch,), self._cables_at({switch}))

    def stop_rack(self, switch: str) -> ActiveFault:
        """Power off a switch and all servers attached to it."""
        self._check_switch(switch)
        servers = {node.name for link in self._cables_at({switch}) for node in _nodes(link)}
        rack = {switch} | (servers & {host.name for host in self.net.hosts})
        return self._inject_fault("rack", (switch, *sorted(rack - {switch})), self._cables_at(rack))

    def undo(self, fault: ActiveFault) -> float:
        """Repair a cable, switch or rack; return the time of the repair, by CLOCK_MONOTONIC."""
        require(
            fault in self._cables, f"the {fault.kind} of {' '.join(fault.what)} is already repaired"
        )
        silent = fault.kind == "silent cut"
        before = self._affected_ends(silent)
        del self._cables[fault]
        released = before - self._affected_ends(silent)
        at_s = self._effective_time_s()
        if silent:
            self._stop_dropping(released)
        else:
            self._set_carrier(released, up=True)
        return at_s

    # -- implementation ------------------------------------------------------------------------

    def _inject_fault(self, kind: str, what: tuple[str, ...], cables: list[Any]) -> ActiveFault:
        silent = kind == "silent cut"
        before = self._affected_ends(silent)
        at_s = self._effective_time_s()
        fault = ActiveFault(kind, what, at_s)
        self._cables[fault] = cables
        broken = self._affected_ends(silent) - before
        if silent:
            self._drop_frames(broken)
        else:
            self._set_carrier(broken, up=False)
        return fault

    def _effective_time_s(self) -> float:
        """Return the time at which a fault or repair requested now takes effect, in seconds."""
        return time.monotonic()

    def _affected_ends(self, silent: bool) -> set[Any]:
        """Return the cable ends affected by the active faults: silent cuts only, or all others."""
        return {
            held
            for fault, cables in self._cables.items()
            if (fault.kind == "silent cut") == silent
            for cable in cables
            for held in (cable.taps if silent else cable.cuts)
        }

    def _set_carrier(self, held: set[Any], *, up: bool) -> None:
        set_interfaces(held, up=up)

    def _drop_frames(self, held: set[Any]) -> None:
        drop_all_frames(held)

    def _stop_dropping(self, held: set[Any]) -> None:
        stop_dropping_frames(held)

    def _cables_between(self, a: str, b: str) -> list[Any]:
        for name in (a, b):
            require(name in self.net, f"there is no node {name!r} in this network")
        found = self.net.linksBetween(self.net[a], self.net[b])
        others = {node.name for link in self._cables_at({a}) for node in _nodes(link)} - {a}
        require(
            bool(found),
            f"no cable joins {a} and {b}: {a}'s lead to {', '.join(sorted(others))}",
        )
        return list(found)

    def _cables_at(self, names: set[str]) -> list[Any]:
        """Return the cables with an end at one of the nodes."""
        return [link for link in self.net.links if any(node.name in names for node in _nodes(link))]

    def _check_switch(self, name: str) -> None:
        require(
            any(switch.name == name for switch in self.net.switches),
            f"there is no switch {name!r} in this network",
        )


def _nodes(link: Any) -> tuple[Any, Any]:
    return link.intf1.node, link.intf2.node


def set_interfaces(interfaces: Iterable[int], *, up: bool) -> None:
    """Set cable ends in the switches' namespace up or down, and so the carrier of the cables."""
    deed = "repair a cable" if up else "cut a cable"
    fabric().send(*(change(index, up=up, deed=deed) for index in sorted(interfaces)))


def drop_all_frames(taps: Iterable[cable_programs.CableTap]) -> None:
    """Attach BPF programs that drop all frames of cables (a silent cut)."""
    fabric().places.run(cable_programs.drop(), taps, cable_programs.CUT, "cut a cable silently")


def stop_dropping_frames(taps: Iterable[cable_programs.CableTap]) -> None:
    """Detach the BPF programs that drop all frames of cables, after a silent cut."""
    for tap in sorted(taps):
        fabric().places.take(tap, cable_programs.CUT, "repair a cable")
