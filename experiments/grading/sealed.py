"""The processes in which a student's file runs, sealed off before its first line is read.

This file is run as a program, the *keeper*. It imports what the lab allows, and forks a *child*
whenever it is asked to: with root's rights and the network given up, limits set, and (Landlock)
nothing left to open but Python's own library. Only then does a child read the student's file,
which comes over its socket, and answer questions about it (answering.py). So there is nothing in
a child that is worth stealing, and nothing outside of it that it could change.

Control messages are JSON, one a datagram; the child's socket comes beside ``start``::

    {"modules": ["topos.dpillar"], "networks": ["dpillar,4,2"]}    first, once
    {"start": {"cpu_s": 5, "memory_bytes": 200000000}}   ->   {"pid": 4711, "open": []}
    {"end": 4711}                                        ->   {"signal": 9}

``open`` lists what could not be sealed on this machine. When the control socket closes, every
child is killed.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import signal
import socket
import sys
import types
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
OURS = ("topos", "hosts", "experiments")
NOBODY = 65534
LONGEST_MESSAGE = 1 << 16
OPEN_FILES = 32

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWNET = 0x00020000, 0x08000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38

# Landlock: the numbers of its calls are the same on every processor.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION, RULE_PATH_BENEATH = 1, 1
READ_FILE, READ_DIR = 1 << 2, 1 << 3
TCP_BIND_AND_CONNECT, ABSTRACT_SOCKETS_AND_SIGNALS = 0b11, 0b11
# How many rights over files each version knows, from the first on.
FILE_RIGHTS = (13, 14, 15, 15, 16)

_libc = ctypes.CDLL(None, use_errno=True)


def keep(control: socket.socket) -> None:
    """Start and end children as asked, until the control socket closes."""
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # children of the same user must not look into it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the grader
    sys.path.insert(0, ROOT)
    allowed = json.loads(control.recv(LONGEST_MESSAGE))
    modules = allowed["modules"]
    for name in modules:
        import_module(name)
    answering = import_module("experiments.grading.answering")
    # Made here, because a child cannot read the folder in which networks are found.
    networks = {spec: import_module("topos").parse(spec) for spec in allowed["networks"]}
    gc.collect()
    gc.freeze()  # what is here is shared with the children

    def serve(stream: socket.socket) -> None:
        answering.serve(stream, networks)

    if os.geteuid() == 0:
        _libc.unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWNS)
    children: set[int] = set()
    try:
        while True:
            data, descriptors, _, _ = socket.recv_fds(control, LONGEST_MESSAGE, 1)
            if not data:
                return
            request = json.loads(data)
            if "start" in request:
                pid, unsealed = _fork(request["start"], descriptors[0], control, modules, serve)
                children.add(pid)
                _tell(control, pid=pid, open=unsealed)
            else:
                children.remove(request["end"])
                _tell(control, signal=_end(request["end"]))
    finally:
        for pid in children:
            _end(pid)


def _tell(control: socket.socket, **message: Any) -> None:
    control.send(json.dumps(message).encode())


def _end(pid: int) -> int:
    """Kill a child; return the signal that ended it, 0 if it had left by itself before."""
    os.kill(pid, signal.SIGKILL)  # it is not reaped yet, so the number is still its own
    return max(0, -os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _fork(
    limits: dict[str, int],
    descriptor: int,
    control: socket.socket,
    modules: Sequence[str],
    serve: Any,
) -> tuple[int, list[str]]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        control.close()
        _become_child(limits, descriptor, writer, modules, serve)
    os.close(writer)
    os.close(descriptor)
    with os.fdopen(reader, "rb") as pipe:
        return pid, json.loads(pipe.read() or b'["it died at once"]')


def _become_child(
    limits: dict[str, int], descriptor: int, writer: int, modules: Sequence[str], serve: Any
) -> NoReturn:
    try:
        unsealed = seal(limits, modules)
        os.write(writer, json.dumps(unsealed).encode())
        os.close(writer)
        serve(socket.socket(fileno=descriptor))
    finally:
        os._exit(1)


def seal(limits: dict[str, int], modules: Sequence[str]) -> list[str]:
    """Give up, for good, whatever a student's file has no use for; return what could not be."""
    unsealed = []
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_s"], limits["cpu_s"] + 1))
    memory = _address_space_bytes() + limits["memory_bytes"]
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
        resource.setrlimit(kind, (0, 0))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a change of user would undo it
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if not landlock([os.path.dirname(os.__file__)]):  # noqa: PTH120
        unsealed.append("this kernel has no Landlock: the file could open what its user may open")
    sys.path.remove(ROOT)
    sys.meta_path.insert(0, Only(modules))  # type: ignore[arg-type]
    return unsealed


def landlock(readable: Sequence[str]) -> bool:
    """Let this process open nothing but these folders, for reading; False if it cannot be done."""
    version = _libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ASK_VERSION)
    if version < 1:
        return False
    files = (1 << FILE_RIGHTS[min(version, len(FILE_RIGHTS)) - 1]) - 1
    words = [files]
    if version >= 4:
        words.append(TCP_BIND_AND_CONNECT)
    if version >= 6:
        words.append(ABSTRACT_SOCKETS_AND_SIGNALS)
    asked = (ctypes.c_uint64 * len(words))(*words)
    rules = _libc.syscall(CREATE_RULESET, asked, ctypes.c_size_t(ctypes.sizeof(asked)), 0)
    if rules < 0:
        return False
    for folder in readable:
        place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        rule = (READ_FILE | READ_DIR).to_bytes(8, sys.byteorder)
        rule += place.to_bytes(4, sys.byteorder, signed=True)
        _libc.syscall(ADD_RULE, rules, RULE_PATH_BENEATH, rule, 0)
        os.close(place)
    done = _libc.syscall(RESTRICT_SELF, rules, 0)
    os.close(rules)
    return bool(done == 0)


class Only:
    """Says which modules of Pillarbox there are, where a file asks for another."""

    def __init__(self, modules: Sequence[str]) -> None:
        self.modules = modules

    def find_spec(self, name: str, *_: object) -> types.ModuleType | None:
        """Refuse what is Pillarbox's and was not imported before."""
        if name.partition(".")[0] in OURS:
            allowed = ", ".join(self.modules) or "nothing of Pillarbox"
            raise ImportError(f"{name} is not for this lab, which may import {allowed}")
        return None


def _address_space_bytes() -> int:
    with open("/proc/self/statm") as statm:  # noqa: PTH123
        return int(statm.read().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    keep(socket.socket(fileno=int(sys.argv[1])))
