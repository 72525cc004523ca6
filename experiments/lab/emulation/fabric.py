"""Interfaces of the nodes and forwarders of a lab, wherever they are (see `lab.Fabric`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pillarbox.experiments.lab.emulation.cable_shapes import CableShapes


class Nodes(Protocol):
    """The servers, switches and cables of a lab; nodes are given by their Mininet names."""

    @property
    def shapes(self) -> CableShapes:
        """Rate, delay and loss of each cable."""

    @property
    def queue_bytes(self) -> int | None:
        """Queue limit of every port in bytes; None without a rate limit."""

    def __getitem__(self, name: str, /) -> Any: ...

    def __contains__(self, name: object, /) -> bool: ...


class ForwarderQueries(Protocol):
    """Queries of the forwarders of a lab."""

    @property
    def pids(self) -> Mapping[int, int]:
        """Process ids of the forwarders that this process started, by server; 0 if ended."""

    def ask(self, server: int, what: str, **details: str) -> Any:
        """Return a forwarder's answer to ``state`` or another query, None if it is dead."""

    def last_words(self, server: int) -> str:
        """Return the last line of a forwarder's log."""

    def last_lines(self, server: int, longest: int) -> str:
        """Return the last lines of a forwarder's log, at most `longest` bytes."""
