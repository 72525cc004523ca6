"""What a relay costs: a lab in a sandbox of its own, and the processor time of one forwarder.

Under the Python plane a server's forwarding is a process, whose time the kernel counts; under eBPF
it happens in whatever process sends, and belongs to no server.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.linux.measure import in_child
from topos.base.errors import require

if TYPE_CHECKING:
    from experiments.emulation.lab import Lab

PLANE = "python"
TIME_LIMIT_S = 120.0
IDLE_S = 1.0


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function of a module returns in a process of its own, where a lab may run."""
    found = in_child(function, *arguments, time_limit_s=TIME_LIMIT_S)
    require(not found.failure, f"the measurement failed: {found.failure}")
    return found.value


@contextmanager
def lab_of(network: str, routing: str, rate_mbit: float, mtu: int) -> Iterator[Lab]:
    """Run a lab in a sandbox, which this process never leaves."""
    from experiments.linux import sandbox

    sandbox.enter()
    from experiments.emulation.lab import running
    from hosts.live.settings import LabSettings
    from topos.base.spec import parse

    settings = LabSettings(routing=routing, plane=PLANE, rate_mbit=rate_mbit, mtu=mtu)
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
        self._told = Path(f"/proc/{lab.forwarders.pids[server]}/schedstat")
        self._began = self._now()

    def end(self) -> Used:
        """Return what it did since."""
        (then_s, cpu_s, frames), (end_s, used_s, sent) = self._began, self._now()
        elapsed_s = end_s - then_s
        return Used((used_s - cpu_s) / elapsed_s, (sent - frames) / elapsed_s)

    def _now(self) -> tuple[float, float, int]:
        """Return the moment, the processor time and the frames sent so far."""
        # The kernel's count: the router's own lacks what the plane repeats without asking it.
        sent = self._lab.frames_sent(self._server)
        return time.monotonic(), int(self._told.read_text().split()[0]) * 1e-9, sent


def idle(lab: Lab, server: int) -> Used:
    """Return what a server's forwarder does where nothing is to be forwarded."""
    busy = Busy(lab, server)
    time.sleep(IDLE_S)
    return busy.end()
