"""What a relay costs: a lab in a sandbox of its own, and the processor time of one forwarder.

Under the Python plane a server's forwarding is a process, whose time the kernel counts. Under eBPF
it happens in the kernel, on behalf of whatever process sends, and belongs to no server: what a
relay costs there is what sending takes longer over one more of them. That holds the relay's two
ports and the switch behind it as well, which in a lab are the same kernel's work.
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

from experiments.linux.measure import in_child
from experiments.reporting.reproduced.result import Settings
from topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from experiments.emulation.lab import Lab

PYTHON, EBPF = "python", "ebpf"
TIME_LIMIT_S = 120.0
IDLE_S = 1.0


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function of a module returns in a process of its own, where a lab may run."""
    found = in_child(function, *arguments, time_limit_s=TIME_LIMIT_S)
    require(not found.failure, f"the measurement failed: {found.failure}")
    return found.value


@contextmanager
def lab_of(
    network: str, routing: str, rate_mbit: float | None, mtu: int, plane: str = PYTHON
) -> Iterator[Lab]:
    """Run a lab in a sandbox, which this process never leaves."""
    from experiments.linux import sandbox

    sandbox.enter()
    from experiments.emulation.lab import running
    from hosts.live.settings import LabSettings
    from topos.base.spec import parse

    settings = LabSettings(routing=routing, plane=plane, rate_mbit=rate_mbit, mtu=mtu)
    with (
        tempfile.TemporaryDirectory() as folder,
        running(parse(network), settings, Path(folder)) as lab,
    ):
        lab.wait_converged()
        yield lab


class Used(NamedTuple):
    """What a forwarder did for a while."""

    share: float  # of one processor
    frames_s: float  # that it sent


class Busy:
    """How much of a processor a server's forwarder takes, from `begin` to `end`."""

    def __init__(self, lab: Lab, server: int) -> None:
        assert lab.forwarders is not None
        self._lab, self._server = lab, server
        self._schedstat = Path(f"/proc/{lab.forwarders.pids[server]}/schedstat")
        self._began = self._now()

    def end(self) -> Used:
        """Return what it did since."""
        (then_s, cpu_s, frames), (end_s, used_s, sent) = self._began, self._now()
        elapsed_s = end_s - then_s
        return Used((used_s - cpu_s) / elapsed_s, (sent - frames) / elapsed_s)

    def _now(self) -> tuple[float, float, int]:
        """Return the moment, the processor time and the frames sent so far."""
        # The kernel's count: the router's own lacks what the plane repeats without asking it.
        sent = _frames_sent(self._lab, self._server)
        return time.monotonic(), int(self._schedstat.read_text().split()[0]) * 1e-9, sent


def _frames_sent(lab: Lab, server: int) -> int:
    """Return how many frames a server's ports have sent, as the kernel counts them."""
    from experiments.emulation.nodes import sent_by

    return sum(frames for _, frames in sent_by(lab.host(server)).values())


def idle(lab: Lab, server: int) -> Used:
    """Return what a server's forwarder does where nothing is to be forwarded."""
    busy = Busy(lab, server)
    time.sleep(IDLE_S)
    return busy.end()


# -- in the kernel ---------------------------------------------------------------------------------

HOW = (
    "Under eBPF, where the machine has it, the relay is in the kernel, as the paper's was: what a "
    "packet costs there is by how much sending over it takes longer than to it, in turns, with the "
    "switch behind it."
)
PORT = 5003
UDP_IP_BYTES = 28
LEARN_S = 0.3  # until the decisions on both ways are in the kernel
LEARN, BATCH, BATCHES = 200, 500, 100  # packets; batches of each way in a turn
TURNS, QUICK_TURNS = 12, 6
APART = 0.02  # relays by packet, beyond which some took another way


def in_turns(
    settings: Settings, measure: Callable[..., list[float]], *arguments: Any
) -> list[list[float]]:
    """Return what a measure of eBPF found in each of many labs; nothing where there is no eBPF.

    From lab to lab a packet's cost differs by a fifth, as do the places of everything in memory.
    Labs in which packets went another way are left out, and others take their place.
    """
    from hosts.live.bpf import available

    if available():
        settings.say(f"no relay in the kernel: {available()}")
        return []
    turns = settings.repeats or (QUICK_TURNS if settings.quick else TURNS)
    settings.say(f"a relay in the kernel: {turns} labs")
    found: list[list[float]] = []
    for _ in range(2 * turns):
        found += filter(None, [apart(measure, *arguments)])
        if len(found) == turns:
            return found
    raise PillarboxError(
        "in most labs packets went another way than over the relay: the machine is too busy, or "
        "the relay has lost its way; try again"
    )


def one_more(
    lab: Lab, ends: tuple[int, int, int], sizes: Sequence[int], batches: int = BATCHES
) -> list[float]:
    """Return what one relay more costs, in µs of a processor for a packet of each size.

    Nothing where packets of any size went another way.

    Datagrams go from the first server to the second, a neighbour, and over it to the third, in
    turns. Sending and relaying are done when a call returns, so that the sender's
    processor time is that of all; what the receiver has no room for is dropped there at no cost.
    """
    source, relay, destination = ends
    with ExitStack() as stack:
        near, far = (
            stack.enter_context(_connected(lab, source, server)) for server in (relay, destination)
        )
        found = [_compared(lab, ends, near, far, size, batches) for size in sizes]
    return [cost for cost in found if cost is not None] if None not in found else []


@contextmanager
def _connected(lab: Lab, source: int, destination: int) -> Iterator[socket.socket]:
    address = lab.topology.ip(destination), PORT
    with lab.host(destination).live_namespace():
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with lab.host(source).live_namespace():
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with receiver, sender:
        receiver.bind(address)
        sender.connect(address)
        yield sender


def _compared(
    lab: Lab,
    ends: tuple[int, int, int],
    near: socket.socket,
    far: socket.socket,
    size: int,
    batches: int,
) -> float | None:
    data = bytes(size - UDP_IP_BYTES)
    for sender in (near, far):
        _send(sender, data, LEARN)
    time.sleep(LEARN_S)
    _, relay, _ = ends
    costs = []
    before = _frames_sent(lab, relay)
    for _ in range(batches):
        direct, relayed = (_send(sender, data, BATCH) for sender in (near, far))
        costs.append((relayed - direct) / BATCH * 1e6)
    relays = (_frames_sent(lab, relay) - before) / (batches * BATCH)
    return median(costs) if abs(relays - 1) < APART else None


def _send(sender: socket.socket, data: bytes, count: int) -> float:
    """Return the processor time that so many datagrams take."""
    began_s = time.thread_time()
    for _ in range(count):
        sender.send(data)
    return time.thread_time() - began_s
