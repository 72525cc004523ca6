"""Pillarbox in Python: live networks from scripts, pytest and notebooks, and records of runs.

A lab is a separate process, as `pillarbox up` starts it, and visible to other terminals. It ends
with its block, with `close`, and with this process, even if that is killed. Actions on a lab are
requests to its socket (`pillarbox.experiments.runs.control`). A refused request raises a
`PillarboxError`.

The packages `pillarbox.topos`, `pillarbox.hosts` and `pillarbox.experiments` are top-level folders
of a checkout, and folders of this package where Pillarbox is installed.

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

import os.path

TYPE_CHECKING = False  # type checkers take it for True; importing `typing` takes milliseconds
if TYPE_CHECKING:
    from pillarbox.experiments.apps.api.answers import (
        CaptureFile,
        Change,
        Iperf,
        Link,
        NetworkSize,
        PacketPath,
        Ping,
    )
    from pillarbox.experiments.apps.api.graphs import graph
    from pillarbox.experiments.apps.api.labs import Lab
    from pillarbox.experiments.apps.api.servers import Capture, Program, Server
    from pillarbox.experiments.apps.api.traffic import (
        AllToAll,
        Burst,
        OneToAll,
        OneToOne,
        OneToSeveral,
        Permutation,
        SeveralToOne,
        Traffic,
    )
    from pillarbox.experiments.runs.trials.records import load_with_full_names as load
    from pillarbox.topos.base.errors import (
        KernelError,
        LabEndedError,
        NotPermittedError,
        PillarboxError,
        UnknownNameError,
        UnsupportedError,
    )

    lab = Lab

# Names by module. They are imported on demand: a server's forwarder needs none of them.
_NAMES = {
    "experiments.apps.api.answers": (
        *("CaptureFile", "Change", "Iperf", "Link", "NetworkSize", "PacketPath", "Ping"),
    ),
    "experiments.apps.api.graphs": ("graph",),
    "experiments.apps.api.labs": ("Lab",),
    "experiments.apps.api.servers": ("Capture", "Program", "Server"),
    "experiments.apps.api.traffic": (
        *("AllToAll", "Burst", "OneToAll", "OneToOne", "OneToSeveral", "Permutation"),
        *("SeveralToOne", "Traffic"),
    ),
    "topos.base.errors": (
        *("KernelError", "LabEndedError", "NotPermittedError", "PillarboxError"),
        *("UnknownNameError", "UnsupportedError"),
    ),
}
_SOURCE_OF_NAME = {
    **{name: (module, name) for module, names in _NAMES.items() for name in names},
    "lab": ("experiments.apps.api.labs", "Lab"),
    "load": ("experiments.runs.trials.records", "load_with_full_names"),
}

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

# In a checkout the packages are its folders. The links to them next to this file are for type
# checkers and editors: a file system shared with another machine may have no links.
_CHECKOUT, _, _HERE = os.path.abspath(__file__).rpartition("/src/")  # noqa: PTH100 - starts faster
if _HERE == "pillarbox/__init__.py" and os.path.isdir(f"{_CHECKOUT}/topos/base"):  # noqa: PTH112
    __path__.insert(0, _CHECKOUT)

if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name in _SOURCE_OF_NAME:
            import importlib

            module, name_there = _SOURCE_OF_NAME[name]
            return getattr(importlib.import_module(f"{__name__}.{module}"), name_there)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
