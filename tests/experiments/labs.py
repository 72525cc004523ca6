"""A lab for a test, on the planes that this machine has, and waiting for what happens in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pillarbox import topos
from pillarbox.hosts.live import lab_programs

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

NO_EBPF = lab_programs.available()
EBPF = pytest.mark.skipif(bool(NO_EBPF), reason=NO_EBPF)
PLANES = ["python", pytest.param("ebpf", marks=EBPF)]
WAIT_S = 60.0  # only a guard


@contextmanager
def lab_of(spec: str, folder: Path, **settings: Any) -> Iterator[Lab]:
    """Bring a lab up, with these of `LabSettings`, and wait until its routing has settled."""
    from pillarbox.experiments.lab.emulation import packet_tracing
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.hosts.live.settings import LabSettings

    packet_tracing.TRACE_S = (
        WAIT_S  # in this sandbox alone; whoever knows its packet's end is faster
    )
    with running(topos.parse(spec), LabSettings(**settings), folder) as lab:
        lab.wait_converged()
        yield lab


def wait_until(condition: Callable[[], Any], what: str) -> None:
    """Wait for an event; what the failure says is what does not come about."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)
