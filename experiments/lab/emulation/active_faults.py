"""Faults of cables, switches and racks in a running network, and their repair.

Every fault is made in the fabric, outside the servers' control; `pillarbox.hosts.base.fault_kinds`
has the table of kinds. Effects on cables:

carrier lost
    The fabric's ends of a cable go down. A server at the cable loses its carrier within a
    millisecond and keeps its routes, as with a pulled plug. A stopped switch has this effect on all
    its cables, a stopped rack also on the cables of the servers attached to its switch; programs
    on the servers continue to run, unless they are killed as well.
flapping carrier
    The fabric's ends of a cable go down and up in turn.
frames lost, corrupted, duplicated or reordered
    Programs at the cable drop, duplicate or hold frames, and no carrier changes: only heartbeats
    detect it, or nothing does.

Faults may overlap. A cable works again when the last fault that affects it is repaired.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from pillarbox.experiments.lab.linux import cable_programs, link_requests
from pillarbox.experiments.lab.linux.delays import delay_line
from pillarbox.experiments.lab.linux.namespaces import fabric
from pillarbox.hosts.base.fault_kinds import (
    CABLE,
    CARRIER_LOST,
    CORRUPTED,
    DUPLICATED,
    FLAPPING,
    LOST,
    LOST_ONE_WAY,
    RACK,
    REORDERED,
    FaultKind,
    fault_kind,
)
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.bpf import may_load_programs
from pillarbox.topos.base.errors import NotPermittedError, PillarboxError, UnknownNameError, require


@dataclass(frozen=True)
class ActiveFault:
    """A fault that is in effect in a lab.

    Attributes
    ----------
    kind
        Name of the kind of fault, as in `pillarbox.hosts.base.fault_kinds`.
    what
        Nodes that the fault affects: the ends of a cable, a switch, or a server.
    at_s
        Start time by CLOCK_MONOTONIC, taken immediately before the request to the kernel.
    amounts
        Numbers that some kinds need, such as a bit error rate.
    """

    kind: str
    what: tuple[str, ...]
    at_s: float
    amounts: tuple[float, ...] = ()

    @property
    def definition(self) -> FaultKind:
        """Kind of the fault, from the table of kinds."""
        return fault_kind(self.kind)

    @property
    def of_cable(self) -> bool:
        """True if the fault affects a single cable."""
        return self.definition.target == CABLE


class FrameEffect(NamedTuple):
    """Effect of a fault on the frames of a cable: LOST, CORRUPTED and so on, with amounts."""

    effect: str
    amounts: tuple[float, ...] = ()


HOLD_MTU = 65535  # MTU of interfaces that hold frames, so that frames of all sizes pass
# Effects on frames, by cable end.
FrameEffects: TypeAlias = dict[Any, frozenset[FrameEffect]]


class Faults:
    """The active faults of one network; nodes are given by their Mininet names."""

    def __init__(self, net: Any) -> None:
        self.net = net
        self._cables: dict[ActiveFault, list[Any]] = {}
        self._programs = FramePrograms()
        self._lock = threading.RLock()
        self._with_carrier: set[ActiveFault] = set()  # flapping cables that have carrier now
        self._ended = threading.Event()

    def close(self) -> None:
        """Let cables flap no longer; the faults stay as they are."""
        self._ended.set()

    @property
    def active(self) -> list[ActiveFault]:
        """Faults now in effect in the network, oldest first."""
        return list(self._cables)

    def prepare(self, kind: FaultKind) -> None:
        """Start what faults of a kind need; raise PillarboxError if they are not supported."""
        if kind.effect == REORDERED:
            delay_line.start()

    def begin(self, kind: str, *names: str, amounts: tuple[float, ...] = ()) -> ActiveFault:
        """Inject a fault of a cable, switch or rack, named by the cable's ends or the switch."""
        target = fault_kind(kind).target
        if target == CABLE:
            cables, what = self._cables_between(*names), names
        else:
            (switch,) = names
            self._check_switch(switch)
            cables, what = self._cables_at({switch}), names
            if target == RACK:
                servers = {node.name for link in cables for node in _nodes(link)}
                servers &= {host.name for host in self.net.hosts}
                cables, what = self._cables_at({switch} | servers), (switch, *sorted(servers))
        self.prepare(fault_kind(kind))
        with self._lock:
            before = self._ends_without_carrier(), self._frame_effects()
            at_s = self._effective_time_s()
            fault = ActiveFault(kind, what, at_s, amounts)
            self._cables[fault] = cables
            try:
                self._change_from(*before)
            except BaseException:
                del self._cables[fault]
                raise
        if fault.definition.effect == FLAPPING:
            threading.Thread(target=self._flap, args=[fault], daemon=True).start()
        return fault

    def undo(self, fault: ActiveFault) -> float:
        """Repair a cable, switch or rack; return the time of the repair, by CLOCK_MONOTONIC."""
        require(
            fault in self._cables, f"the {fault.kind} of {' '.join(fault.what)} is already repaired"
        )
        with self._lock:
            before = self._ends_without_carrier(), self._frame_effects()
            del self._cables[fault]
            at_s = self._effective_time_s()
            self._change_from(*before)
            self._with_carrier.discard(fault)
        return at_s

    # -- implementation ------------------------------------------------------------------------

    def _flap(self, fault: ActiveFault) -> None:
        """Switch the carrier of a flapping cable on and off until the cable is repaired."""
        while not self._ended.wait(*fault.amounts):
            with self._lock:
                if fault not in self._cables:
                    return
                before = self._ends_without_carrier(), self._frame_effects()
                self._with_carrier ^= {fault}
                self._effective_time_s()
                try:
                    self._change_from(*before)
                except (PillarboxError, OSError):  # the lab, or the machine of the cable, has ended
                    return

    def _effective_time_s(self) -> float:
        """Return the time at which a fault or repair requested now takes effect, in seconds."""
        return time.monotonic()

    def _change_from(self, down: set[Any], effects: FrameEffects) -> None:
        """Change the carrier of cables, and the programs at them, since an earlier state."""
        now_down, now_effects = self._ends_without_carrier(), self._frame_effects()
        if now_down - down:
            self._set_carrier(now_down - down, up=False)
        if down - now_down:
            self._set_carrier(down - now_down, up=True)
        ends = effects.keys() | now_effects.keys()
        wanted = {end: now_effects.get(end, frozenset()) for end in ends}
        changed = {end: new for end, new in wanted.items() if new != effects.get(end, frozenset())}
        if changed:
            self._set_frame_effects(changed)

    def _ends_without_carrier(self) -> set[Any]:
        """Return the cable ends that the active faults set down."""
        return {
            end
            for fault, cables in self._cables.items()
            if fault.definition.effect in (CARRIER_LOST, FLAPPING)
            and fault not in self._with_carrier
            for cable in cables
            for end in cable.cuts
        }

    def _frame_effects(self) -> FrameEffects:
        """Return the effects of the active faults on frames, by cable end."""
        found: defaultdict[Any, set[FrameEffect]] = defaultdict(set)
        for fault, cables in self._cables.items():
            effect = fault.definition.effect
            if effect in (CARRIER_LOST, FLAPPING):
                continue
            one_way = effect == LOST_ONE_WAY
            for cable in cables:
                taps = [_tap_from(cable, fault.what[0])] if one_way else cable.taps
                for tap in taps:
                    found[tap].add(FrameEffect(LOST if one_way else effect, fault.amounts))
        return {end: frozenset(effects) for end, effects in found.items()}

    def _set_carrier(self, ends: set[Any], *, up: bool) -> None:
        set_interfaces(ends, up=up)

    def _set_frame_effects(self, effects: FrameEffects) -> None:
        self._programs.set_effects(effects)

    def _cables_between(self, a: str, b: str) -> list[Any]:
        for name in (a, b):
            require(
                name in self.net, f"there is no node {name!r} in this network", UnknownNameError
            )
        found = self.net.linksBetween(self.net[a], self.net[b])
        others = {node.name for link in self._cables_at({a}) for node in _nodes(link)} - {a}
        require(
            bool(found),
            f"no cable joins {a} and {b}: {a}'s lead to {', '.join(sorted(others))}",
            UnknownNameError,
        )
        return list(found)

    def _cables_at(self, names: set[str]) -> list[Any]:
        """Return the cables with an end at one of the nodes."""
        return [link for link in self.net.links if any(node.name in names for node in _nodes(link))]

    def _check_switch(self, name: str) -> None:
        require(
            any(switch.name == name for switch in self.net.switches),
            f"there is no switch {name!r} in this network",
            UnknownNameError,
        )


def _nodes(link: Any) -> tuple[Any, Any]:
    return link.intf1.node, link.intf2.node


def _tap_from(cable: Any, name: str) -> Any:
    """Return the tap of a cable that the frames sent by a node pass."""
    return cable.taps[0 if cable.intf1.node.name == name else 1]


def set_interfaces(interfaces: Iterable[int], *, up: bool) -> None:
    """Set cable ends in the switches' namespace up or down, and so the carrier of the cables."""
    deed = "repair a cable" if up else "cut a cable"
    fabric().send(*(link_requests.change(index, up=up, deed=deed) for index in sorted(interfaces)))


class FramePrograms:
    """BPF programs at cables for faults that lose, corrupt, duplicate or reorder frames."""

    def __init__(self) -> None:
        # Pairs of interfaces for the late frames of taps. They stay after a repair, when frames are
        # on their way.
        self._holds: dict[cable_programs.CableTap, tuple[int, int]] = {}
        # Programs at each tap, by priority.
        self._attached: dict[cable_programs.CableTap, dict[int, bytes]] = {}

    def set_effects(self, effects: Mapping[cable_programs.CableTap, Iterable[FrameEffect]]) -> None:
        """Set the effects at the given taps; without effects, the taps pass all frames."""
        taps: defaultdict[tuple[int, bytes], list[cable_programs.CableTap]] = defaultdict(list)
        for tap in sorted(effects):
            before, after = self._attached.get(tap, {}), self._programs_of(tap, effects[tap])
            for priority, program in after.items():
                if before.get(priority) != program:
                    taps[priority, program].append(tap)
            for priority in before.keys() - after.keys():
                fabric().places.detach(tap, priority, "repair a cable")
            self._attached.pop(tap, None)
            if after:
                self._attached[tap] = after
        for (priority, program), several in taps.items():
            fabric().places.run(program, several, priority, "change the frames of a cable")

    def _programs_of(
        self, tap: cable_programs.CableTap, effects: Iterable[FrameEffect]
    ) -> dict[int, bytes]:
        """Return the BPF programs for effects at a tap, by priority; of one effect the largest."""
        largest: dict[str, tuple[float, ...]] = {}
        for effect, amounts in effects:
            largest[effect] = max(amounts, largest.get(effect, ()))
        require(
            largest.keys() <= {LOST} or may_load_programs(),
            "corrupting, duplicating and reordering frames needs eBPF, and so root: use sudo",
            NotPermittedError,
        )
        found: dict[int, bytes] = {}
        if LOST in largest:
            found[cable_programs.CUT] = cable_programs.drop()
        if CORRUPTED in largest:
            program = cable_programs.drop_with_bit_errors(*largest[CORRUPTED])
            found[cable_programs.CORRUPT] = program
        if DUPLICATED in largest:
            (percent,) = largest[DUPLICATED]
            program = cable_programs.duplicate_randomly(percent / 100, tap.hook)
            found[cable_programs.DUPLICATE] = program
        if REORDERED in largest:
            percent, jitter_ms = largest[REORDERED]
            program = cable_programs.hold_randomly(percent / 100, self._hold(tap, jitter_ms / 1000))
            found[cable_programs.REORDER] = program
        return found

    def _hold(self, tap: cable_programs.CableTap, delay_s: float) -> int:
        """Return the interface that returns frames to a tap after a delay."""
        home, deed = fabric(), "hold frames of a cable"
        if tap not in self._holds:
            near, far = home.new_index(), home.new_index()
            ends = [link_requests.End(f"late{one}", one, home.descriptor) for one in (near, far)]
            home.send(link_requests.cable(*ends, mtu=HOLD_MTU, group=home.group))
            # The process receives frames before the program drops them.
            for index, program in (
                (near, cable_programs.end_hold(tap)),
                (far, cable_programs.drop()),
            ):
                incoming = cable_programs.CableTap(index, nl.CLSACT_INGRESS, alone=True)
                home.places.run(program, [incoming], cable_programs.OWN, deed)
                if home.speaks_ipv6:  # the kernel would send frames of its own over the cable
                    home.send(link_requests.change(index, no_ipv6_address=True, deed=deed))
            home.send(*(link_requests.change(index, up=True, deed=deed) for index in (near, far)))
            self._holds[tap] = near, far
        near, far = self._holds[tap]
        delay_line.join(far, far, delay_s, 0.0)
        return near
