"""A router whose decisions are made in a sealed child.

The network in memory, or a live forwarder, holds a `SealedChildRouter` for each server. It reports
events to the child, and validates the child's answers like untrusted packets: invalid actions
become drops, time only moves forward, and the number of questions is limited. Each server has a
separate child, so that servers can exchange information only in frames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from pillarbox.experiments.apps.teaching.child import SealedChild, StudentError
from pillarbox.experiments.base.text import printable
from pillarbox.hosts.base.actions import EVERYONE, Action, Deliver, Drop, Send
from pillarbox.hosts.base.bandwidth import Bandwidth
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.memory.memory_network import Trip
from pillarbox.hosts.wire.frame import Frame
from pillarbox.topos.base.topology import Topology

MOST_ACTIONS = 256  # maximum number of actions in a router's answer
MOST_BYTES = 70_000  # maximum size of a frame in a router's answer, in bytes
LONGEST_REASON = 200  # maximum length of a drop reason, in characters
MOST_QUESTIONS = 100_000  # maximum number of calls of all student routers of a simulated network
MOST_REASONS = (
    200  # maximum number of different drop reasons of a student's router that are counted
)
LEAST_WAIT_S = 1e-4  # minimum interval between two polls of a router, in seconds
NO_ACTION = "the router's answer is not a valid action"
OTHER_REASON = f"the router has more than {MOST_REASONS} different reasons to drop packets"
WRONG_SERVER = "delivered at a server that is not its destination"

Accepts = Callable[[int, bytes], bool]


class SealedChildRouter(Router):
    """Router that passes each call to a student's router in a sealed child process.

    Parameters
    ----------
    child : SealedChild
        Sealed process in which the student's router of this server is created.
    accepts : callable, optional
        Function that returns True if a server may deliver a packet; None allows any packet.
    asked : Counter
        Number of questions to all children of the network, shared by its servers.
    """

    watches_neighbours = False  # the student's router itself detects dead neighbours

    def __init__(
        self,
        topology: Topology,
        server: int,
        *,
        child: SealedChild,
        accepts: Accepts | None = None,
        asked: Counter[str] | None = None,
        now: float = 0.0,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(topology, server, now=now, seed=seed, **options)
        self.child, self.accepts = child, accepts
        self.asked = Counter[str]() if asked is None else asked
        self._reasons: set[str] = set()  # drop reasons of the student's code so far
        factors = self.bandwidth.factors
        self.bandwidth = self._ports = _StoredByteCounters(topology.ports, self.bandwidth.rate_bps)
        self._ports.factors = factors
        made = {
            "network": topology.spec,
            "server": server,
            "seed": seed,
            "timers": asdict(self.timers),
            "now": now,
            "watched": self.watches_neighbours,
        }
        self._next_poll = self._poll_time(child.ask({"router": made}), now)

    def send(self, packet: bytes, now: float) -> list[Action]:
        """Return the student's routing actions for a packet of an application."""
        return self._ask("send", packet, now, packet.hex(), now)

    def receive(self, port: int, peer: int, frame: Frame, now: float) -> list[Action]:
        """Return the student's routing actions for a received frame."""
        arguments = port, peer, frame.ethertype, frame.data.hex(), now
        return self._ask("receive", frame.data, now, *arguments)

    def carrier(self, port: int, up: bool, now: float) -> list[Action]:
        """Notify the student's router that a port's carrier is up or down."""
        return self._ask("carrier", b"", now, port, up, now)

    def poll(self, now: float) -> list[Action]:
        """Return the student's routing actions that are due at the current time."""
        return self._ask("poll", b"", now, now)

    @property
    def next_poll(self) -> float:
        """Time at which the student's router requests the next poll, in seconds."""
        return self._next_poll

    def _ask(self, what: str, packet: bytes, now: float, *arguments: Any) -> list[Action]:
        """Ask the student's router for actions; an exception in its code drops only the packet."""
        self.asked["questions"] += 1
        if self.asked["questions"] > MOST_QUESTIONS:
            self.child.stop(
                f"its servers had over {MOST_QUESTIONS} questions: the routers never become idle"
            )
        observed = self._ports.take_counters()
        try:
            question = {"tell": what, "arguments": arguments, "observed": observed}
            answer = self.child.ask(question)
        except StudentError as mistake:
            self.asked["mistakes"] += 1
            self._next_poll = now + self.timers.heartbeat_s
            return self._counted([self._drop(str(mistake), packet)], now)
        if not isinstance(answer, list) or len(answer) != 2 or not isinstance(answer[0], list):
            return self._counted([Drop(NO_ACTION, packet)], now)
        self._next_poll = self._poll_time(answer[1], now)
        return self._counted(
            [self._valid_action(plain, packet) for plain in answer[0][:MOST_ACTIONS]], now
        )

    def _valid_action(self, plain: Any, packet: bytes) -> Action:
        """Return the routing action in a sealed child's JSON lists, or a drop if it is invalid."""
        try:
            kind, *fields = plain
            if kind == "send":
                port, peer, ethertype, data = fields
                if is_integer_below(port, self.topology.ports) and is_integer_below(
                    ethertype, 1 << 16
                ):
                    known = peer == EVERYONE or peer in self.neighbours.peers[port]
                    if type(peer) is not int or not known:  # 1.0 and True are equal to 1
                        return Drop("next hop is no neighbour", packet)
                    return Send(port, peer, Frame(ethertype, _frame_bytes(data)))
            elif kind == "deliver":
                delivered = _frame_bytes(*fields)
                if self.accepts is None or self.accepts(self.server, delivered):
                    return Deliver(delivered)
                return Drop(WRONG_SERVER, delivered)
            elif kind == "drop":
                reason, dropped = fields
                return self._drop(printable(str(reason), LONGEST_REASON), _frame_bytes(dropped))
        except (TypeError, ValueError):
            pass  # The drop action at the end of this method contains the reason.
        return Drop(NO_ACTION, packet)

    def _drop(self, reason: str, packet: bytes) -> Drop:
        """Return a drop with a reason of the student's code, which must not fill the memory."""
        if len(self._reasons) < MOST_REASONS:
            self._reasons.add(reason)
        return Drop(reason if reason in self._reasons else OTHER_REASON, packet)

    def _poll_time(self, when: object, now: float) -> float:
        """Return the time of the next poll in a child's answer; end the child if it is no time."""
        if isinstance(when, int | float) and not isinstance(when, bool) and when == when:
            with suppress(OverflowError):  # an integer of hundreds of digits
                return max(float(when), now + LEAST_WAIT_S)
        return self.child.stop("its next poll time is not a valid time")


class _StoredByteCounters(Bandwidth):
    """Byte counters of a server's ports, collected for the next call of the student's router."""

    def __init__(self, ports: int, rate_bps: float) -> None:
        super().__init__(ports, rate_bps)
        self._seen: dict[int, list[float]] = {}

    def observe(self, port: int, received_bytes: int, sent_bytes: int, now: float) -> None:
        """Store a server port's newest byte counters for the student's router."""
        self._seen[port] = [port, received_bytes, sent_bytes, now]

    def take_counters(self) -> list[list[float]]:
        """Return the stored byte counters of a server's ports, and clear the store."""
        seen, self._seen = list(self._seen.values()), {}
        return seen


def arrived_path(trip: Trip) -> tuple[Path | None, str]:
    """Return the path of a packet that arrived, or the reason why it does not count as arrived.

    A duplicated packet, or a packet whose hops are not contiguous, does not count as arrived.
    """
    if not trip.arrived_s:
        return None, trip.lost or "it never arrived"
    at = trip.source
    for server, step in trip.steps:
        if server != at:
            return None, "it was duplicated on its path"
        at = step.peer
    if at != trip.destination or len(trip.arrived_s) > 1:
        return None, "it was delivered by a server that it did not reach, or more than once"
    return trip.path, ""


def is_integer_below(value: object, below: int) -> bool:
    """Return True if an untrusted value is an integer from 0 to `below` - 1."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below


def _frame_bytes(text: Any) -> bytes:
    data = bytes.fromhex(text)
    if len(data) > MOST_BYTES:
        raise ValueError("the frame is too long")
    return data
