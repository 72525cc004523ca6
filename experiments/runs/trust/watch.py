"""Monitoring of a trial: the interface of the watcher process for the trial's runner.

>>> with Watch(lab) as watch:                                           # doctest: +SKIP
...     watch.begin(at_s)  # Time of the barrier; call it before or at that time.
...     readings = watch.end()  # Call it when the last flow has ended.
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
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pillarbox.experiments.base.interpreter import code_command
from pillarbox.experiments.lab.emulation.cable_shapes import CableShape, usual_shape
from pillarbox.experiments.lab.linux import shaping
from pillarbox.experiments.models import port_bursts
from pillarbox.experiments.runs.trust.queues import Counted, PortLimits
from pillarbox.experiments.runs.trust.readings import Readings
from pillarbox.experiments.runs.trust.strays import of_packets, since
from pillarbox.experiments.runs.trust.watcher import WatchOrder, WatchReport
from pillarbox.topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

PROGRAM = "from pillarbox.experiments.runs.trust import watcher; watcher.main(int(sys.argv[1]))"
ANSWER_S, END_S = 20.0, 5.0  # Timeouts for an answer and for the end of the watcher, in seconds.
# Events in a lab's log that are neither faults nor repairs; machine events are in readings.
QUIET_EVENTS = {
    *("up", "down", "started", "ready", "ended", "forwarder ended"),
    *("nursery ended", "nursery lost", "pacer ended"),
    *("late", "machine lost", "machine came back"),
}


class _Direction(NamedTuple):
    """One direction of a cable, and the interface that sends in this direction."""

    node: int
    port: int
    peer: int
    namespace: int
    owner: str  # Node of the namespace; "" for the fabric's namespace.
    ifindex: int
    level: int = 0  # Level of the cable.


class _ForwarderCounters(NamedTuple):
    """Drop counts by reason and link-down count, summed over all forwarders."""

    drops: Counter[str]
    link_losses: int


class TrialWatch(Protocol):
    """Monitor of a trial on one machine (`Watch`) or several."""

    def __enter__(self) -> TrialWatch: ...

    def __exit__(self, *error: object) -> None: ...

    def begin(self, at_s: float) -> None:
        """Start measuring at a time of CLOCK_MONOTONIC."""
        ...

    def so_far(self) -> Readings | None:
        """Return the readings until now, None if there are none."""
        ...

    def end(self) -> Readings:
        """Stop measuring; return the readings."""
        ...


class Watch:
    """Monitor of a trial's trustworthiness on a running lab; create it after convergence.

    Parameters
    ----------
    lab : Lab
        Lab that runs the trial.
    come_and_go : bool
        True if ports are empty at times, as with arriving flows; False for greedy flows.
    """

    def __init__(self, lab: Lab, *, come_and_go: bool = False) -> None:
        self._lab = lab
        rate_bytes_s = (lab.settings.rate_mbit or 0.0) * 125_000 if come_and_go else 0.0
        self._directions = sorted(_directions(lab), key=lambda one: one.namespace)
        self._before = self._forwarder_counters()
        self._begin_s = 0.0
        self._lock = threading.Lock()
        self._channel, child_end = Pipe()
        spaces = {one.namespace for one in self._directions}
        with child_end:
            self._process = subprocess.Popen(
                code_command(PROGRAM, child_end.fileno()),
                pass_fds=[child_end.fileno(), *spaces],
                cwd="/",
                stdin=subprocess.DEVNULL,
            )
        try:
            limits = self._port_limits(rate_bytes_s)
            self._send(WatchOrder(self._namespaces(), enough_bytes(lab), rate_bytes_s, limits))
            self._receive()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def begin(self, at_s: float) -> None:
        """Begin to monitor at a time of CLOCK_MONOTONIC."""
        self._begin_s = at_s
        self._send(at_s)
        self._receive()

    def end(self) -> Readings:
        """End the monitoring and return the trial's readings."""
        require(self._begin_s > 0, "the watch has no readings: call begin before end")
        with self._lock:
            self._send(None)
            report: WatchReport = self._receive()
            self.close()
        return self._readings(report)

    def so_far(self) -> Readings | None:
        """Return the readings until now, None if the watch has ended; thread-safe."""
        with self._lock:
            if self._channel.closed:
                return None
            self._send(True)
            report: WatchReport = self._receive()
        return self._readings(report)

    def _readings(self, report: WatchReport) -> Readings:
        rate_mbit = self._lab.settings.rate_mbit
        rate_bps = None if rate_mbit is None else rate_mbit * 1e6
        before, after = self._before, self._forwarder_counters()
        return Readings(
            duration_s=report.duration_s,
            rate_bps=rate_bps,
            base_rtt_s=base_rtt_s(self._lab),
            links=self._link_rows(report.ports, rate_bps, report.duration_s),
            samples=report.samples,
            interval_s=report.interval_s,
            **report.heard._asdict(),
            **report.busy._asdict(),
            programs_forward=self._lab.plane == "python",
            packets=sum(port.sent_packets for port in report.ports if port),
            strays=report.strays | since(before.drops, after.drops),
            faults=faults_since(self._lab.folder, self._begin_s),
            link_losses=after.link_losses - before.link_losses,
            watching=report.watching,
        )

    def close(self) -> None:
        """End the watcher process of a trial, whatever its state."""
        self._channel.close()  # The process ends when its channel is closed.
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _namespaces(self) -> list[tuple[int, str, list[int]]]:
        places: dict[int, tuple[int, str, list[int]]] = {}
        for one in self._directions:
            place = places.setdefault(one.namespace, (one.namespace, one.owner, []))
            place[2].append(one.ifindex)
        return list(places.values())

    def _port_limits(self, rate_bytes_s: float) -> tuple[PortLimits, ...]:
        """Return the limits of each port by the level of its cable; empty if all are equal."""
        topology = self._lab.topology
        if not (topology.factors.rates or topology.factors.delays):
            return ()
        levels = {one.level for one in self._directions}
        of_level = {
            level: PortLimits(
                enough_bytes(self._lab, level), rate_bytes_s * topology.rate_of_level(level)
            )
            for level in levels
        }
        return tuple(of_level[one.level] for one in self._directions)

    def _link_rows(
        self, ports: list[Counted | None], usual_bps: float | None, duration_s: float
    ) -> list[dict[str, Any]]:
        """Return the rows of the table of links (`schema.LINKS`)."""
        rows = []
        for one, port in zip(self._directions, ports, strict=True):
            ends = map(self._lab.topology.node_name, (one.node, one.peer))
            changed = self._lab.net.shapes.changed.get(frozenset(ends))
            rate_bps = None
            if usual_bps is not None:
                rate_bps = usual_bps * self._lab.topology.rate_of_level(one.level)
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
                    # A changed cable has had several rates, so its share of a rate is undefined.
                    "conserved": None if changed else port.conserved(rate_bps),
                    "queue_median_bytes": port.queue_median_bytes,
                    "queue_p99_bytes": port.queue_p99_bytes,
                }
            )
        return rows

    def _forwarder_counters(self) -> _ForwarderCounters:
        status = self._lab.status()
        return _ForwarderCounters(of_packets(status["drops"]), status["link_losses"])

    def _send(self, order: object) -> None:
        with suppress(ConnectionError):  # Watcher ended: `_receive` raises the error.
            self._channel.send(order)

    def _receive(self) -> Any:
        try:
            if self._channel.poll(ANSWER_S):
                return self._channel.recv()
        except (EOFError, ConnectionError):
            pass
        raise PillarboxError(
            "the process that monitors the trial does not answer: this trial cannot be judged; see "
            "the messages above, or try a smaller network"
        )


def faults_since(folder: Path, begin_s: float) -> int:
    """Return the number of faults and repairs in a lab's event log since a time."""
    with (folder / "events.jsonl").open() as lines:
        events = [json.loads(line) for line in lines]
    return sum(event["at_s"] >= begin_s and event["event"] not in QUIET_EVENTS for event in events)


def enough_bytes(lab: Lab, level: int | None = None) -> int:
    """Return the queue length in bytes from which a lab's port counts as backlogged.

    The port has a cable of the level, or of relative rate and delay 1.

    It is two super-packets, plus the bytes in flight if netem delays packets in its queue.
    """
    settings = lab.settings
    rate_mbit, delay, _ = _initial_shape(lab, level)
    waiting = 2 * port_bursts.super_packet_bytes(rate_mbit, settings.mtu)
    if delay and rate_mbit and shaping.kernel_has_netem():
        waiting += int(shaping.seconds(delay, "delay") * rate_mbit * 125_000)
    return waiting


def _initial_shape(lab: Lab, level: int | None) -> CableShape:
    """Return the rate and delay of a level's cables, or of relative rate and delay 1."""
    shape = CableShape(lab.settings.rate_mbit, lab.settings.delay, None)
    return shape if level is None else usual_shape(lab.topology, shape, level)


def base_rtt_s(lab: Lab) -> float:
    """Return the round-trip time of a full packet to the nearest neighbour in an idle lab."""
    topology, packet_bits = lab.topology, (lab.settings.mtu + 14) * 8
    found = []
    for _, plug in topology.neighbours(0):
        rate_mbit, delay, _ = _initial_shape(lab, plug.level)
        delay_s = shaping.seconds(delay, "delay") if delay else 0.0
        packet_s = packet_bits / (rate_mbit * 1e6) if rate_mbit else 0.0
        cables = 1 if plug.node < topology.servers else 2
        found.append(2 * cables * (delay_s + packet_s))
    return min(found)


def _directions(lab: Lab) -> Iterator[_Direction]:
    topology = lab.topology
    here = (node for node in range(topology.nodes) if topology.node_name(node) in lab.net)
    for node in here:
        made = lab.net[topology.node_name(node)]
        namespace = made.live_namespace().descriptor
        owner = made.name if made.inNamespace else ""
        for port, plug in topology.neighbours(node):
            index = made.intfs[port].ifindex
            yield _Direction(node, port, plug.node, namespace, owner, index, plug.level)
