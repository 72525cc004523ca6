"""Processor time of a relay: labs in their own sandbox, and the time of one forwarder.

In the Python plane a server's forwarder is a process, whose processor time the kernel counts. Under
eBPF forwarding happens in the kernel, within whatever process sends, and no server is charged for
it: the cost of a relay is the additional time of sending over one more relay. This includes the
relay's two ports and the switch between, which in a lab are work of the same kernel.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.lab.linux.measurement import in_child
from experiments.runs.reporting.reproduced.result import Settings
from topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from experiments.lab.emulation.lab import Lab

PYTHON, EBPF = "python", "ebpf"
TIME_LIMIT_S = 120.0
IDLE_S = 1.0


def run_in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a module's function, run in its own process, where a lab may run."""
    found = in_child(function, *arguments, time_limit_s=TIME_LIMIT_S)
    require(not found.failure, f"the measurement of the relay failed: {found.failure}")
    return found.value


@contextmanager
def sandboxed_relay_lab(
    network: str, routing: str, rate_mbit: float | None, mtu: int, plane: str = PYTHON
) -> Iterator[Lab]:
    """Run a lab in a sandbox; this process cannot leave the sandbox afterwards."""
    from experiments.lab.linux import sandbox

    sandbox.enter()
    from experiments.lab.emulation.lab import running
    from hosts.live.settings import LabSettings
    from topos.base.spec import parse

    settings = LabSettings(routing=routing, plane=plane, rate_mbit=rate_mbit, mtu=mtu)
    with (
        tempfile.TemporaryDirectory() as folder,
        running(parse(network), settings, Path(folder)) as lab,
    ):
        lab.wait_converged()
        yield lab


class ForwarderUse(NamedTuple):
    """Activity of a server's forwarder during a measurement."""

    share: float  # processor time of the forwarder, as a share of one processor
    frames_s: float  # frames that the forwarder sent per second


class ForwarderLoad:
    """A running measurement of a server's forwarder, from construction to `end`."""

    def __init__(self, lab: Lab, server: int) -> None:
        assert lab.forwarders is not None
        self._lab, self._server = lab, server
        self._schedstat = Path(f"/proc/{lab.forwarders.pids[server]}/schedstat")
        self._began = self._counters()

    def end(self) -> ForwarderUse:
        """Return the forwarder's activity since the start of the measurement."""
        (then_s, cpu_s, frames), (end_s, used_s, sent) = self._began, self._counters()
        elapsed_s = end_s - then_s
        return ForwarderUse((used_s - cpu_s) / elapsed_s, (sent - frames) / elapsed_s)

    def _counters(self) -> tuple[float, float, int]:
        """Return the current time, the forwarder's processor time, and the frames sent so far."""
        # The kernel counts also frames that the data plane forwards without the router.
        sent = _frames_sent(self._lab, self._server)
        return time.monotonic(), int(self._schedstat.read_text().split()[0]) * 1e-9, sent


def _frames_sent(lab: Lab, server: int) -> int:
    """Return the number of frames sent by a server's ports, as counted by the kernel."""
    from experiments.lab.emulation.nodes import sent_bytes_and_frames

    return sum(frames for _, frames in sent_bytes_and_frames(lab.host(server)).values())


def idle_forwarder_use(lab: Lab, server: int) -> ForwarderUse:
    """Return the activity of a server's forwarder without traffic."""
    busy = ForwarderLoad(lab, server)
    time.sleep(IDLE_S)
    return busy.end()


# -- relays in the kernel --------------------------------------------------------------------------

HOW = (
    "With eBPF, if available, the relay is in the kernel, like the paper's. Its cost per packet is "
    "the difference between the times of sending over it and to it, in turns, including the switch "
    "after it."
)
PORT = 5003
UDP_IP_BYTES = 28
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
    from hosts.live.lab_programs import available

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


def additional_relay_cost_us(
    lab: Lab, ends: tuple[int, int, int], sizes: Sequence[int], batches: int = BATCHES
) -> list[float]:
    """Return by packet size the CPU time in µs that one more relay on the path costs a packet.

    The result is empty if packets of any size took another path.

    Datagrams go from the first server to the second, a neighbour, and over it to the third, in
    turns. A call returns after sending and relaying, so the sender's processor time covers both;
    datagrams that exceed the receiver's buffer are dropped there at no cost.
    """
    source, relay, destination = ends
    with ExitStack() as stack:
        near, far = (
            stack.enter_context(_connected_socket(lab, source, server))
            for server in (relay, destination)
        )
        found = [_relay_cost_us(lab, ends, near, far, size, batches) for size in sizes]
    return [cost for cost in found if cost is not None] if None not in found else []


@contextmanager
def _connected_socket(lab: Lab, source: int, destination: int) -> Iterator[socket.socket]:
    address = lab.topology.ip(destination), PORT
    with lab.host(destination).live_namespace():
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with lab.host(source).live_namespace():
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with receiver, sender:
        receiver.bind(address)
        sender.connect(address)
        yield sender


def _relay_cost_us(
    lab: Lab,
    ends: tuple[int, int, int],
    near: socket.socket,
    far: socket.socket,
    size: int,
    batches: int,
) -> float | None:
    data = bytes(size - UDP_IP_BYTES)
    for sender in (near, far):
        _sending_time_s(sender, data, LEARN)
    time.sleep(LEARN_S)
    _, relay, _ = ends
    costs = []
    before = _frames_sent(lab, relay)
    for _ in range(batches):
        direct, relayed = (_sending_time_s(sender, data, BATCH) for sender in (near, far))
        costs.append((relayed - direct) / BATCH * 1e6)
    relays = (_frames_sent(lab, relay) - before) / (batches * BATCH)
    return median(costs) if abs(relays - 1) < APART else None


def _sending_time_s(sender: socket.socket, data: bytes, count: int) -> float:
    """Return the processor time of sending `count` datagrams."""
    began_s = time.thread_time()
    for _ in range(count):
        sender.send(data)
    return time.thread_time() - began_s
