"""Pillarbox in Python: live networks from scripts, pytest and notebooks, and records of runs.

A lab is a separate process, as `pillarbox up` starts it, and visible to other terminals. It ends
with its block, with `close`, and with this process, even if that is killed. Actions on a lab are
requests to its socket (`experiments.runs.control`). A refused request raises a `PillarboxError`.

Examples
--------
>>> import pillarbox
>>> with pillarbox.lab("dcell,4,1", rate_mbit=100) as lab:                # doctest: +SKIP
...     print(lab["0.0"].run("ping -c 1 4.3").stdout)
...     lab.cut("0.3", "4.0")
...     print(lab.path("0.0", "4.3"), lab.ping("0.0", "4.3").ms)
...     print(lab.iperf("0.0", "4.3", seconds=2).mbit)
...     flows = lab.run(pillarbox.AllToAll(volume="1MB"))
>>> run = pillarbox.load("quick-20260301-101500-seed1")                   # doctest: +SKIP
>>> run.valid().flows.groupby("system").goodput_bps.describe()            # doctest: +SKIP
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.apps.api.answers import (
    CaptureFile,
    Change,
    Iperf,
    Link,
    NetworkSize,
    PacketPath,
    Ping,
)
from experiments.apps.api.graphs import graph
from experiments.apps.api.labs import Lab
from experiments.apps.api.servers import Capture, Program, Server
from experiments.apps.api.traffic import (
    AllToAll,
    Burst,
    OneToAll,
    OneToOne,
    OneToSeveral,
    Permutation,
    SeveralToOne,
    Traffic,
)
from topos.base.errors import (
    KernelError,
    LabEndedError,
    NotPermittedError,
    PillarboxError,
    UnknownNameError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from experiments.runs.trials.records import Run

__all__ = [
    "AllToAll",
    "Burst",
    "Capture",
    "CaptureFile",
    "Change",
    "Iperf",
    "KernelError",
    "Lab",
    "LabEndedError",
    "Link",
    "NotPermittedError",
    "OneToAll",
    "OneToOne",
    "OneToSeveral",
    "Permutation",
    "PillarboxError",
    "Ping",
    "Program",
    "Server",
    "SeveralToOne",
    "NetworkSize",
    "Traffic",
    "UnknownNameError",
    "UnsupportedError",
    "PacketPath",
    "graph",
    "lab",
    "load",
]

lab = Lab


def load(run: Path | str) -> Run:
    """Return the records of a run's finished trials, as pandas frames; see `docs/records.md`."""
    # Imported here, as only this function needs pandas.
    from experiments.runs.trials.records import load_with_full_names

    return load_with_full_names(run)


def __dir__() -> list[str]:
    return sorted(__all__)
