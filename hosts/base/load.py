"""Routers by name or from a file: what a user may write where a routing is asked for."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from hosts.base.algorithms import algorithms
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
    require(file.is_file(), f"there is no file {file}")
    spec = importlib.util.spec_from_file_location(f"router_{file.stem}", file)
    require(spec is not None and spec.loader is not None, f"{file} is no Python file")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with told_of(file):
        spec.loader.exec_module(module)
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Router) and value.__module__ == spec.name
    ]
    require(
        len(found) == 1,
        f"{file} defines {len(found)} routers: it must define one class that derives from "
        "hosts.base.hop_by_hop.HopByHop or hosts.base.router.Router",
    )
    return found[0]


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
