"""Interface of the machines of a lab, as used by everything that runs on several of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from pillarbox.experiments.apps.cluster.clock import Clocks
from pillarbox.experiments.lab.emulation.fabric import ForwarderQueries, Nodes
from pillarbox.experiments.lab.emulation.lab import Lab


class Machines(Protocol):
    """The machines of a distributed lab, numbered from 0; `ClusterFabric` implements it."""

    lab: Lab
    machines: int  # number of machines
    folders: list[Path]  # folder of the lab's part on each machine
    clocks: Clocks
    lost: set[int]  # machines that no longer answer
    came_back: set[int]  # machines whose Dask worker disconnected and came back

    @property
    def net(self) -> Nodes:
        """All servers, switches and cables."""

    @property
    def forwarders(self) -> ForwarderQueries | None:
        """Forwarders of the servers; None if servers do not relay."""

    def machine_of(self, node: int) -> int:
        """Return the number of the machine that emulates a server or switch."""

    def living_machines(self) -> list[int]:
        """Return the numbers of all machines that are not lost."""

    def ask_machines(
        self, requests: Mapping[int, dict[str, Any]], least: int | None = None
    ) -> dict[int, Any]:
        """Send requests to several machines' parts in parallel; return the answers by machine."""

    def ask_living_machines(self, *, least: int | None = None, **request: Any) -> dict[int, Any]:
        """Send a request to all machines that are not lost; see `ask_machines`."""

    def ask_part(self, server: int, **request: Any) -> Any:
        """Send a request to the part of the lab that runs a server; return the answer."""

    def reach(self, server: int) -> list[str]:
        """Return the command prefix that starts programs on a server of another computer."""

    def about(self) -> dict[str, Any]:
        """Return the machines' entry in the manifest of a run, which describes their hardware."""
