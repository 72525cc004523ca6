"""Measurements of a relay: labs in their own sandbox, and the processor time of one forwarder.

In the Python plane a server's forwarder is a process, whose processor time the kernel counts. Under
eBPF forwarding happens in the kernel, within whatever process sends, and no server is charged for
it: the cost of a relay is the additional time of sending over one more relay. This includes the
relay's two ports and the switch between, which in a lab are work of the same kernel.
"""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from pillarbox.experiments.lab.linux.measurement import in_child
from pillarbox.experiments.models.workloads.flows import Flow, Sending
from pillarbox.experiments.runs.reporting.reproduced.result import Settings
from pillarbox.topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

PYTHON, EBPF = "python", "ebpf"
TIME_LIMIT_S = 120.0
IDLE_S = 1.0
SETTLING = 0.25  # share of the duration in which TCP fills the cables, which is not measured
SPARE = 1.5  # cables' rate relative to full load: headroom for other traffic
TICK_S = 0.002  # interval between a UDP sender's batches
UDP_IP_BYTES = 28
PORT = 5003
Names = tuple[str, str, str]  # a source, a relay and a destination


def run_in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a module's function, run in its own process, where a lab may run."""
    found = in_child(function, *arguments, time_limit_s=TIME_LIMIT_S)
    require(not found.failure, f"the measurement of the relay failed: {found.failure}")
    return found.value


@contextmanager
def sandboxed_relay_lab(
    network: str,
    routing: str,
    rate_mbit: float | None,
    mtu: int,
    *,
    plane: str = PYTHON,
    missing: Iterable[int] = (),
) -> Iterator[Lab]:
    """Run a lab without some servers in a sandbox, which this process cannot leave afterwards."""
    from pillarbox.experiments.lab.linux import sandbox

    sandbox.enter()
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.hosts.live.settings import LabSettings
    from pillarbox.topos.base.spec import parse

    settings = LabSettings(routing=routing, plane=plane, rate_mbit=rate_mbit, mtu=mtu)
    with (
        tempfile.TemporaryDirectory() as folder,
        running(parse(network), settings, Path(folder)) as lab,
    ):
        lab.wait_converged()
        for server in missing:
            lab.kill(server)
        lab.wait_converged()
        yield lab


class ForwarderUse(NamedTuple):
    """Activity of a server's forwarder during a measurement."""

    share: float  # processor time of the forwarder, as a share of one processor
    frames_s: float  # frames that the forwarder sent per second
    bits_s: float  # bits of these frames per second, headers included


class ForwarderLoad:
    """A running measurement of a server's forwarder, from construction to `end`."""

    def __init__(self, lab: Lab, server: int) -> None:
        assert lab.forwarders is not None
        self._lab, self._server = lab, server
        self._schedstat = Path(f"/proc/{lab.forwarders.pids[server]}/schedstat")
        self._began = self._counters()

    def end(self) -> ForwarderUse:
        """Return the forwarder's activity since the start of the measurement."""
        (then_s, *then), (end_s, *end) = self._began, self._counters()
        cpu_s, frames, sent_bytes = (
            (after - before) / (end_s - then_s) for before, after in zip(then, end, strict=True)
        )
        return ForwarderUse(cpu_s, frames, sent_bytes * 8)

    def _counters(self) -> tuple[float, float, int, int]:
        """Return the time, the forwarder's processor time, and the frames and bytes sent so far."""
        # The kernel counts also frames that the data plane forwards without the router.
        frames, sent_bytes = _frames_and_bytes_sent(self._lab, self._server)
        cpu_s = int(self._schedstat.read_text().split()[0]) * 1e-9
        return time.monotonic(), cpu_s, frames, sent_bytes


def _frames_and_bytes_sent(lab: Lab, server: int) -> tuple[int, int]:
    """Return the frames and bytes sent by a server's ports, as counted by the kernel."""
    from pillarbox.experiments.lab.emulation.nodes import sent_bytes_and_frames

    sent = sent_bytes_and_frames(lab.host(server)).values()
    return sum(frames for _, frames in sent), sum(count for count, _ in sent)


def idle_forwarder_use(lab: Lab, server: int) -> ForwarderUse:
    """Return the activity of a server's forwarder without traffic."""
    busy = ForwarderLoad(lab, server)
    time.sleep(IDLE_S)
    return busy.end()


# -- relays in Python ------------------------------------------------------------------------------


def tcp_use(
    where: Names,
    pairs: list[tuple[int, int]],
    missing: list[int],
    mtu: int,
    rate_mbit: float,
    seconds: float,
) -> tuple[float, float, float]:
    """Return TCP flows' goodput in bit/s, and a relay's processor share above idle and its bit/s.

    `where` are the network, its routing and the relay, whose bits include acknowledgements and all
    headers from Ethernet's upwards.
    """
    from pillarbox.experiments.lab.traffic.generator import Generator

    network, routing, name = where
    flows = [Flow(at, a, b, duration_s=seconds) for at, (a, b) in enumerate(pairs)]
    settled_s = SETTLING * seconds
    with sandboxed_relay_lab(network, routing, rate_mbit, mtu, missing=missing) as lab:
        relay = lab.server(name)
        idle = idle_forwarder_use(lab, relay)
        with closing(Generator(lab, flows, Sending(timeout_s=seconds + 10))) as sending:
            sending.prepare()
            at_s = time.monotonic() + 0.2
            sending.start(at_s)
            time.sleep(max(0.0, at_s + settled_s - time.monotonic()))
            busy = ForwarderLoad(lab, relay)
            time.sleep(max(0.0, at_s + seconds - time.monotonic()))
            used = busy.end()
            while not sending.ended():
                time.sleep(0.02)
            delivered = sum(
                one.delivered_bytes
                for result in sending.results()
                for one in result.intervals
                if one.begin_s >= settled_s and one.end_s <= seconds
            )
    goodput_bps = delivered * 8 / (seconds - settled_s)
    return goodput_bps, used.share - idle.share, used.bits_s - idle.bits_s


def udp_uses(
    where: tuple[str, str, Names],
    cases: list[tuple[float, int]],
    packets_s: float,
    rate_mbit: float,
    seconds: float,
) -> list[tuple[float, int, float, float, float]]:
    """Return the relay's processor share, packets and arrivals at each load, minus idling.

    `where` are the network, its routing and three servers; a case is a share of the full load,
    which is `packets_s` in each direction, and the packets' size.
    """
    network, routing, names = where
    with sandboxed_relay_lab(network, routing, SPARE * rate_mbit, 1500) as lab:
        a, relay, b = map(lab.server, names)
        idle = idle_forwarder_use(lab, relay)
        found = []
        for load, size in cases:
            with ExitStack() as stack:
                streams = [
                    stack.enter_context(_udp_stream(lab, *ends, size, load * packets_s))
                    for ends in ((a, b), (b, a))
                ]
                time.sleep(seconds / 5)  # let the first packets set up their paths
                busy = ForwarderLoad(lab, relay)
                time.sleep(seconds)
                used = busy.end()
            arrived = sum(s.received for s in streams) / sum(s.sent for s in streams)
            share, frames_s = used.share - idle.share, used.frames_s - idle.frames_s
            found.append((load, size, share, frames_s, arrived))
    return found


class _StreamCount:
    """Numbers of datagrams that a UDP stream has sent and received."""

    def __init__(self) -> None:
        self.sent = self.received = 0


@contextmanager
def _udp_stream(
    lab: Lab, source: int, destination: int, packet_bytes: int, packets_s: float
) -> Iterator[_StreamCount]:
    """Send datagrams at a fixed rate by a thread; at the end receive those still in flight."""
    count, ended, data = _StreamCount(), threading.Event(), bytes(packet_bytes - UDP_IP_BYTES)

    def send() -> None:
        began_s = time.monotonic()
        while not ended.wait(TICK_S):
            due = int((time.monotonic() - began_s) * packets_s)
            while count.sent < due:
                sender.send(data)
                count.sent += 1

    def receive() -> None:
        while True:
            try:
                receiver.recv(packet_bytes)
                count.received += 1
            except TimeoutError:
                if ended.is_set():
                    return

    with _udp_sockets(lab, source, destination) as (sender, receiver):
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        receiver.settimeout(0.2)
        threads = [threading.Thread(target=run, daemon=True) for run in (send, receive)]
        for thread in threads:
            thread.start()
        try:
            yield count
        finally:
            ended.set()
            for thread in threads:
                thread.join()


@contextmanager
def _udp_sockets(
    lab: Lab, source: int, destination: int
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Open a UDP socket at the source, connected to one at the destination."""
    address = lab.topology.ip(destination), PORT
    with lab.host(destination).live_namespace():
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with lab.host(source).live_namespace():
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with receiver, sender:
        receiver.bind(address)
        sender.connect(address)
        yield sender, receiver


# -- relays in the kernel --------------------------------------------------------------------------

LEARN_S = 0.3  # time until the kernel's tables hold both paths, in seconds
# packets to learn the path, packets per batch; batches of each path per turn
LEARN, BATCH, BATCHES = 200, 500, 100
TURNS, QUICK_TURNS = 12, 6
APART = 0.02  # maximum deviation of relays per packet from 1; beyond it packets took other paths


def repeated_in_labs(
    settings: Settings, measure: Callable[..., list[float]], *arguments: Any
) -> list[list[float]]:
    """Return the results of an eBPF measurement in each of many labs; empty without eBPF support.

    A packet's cost differs by a fifth from lab to lab, as memory layouts differ. Labs in which
    packets took another path are replaced by others.
    """
    from pillarbox.hosts.live.lab_programs import available

    if available():
        settings.say(f"no relay in the kernel: {available()}")
        return []
    turns = settings.repeats or (QUICK_TURNS if settings.quick else TURNS)
    settings.say(f"a relay in the kernel: {turns} labs")
    found: list[list[float]] = []
    for _ in range(2 * turns):
        found += filter(None, [run_in_own_process(measure, *arguments)])
        if len(found) == turns:
            return found
    raise PillarboxError(
        "in most labs packets did not take the path over the relay: the machine is too busy, or "
        "the relay no longer forwards; try again"
    )


def additional_cost_us(
    where: tuple[str, str, int],
    names: Names,
    missing: Iterable[int],
    sizes: Sequence[int],
) -> list[float]:
    """Return by packet size the CPU time in µs that one more eBPF relay on the path costs a packet.

    `where` are the network, its routing and the MTU. The result is empty if packets of any size
    took another path.

    Datagrams go from the first server to the second, a neighbour, and over it to the third, in
    turns. A call returns after sending and relaying, so the sender's processor time covers both;
    datagrams that exceed the receiver's buffer are dropped there at no cost.
    """
    network, routing, mtu = where
    with sandboxed_relay_lab(network, routing, None, mtu, plane=EBPF, missing=missing) as lab:
        source, relay, destination = map(lab.server, names)
        with (
            _udp_sockets(lab, source, relay) as (near, _),
            _udp_sockets(lab, source, destination) as (far, _),
        ):
            found = [_relay_cost_us(lab, relay, near, far, size) for size in sizes]
    return [cost for cost in found if cost is not None] if None not in found else []


def _relay_cost_us(
    lab: Lab, relay: int, near: socket.socket, far: socket.socket, size: int
) -> float | None:
    data = bytes(size - UDP_IP_BYTES)
    for sender in (near, far):
        _sending_time_s(sender, data, LEARN)
    time.sleep(LEARN_S)
    costs = []
    before, _ = _frames_and_bytes_sent(lab, relay)
    for _ in range(BATCHES):
        direct, relayed = (_sending_time_s(sender, data, BATCH) for sender in (near, far))
        costs.append((relayed - direct) / BATCH * 1e6)
    after, _ = _frames_and_bytes_sent(lab, relay)
    relays = (after - before) / (BATCHES * BATCH)
    return median(costs) if abs(relays - 1) < APART else None


def _sending_time_s(sender: socket.socket, data: bytes, count: int) -> float:
    """Return the processor time of sending `count` datagrams."""
    began_s = time.thread_time()
    for _ in range(count):
        sender.send(data)
    return time.thread_time() - began_s
