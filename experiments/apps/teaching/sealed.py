"""Keeper and sealed children: the processes in which a student's file runs.

This file is run as a program, the *keeper*. It imports the modules that the lab allows, and forks a
*child* for each request. The child drops all rights that it does not need (layers.py) and then
tries the actions that must be impossible (forbidden_actions.py). Only after that does it read the
student's file, which comes over its socket, and answer questions about the file (child_answers.py).
So a child can neither read secrets nor change anything outside itself.

Control messages are JSON, one per datagram; ``start`` carries the child's socket::

    {"modules": ["pillarbox.topos.dpillar"], "networks": ["dpillar,4,2"], "without": []}    once
    {"start": {"cpu_s": 5, "memory_bytes": 200000000}}   ->   {"pid": 4711, "open": []}
    {"end": 4711}                                        ->   {"signal": 9}

``open`` lists the actions that a file could perform on this machine. ``without`` names layers to
leave out, so that tests show the effect of the others. When the control socket closes, every child
is killed.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import types
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

OLD_NAMES = ("topos", "hosts", "experiments")  # packages of version 1.0
LONGEST_MESSAGE = 1 << 16


def run_keeper(control: socket.socket, import_folder: str) -> None:
    """Run the keeper: fork and kill sealed children as the grader asks, until its socket closes."""
    # the grader, not the keeper process, handles Ctrl-C
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path.insert(0, import_folder)
    allowed = json.loads(control.recv(LONGEST_MESSAGE))
    modules = allowed["modules"]
    for name in modules:
        import_module(name)
    for name, module in [*sys.modules.items()]:
        if name.startswith("pillarbox."):
            sys.modules[name.removeprefix("pillarbox.")] = module  # name in version 1.0
    answering = import_module("pillarbox.experiments.apps.teaching.child_answers")
    # Parsed before the fork, because a sealed child cannot read the modules of the networks.
    networks = {spec: import_module("pillarbox.topos").parse(spec) for spec in allowed["networks"]}
    seal = ChildSeal(modules, allowed["without"], import_folder)
    gc.collect()
    gc.freeze()  # forked children share the memory of all objects that exist now

    def serve(stream: socket.socket) -> None:
        answering.answer_grader(stream, networks)

    children: set[int] = set()
    try:
        while True:
            data, descriptors, _, _ = socket.recv_fds(control, LONGEST_MESSAGE, 1)
            if not data:
                return
            request = json.loads(data)
            if "start" in request:
                become = _sealed_child_main(seal, request["start"], descriptors[0], control, serve)
                pid, unsealed = _fork_child(become)
                os.close(descriptors[0])
                children.add(pid)
                _send(control, pid=pid, open=unsealed)
            else:
                children.remove(request["end"])
                _send(control, signal=_kill_child(request["end"]))
    finally:
        for pid in children:
            _kill_child(pid)


def _send(control: socket.socket, **message: Any) -> None:
    control.send(json.dumps(message).encode())


def _kill_child(pid: int) -> int:
    """Kill a sealed child; return the signal that ended it, 0 if it had exited before."""
    os.kill(pid, signal.SIGKILL)  # the child is not reaped yet, so its PID is still valid
    return max(0, -os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _fork_child(become: Callable[[int], NoReturn]) -> tuple[int, list[str]]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        become(writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        return pid, json.loads(pipe.read() or b'["it died at once"]')


def _sealed_child_main(
    seal: ChildSeal,
    limits: dict[str, int],
    descriptor: int,
    control: socket.socket,
    serve: Callable[[socket.socket], None],
) -> Callable[[int], NoReturn]:
    def become(writer: int) -> NoReturn:
        try:
            control.close()
            unsealed = seal.seal_process(**limits)
            os.write(writer, json.dumps(unsealed).encode())
            os.close(writer)
            serve(socket.socket(fileno=descriptor))
        finally:
            os._exit(1)

    return become


class ChildSeal:
    """Security layers (seccomp, Landlock and others) that seal a student's process."""

    def __init__(self, modules: Sequence[str], without: Sequence[str], import_folder: str) -> None:
        self.modules, self.without, self.import_folder = modules, without, import_folder
        self.layers, self.deeds = (
            import_module(f"pillarbox.experiments.apps.teaching.{name}")
            for name in ("layers", "forbidden_actions")
        )
        self.missing: dict[str, str] = {}  # reason why this machine lacks a layer, by layer
        self.layers.hide_memory()  # children of the same user must not read the keeper's memory
        self._add_layer("namespaces")
        self._add_layer("calls", prepared=True)

    def seal_process(self, cpu_s: int, memory_bytes: int) -> list[str]:
        """Seal this child process; return the forbidden actions that are still possible."""
        keeper = os.getppid()
        before = self.deeds.StateBeforeSeal(os.geteuid(), keeper, __file__, memory_bytes)
        self._add_layer("limits", cpu_s, memory_bytes)
        self._add_layer("user")
        self.layers.end_with_parent(keeper)
        self._add_layer("landlock", [os.path.dirname(os.__file__)])  # noqa: PTH120
        self._add_layer("calls")
        possible = self.deeds.possible_actions(before)
        sys.path.remove(self.import_folder)
        sys.meta_path.insert(0, ImportRestriction(self.modules))  # type: ignore[arg-type]
        why = "; ".join(f"no {layer}: {reason}" for layer, reason in self.missing.items())
        return [f"a file could {', '.join(possible)} ({why})"] if possible else []

    def _add_layer(self, layer: str, *arguments: Any, prepared: bool = False) -> None:
        if layer in self.missing:
            return
        try:
            if layer in self.without:
                raise OSError(0, "left out")
            getattr(self.layers, f"prepare_{layer}" if prepared else layer)(*arguments)
        except OSError as error:
            self.missing[layer] = error.strerror or str(error)


class ImportRestriction:
    """Import hook that restricts a student's file to the Pillarbox modules that the lab allows."""

    def __init__(self, modules: Sequence[str]) -> None:
        self.modules = modules

    def find_spec(self, name: str, *_: object) -> types.ModuleType | None:
        """Raise ImportError for a module of Pillarbox that the lab does not allow."""
        top = name.partition(".")[0]
        if top in (*OLD_NAMES, "pillarbox"):
            allowed = ", ".join(self.modules) or "nothing of Pillarbox"
            raise ImportError(f"{name} is not for this lab, which may import {allowed}")
        return None


if __name__ == "__main__":
    run_keeper(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
