"""Interface of a lab over several machines, as trials use it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from experiments.machines.clock import Clocks


class Machines(Protocol):
    """A lab's machines, numbered from 0; several are asked in parallel."""

    machines: int  # number of machines
    folder: Path
    clocks: Clocks
    dead: set[int]  # dead servers
    lost: set[int]  # machines that do not answer any more
    came_back: set[int]  # machines whose Dask worker disconnected and came back

    def machine_of(self, node: int) -> int:
        """Return the machine of a server or switch."""
        ...

    def living(self) -> list[int]:
        """Return the numbers of all machines that are not lost."""
        ...

    def to_living(self, request: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """Return the same request for every machine that is not lost, by machine number."""
        ...

    def ask_machines(
        self, requests: Mapping[int, dict[str, Any]], least: int | None = None
    ) -> dict[int, Any]:
        """Send requests to several machines' parts in parallel; return the answers by machine."""
        ...

    def about(self) -> dict[str, Any]:
        """Return the manifest's entry about the machines."""
        ...
