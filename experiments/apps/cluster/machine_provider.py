"""Interface of a machine provider: it supplies machines with a Dask worker on each.

Implementations are namespaces of this computer (`computer.OneComputer`) and a running cluster
(`named.NamedCluster`). A lab over machines works the same on either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Protocol


class MachineProvider(Protocol):
    """Provider of machines with a Dask worker each; `addresses` is indexed by machine number."""

    machines: int
    lead: str  # IP address of the lab's own process in the machines' network
    addresses: list[str]  # IP addresses of the machines, known after `open`
    weights: tuple[int, ...]  # capacity weights of the machines, empty if all are equal
    lossy: tuple[str, ...]  # addresses of machines that lost super-packets in `cluster check`
    # True if the machines are namespaces of this computer: their files can be opened here
    is_here: bool

    def open(self, folder: Path, mtu: int) -> tuple[Any, list[str]]:
        """Return the Dask client and the addresses of the machines' workers."""
        ...

    def unused_machines(self, used: Collection[str]) -> Iterable[tuple[str, str]]:
        """Yield Dask worker address and IP address of each machine that the lab does not use."""
        ...

    def parts_folder(self, folder: Path, lab: str) -> Path:
        """Return the path prefix of the lab's folder on a machine; the machine number follows."""
        ...

    def keys(self) -> Path | None:
        """Return the folder with the TLS keys for other processes, None without TLS."""
        ...

    def last_words(self, machine: int) -> str:
        """Return the last line that a machine's Dask worker wrote, or the place of its log."""
        ...

    def close(self) -> None:
        """Disconnect from the machines, or remove emulated machines."""
        ...
