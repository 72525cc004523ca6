"""Labs for benches: a check of this machine's support, and a lab in a sandbox."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab


def hindrance(plane: str = "") -> str:
    """Return the reason why a live lab cannot run on this machine, empty if one can."""
    from pillarbox.hosts.live.lab_programs import available

    if os.geteuid():
        return "network namespaces need root"
    return available() if plane == "ebpf" else ""


@contextmanager
def sandboxed(topology: Topology, **settings: Any) -> Iterator[Lab]:
    """Yield a converged live lab; this process stays in the lab's sandbox afterwards."""
    from pillarbox.experiments.lab.linux import sandbox

    sandbox.enter()
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.hosts.live.settings import LabSettings

    with (
        tempfile.TemporaryDirectory() as folder,
        running(topology, LabSettings(**settings), Path(folder)) as lab,
    ):
        lab.wait_converged()
        yield lab
