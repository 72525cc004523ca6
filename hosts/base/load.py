"""Users' own Python files, and routers by name or from such a file.

All of them are run by `module_from`. As root it runs only files that nobody but root and the caller
of sudo may change.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import ModuleType

from hosts.base.algorithms import algorithms
from hosts.base.owned import callers, foreign_writer
from hosts.base.router import Router
from topos.base.errors import PillarboxError, require
from topos.base.topology import Topology


def router_for(topology: Topology, name: str) -> type[Router]:
    """Return the router of an algorithm of the network, or the one that a Python file defines.

    Raises PillarboxError where there is none.
    """
    if name.endswith(".py"):
        return router_from_file(Path(name))
    known = {key: found.router for key, found in algorithms(topology).items() if found.router}
    if name not in known:
        raise PillarboxError(
            f"{topology.spec} has no routing {name!r}: there are {', '.join(known)}, "
            "or a FILE.py of your own"
        )
    return known[name]


def blamed(name: str) -> AbstractContextManager[None]:
    """Return in which context to run that routing: errors of a user's own file are told as such."""
    return told_of(Path(name)) if name.endswith(".py") else nullcontext()


def router_from_file(file: Path) -> type[Router]:
    """Run a Python file and return the one router class that it defines."""
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
        "hosts.base.hop_by_hop.HopByHop or hosts.base.router.Router",
    )
    return found[0]


def module_from(file: Path, kind: str) -> ModuleType:
    """Run a user's own file, and return it as a module; root runs no other user's."""
    if os.geteuid() == 0:
        writer = foreign_writer(file, callers())
        require(not writer, f"{file} is not run as root, since others may change it: {writer}")
    try:
        with open(file, "rb", opener=_at_once) as opened:
            require(stat.S_ISREG(os.fstat(opened.fileno()).st_mode), f"{file} is no file")
            source = opened.read()
    except OSError as error:
        raise PillarboxError(f"{file} cannot be read: {error.strerror}") from None
    module = ModuleType(f"{kind}_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    with told_of(file):
        exec(compile(source, file, "exec", dont_inherit=True), vars(module))
    return module


def _at_once(path: str, flags: int) -> int:
    """Open a file without waiting, as a pipe would have it."""
    return os.open(path, flags | os.O_NONBLOCK)


@contextmanager
def told_of(file: Path) -> Iterator[None]:
    """Turn whatever goes wrong in a user's file into one sentence with the line."""
    try:
        yield
    except PillarboxError:
        raise
    except Exception as error:
        raise PillarboxError(
            f"{file} fails: {type(error).__name__}: {error}{_line_of(error, file)}"
        ) from error


def _line_of(error: Exception, file: Path) -> str:
    """Return where in the user's file the error came from."""
    if isinstance(error, SyntaxError):
        return ""  # its text has the line
    at, trace = "", error.__traceback__
    while trace:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == file.resolve():
            at = f" (line {trace.tb_lineno})"
        trace = trace.tb_next
    return at
