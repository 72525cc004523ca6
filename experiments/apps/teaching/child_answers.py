"""Answers of a sealed child: calls of the student's functions, and decisions of its routers.

Questions and answers are JSON, one per line, bytes in hexadecimal. This module imports only the
standard library; the modules that a lab allows were imported before the child was sealed. ::

    {"load": "def peers(n): ..."}                                 ->  {"answer": null}
    {"call": "peers", "arguments": [4], "network": "bcube,4,1"}   ->  {"answer": [1, 2]}
    {"call": "choose", "arguments": [0, [[[1, 4]]], []], "paths": 1}  ->  {"answer": 0}
    {"router": {"network": "bcube,4,1", "server": 3, ...}}        ->  {"answer": 0.012}
    {"step": [7, null]}                                           ->  {"answer": [0, 7]}
    {"of": "digits", "network": "mine,13,5", "arguments": [7]}    ->  {"answer": [3, 1]}
    {"tell": "receive", "arguments": [0, 2, 2048, "4500...", 1.5], "observed": []}
                                        ->  {"answer": [[["deliver", "4500..."]], 0.012]}
    {"tell": "silence", "arguments": [0, 2, 1.5], "observed": []}
                                        ->  {"answer": [[], 0.012]}

An unknown network is one of the file's own class (``mine``), made with the spec's numbers; ``of``
asks for an attribute or method result of the network, or with null of the class.

Text that the file prints meanwhile is sent with the answer, as ``printed``.

An exception is an answer too: ``{"error": "KeyError: 7 (line 12)"}``. Each line has the number of
its question, so that the reader detects a mismatch.
"""

from __future__ import annotations

import io
import json
import socket
import sys
import types
from typing import Any, NamedTuple

STUDENT = "student"  # name of the student's module, and of its file in tracebacks
LONGEST_ERROR, LONGEST_PRINT = 300, 2000


class Hop(NamedTuple):
    """A path's hop as an argument of the student's code: a pair with the attributes of `Step`."""

    port: int
    peer: int


def answer_grader(stream: socket.socket, networks: dict[str, Any]) -> None:
    """Answer the grader's questions about a student's file until the grader closes the socket."""
    student = StudentModule(networks)
    with stream.makefile("rw", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            question = json.loads(line)
            number = question.pop("number")
            sys.stdout = printed = io.StringIO()
            try:
                answer = {"number": number, "answer": student.answer(question)}
                text = json.dumps(answer | _output_field(printed))
            except BaseException as error:  # any exception here comes from the student's code
                if isinstance(error, SystemExit | KeyboardInterrupt):
                    raise
                text = json.dumps(
                    {"number": number, "error": error_text(error)} | _output_field(printed)
                )
            lines.write(text + "\n")
            lines.flush()


def _output_field(printed: io.StringIO) -> dict[str, str]:
    """Return the output of the student's code as a field of an answer, empty without output."""
    text = printed.getvalue()
    return {"printed": text[:LONGEST_PRINT]} if text else {}


def error_text(error: BaseException) -> str:
    """Return an exception as one line, with the line number in the student's file."""
    line, trace = 0, error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == STUDENT:
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        text = " ".join(str(error).split())[:LONGEST_ERROR]
    except Exception:  # noqa: BLE001 - an error of its own that cannot be printed
        text = "?"
    return f"{type(error).__name__}: {text}" + (f" (line {line})" if line else "")


class StudentModule:
    """A student's file as an imported module, and the router that the module creates."""

    def __init__(self, networks: dict[str, Any]) -> None:
        self.networks = networks
        self.module = types.ModuleType(STUDENT)
        self.router: Any = None

    def answer(self, question: dict[str, Any]) -> Any:
        """Return the answer to the grader's question about the student's file."""
        if "load" in question:
            return self._load(question["load"])
        if "call" in question:
            asked = question["call"], question["arguments"], question.get("network")
            return self._call(*asked, question.get("paths"))
        if "of" in question:
            return self._attribute(question["of"], question["network"], question["arguments"])
        if "router" in question:
            return self._make_router(**question["router"])
        if "step" in question:
            step = self.router.next_step(*question["step"])
            return None if step is None else [step.port, step.peer]
        return self._notify_router(question["tell"], question["arguments"], question["observed"])

    def _load(self, source: str) -> None:
        sys.modules[STUDENT] = self.module
        exec(compile(source, STUDENT, "exec"), vars(self.module))

    def _call(self, name: str, arguments: list[Any], network: str | None, paths: int | None) -> Any:
        function = getattr(self.module, name, None)
        if not callable(function):
            raise NotImplementedError(f"the file has no function {name}")
        given = [_as_tuples(argument) for argument in arguments]
        if paths is not None:
            given[paths] = tuple(tuple(Hop(*step) for step in path) for path in given[paths])
        if network is not None:
            given.insert(0, self._network(network))
        return function(*given)

    def _attribute(self, name: str, network: str | None, arguments: list[Any]) -> Any:
        from pillarbox.topos.base.topology import Topology

        asked = (
            self._derived_class(Topology, "networks") if network is None else self._network(network)
        )
        found = getattr(asked, name)
        return found(*map(_as_tuples, arguments)) if callable(found) else found

    def _network(self, spec: str) -> Any:
        """Return a spec's network; for an unknown spec, an instance of the student's class."""
        if spec not in self.networks:
            from pillarbox.topos.base.topology import Topology

            numbers = [word.partition("=") for word in spec.split(",")[1:]]
            given = [int(word) for word, equals, _ in numbers if not equals]
            options = {name: int(value) for name, equals, value in numbers if equals}
            self.networks[spec] = self._derived_class(Topology, "networks")(*given, **options)
        return self.networks[spec]

    def _derived_class(self, base: type, called: str) -> Any:
        """Return the only class of the student's file that derives from `base`."""
        found = [
            value
            for value in vars(self.module).values()
            if isinstance(value, type)
            and issubclass(value, base)
            and value.__module__ == STUDENT
            and not value.__name__.startswith("_")
        ]
        if len(found) != 1:
            raise NotImplementedError(f"the file defines {len(found)} {called}, not one")
        return found[0]

    def _make_router(
        self,
        network: str,
        server: int,
        seed: int,
        timers: dict[str, float],
        now: float,
        watched: bool = False,
    ) -> float:
        from pillarbox.hosts.base.router import Router
        from pillarbox.hosts.base.timers import Timers

        made = {"timers": Timers(**timers), "seed": seed, "now": now}
        self.router = self._derived_class(Router, "routers")(self._network(network), server, **made)
        if watched:  # the forwarder sends heartbeats, and detects silent neighbours
            self.router.leave_heartbeats_to_others()
            self.router.leave_silence_to_others()
        return _seconds(self.router.next_poll)

    def _notify_router(self, what: str, arguments: list[Any], observed: list[list[Any]]) -> Any:
        from pillarbox.hosts.base.path import Step
        from pillarbox.hosts.wire.frame import Frame

        for seen in observed:
            self.router.bandwidth.observe(*seen)
        if what == "receive":
            port, peer, ethertype, data, now = arguments
            arguments = [port, peer, Frame(ethertype, bytes.fromhex(data)), now]
        elif what == "send":
            arguments = [bytes.fromhex(arguments[0]), arguments[1]]
        elif what in ("heard", "silence"):
            port, peer, *others = arguments
            arguments = [Step(port, peer), *others]
        actions = getattr(self.router, what)(*arguments)
        return [[_action_lists(action) for action in actions], _seconds(self.router.next_poll)]


def _as_tuples(value: object) -> Any:
    """Return lists, as decoded from JSON, as tuples."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _seconds(when: float) -> float:
    # JSON has no infinity, which is a router's time without a next poll
    return min(float(when), 1e9)


def _action_lists(action: Any) -> list[Any]:
    """Return a router's action as lists for JSON; raise an exception if the action is invalid."""
    kind = type(action).__name__
    if kind == "Send":
        ethertype, data = action.frame
        return ["send", action.port, action.peer, ethertype, bytes(data).hex()]
    if kind == "Deliver":
        return ["deliver", bytes(action.packet).hex()]
    if kind == "Drop":
        return ["drop", str(action.reason), bytes(action.packet).hex()]
    raise TypeError(f"a router answers with Send, Deliver or Drop, not with {kind}")
