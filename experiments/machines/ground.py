"""What a lab over machines stands on: something that gives workers of Dask's, one on each machine.

Namespaces of this computer are one (`computer.OneComputer`), a cluster that is up the other
(`named.NamedCluster`). All that is built on top of it is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Protocol


class Ground(Protocol):
    """Machines with a worker each; a machine's number is its place in `addresses`."""

    machines: int
    lead: str  # the lab's own address in the machines' network
    addresses: list[str]  # of the machines; known when it is open
    weights: tuple[int, ...]  # of the machines, where they are not alike
    lossy: tuple[str, ...]  # addresses from which no super-packets came whole, where that was tried
    is_here: bool  # whether all machines are this computer, and their files and namespaces in reach

    def open(self, folder: Path, mtu: int) -> tuple[Any, list[str]]:
        """Return Dask's client, and where the machines' workers are."""
        ...

    def spares(self, used: Collection[str]) -> Iterable[tuple[str, str]]:
        """Yield a worker and its address, of machines beside those that are in use."""
        ...

    def parts_folder(self, folder: Path, lab: str) -> Path:
        """Return the folder of a machine's part there, but for the machine's number behind it."""
        ...

    def keys(self) -> Path | None:
        """Return the folder with the keys of TLS, for other processes; None without TLS."""
        ...

    def last_words(self, machine: int) -> str:
        """Return what a machine's worker said last."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...
