"""A student's file whose functions decide for routers of ours: who asks it, and how."""

from __future__ import annotations

import json
from typing import Any, Protocol

from experiments.grading.child import Mistake, Stopped
from experiments.grading.live_grading import sealed
from topos.base.topology import Topology


class Askable(Protocol):
    """Whoever can be asked for what a function of the file returns: `Work`, or `Sealed`."""

    values: dict[str, Any]  # values of the student's sheet

    def call(
        self,
        function: str,
        *arguments: Any,
        network: str | None = None,
        paths: int | None = None,
    ) -> Any:
        """Return the answer; raise Mistake for an exception in the file."""
        ...


class Sealed:
    """A student's file in a sealed child of one live server."""

    def __init__(self, given: str, topology: Topology) -> None:
        self.child = sealed(given, topology)
        self.values: dict[str, Any] = json.loads(given)["values"]

    def call(
        self,
        function: str,
        *arguments: Any,
        network: str | None = None,
        paths: int | None = None,
    ) -> Any:
        """Return the value of a function in the student's file."""
        question = {"call": function, "arguments": arguments, "network": network, "paths": paths}
        try:
            return self.child.ask(question)
        except Stopped as stopped:
            raise Mistake(f"stopped: {stopped}") from stopped
