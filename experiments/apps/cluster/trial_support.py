"""Interface of a lab over several machines, as trials use it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from experiments.apps.cluster.clock import Clocks


class Machines(Protocol):
    """The machines that run a distributed lab, numbered from 0; requests go to them in parallel."""

    machines: int  # number of machines
    folder: Path
    clocks: Clocks
    dead: set[int]  # numbers of dead servers in the lab
    lost: set[int]  # numbers of machines that no longer answer
    came_back: set[int]  # machines whose Dask worker disconnected and came back

    def machine_of(self, node: int) -> int:
        """Return the number of the machine that emulates a server or switch."""
        ...

    def living_machines(self) -> list[int]:
        """Return the numbers of all machines that are not lost."""
        ...

    def request_for_living_machines(self, request: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """Return the same request for every machine that is not lost, by machine number."""
        ...

    def ask_machines(
        self, requests: Mapping[int, dict[str, Any]], least: int | None = None
    ) -> dict[int, Any]:
        """Send requests to several machines' parts in parallel; return the answers by machine."""
        ...

    def about(self) -> dict[str, Any]:
        """Return the machines' entry in the manifest of a run, which describes their hardware."""
        ...
