"""Compilation of Python functions to native code, together with the rules of hosts/ that they call.

numba compiles calls only to functions that are compiled too, and rules are plain functions. So this
module compiles a copy of the function whose global names refer to compiled copies of all functions
that it calls. A loop over flows calls its rule by a name of the loop's own; `native` takes the rule
that this name stands for. `bound` does the same for a function that the loop calls.

Compiled code is cached on disk. numba's own cache is valid until the function's file changes,
whatever happens in other files; this cache is valid until the function, a called function or a
constant changes. It is in the user's own cache folder: compiling everything takes a minute, and a
new checkout of the same code can reuse the result. If several processes need the same function at
the same time, like the workers of a sweep, one of them compiles it and the others wait.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import inspect
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeVar

from pillarbox.experiments.base.interpreter import outside_current_directory
from pillarbox.experiments.models.simulator import atomics
from pillarbox.experiments.models.simulator.references import by_reference, native_by_reference

with outside_current_directory():
    import numba
    from numba.core.caching import FunctionCache, IndexDataCacheFile

OWN_FILE = 0o600  # mode of lock files: any user who can open a lock file could hold the lock

# functions that are not compiled from their source, and their compiled counterparts
INTRINSICS: dict[Callable[..., Any], Any] = {by_reference: native_by_reference, **atomics.NATIVE}

Function = TypeVar("Function", bound=Callable[..., Any])


def native(function: Function, **rules: Callable[..., Any]) -> Function:
    """Return the function, which numba compiles to native code at its first call.

    Parameters
    ----------
    function : callable
        Function that numba can compile.
    **rules : callable
        Functions to call in place of global names that `function` uses, by these names.

    Examples
    --------
    >>> from pillarbox.hosts.bcube.rules import digit
    >>> native(digit)((1, 4, 16), 13, 1)
    3
    """
    return _compiled_on_call(function, rules)


def native_in_place(function: Function, **rules: Callable[..., Any]) -> Function:
    """Return the compiled function without reference counting; it and its callees must create no
    array.

    numba counts references to an array's memory, once for each row that a loop accesses, which can
    take most of the loop's time. Where all memory belongs to the caller, counting is unnecessary.
    """
    return _compiled_on_call(function, rules, in_place=True)


def compile_in_place(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Compile what `native_in_place` would compile at a call with these arguments.

    Threads that wait for one another call the function only after it is compiled.
    """
    _compile_once(_compiled(function, (), kept=True, in_place=True), arguments)


def compiled_in_place(function: Function) -> Function:
    """Mark a function that other compiled functions call: compile it as `native_in_place` does."""
    function.is_in_place = True  # type: ignore[attr-defined]
    return function


def bound(function: Function, **rules: Callable[..., Any]) -> Function:
    """Return a copy of a function that calls other functions by some of its global names.

    `native` takes it as a rule, whose own rules are thus bound. Equal arguments return the same
    copy, which is compiled once.
    """
    return _bound(function, tuple(rules.items()))


@functools.cache
def _bound(function: Any, rules: tuple[tuple[str, Any], ...]) -> Any:
    copy = FunctionType(function.__code__, {**function.__globals__, **dict(rules)})
    copy.__name__ = _name_with_rules(function.__name__, rules)
    return copy


def _name_with_rules(name: str, rules: tuple[tuple[str, Any], ...]) -> str:
    """Return a function's name with its rules' names and modules, a name for a cache file.

    Without the modules, rules of the same name (`parallel` of BCube and of the torus) would replace
    each other's compiled code.
    """
    of_rules = ([*rule.__module__.split(".")[-2:], rule.__name__] for _, rule in rules)
    return ".".join([name, *chain.from_iterable(of_rules)])


def _compiled_on_call(
    function: Function, rules: dict[str, Callable[..., Any]], **how: bool
) -> Function:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        found = _compiled(function, tuple(rules.items()), kept=True, **how)
        _compile_once(found, arguments)
        return found(*arguments)

    return call  # type: ignore[return-value]


@functools.cache
def _compiled(
    function: Any,
    rules: tuple[tuple[str, Any], ...] = (),
    *,
    kept: bool,
    in_place: bool = False,
) -> Any:
    """Return numba's compiled dispatcher for a copy of the function."""
    if function in INTRINSICS:
        return INTRINSICS[function]
    in_place = in_place or getattr(function, "is_in_place", False)
    known = _globals_used(function, rules)
    callees = {
        name: _compiled(inspect.unwrap(value), kept=False, in_place=in_place)
        for name, value in known.items()
        if isinstance(value, FunctionType)
    }
    copy = FunctionType(function.__code__, {**function.__globals__, **known, **callees})
    copy.__qualname__ = _name_with_rules(function.__qualname__, rules)
    # Python calls only cached functions, and C calls none: these wrappers take a third of the
    # compile time, and keep LLVM from inlining a function into its only caller.
    options: dict[str, Any] = {"no_cpython_wrapper": not kept, "no_cfunc_wrapper": True}
    if in_place:
        copy.__qualname__ += ".in_place"  # becomes a part of the name of numba's cache file
        options["_nrt"] = False
    found: Any = numba.njit(copy, nogil=True, **options)
    if kept:
        found._cache = _DigestCache(copy, digest(function, rules))
    return found


def _compile_once(found: Any, arguments: tuple[Any, ...]) -> None:
    """Compile for argument types, or load the cached code, under a lock between processes."""
    if found.signatures:
        return
    path = Path(found._cache.cache_path)
    path.mkdir(parents=True, exist_ok=True)
    with (path / f"{found.py_func.__qualname__}.lock").open("w") as lock:
        with suppress(
            PermissionError
        ):  # the lock file belongs to another user of a shared checkout
            os.fchmod(lock.fileno(), OWN_FILE)
        fcntl.flock(lock, fcntl.LOCK_EX)
        found.compile(tuple(map(numba.typeof, arguments)))


class _DigestCache(FunctionCache):
    """numba's cache, but keyed by a digest of the code instead of the file's modification time."""

    def __init__(self, function: Any, text: str) -> None:
        super().__init__(function)
        folder = numba_cache_folder()
        if folder:
            self._cache_path = str(folder / function.__module__)
            Path(self._cache_path).mkdir(exist_ok=True)
        base = self._impl.filename_base
        self._cache_file = _Index(self._cache_path, base, text)


class _Index(IndexDataCacheFile):
    """numba's index of a function's compiled code; an unreadable index counts as empty."""

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except (AttributeError, ImportError, pickle.UnpicklingError, EOFError):
            # Another checkout wrote the index, for argument types that this one does not have.
            return {}


def numba_cache_folder() -> Path | None:
    """Return the cache folder for all checkouts, or None if numba chooses the folder.

    numba chooses if NUMBA_CACHE_DIR is set, and if the home folder belongs to another user: root,
    who may have a user's home by `sudo`, leaves no files in it.
    """
    if os.environ.get("NUMBA_CACHE_DIR"):
        return None
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home())
        if home.stat().st_uid != os.geteuid():
            return None
        above = home if os.environ.get("XDG_CACHE_HOME") else home / ".cache"
        folder = above / "pillarbox" / "compiled"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder


def digest(function: Any, rules: tuple[tuple[str, Any], ...] = ()) -> str:
    """Return a hash of the source and constants of a function and of all that it calls."""
    found = hashlib.sha256(inspect.getsource(function).encode())
    for name, value in sorted(_globals_used(function, rules).items()):
        if isinstance(value, FunctionType):
            found.update(f"{name} {digest(inspect.unwrap(value))}".encode())
        elif isinstance(value, int | float | tuple):
            found.update(f"{name} {value!r}".encode())
    return found.hexdigest()


def _globals_used(function: Any, rules: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Return the values of the global names that the function uses."""
    known = {**function.__globals__, **dict(rules)}
    return {name: known[name] for name in _names_used(function.__code__) & known.keys()}


def _names_used(code: CodeType) -> set[str]:
    inner = (_names_used(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)
