"""A router whose decisions are made in a sealed child.

The network in memory, or a live forwarder, holds a `Remote` for each server. What happens is
reported to the child, and what the child answers is checked as if it had come over a wire: actions
that are none are dropped, time only moves forward, and there is an end to the questions. Each
server has a child of its own, so that servers know of one another only what their frames say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from experiments.grading.child import Child, Mistake, Stopped
from experiments.text import printable
from hosts.base.actions import EVERYONE, Action, Deliver, Drop, Send
from hosts.base.bandwidth import Bandwidth
from hosts.base.path import Path
from hosts.base.router import Router
from hosts.memory.memory_network import Trip
from hosts.wire.frame import Frame
from topos.base.topology import Topology

MOST_ACTIONS = 256  # maximum number of actions in an answer
MOST_BYTES = 70_000  # maximum size of a frame
LONGEST_REASON = 200  # characters of a drop reason
MOST_QUESTIONS = 100_000  # maximum number of questions to all servers of a network
LEAST_WAIT_S = 1e-4  # between two polls
NO_ACTION = "the router answered with what is no action"
WRONG_SERVER = "delivered at a server that it was not for"

Accepts = Callable[[int, bytes], bool]


class Remote(Router):
    """The router of one server, by proxy.

    Parameters
    ----------
    child : Child
        Where the student's router of this server is to be made.
    accepts : callable, optional
        Whether a server may deliver a packet; None for any packet.
    asked : Counter
        How many questions the whole network has been asked; shared by its servers.
    """

    watches_neighbours = False  # the student's router does it

    def __init__(
        self,
        topology: Topology,
        server: int,
        *,
        child: Child,
        accepts: Accepts | None = None,
        asked: Counter[str] | None = None,
        now: float = 0.0,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(topology, server, now=now, seed=seed, **options)
        self.child, self.accepts = child, accepts
        self.asked = Counter[str]() if asked is None else asked
        self.bandwidth = self._ports = _Forwarded(topology.ports, self.bandwidth.rate_bps)
        made = {
            "network": topology.spec,
            "server": server,
            "seed": seed,
            "timers": asdict(self.timers),
            "now": now,
        }
        self._next_poll = _moment(child.ask({"router": made}), now)

    def send(self, packet: bytes, now: float) -> list[Action]:
        """Ask what becomes of an application's packet."""
        return self._ask("send", packet, now, packet.hex(), now)

    def receive(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Ask what becomes of a frame."""
        arguments = port, peer, frame.ethertype, frame.data.hex(), now
        return self._ask("receive", frame.data, now, *arguments)

    def carrier(self, port: int, up: bool, now: float) -> list[Action]:
        """Notify the router of a port's carrier."""
        return self._ask("carrier", b"", now, port, up, now)

    def poll(self, now: float) -> list[Action]:
        """Notify the router of the time."""
        return self._ask("poll", b"", now, now)

    @property
    def next_poll(self) -> float:
        """When the student's router wants to be polled."""
        return self._next_poll

    def _ask(self, what: str, packet: bytes, now: float, *arguments: Any) -> list[Action]:
        """Ask the child; an exception in it loses the packet and nothing else."""
        self.asked["questions"] += 1
        if self.asked["questions"] > MOST_QUESTIONS:
            self.child.stop(f"its servers had over {MOST_QUESTIONS} things to do: they never rest")
        observed = self._ports.taken()
        try:
            question = {"tell": what, "arguments": arguments, "observed": observed}
            answer = self.child.ask(question)
        except Mistake as mistake:
            self.asked["mistakes"] += 1
            self._next_poll = now + self.timers.heart_beat_s
            return self._counted([Drop(str(mistake), packet)])
        if not isinstance(answer, list) or len(answer) != 2 or not isinstance(answer[0], list):
            return self._counted([Drop(NO_ACTION, packet)])
        self._next_poll = _moment(answer[1], now)
        return self._counted([self._checked(plain, packet) for plain in answer[0][:MOST_ACTIONS]])

    def _checked(self, plain: Any, packet: bytes) -> Action:
        """Return the action that these lists stand for; a drop if they stand for none."""
        try:
            kind, *fields = plain
            if kind == "send":
                port, peer, ethertype, data = fields
                if whole(port, self.topology.ports) and whole(ethertype, 1 << 16):
                    if peer != EVERYONE and peer not in self.neighbours.peers[port]:
                        return Drop("next hop is no neighbour", packet)
                    return Send(port, peer, Frame(ethertype, _bytes(data)))
            elif kind == "deliver":
                delivered = _bytes(*fields)
                if self.accepts is None or self.accepts(self.server, delivered):
                    return Deliver(delivered)
                return Drop(WRONG_SERVER, delivered)
            elif kind == "drop":
                reason, dropped = fields
                return Drop(printable(str(reason), LONGEST_REASON), _bytes(dropped))
        except (TypeError, ValueError):
            pass  # named below, as the reason of the drop
        return Drop(NO_ACTION, packet)


class _Forwarded(Bandwidth):
    """Byte counters on their way to the child: they go with its next question."""

    def __init__(self, ports: int, rate_bps: float) -> None:
        super().__init__(ports, rate_bps)
        self._seen: dict[int, list[float]] = {}

    def observe(self, port: int, received_bytes: int, sent_bytes: int, now: float) -> None:
        """Keep the newest."""
        self._seen[port] = [port, received_bytes, sent_bytes, now]

    def taken(self) -> list[list[float]]:
        """Return what was kept, once."""
        seen, self._seen = list(self._seen.values()), {}
        return seen


def walked(trip: Trip) -> tuple[Path | None, str]:
    """Return the way of a packet that arrived, or why it cannot count as arrived.

    A packet that was copied, or whose hops do not join, has not arrived.
    """
    if not trip.arrived_s:
        return None, trip.lost or "it never arrived"
    at = trip.source
    for server, step in trip.steps:
        if server != at:
            return None, "it was copied on its way"
        at = step.peer
    if at != trip.destination or len(trip.arrived_s) > 1:
        return None, "it was delivered without having come there, or more than once"
    return trip.path, ""


def _moment(when: Any, now: float) -> float:
    if isinstance(when, int | float) and not isinstance(when, bool) and when == when:
        return max(float(when), now + LEAST_WAIT_S)
    raise Stopped("it wants to be called at a time that is none")


def whole(value: Any, below: int) -> bool:
    """Return True if an untrusted value is an integer from 0 to `below` - 1."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below


def _bytes(text: Any) -> bytes:
    data = bytes.fromhex(text)
    if len(data) > MOST_BYTES:
        raise ValueError("the frame is too long")
    return data
