"""What a trial needs of a lab over several machines, whatever else that is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from experiments.machines.clock import Clocks


class Machines(Protocol):
    """The machines of a lab: asked together, by number."""

    machines: int  # how many
    folder: Path
    clocks: Clocks
    dead: set[int]  # servers
    lost: set[int]
    came_back: set[int]  # whose worker was away for a while

    def machine_of(self, node: int) -> int:
        """Return the machine of a server or switch."""
        ...

    def living(self) -> list[int]:
        """Return the machines that are not lost."""
        ...

    def to_living(self, request: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """Return the same request for each machine that is not lost."""
        ...

    def ask_machines(
        self, requests: Mapping[int, dict[str, Any]], least: int | None = None
    ) -> dict[int, Any]:
        """Ask the parts of several machines at the same time; return their answers."""
        ...

    def about(self) -> dict[str, Any]:
        """Return what a manifest has to say of the machines."""
        ...
