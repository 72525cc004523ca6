"""Interface through which Pillarbox's routers call the functions of a student's file."""

from __future__ import annotations

import json
from typing import Any, Protocol

from pillarbox.experiments.apps.teaching.child import ChildKilled, StudentError
from pillarbox.experiments.apps.teaching.live_grading import sealed_child
from pillarbox.topos.base.topology import Topology


class Askable(Protocol):
    """Interface that calls functions of a student's file, in a grader or on a live server."""

    values: dict[str, Any]  # values of the student's lab sheet

    def call(
        self,
        function: str,
        *arguments: Any,
        network: str | None = None,
        paths: int | None = None,
    ) -> Any:
        """Return a student function's value; raise StudentError for an exception in it."""
        ...


class SealedStudent:
    """A student's file in a sealed child process of a live server."""

    def __init__(self, given: str, topology: Topology) -> None:
        self.child = sealed_child(given, topology)
        self.values: dict[str, Any] = json.loads(given)["values"]

    def call(
        self,
        function: str,
        *arguments: Any,
        network: str | None = None,
        paths: int | None = None,
    ) -> Any:
        """Call a function of the student's file; raise StudentError if its process was killed."""
        question = {"call": function, "arguments": arguments, "network": network, "paths": paths}
        try:
            return self.child.ask(question)
        except ChildKilled as stopped:
            raise StudentError(f"stopped: {stopped}") from stopped
