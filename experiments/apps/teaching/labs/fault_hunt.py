"""Network with a hidden fault, and the observations of the network: lab 10, in memory and live.

The student's file names the next step, and receives the observations of all previous steps. It has
no access to the network. The fault is silent: no carrier changes, and the lab's `why` does not know
the fault either. The only evidence is the neighbours that servers hear, the fate of packets, and
the frames that pass a port.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pillarbox.experiments.apps.teaching.child import StudentError
from pillarbox.experiments.apps.teaching.sealed_router import is_integer_below
from pillarbox.hosts.base.load import router_for
from pillarbox.hosts.base.timers import FAST, timers_for
from pillarbox.hosts.memory.frame_devices import FrameHop
from pillarbox.hosts.memory.memory_network import MemoryNetwork, Trip
from pillarbox.hosts.memory.tryout import ARRIVAL_S
from pillarbox.hosts.wire.frame import Frame
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology
from pillarbox.topos.bcube import BCube

if TYPE_CHECKING:
    from pillarbox.experiments.apps.teaching.live_grading import LiveWork

ROUTING = "bcube"
MOST_STEPS = 80
NOTICED_S = 30.0
HEARD_S = FAST.neighbour_timeout_s + 4 * FAST.heartbeat_s
WATCHED_S = 5 * FAST.heartbeat_s  # capture time: five heartbeat periods, in seconds
CABLE, ONE_WAY, SWITCH, SERVER = KINDS = ("cable", "one way", "switch", "server")
# number of arguments by kind of measurement that a student may request
STEPS = {"ping": 2, "why": 2, "counters": 1, "capture": 2}

Ask = Callable[[BCube, list[Any]], Any]


class HiddenFault(NamedTuple):
    """A network fault that the student has to find: its kind and its nodes."""

    kind: str
    nodes: tuple[int, ...]

    def loses_frames(self, server: int, switch: int, peer: int) -> bool:
        """Return True if this fault loses the frames of a server to a peer on the same switch."""
        if self.kind == CABLE:
            return switch in self.nodes and (server in self.nodes or peer in self.nodes)
        if self.kind == ONE_WAY:
            return self.nodes in ((server, switch), (switch, peer))
        return bool({server, switch, peer} & {*self.nodes})

    def is_same_fault(self, other: HiddenFault) -> bool:
        """Return True if a fault that the student names is this fault; ends may be swapped."""
        if self.kind == ONE_WAY:
            return self == other
        return self.kind == other.kind and {*self.nodes} == {*other.nodes}

    def text(self, bcube: BCube) -> str:
        """Return the hidden fault as text with the addresses of its nodes."""
        return f"{self.kind} {'-'.join(map(bcube.name, self.nodes))}"


def random_hidden_fault(bcube: BCube, draw: random.Random, kind: str) -> HiddenFault:
    """Return a hidden fault of a kind at a random node or cable of a BCube."""
    server = draw.randrange(bcube.servers)
    switch = bcube.server_plug(server, draw.randrange(bcube.ports)).node
    one_way = draw.choice(((server, switch), (switch, server)))
    nodes = {CABLE: (server, switch), ONE_WAY: one_way, SWITCH: (switch,), SERVER: (server,)}
    return HiddenFault(kind, nodes[kind])


class HuntScene(Protocol):
    """Interface of a network with a hidden fault; measurements at a dead server return None."""

    bcube: BCube

    def ping(self, source: int, destination: int) -> bool | None:
        """Return True if a packet between two servers and its reply arrive."""
        ...

    def why(self, source: int, destination: int) -> Any:
        """Return a packet's path, its arrival, and the peers that are down for its last server."""
        ...

    def capture(self, server: int, port: int) -> Any:
        """Capture at a server's port; return the numbers of frames sent, and received per peer."""
        ...


# -- one hunt ------------------------------------------------------------------------------------


class Hunt(NamedTuple):
    """Result of a student's fault search: named fault and number of steps, or an error."""

    named: HiddenFault | None
    steps: int
    wrong: str = ""


def run_hunt(scene: HuntScene, ask: Ask) -> Hunt:
    """Run the measurements that a student's file requests until it names the hidden fault."""
    seen: list[Any] = []
    while len(seen) < MOST_STEPS:
        step = ask(scene.bcube, seen)
        if isinstance(step, list) and step[:1] == ["name"]:
            named = fault_of(scene.bcube, step[1:])
            return Hunt(named, len(seen), "" if named else f"{step!r:.60} does not name a fault")
        seen.append([step, measurement_result(scene, step)])
    return Hunt(None, len(seen), f"no fault is named after {MOST_STEPS} steps")


def fault_of(bcube: BCube, words: list[Any]) -> HiddenFault | None:
    """Return the fault that the student's file names, None for an invalid fault."""
    if not words or words[0] not in KINDS:
        return None
    nodes = words[1:]
    wanted = 2 if words[0] in (CABLE, ONE_WAY) else 1
    known = len(nodes) == wanted and all(is_integer_below(node, bcube.nodes) for node in nodes)
    return HiddenFault(words[0], tuple(nodes)) if known else None


def measurement_result(scene: HuntScene, step: Any) -> Any:
    """Return the result of a requested measurement; raise StudentError for an invalid request."""
    bcube = scene.bcube
    if not isinstance(step, list) or not step or step[0] not in [*STEPS]:
        raise StudentError(f"{step!r:.60} is not a step: steps are {', '.join(STEPS)} and name")
    kind, *numbers = step
    bounds = [bcube.servers, bcube.ports if kind == "capture" else bcube.servers]
    fits = len(numbers) == STEPS[kind] and all(map(is_integer_below, numbers, bounds))
    if not fits or (kind in ("ping", "why") and numbers[0] == numbers[1]):
        raise StudentError(f"{step!r:.60} is not a step in this network")
    if kind == "ping":
        return scene.ping(*numbers)
    if kind == "why":
        return scene.why(*numbers)
    if kind == "capture":
        return scene.capture(*numbers)
    found = [scene.capture(numbers[0], port) for port in range(bcube.ports)]
    return None if None in found else [[one["sent"], sum(one["heard"].values())] for one in found]


# -- in memory -----------------------------------------------------------------------------------


class FaultDevice:
    """Device of a simulated network that drops frames as a hidden fault does, and counts frames."""

    def __init__(self, bcube: BCube, fault: HiddenFault) -> None:
        self.bcube, self.fault = bcube, fault
        # number of frames by server, port and peer; sent frames count for the server itself
        self.passed: Counter[tuple[int, int, int]] = Counter()
        self._last: tuple[int, int, Frame] | None = None

    def passing(self, hop: FrameHop, now: float) -> Iterator[tuple[float, Frame]]:
        """Yield a frame with its time unless the hidden fault loses the frame."""
        switch = self.bcube.server_plug(hop.server, hop.port).node
        if self._last != (
            hop.server,
            hop.port,
            hop.frame,
        ):  # A frame that a switch broadcasts counts once.
            self._last = hop.server, hop.port, hop.frame
            self.passed[hop.server, hop.port, hop.server] += 1
        if not self.fault.loses_frames(hop.server, switch, hop.peer):
            self.passed[hop.peer, hop.port, hop.server] += (
                1  # In a BCube, both servers use the same port number, which is the level.
            )
            yield 0.0, hop.frame


class MemoryScene:
    """Simulated network with a hidden fault that its servers have had time to detect."""

    def __init__(self, bcube: BCube, fault: HiddenFault) -> None:
        self.bcube, self.fault = bcube, fault
        self.device = FaultDevice(bcube, fault)
        router: Any = router_for(bcube, ROUTING)
        self.network = MemoryNetwork(
            bcube, lambda topology, server: router(topology, server, timers=FAST), [self.device]
        )
        self.network.run(HEARD_S)

    def ping(self, source: int, destination: int) -> bool | None:
        """Return True if packets between two servers arrive in both directions."""
        if self._is_dead(source):
            return None
        return self._arrives(source, destination) and self._arrives(destination, source)

    def why(self, source: int, destination: int) -> Any:
        """Return a packet's path up to its last receiver, its arrival, and the silent peers."""
        if self._is_dead(source):
            return None
        trip = self._sent(source, destination)
        path = list(trip.path.servers)
        if trip.steps and not trip.arrived_s and trip.lost == "lost by a device":
            path.pop()
        links = self.network.routers[path[-1]].state()["links"]
        return why_result(self.bcube, path, bool(trip.arrived_s), links)

    def capture(self, server: int, port: int) -> Any:
        """Return the numbers of frames sent, and received per peer, at a port in WATCHED_S."""
        if self._is_dead(server):
            return None
        self.device.passed.clear()
        self.network.run(WATCHED_S)
        passed = self.device.passed
        heard = {peer: passed[server, port, peer] for peer in self.bcube.peers(server, port)}
        return {"sent": passed[server, port, server], "heard": _heard_frames(heard)}

    def _arrives(self, source: int, destination: int) -> bool:
        return bool(self._sent(source, destination).arrived_s)

    def _sent(self, source: int, destination: int) -> Trip:
        trip = self.network.send_udp(source, destination)
        self.network.run_until(
            self.network.now + ARRIVAL_S, lambda: bool(trip.arrived_s or trip.lost)
        )
        return trip

    def _is_dead(self, server: int) -> bool:
        return self.fault == (SERVER, (server,))


def why_result(bcube: BCube, path: list[int], arrived: bool, links: list[Any]) -> dict[str, Any]:
    """Return the result of a student's `why`: path, arrival, and peers its last server misses."""
    silent = [[link["port"], bcube.server(link["peer"])] for link in links if not link["up"]]
    return {"path": path, "arrived": arrived, "silent": silent}


def _heard_frames(heard: dict[int, int]) -> dict[str, int]:
    """Return the numbers of received frames by peer, as text because JSON keys are text."""
    return {str(peer): frames for peer, frames in heard.items() if frames}


# -- live ----------------------------------------------------------------------------------------


class LiveScene:
    """Running live lab with a hidden fault, and the measurements that a student may request."""

    def __init__(self, work: LiveWork, fault: HiddenFault) -> None:
        assert isinstance(work.lab.topology, BCube)
        self.work, self.lab, self.bcube, self.fault = work, work.lab, work.lab.topology, fault

    def ping(self, source: int, destination: int) -> bool | None:
        """Return True if a ping between two servers of the live lab is answered."""
        return None if self._is_dead(source) else self.work.pings(source, destination)

    def why(self, source: int, destination: int) -> Any:
        """Return a marked packet's path, arrival and silent peers, but not the hidden fault."""
        if self._is_dead(source):
            return None
        found = self.lab.trace(source, destination)
        path = [self.bcube.server(name) for name in found["path"]]
        links = self.lab.state(path[-1]).get("links", [])
        return why_result(self.bcube, path, found["delivered"], links)

    def capture(self, server: int, port: int) -> Any:
        """Return the numbers of frames sent, and received per peer, at a port in WATCHED_S."""
        if self._is_dead(server):
            return None
        from pillarbox.experiments.lab.observe.port_capture import CapturePort, sender_macs

        interface = self.bcube.interface(server, port)
        beat_s = timers_for(self.bcube, self.lab.settings.timers).heartbeat_s
        tapped = CapturePort("", interface, self.lab.namespace_of(server))
        sources = Counter(sender_macs(tapped, WATCHED_S * beat_s / FAST.heartbeat_s))
        mac = {peer: self.bcube.mac(peer, port) for peer in self.bcube.peers(server, port)}
        heard = {peer: sources[mac[peer]] for peer in mac}
        return {"sent": sources[self.bcube.mac(server, port)], "heard": _heard_frames(heard)}

    def wait_until_fault_is_detected(self) -> None:
        """Wait until a server detects that a peer is unreachable."""
        deadline = time.monotonic() + NOTICED_S
        living = [server for server in range(self.bcube.servers) if not self._is_dead(server)]
        while time.monotonic() < deadline:
            if not all(link["up"] for one in living for link in self.lab.state(one)["links"]):
                return
            time.sleep(0.05)
        raise PillarboxError(
            "no server of the live network has detected the hidden fault: grade again"
        )

    def _is_dead(self, server: int) -> bool:
        return server in self.lab.dead


@contextmanager
def injected_fault(work: LiveWork, fault: HiddenFault) -> Iterator[LiveScene]:
    """Inject a fault into a live lab for a `with` block, hidden from the lab's event log."""
    from pillarbox.experiments.lab.emulation.active_faults import Faults

    lab, hidden = work.lab, Faults(work.lab.net)
    try:
        for kind, nodes in _live_faults(lab.topology, fault):
            hidden.begin(kind, *map(lab.topology.node_name, nodes))
        if fault.kind == SERVER:
            lab.kill(fault.nodes[0])
        yield LiveScene(work, fault)
    finally:
        for active in hidden.active:
            hidden.undo(active)
        if fault.kind == SERVER and fault.nodes[0] in lab.dead:
            lab.revive(fault.nodes[0])


def _live_faults(bcube: Topology, fault: HiddenFault) -> list[tuple[str, tuple[int, int]]]:
    """Return kind and ends of the cable faults that make up a hidden fault; none for a server."""
    if fault.kind == SERVER:
        return []
    if fault.kind == SWITCH:
        (switch,) = fault.nodes
        return [("silent cut", (switch, plug.node)) for _, plug in bcube.neighbours(switch)]
    a, b = fault.nodes
    return [("silent cut" if fault.kind == CABLE else "one-way cut", (a, b))]
