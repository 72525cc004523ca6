"""What a lab over machines has in the place of its own network, forwarders and faults.

They answer as a lab's own do, by asking the parts; so that all that is made of a lab goes on them.
Pings and traces are sent by the parts. Programs begin in a server's namespace, which its part hands
over as an open file; on another computer its worker begins them (`program`).
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from experiments.control.client import entrance
from experiments.emulation.faults import Faults
from experiments.emulation.routers import Switches
from experiments.emulation.shapes import Shape
from experiments.emulation.tracing import NOWHERE, Tracer
from experiments.linux import cgroups
from experiments.machines.cables import AHEAD_S, FarShapes, Half
from experiments.machines.clock import Clocks
from experiments.machines.cluster import Cluster
from experiments.machines.many import Machines
from hosts.base.failures import Failures
from hosts.linux.calls import inside
from topos.base.errors import PillarboxError, require
from topos.base.topology import Topology


class FarNamespace:
    """A server's network and UTS namespace; ``with namespace:`` runs code inside both."""

    def __init__(self, descriptor: int, host_name: int) -> None:
        self.descriptor, self._host_name = descriptor, host_name
        self._stay: AbstractContextManager[None] | None = None

    def __enter__(self) -> FarNamespace:
        self._stay = inside(self.descriptor, self._host_name)
        self._stay.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        assert self._stay
        self._stay.__exit__(*error)


class Entrances:
    """The open namespaces of servers, each asked for once.

    Parameters
    ----------
    topology : Topology
        The network.
    folders : sequence of Path
        Of the parts, by machine.
    machine_of : sequence of int
        Where each node is.
    reach : callable
        Returns the command that runs another on a server, where its namespace is out of reach.
    """

    def __init__(
        self,
        topology: Topology,
        folders: Sequence[Path],
        machine_of: Sequence[int],
        reach: Callable[[int], list[str]],
    ) -> None:
        self._topology, self._folders, self._machine_of = topology, folders, machine_of
        self.reach = reach
        self._open: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def of(self, server: int) -> int:
        """Return a living server's network namespace, as an open file."""
        return self.both(server)[0]

    def both(self, server: int) -> tuple[int, int]:
        """Return a living server's network and UTS namespace, as open files."""
        require(
            not self.reach(server),
            f"{self._topology.name(server)} is on another computer: programs run there, and what "
            "looks into its network from here does not",
        )
        with self._lock:
            if server not in self._open:
                folder = self._folders[self._machine_of[server]]
                network, host_name, *others = entrance(folder, self._topology.address(server)).files
                self._open[server] = network, host_name
                for descriptor in others:
                    os.close(descriptor)
            return self._open[server]

    def opened(self, servers: Iterable[int]) -> set[int]:
        """Return the network namespaces that are open of these."""
        return {self._open[server][0] for server in servers if server in self._open}

    def close(self, servers: Iterable[int] | None = None) -> None:
        """Let go of these servers' namespaces, or of all."""
        with self._lock:
            for server in list(self._open) if servers is None else servers:
                for descriptor in self._open.pop(server, ()):
                    os.close(descriptor)


class FarNode:
    """A server or switch on some machine."""

    waiting = False  # for Mininet's prompt: no program runs in a shell of the node's own

    def __init__(self, name: str, node: int, is_server: bool, entrances: Entrances) -> None:
        self.name, self._node, self._is_server = name, node, is_server
        self._entrances = entrances

    def live_namespace(self) -> FarNamespace:
        """Return the namespace of a server that lives."""
        require(self._is_server, f"{self.name} is a bridge on its machine: programs run on servers")
        return FarNamespace(*self._entrances.both(self._node))

    def popen(self, command: Sequence[str], **options: Any) -> Any:
        """Start a program in the server's namespace, in a session of its own."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        return self.program(command, start_new_session=True, **options)

    def program(
        self, command: Sequence[str], by: Sequence[str] = (), **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a program on the server; `by` is what then runs it, here."""
        reach = self._entrances.reach(self._node) if self._is_server else []
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
        raise PillarboxError(f"{self.name} is on another machine, and Mininet knows no more of it")


class FarCable(NamedTuple):
    """A cable, which may have its ends on two machines."""

    intf1: Any
    intf2: Any
    halves: frozenset[Half]

    @property
    def cuts(self) -> frozenset[Half]:
        """What loses its carrier when it is cut."""
        return self.halves

    @property
    def taps(self) -> frozenset[Half]:
        """Where what passes can be dropped."""
        return self.halves


class FarNet(dict[str, FarNode]):
    """All nodes and cables by their names, wherever they are."""

    def __init__(
        self,
        topology: Topology,
        machine_of: Sequence[int],
        entrances: Entrances,
        usual: Shape,
        machines: Machines,
    ) -> None:
        self.shapes = FarShapes(self, usual, machines)
        self.queue_bytes: int | None = None  # of each port; parts know
        nodes = [
            FarNode(topology.node_name(node), node, node < topology.servers, entrances)
            for node in range(topology.nodes)
        ]
        super().__init__({node.name: node for node in nodes})
        self.hosts, self.switches = nodes[: topology.servers], nodes[topology.servers :]
        self.links = [
            FarCable(
                SimpleNamespace(node=nodes[cable.a]),
                SimpleNamespace(node=nodes[cable.b]),
                frozenset(Half(machine_of[end], number) for end in (cable.a, cable.b)),
            )
            for number, cable in enumerate(topology.links())
        ]

    def linksBetween(self, a: FarNode, b: FarNode) -> list[FarCable]:  # noqa: N802
        """Return the cables between two nodes."""
        return [link for link in self.links if {link.intf1.node, link.intf2.node} == {a, b}]

    def bound_super_packets(self) -> None:
        """Do nothing: the parts do it."""


class _FarListener:
    """What takes marked packets at a server, by its part: for good."""

    def __enter__(self) -> _FarListener:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class FarTracer(Tracer):
    """Sends marked packets by the parts, and follows them.

    `ask` asks the part of a server, `ask_all` those of all machines.
    """

    def __init__(
        self,
        topology: Topology,
        net: Any,
        forwarders: Any,
        dead: Collection[int],
        ask: Callable[..., Any],
        ask_all: Callable[..., dict[int, Any]],
    ) -> None:
        super().__init__(topology, net, forwarders, dead)
        self._ask, self._ask_all = ask, ask_all

    def listener(self, server: int) -> Any:
        """Let the server's part take marked packets from now on."""
        self._ask(server, ask="trace listen")
        return _FarListener()

    def send(self, serial: int, source: int, destination: int, source_port: int) -> None:
        """Send a marked packet."""
        self._ask(source, ask="trace send", packet=[serial, source, destination, source_port])

    def _trace_switches(
        self, serial: int, source: int, destination: int, source_port: int
    ) -> dict[str, Any]:
        self._ask_all(ask="follow", serial=serial, keep=True)
        self.listener(destination)
        path, dropped = [self.topology.name(source)], "switches do not say why"
        try:
            self.send(serial, source, destination, source_port)
        except PillarboxError as error:
            dropped = f"{path[0]} cannot send: {error}"
        arrived: bool = self._ask(destination, ask="trace arrived", serial=serial)
        answers = self._ask_all(ask="follow", serial=serial, keep=False)
        path += self._in_order(source, [one for heard in answers.values() for one in heard])
        if arrived:
            path.append(self.topology.name(destination))
        return {
            **NOWHERE,
            "path": path,
            "delivered": arrived,
            "dropped": "" if arrived else dropped,
        }

    def _in_order(self, source: int, heard: list[tuple[int, str]]) -> list[str]:
        """Return switches as they were passed: by time to live, or else each beside the last."""
        left = {self.topology.node(name): ttl for ttl, name in heard}
        at, passed = source, []
        while left:
            beside = {plug.node for _, plug in self.topology.neighbours(at)}
            at = max(left, key=lambda one: (left[one], one in beside))
            passed.append(self.topology.name(at))
            del left[at]
        return passed

    def _wait(self, listeners: list[Any]) -> None:
        """Do nothing: whoever asks for traces waits long enough for an arrival."""


class FarSwitches(Switches):
    """The switches of all machines that route; `tell` tells all parts something."""

    def __init__(self, alike: Switches, tell: Callable[..., object]) -> None:
        super().__init__(alike.topology, alike.routing, alike.seed)
        self.name, self._tell = alike.name, tell

    def set_failures(self, failures: Failures) -> None:
        """Take in what has failed, where switches do not find out themselves."""
        nodes, links = sorted(failures.nodes), sorted(map(sorted, failures.links))
        self._tell(ask="inform", nodes=nodes, links=links)


class FarForwarders:
    """The forwarders of all machines, or their servers where these do not relay."""

    def __init__(self, cluster: Cluster, machine_of: Sequence[int], clocks: Clocks) -> None:
        self._cluster, self._machine_of, self._clocks = cluster, machine_of, clocks
        self.words: dict[int, str] = {}  # the last ones, of those that have ended by themselves

    def ask(self, server: int, what: str, **details: str) -> Any:
        """Ask a forwarder for its ``state`` or its ``trace``; None if it is dead."""
        try:
            return self._call(server, "forwarder", what=what, **details)
        except PillarboxError:  # its machine is lost
            return None

    def start(self, servers: Sequence[int]) -> None:
        """Start dead servers anew."""
        for server in servers:
            self._do(server, "revive")

    def kill(self, server: int) -> None:
        """End a server as a power failure would."""
        self._do(server, "kill")

    def last_words(self, server: int) -> str:
        """Return the last line that an ended forwarder wrote."""
        return self.words.get(server, "it left no message")

    def last_lines(self, server: int, longest: int) -> str:
        """Return the end of what a forwarder wrote, at most so many bytes of it."""
        lines: str = self._call(server, "log", longest=longest)
        return lines

    def _do(self, server: int, deed: str) -> None:
        """Let something be done at a moment that is agreed on."""
        at_s = self._clocks.there(self._machine_of[server], time.monotonic() + AHEAD_S)
        self._call(server, deed, at_s=at_s)

    def _call(self, server: int, request: str, **details: Any) -> Any:
        machine = self._machine_of[server]
        return self._cluster.ask(machine, ask=request, server=server, **details)


class FarFaults(Faults):
    """Faults of cables whose ends may be on two machines: both halves at a moment agreed on.

    Parameters
    ----------
    net : FarNet
        All nodes and cables.
    cluster : Cluster
        The machines.
    clocks : Clocks
        Theirs.
    on_late : callable
        Takes by how much a machine was late, if it was.
    """

    def __init__(
        self, net: Any, cluster: Cluster, clocks: Clocks, on_late: Callable[[int, float], None]
    ) -> None:
        super().__init__(net)
        self._cluster, self._clocks, self._on_late = cluster, clocks, on_late
        self._lost: set[int] = set()
        self._agreed_s = 0.0

    def _moment(self) -> float:
        self._agreed_s = super()._moment() + AHEAD_S
        return self._agreed_s

    def lose(self, machine: int) -> None:
        """Take the carrier from what other machines have of a lost one's cables, for good."""
        self._moment()
        before = self._held(silent=False)
        self._lost.add(machine)
        dark = self._held(silent=False) - before
        for other in {half.machine for half in dark}:
            with suppress(PillarboxError):  # that machine is being lost as well
                self._switch({half for half in dark if half.machine == other}, up=False)

    def regain(self, machine: int) -> None:
        """Give a machine that was lost its carriers again, but for what is cut there."""
        self._moment()
        before = self._held(silent=False)
        self._lost.discard(machine)
        held = self._held(silent=False)
        self._switch({half for half in held if half.machine == machine}, up=False)
        self._drop({half for half in self._held(silent=True) if half.machine == machine})
        self._switch(before - held, up=True)

    def _held(self, silent: bool) -> set[Any]:
        held = super()._held(silent)
        if not silent and self._lost:
            held |= {
                half
                for link in self.net.links
                if any(half.machine in self._lost for half in link.halves)
                for half in link.halves
            }
        return held

    def _switch(self, held: set[Any], *, up: bool) -> None:
        self._ask(held, {"ask": "switch", "up": up})

    def _drop(self, held: set[Any]) -> None:
        self._ask(held, {"ask": "silence", "silent": True})

    def _pass(self, held: set[Any]) -> None:
        self._ask(held, {"ask": "silence", "silent": False})

    def _ask(self, held: set[Half], request: Mapping[str, Any]) -> None:
        cables: dict[int, list[int]] = {}
        for half in sorted(held):
            if half.machine not in self._lost:
                cables.setdefault(half.machine, []).append(half.cable)
        asked = {
            machine: {
                **request,
                "cables": numbers,
                "at_s": self._clocks.there(machine, self._agreed_s),
            }
            for machine, numbers in cables.items()
        }
        for machine, late_s in self._cluster.ask_all(asked).items():
            if late_s:
                self._on_late(machine, late_s)
