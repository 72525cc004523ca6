"""Replacements for a lab's own network, forwarders and faults in a lab over machines.

The classes have the interface of a lab's own network, forwarders and faults, and forward calls to
the parts, so that code for a lab works on a lab over machines. The parts send pings and traces.
Programs start in a server's namespace, which its part passes as an open file; on another computer
its worker starts programs (`worker_program`).
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from pillarbox.experiments.apps.cluster.half_cables import AHEAD_S, HalfCable, RemoteCableShapes
from pillarbox.experiments.lab.emulation.active_faults import Faults, FrameEffect, FrameEffects
from pillarbox.experiments.lab.emulation.cable_shapes import CableShape
from pillarbox.experiments.lab.emulation.packet_tracing import NOWHERE, PacketTracer
from pillarbox.experiments.lab.linux import cgroups
from pillarbox.experiments.runs.control.client import entrance
from pillarbox.hosts.base.fault_kinds import LOST_ONE_WAY, FaultKind
from pillarbox.hosts.linux.calls import inside
from pillarbox.topos.base.addressing import NO_PORTS, EndPorts
from pillarbox.topos.base.errors import PillarboxError, UnsupportedError, require

if TYPE_CHECKING:
    from pillarbox.experiments.apps.cluster.machines import Machines


class RemoteNamespace:
    """Network and UTS namespace of a server on another emulated machine, entered by ``with``."""

    def __init__(self, descriptor: int, host_name: int) -> None:
        self.descriptor, self._host_name = descriptor, host_name
        self._stay: AbstractContextManager[None] | None = None

    def __enter__(self) -> RemoteNamespace:
        self._stay = inside(self.descriptor, self._host_name)
        self._stay.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        assert self._stay
        self._stay.__exit__(*error)


class Entrances:
    """Opens namespaces of servers on other emulated machines, each requested once."""

    def __init__(self, fabric: Machines) -> None:
        self._fabric = fabric
        self._open: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def both(self, server: int) -> tuple[int, int]:
        """Return a living server's network and UTS namespace, as open files."""
        require(
            not self._fabric.reach(server),
            f"{self._fabric.lab.name(server)} is on another computer: programs run there, but "
            "its network cannot be inspected from here",
        )
        with self._lock:
            if server not in self._open:
                folder = self._fabric.folders[self._fabric.machine_of(server)]
                address = self._fabric.lab.topology.address(server)
                network, host_name, *others = entrance(folder, address).files
                self._open[server] = network, host_name
                for descriptor in others:
                    os.close(descriptor)
            return self._open[server]

    def opened(self, servers: Iterable[int]) -> set[int]:
        """Return the open network namespaces of the given servers, as file descriptors."""
        return {self._open[server][0] for server in servers if server in self._open}

    def close(self, servers: Iterable[int] | None = None) -> None:
        """Close the namespaces of the given servers, or all namespaces."""
        with self._lock:
            for server in list(self._open) if servers is None else servers:
                for descriptor in self._open.pop(server, ()):
                    os.close(descriptor)


class RemoteNode:
    """A server or switch of a distributed lab, as Mininet's prompt and the faults use it."""

    waiting = False  # attribute for Mininet's prompt: no shell runs inside the node

    def __init__(self, name: str, node: int, fabric: Machines, entrances: Entrances) -> None:
        self.name, self._node = name, node
        self._fabric, self._entrances = fabric, entrances
        self._is_server = node < fabric.lab.topology.servers

    def live_namespace(self) -> RemoteNamespace:
        """Return the network namespace of a live server."""
        require(
            self._is_server,
            f"{self.name} is a switch of the lab, where no program can run: choose a server",
        )
        return RemoteNamespace(*self._entrances.both(self._node))

    def popen(self, command: Sequence[str], **options: Any) -> Any:
        """Start a program in the server's namespace, in a session of its own."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        return self.program(command, start_new_session=True, **options)

    def program(
        self, command: Sequence[str], by: Sequence[str] = (), **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a program on a server of another emulated machine; `by` wraps its command."""
        reach = self._fabric.reach(self._node) if self._is_server else []
        if reach:
            return subprocess.Popen([*by, *reach, *command], **options)
        command = cgroups.programs().command(command)
        with self.live_namespace():
            return subprocess.Popen([*by, *command], **options)

    def __str__(self) -> str:
        return self.name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise PillarboxError(
            f"{self.name} is on another machine: Mininet's prompt cannot read its attribute {name}"
        )


class DistributedCable(NamedTuple):
    """A cable whose ends may be on two machines."""

    intf1: Any
    intf2: Any
    halves: frozenset[HalfCable]

    @property
    def cuts(self) -> frozenset[HalfCable]:
        """Halves of the cable, on one or two machines, that are set down to cut it."""
        return self.halves

    @property
    def taps(self) -> frozenset[HalfCable]:
        """Halves of the cable, on one or two machines, with programs that change its frames."""
        return self.halves


class DistributedNet(dict[str, RemoteNode]):
    """All servers, switches and cables of a lab over several machines, by node name."""

    def __init__(self, fabric: Machines, entrances: Entrances) -> None:
        topology, settings = fabric.lab.topology, fabric.lab.settings
        self.topology = topology
        usual = CableShape(settings.rate_mbit, settings.delay, settings.loss)
        self.shapes = RemoteCableShapes(self, usual, fabric)
        # queue limit of every port in bytes, reported by the machines
        self.queue_bytes: int | None = None
        nodes = [
            RemoteNode(topology.node_name(node), node, fabric, entrances)
            for node in range(topology.nodes)
        ]
        super().__init__({node.name: node for node in nodes})
        self.hosts, self.switches = nodes[: topology.servers], nodes[topology.servers :]
        self.links = [
            DistributedCable(
                SimpleNamespace(node=nodes[cable.a]),
                SimpleNamespace(node=nodes[cable.b]),
                frozenset(HalfCable(fabric.machine_of(end), number) for end in (cable.a, cable.b)),
            )
            for number, cable in enumerate(topology.links())
        ]

    def linksBetween(self, a: RemoteNode, b: RemoteNode) -> list[DistributedCable]:  # noqa: N802
        """Return the cables between two nodes."""
        return [link for link in self.links if {link.intf1.node, link.intf2.node} == {a, b}]


class DistributedTracer(PacketTracer):
    """Traces packets on a lab over machines: the parts send, receive and follow marked packets."""

    def __init__(self, fabric: Machines) -> None:
        lab = fabric.lab
        super().__init__(lab.topology, fabric.net, fabric.forwarders, lab.dead)
        self._fabric = fabric

    def listener(self, server: int) -> Any:
        """Open a listener for marked packets on the machine that runs the server."""
        self._fabric.ask_part(server, ask="trace listen")
        return nullcontext()

    def send(
        self,
        serial: int,
        source: int,
        destination: int,
        source_port: int,
        ports: EndPorts = NO_PORTS,
    ) -> None:
        """Have the source's machine send a marked packet."""
        packet = [serial, source, destination, source_port, ports]
        self._fabric.ask_part(source, ask="trace send", packet=packet)

    def _trace_switches(
        self, serial: int, source: int, destination: int, source_port: int
    ) -> dict[str, Any]:
        self._fabric.ask_living_machines(least=1, ask="follow", serial=serial, keep=True)
        self.listener(destination)
        path, dropped = [self.topology.name(source)], "switches do not say why"
        try:
            self.send(serial, source, destination, source_port)
        except PillarboxError as error:
            dropped = f"{path[0]} cannot send: {error}"
        arrived: bool = self._fabric.ask_part(destination, ask="trace arrived", serial=serial)
        answers = self._fabric.ask_living_machines(least=1, ask="follow", serial=serial, keep=False)
        path += self._switches_in_path_order(
            source, [one for heard in answers.values() for one in heard]
        )
        if arrived:
            path.append(self.topology.name(destination))
        return {
            **NOWHERE,
            "path": path,
            "delivered": arrived,
            "dropped": "" if arrived else dropped,
        }

    def _switches_in_path_order(self, source: int, heard: list[tuple[int, str]]) -> list[str]:
        """Return the switches that a marked packet passed: by time to live, then adjacency."""
        left = {self.topology.node(name): ttl for ttl, name in heard}
        at, passed = source, []
        while left:
            adjacent = {plug.node for _, plug in self.topology.neighbours(at)}
            at = max(left, key=lambda one: (left[one], one in adjacent))
            passed.append(self.topology.name(at))
            del left[at]
        return passed

    def _wait(self, listeners: list[Any]) -> None:
        """Do nothing: `_trace_switches` asks the destination's machine, which waits."""


class DistributedForwarders:
    """The forwarders of all machines, or the servers of a network whose servers do not relay."""

    def __init__(self, fabric: Machines) -> None:
        self._fabric = fabric
        self.pids: dict[int, int] = {}  # this process has started no forwarder
        # last log line of each forwarder that has ended unexpectedly, by server
        self.words: dict[int, str] = {}

    def ask(self, server: int, what: str, **details: str) -> Any:
        """Return a forwarder's ``state`` or ``trace`` in the lab's time, None if it is dead."""
        try:
            found = self._fabric.ask_part(server, ask="forwarder", what=what, **details)
        except PillarboxError:  # the machine that ran the server is lost
            return None
        for news in (found or {}).get("news", ()) if what == "state" else ():
            machine = self._fabric.machine_of(server)
            news["at_s"] = self._fabric.clocks.lab_time_s(machine, news["at_s"])
        return found

    def last_words(self, server: int) -> str:
        """Return the last line that an ended forwarder wrote."""
        return self.words.get(server, "the forwarder left no message")

    def last_lines(self, server: int, longest: int) -> str:
        """Return the end of a forwarder's log, at most `longest` bytes."""
        lines: str = self._fabric.ask_part(server, ask="log", longest=longest)
        return lines


class DistributedFaults(Faults):
    """Faults of cables whose ends may be on two machines, injected at both at an agreed instant."""

    def __init__(self, fabric: Machines) -> None:
        super().__init__(fabric.net)
        self._fabric = fabric
        self._lost: set[int] = set()
        self._agreed_s = 0.0

    def _effective_time_s(self) -> float:
        self._agreed_s = super()._effective_time_s() + AHEAD_S
        return self._agreed_s

    def lose(self, machine: int) -> None:
        """Set down all cables to a lost machine, on the machines at their other ends."""
        with self._lock:
            self._effective_time_s()
            before = self._ends_without_carrier()
            self._lost.add(machine)
            without_carrier = self._ends_without_carrier() - before
            for other in {half.machine for half in without_carrier}:
                # the machine at the cable's other end is being lost as well
                with suppress(PillarboxError):
                    self._set_carrier(
                        {half for half in without_carrier if half.machine == other}, up=False
                    )

    def regain(self, machine: int) -> None:
        """Set up all cables to the replacement of a lost machine, except cables that are cut."""
        with self._lock:
            self._effective_time_s()
            before = self._ends_without_carrier()
            self._lost.discard(machine)
            held = self._ends_without_carrier()
            self._set_carrier({half for half in held if half.machine == machine}, up=False)
            effects = self._frame_effects().items()
            self._set_frame_effects({half: one for half, one in effects if half.machine == machine})
            self._set_carrier(before - held, up=True)

    def _ends_without_carrier(self) -> set[Any]:
        """Return the half-cables that are set down, by faults or since a machine was lost."""
        lost = {
            half
            for link in (self.net.links if self._lost else ())
            if any(half.machine in self._lost for half in link.halves)
            for half in link.halves
        }
        return super()._ends_without_carrier() | lost

    def prepare(self, kind: FaultKind) -> None:
        """Raise PillarboxError if labs over several machines have no faults of a kind."""
        require(
            kind.effect != LOST_ONE_WAY,
            f"labs over several machines have no faults in one direction: write {kind.verb} A-B",
            UnsupportedError,
        )

    def _set_carrier(self, ends: set[Any], *, up: bool) -> None:
        self._ask(ends, {"ask": "switch", "up": up})

    def _set_frame_effects(self, effects: FrameEffects) -> None:
        halves: defaultdict[frozenset[FrameEffect], set[HalfCable]] = defaultdict(set)
        for half, several in effects.items():
            halves[several].add(half)
        for several, ends in halves.items():
            self._ask(ends, {"ask": "frames", "effects": sorted(several)})

    def _ask(self, held: set[HalfCable], request: Mapping[str, Any]) -> None:
        cables: dict[int, list[int]] = {}
        for half in sorted(held):
            if half.machine not in self._lost:
                cables.setdefault(half.machine, []).append(half.cable)
        asked = {
            machine: {
                **request,
                "cables": numbers,
                "at_s": self._fabric.clocks.machine_time_s(machine, self._agreed_s),
            }
            for machine, numbers in cables.items()
        }
        for machine, late_s in self._fabric.ask_machines(asked).items():
            if late_s:
                self._fabric.lab.log("late", machine=machine, late_s=round(late_s, 6))
