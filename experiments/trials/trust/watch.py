"""Watching a trial, as the one who runs it sees it.

>>> with Watch(lab) as watch:                                           # doctest: +SKIP
...     watch.begin(at_s)  # the barrier, before or when it comes
...     readings = watch.end()  # when the last flow has ended
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.interpreter import code_command
from experiments.linux import shaping
from experiments.trials.trust.queues import Counted
from experiments.trials.trust.readings import Readings
from experiments.trials.trust.strays import of_packets, since
from experiments.trials.trust.watcher import WatchOrder, WatchReport
from topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from experiments.emulation.lab import Lab

PROGRAM = "from experiments.trials.trust import watcher; watcher.main(int(sys.argv[1]))"
ANSWER_S, END_S = 20.0, 5.0
QUIET_EVENTS = {
    *("up", "down", "started", "ready", "ended", "forwarder ended"),
    *("nursery ended", "nursery lost", "pacer ended"),
    *("late", "machine lost", "machine came back"),
}  # the machines' own are told by their readings


class _Direction(NamedTuple):
    """One direction of a cable, and the interface that sends into it."""

    node: int
    port: int
    peer: int
    namespace: int
    owner: str  # of the namespace; "" for the fabric
    ifindex: int


class _Forwarders(NamedTuple):
    """What all forwarders together have counted."""

    drops: Counter[str]
    link_losses: int


class Watch:
    """What watches one trial on a running lab; made when the lab has converged.

    Parameters
    ----------
    lab : Lab
        The lab.
    come_and_go : bool
        Whether flows leave ports empty now and then, as those that arrive do.
    """

    def __init__(self, lab: Lab, *, come_and_go: bool = False) -> None:
        self._lab = lab
        rate_bytes_s = (lab.settings.rate_mbit or 0.0) * 125_000 if come_and_go else 0.0
        self._directions = sorted(_directions(lab), key=lambda one: one.namespace)
        self._before = self._forwarders()
        self._begin_s = 0.0
        self._lock = threading.Lock()
        self._channel, theirs = Pipe()
        spaces = {one.namespace for one in self._directions}
        with theirs:
            self._process = subprocess.Popen(
                code_command(PROGRAM, theirs.fileno()),
                pass_fds=[theirs.fileno(), *spaces],
                cwd="/",
                stdin=subprocess.DEVNULL,
            )
        try:
            self._send(WatchOrder(self._places(), enough_bytes(lab), rate_bytes_s))
            self._answer()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def begin(self, at_s: float) -> None:
        """Watch from that moment of CLOCK_MONOTONIC on."""
        self._begin_s = at_s
        self._send(at_s)
        self._answer()

    def end(self) -> Readings:
        """Watch no more; return what was seen."""
        require(self._begin_s > 0, "a watch that never began has seen nothing: call begin first")
        with self._lock:
            self._send(None)
            seen: WatchReport = self._answer()
            self.close()
        return self._readings(seen)

    def so_far(self) -> Readings | None:
        """Return what was seen until now, None where it has ended; from any thread."""
        with self._lock:
            if self._channel.closed:
                return None
            self._send(True)
            seen: WatchReport = self._answer()
        return self._readings(seen)

    def _readings(self, seen: WatchReport) -> Readings:
        rate_mbit = self._lab.settings.rate_mbit
        rate_bps = None if rate_mbit is None else rate_mbit * 1e6
        before, after = self._before, self._forwarders()
        return Readings(
            duration_s=seen.duration_s,
            rate_bps=rate_bps,
            base_rtt_s=base_rtt_s(self._lab),
            links=self._rows(seen.ports, rate_bps, seen.duration_s),
            samples=seen.samples,
            interval_s=seen.interval_s,
            **seen.heard._asdict(),
            **seen.busy._asdict(),
            programs_forward=self._lab.plane == "python",
            packets=sum(port.sent_packets for port in seen.ports if port),
            strays=seen.strays | since(before.drops, after.drops),
            faults=faults_since(self._lab.folder, self._begin_s),
            link_losses=after.link_losses - before.link_losses,
            watching=seen.watching,
        )

    def close(self) -> None:
        """End the process, however far it came."""
        self._channel.close()  # which ends it
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _places(self) -> list[tuple[int, str, list[int]]]:
        places: dict[int, tuple[int, str, list[int]]] = {}
        for one in self._directions:
            place = places.setdefault(one.namespace, (one.namespace, one.owner, []))
            place[2].append(one.ifindex)
        return list(places.values())

    def _rows(
        self, ports: list[Counted | None], usual_bps: float | None, duration_s: float
    ) -> list[dict[str, Any]]:
        """Return the rows of the table of links."""
        rows = []
        for one, port in zip(self._directions, ports, strict=True):
            ends = map(self._lab.topology.node_name, (one.node, one.peer))
            changed = self._lab.net.shapes.changed.get(frozenset(ends))
            rate_bps = usual_bps
            if changed:
                rate_bps = None if changed.rate_mbit is None else changed.rate_mbit * 1e6
            if port is None or rate_bps is None:
                continue
            rows.append(
                {
                    "from": self._lab.name(one.node),
                    "to": self._lab.name(one.peer),
                    "port": one.port,
                    "rate_bps": rate_bps,
                    "sent_bytes": port.sent_bytes,
                    "dropped_packets": port.drops,
                    "busy_share": min(1.0, port.sent_bytes * 8 / (rate_bps * duration_s)),
                    # It may have been slower or faster before.
                    "conserved": None if changed else port.conserved(rate_bps),
                }
            )
        return rows

    def _forwarders(self) -> _Forwarders:
        status = self._lab.status()
        return _Forwarders(of_packets(status["drops"]), status["link_losses"])

    def _send(self, what: object) -> None:
        with suppress(ConnectionError):  # its answer will be missing
            self._channel.send(what)

    def _answer(self) -> Any:
        try:
            if self._channel.poll(ANSWER_S):
                return self._channel.recv()
        except (EOFError, ConnectionError):
            pass
        raise PillarboxError(
            "the process that watches the trial does not answer: this trial cannot be judged; look "
            "at the messages above, or try a smaller network"
        )


def faults_since(folder: Path, begin_s: float) -> int:
    """Return how many faults and repairs a lab has written down since."""
    with (folder / "events.jsonl").open() as lines:
        events = [json.loads(line) for line in lines]
    return sum(event["at_s"] >= begin_s and event["event"] not in QUIET_EVENTS for event in events)


def enough_bytes(lab: Lab) -> int:
    """Return how much waits in a port that has more to send than it can.

    More than two super-packets; netem's queue also holds what is only under way.
    """
    settings = lab.settings
    waiting = 2 * shaping.super_packet_bytes(settings.rate_mbit, settings.mtu)
    if settings.delay and settings.rate_mbit and shaping.kernel_has_netem():
        delay_s = shaping.seconds(settings.delay, "delay")
        waiting += int(delay_s * settings.rate_mbit * 125_000)
    return waiting


def base_rtt_s(lab: Lab) -> float:
    """Return how long a full packet takes to the nearest neighbour and back when all is idle."""
    settings, topology = lab.settings, lab.topology
    direct = any(plug.node < topology.servers for _, plug in topology.neighbours(0))
    delay_s = shaping.seconds(settings.delay, "delay") if settings.delay else 0.0
    packet_s = (settings.mtu + 14) * 8 / (settings.rate_mbit * 1e6) if settings.rate_mbit else 0.0
    return 2 * (1 if direct else 2) * (delay_s + packet_s)


def _directions(lab: Lab) -> Iterator[_Direction]:
    topology = lab.topology
    for node in lab.nodes_here():
        made = lab.net[topology.node_name(node)]
        namespace = made.live_namespace().descriptor
        owner = made.name if made.inNamespace else ""
        for port, plug in topology.neighbours(node):
            index = made.intfs[port].ifindex
            yield _Direction(node, port, plug.node, namespace, owner, index)
