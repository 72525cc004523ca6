"""Python functions in native code, with every rule of hosts/ that they call.

numba takes what a function calls only if that is compiled, too, and rules are plain functions. So
what is compiled is a copy of the function that knows, by the same names, compiled copies of all
functions that it calls. A loop over flows calls the rule that it is for by a name of the loop's
own; `native` is given the rule that the name stands for.

What was compiled is kept on disk. numba would keep it until the file of the function changes, no
matter what happens in other files; here it is kept until a function changes that is called, or a
constant. It is kept in the user's own cache folder: compiling takes a minute in all, and a new
checkout of the same code need not do it again. Of several processes that need the same function at
once, as the workers of a sweep do, one compiles it and the others wait.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import inspect
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeVar

from experiments.interpreter import outside_current_directory

with outside_current_directory():
    import numba
    from numba.core.caching import FunctionCache, IndexDataCacheFile

OWN_FILE = 0o600  # mode of a lock: who can open it could hold it

Function = TypeVar("Function", bound=Callable[..., Any])


def native(function: Function, **rules: Callable[..., Any]) -> Function:
    """Return the function, compiled when it is called first.

    Parameters
    ----------
    function : callable
        What numba can compile.
    **rules : callable
        By a name that the function uses: what the name is to stand for.

    Examples
    --------
    >>> from hosts.bcube.rules import digit
    >>> native(digit)(4, 13, 1)
    3
    """
    return _called(function, rules)


def native_in_place(function: Function, **rules: Callable[..., Any]) -> Function:
    """Return the same of a function that makes no array, nor does what it calls.

    numba counts who uses an array's memory, anew for each row that a loop looks at, which can take
    most of the loop's time. Where all memory is the caller's there is nothing to count.
    """
    return _called(function, rules, in_place=True)


def _called(function: Function, rules: dict[str, Callable[..., Any]], **how: bool) -> Function:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        found = _compiled(function, tuple(rules.items()), kept=True, **how)
        if not found.signatures:
            _compile(found, arguments)
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
    """Return what numba makes of a copy of the function."""
    known = _known(function, rules)
    callees = {
        name: _compiled(inspect.unwrap(value), kept=False, in_place=in_place)
        for name, value in known.items()
        if isinstance(value, FunctionType)
    }
    copy = FunctionType(function.__code__, {**function.__globals__, **known, **callees})
    copy.__qualname__ = ".".join([function.__qualname__, *(rule.__name__ for _, rule in rules)])
    # Python calls only what is kept, and C nothing: what would let them takes a third of the time,
    # and keeps LLVM from moving a function into its only caller.
    options: dict[str, Any] = {"no_cpython_wrapper": not kept, "no_cfunc_wrapper": True}
    if in_place:
        copy.__qualname__ += ".in_place"  # under which it is kept
        options["_nrt"] = False
    found: Any = numba.njit(copy, nogil=True, **options)
    if kept:
        found._cache = _Kept(copy, digest(function, rules))
    return found


def _compile(found: Any, arguments: tuple[Any, ...]) -> None:
    """Compile for arguments of these types, or take what is kept, while no other process does."""
    path = Path(found._cache.cache_path)
    path.mkdir(parents=True, exist_ok=True)
    with (path / f"{found.py_func.__qualname__}.lock").open("w") as lock:
        with suppress(PermissionError):  # of another user, where several share a checkout
            os.fchmod(lock.fileno(), OWN_FILE)
        fcntl.flock(lock, fcntl.LOCK_EX)
        found.compile(tuple(map(numba.typeof, arguments)))


class _Kept(FunctionCache):
    """numba's files, but a digest in the place of the time of the function's own file."""

    def __init__(self, function: Any, text: str) -> None:
        super().__init__(function)
        folder = kept_in()
        if folder:
            self._cache_path = str(folder / function.__module__)
            Path(self._cache_path).mkdir(exist_ok=True)
        base = self._impl.filename_base
        self._cache_file = IndexDataCacheFile(self._cache_path, base, text)


def kept_in() -> Path | None:
    """Return where what was compiled is kept for all checkouts; None where numba is to choose.

    numba chooses where it was told to by NUMBA_CACHE_DIR, and where there is no home of one's own:
    root, who may have a user's home by `sudo`, leaves nothing in there.
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
    """Return a hash of the text of a function, of all that it calls, and of their constants."""
    found = hashlib.sha256(inspect.getsource(function).encode())
    for name, value in sorted(_known(function, rules).items()):
        if isinstance(value, FunctionType):
            found.update(f"{name} {digest(inspect.unwrap(value))}".encode())
        elif isinstance(value, int | float | tuple):
            found.update(f"{name} {value!r}".encode())
    return found.hexdigest()


def _known(function: Any, rules: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Return what the names stand for that the function takes from its module."""
    known = {**function.__globals__, **dict(rules)}
    return {name: known[name] for name in _names(function.__code__) & known.keys()}


def _names(code: CodeType) -> set[str]:
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)
