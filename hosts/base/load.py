"""Loader of users' Python files, and of routers by name or from such a file.

`module_from` executes all such files. As root, it executes only files that no user but root and the
caller of sudo can modify.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import ModuleType

from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.hosts.base.file_ownership import callers, foreign_writer, is_machine_root
from pillarbox.hosts.base.router import Router
from pillarbox.topos.base.errors import NotPermittedError, PillarboxError, UnknownNameError, require
from pillarbox.topos.base.topology import Topology


def router_for(topology: Topology, name: str) -> type[Router]:
    """Return the router class of a routing algorithm, or of a user's Python file.

    Raises PillarboxError if the algorithm is unknown or the file defines no router.
    """
    if name.endswith(".py"):
        return router_from_file(Path(name))
    known = {key: found.router for key, found in algorithms(topology).items() if found.router}
    if name not in known:
        raise UnknownNameError(
            f"{topology.spec} has no routing {name!r}: there are {', '.join(known)}, "
            "or a FILE.py with your own router class"
        )
    return known[name]


def router_file_errors(name: str) -> AbstractContextManager[None]:
    """Return a context manager that turns exceptions of a user's router file into messages."""
    return user_file_errors(Path(name)) if name.endswith(".py") else nullcontext()


def router_from_file(file: Path) -> type[Router]:
    """Execute a Python file and return the only router class that it defines."""
    module = module_from(file, "router")
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Router)
        and value.__module__ == module.__name__
    ]
    require(
        len(found) == 1,
        f"{file} defines {len(found)} routers: it must define one class that derives from "
        "pillarbox.hosts.base.hop_by_hop.HopByHop or pillarbox.hosts.base.router.Router",
    )
    return found[0]


def module_from(file: Path, kind: str) -> ModuleType:
    """Execute a user's file and return its module; as root, only files of trusted users."""
    return module_of(file, source_of(file), f"{kind}_{file.stem}")


def source_of(file: Path) -> bytes:
    """Return the source of a user's file; as root, only of files of trusted users."""
    if is_machine_root():
        writer = foreign_writer(file, callers())
        require(
            not writer,
            f"{file} is not run as root, since other users can modify the file: {writer}",
            NotPermittedError,
        )
    try:
        with open(file, "rb", opener=open_nonblocking) as opened:
            require(
                stat.S_ISREG(os.fstat(opened.fileno()).st_mode), f"{file} is not a regular file"
            )
            return opened.read()
    except OSError as error:
        raise PillarboxError(f"{file} cannot be read: {error.strerror}") from None


def module_of(file: Path, source: bytes, name: str) -> ModuleType:
    """Execute the source of a user's file as a module of this name, and return the module."""
    module = ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module
    with user_file_errors(file):
        exec(compile(source, file, "exec", dont_inherit=True), vars(module))
    return module


def open_nonblocking(path: str, flags: int) -> int:
    """Open a file in non-blocking mode; opening a named pipe would block otherwise."""
    return os.open(path, flags | os.O_NONBLOCK)


@contextmanager
def user_file_errors(file: Path) -> Iterator[None]:
    """Turn exceptions of a user's Python file into a PillarboxError that names the line."""
    try:
        yield
    except PillarboxError:
        raise
    except Exception as error:
        raise PillarboxError(
            f"{file} fails: {type(error).__name__}: {error}{_line_text(error, file)}"
        ) from error


def _line_text(error: Exception, file: Path) -> str:
    """Return the line of the user's file that caused the error, as text for a message."""
    if isinstance(error, SyntaxError):
        return ""  # the message of a Python SyntaxError already contains the line
    at, trace = "", error.__traceback__
    while trace:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == file.resolve():
            at = f" (line {trace.tb_lineno})"
        trace = trace.tb_next
    return at
