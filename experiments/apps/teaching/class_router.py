"""Router of one server in a class network: a student's file in a sealed child, or the standard one.

All servers of a class network share cables, so a student's code must not harm the servers of
others or produce evidence about packets:

- The forwarder sends the heartbeats and detects silent neighbours. The student's router is
  notified of link changes. Its own heartbeats are discarded.
- A server holds a marked packet from its arrival until its router sends or delivers it. So the
  router can neither create marked packets nor duplicate them.
- A router sends and delivers a limited number of unmarked frames, has a limited share of the time,
  and a marked packet that returns to the server again and again is discarded.
- If the file fails, loops or exhausts its memory, its child is killed. The server then drops all
  packets and sends no heartbeats: it is dead for its neighbours.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pillarbox.experiments.apps.teaching.child import ChildKeeper, ChildKilled, StudentError
from pillarbox.experiments.apps.teaching.sealed_router import SealedChildRouter
from pillarbox.hosts.base.actions import EVERYONE, Action, Deliver, Drop, Send
from pillarbox.hosts.base.allowance import Allowance
from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.load import router_for
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.router import Router, is_heartbeat
from pillarbox.hosts.wire.frame import Frame
from pillarbox.hosts.wire.ipv4 import Ipv4Header
from pillarbox.hosts.wire.marks import serial_of
from pillarbox.topos.base.topology import Topology

CPU_S = 3600  # CPU time limit of a student's process, in seconds
# Long-term maximum share of the wall time in which a student's code may compute answers.
TIME_SHARE = 0.5
LEAST_WAIT_S = 0.01  # minimum interval between two polls of a student's router, in seconds
FRAMES_PER_S, FRAME_BURST = 400.0, 2048  # rate limit of a router's unmarked frames
MOST_VISITS = 8  # maximum number of times that a server forwards the same packet
MOST_MARKED = 4096  # maximum number of marked packets that a server remembers
TOO_MANY_FRAMES = f"the router sends more than {FRAMES_PER_S:g} frames of its own per second"
NOT_HELD = "the router sends a packet that it does not hold: a copy or a forged packet"
LOOP = f"the packet was forwarded by this server {MOST_VISITS} times"
HEARTBEAT = "the lab sends the heartbeats of this server"

# Modules of Pillarbox that a student's file may import, with the package of its topology.
MODULES = (
    "pillarbox.hosts.base.actions",
    "pillarbox.hosts.base.bounded",
    "pillarbox.hosts.base.hop_by_hop",
    "pillarbox.hosts.base.path",
    "pillarbox.hosts.base.router",
    "pillarbox.hosts.wire.dcn",
    "pillarbox.hosts.wire.frame",
    "pillarbox.hosts.wire.header_layout",
    "pillarbox.hosts.wire.ipv4",
    "pillarbox.hosts.wire.messages",
    "pillarbox.hosts.wire.relay_keys",
)

ROUTER = '''"""The routers of a class network."""
from {module} import ClassRouter


class Server(ClassRouter):
    STANDARD = {standard!r}
    FOLDER = {folder!r}
'''


class _Visits(NamedTuple):
    """State of a marked packet at a server: number of arrivals, and True if it is held."""

    arrivals: int
    held: bool


class ClassRouter(SealedChildRouter):
    """Router that asks a student's code for actions, with limits for a shared network.

    The class that a lab loads sets the attributes; `write_router` writes it.
    """

    STANDARD: ClassVar[str]  # routing algorithm of servers without a student
    FOLDER: ClassVar[str]  # folder of the students' files, see `write_router`
    watches_neighbours = True  # the forwarder, not the student's code, detects dead neighbours

    def __new__(cls, topology: Topology, server: int, **options: Any) -> Any:
        """Return the standard router for a server without a student's file."""
        if not _file_of(cls.FOLDER, server).exists():
            return router_for(topology, cls.STANDARD)(topology, server, **options)
        return super().__new__(cls)

    def __init__(
        self, topology: Topology, server: int, *, now: float = 0.0, **options: Any
    ) -> None:
        given = json.loads(_file_of(self.FOLDER, server).read_text())
        self.stopped: str = given["refused"]  # reason why the student's code does not run
        self._now = now
        self._marked: Bounded[int, _Visits] = Bounded(MOST_MARKED)
        self._frames = Allowance(FRAMES_PER_S, FRAME_BURST, now)
        if not self.stopped:
            modules = modules_for(topology)
            self._keeper = ChildKeeper(given["source"], modules, [topology.spec], cpu_s=CPU_S)
            try:
                child = self._keeper.child(among=topology.servers)
                mine: dict[str, Any] = {"child": child, "accepts": self._is_destination, "now": now}
                super().__init__(topology, server, **mine, **options)
                return
            except (ChildKilled, StudentError) as error:
                self.stopped = str(error)
        Router.__init__(self, topology, server, now=now, **options)

    @classmethod
    def header_bytes(cls) -> int:
        """Return the size of a DCN header, which routers derived from HopByHop add."""
        return HopByHop.header_bytes()

    def _is_destination(self, server: int, packet: bytes) -> bool:
        header, _ = Ipv4Header.parse(packet)
        return self.server_of(header.destination) == server

    # -- events: heartbeats and carriers for `Router`, everything for the student's code ----------

    def send(self, packet: bytes, now: float) -> list[Action]:
        """Return the actions of the student's code for a packet from this server."""
        self._hold(packet, now)
        return super().send(packet, now)

    def receive(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Return the actions of the student's code for a frame; process heartbeats directly."""
        if is_heartbeat(frame):
            return Router.receive(self, port, peer, frame, now)
        self._hold(frame.data, now)
        return super().receive(port, peer, frame, now)

    def carrier(self, port: int, up: bool, now: float) -> list[Action]:
        """Notify the student's code, and then the neighbour table, of a port's carrier."""
        return [*super().carrier(port, up, now), *Router.carrier(self, port, up, now)]

    def link_changed(self, step: Step, up: bool, now: float) -> list[Action]:
        """Notify the student's code that a neighbour became reachable or unreachable."""
        if up:
            return self._ask("heard", b"", now, step.port, step.peer, True, now)
        return self._ask("silence", b"", now, step.port, step.peer, now)

    def poll(self, now: float) -> list[Action]:
        """Run the timers of the neighbour table and of the student's code."""
        actions = Router.poll(self, now)
        return [*actions, *super().poll(now)] if self._code_polls_at <= now else actions

    @property
    def next_poll(self) -> float:
        """Time of the next timer, in seconds."""
        return min(self.agenda.next_at, self._code_polls_at)

    @property
    def _code_polls_at(self) -> float:
        return float("inf") if self.stopped else self._next_poll

    def heartbeats(self) -> list[Send]:
        """Return the heartbeats of all ports; none after the student's code was stopped."""
        return [] if self.stopped else super().heartbeats()

    def state(self) -> dict[str, Any]:
        """Return the router's state, with the reason why the student's code was stopped."""
        return {**super().state(), "stopped": self.stopped}

    # -- limits ------------------------------------------------------------------------------------

    def _ask(self, what: str, packet: bytes, now: float, *arguments: Any) -> list[Action]:
        if not self.stopped:
            self.asked.clear()  # the number of questions in a lab is not limited
            passed_s, self._now = max(0.0, now - self._now), now
            keeper = self._keeper
            keeper.waited_s = max(0.0, keeper.waited_s - TIME_SHARE * passed_s)
            try:
                actions = super()._ask(what, packet, now, *arguments)
                self._next_poll = max(self._next_poll, now + LEAST_WAIT_S)
                return actions
            except ChildKilled as killed:
                self.stopped = str(killed)
                self.neighbours.revision += 1  # makes the forwarder stop the heartbeats
        return self._counted([Drop(f"stopped: {self.stopped}", packet)] if packet else [], now)

    def _valid_action(self, plain: Any, packet: bytes) -> Action:
        action = super()._valid_action(plain, packet)
        refused = "" if isinstance(action, Drop) else self._refusal(action)
        return Drop(refused, packet) if refused else action

    def _refusal(self, action: Send | Deliver) -> str:
        """Return the reason why an action of the student's code is not executed, or ""."""
        if isinstance(action, Send) and is_heartbeat(action.frame):
            return HEARTBEAT
        serial = serial_of(action.frame.data if isinstance(action, Send) else action.packet)
        if serial is None:  # marked packets are not limited: a neighbour's flood must not stop them
            return "" if self._frames.take(self._now) else TOO_MANY_FRAMES
        known = self._marked.get(serial)
        if not known or not known.held or (isinstance(action, Send) and action.peer == EVERYONE):
            return LOOP if known and known.arrivals > MOST_VISITS else NOT_HELD
        self._marked.put(serial, known._replace(held=False), self._now)
        return ""

    def _hold(self, data: bytes, now: float) -> None:
        """Note the arrival of a marked packet, which the student's code may forward once."""
        serial = serial_of(data)
        if serial is not None:
            known = self._marked.get(serial)
            count = known.arrivals + 1 if known else 1
            self._marked.put(serial, _Visits(count, count <= MOST_VISITS), now)


def modules_for(topology: Topology) -> list[str]:
    """Return the modules that a student's file may import in a class network."""
    return [type(topology).__module__, *MODULES]


def write_router(
    folder: Path, standard: str, sources: dict[int, str], refused: dict[int, str]
) -> Path:
    """Write the router file of a class network for its lab, and return its path.

    Parameters
    ----------
    folder : Path
        Existing folder that only root may enter.
    standard : str
        Routing algorithm of the servers without a student.
    sources, refused : dict
        Students' files by server, and the reasons why servers are dead from the beginning.
    """
    for server in sources.keys() | refused.keys():
        given = {"source": sources.get(server, ""), "refused": refused.get(server, "")}
        _file_of(str(folder), server).write_text(json.dumps(given))
    router = folder / "router.py"
    made = {"module": ClassRouter.__module__, "standard": standard, "folder": str(folder)}
    router.write_text(ROUTER.format(**made))
    return router


def _file_of(folder: str, server: int) -> Path:
    return Path(folder, f"{server}.json")
