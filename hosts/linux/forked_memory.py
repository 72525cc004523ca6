"""Memory sharing between forked processes and their parent.

Parent and children share a page of memory until one of them writes to the page. Python also writes
to objects that it only reads, since it counts references. Since 3.12, immortal objects have no
reference count (PEP 683): None, small numbers, built-in types. On such versions, this module makes
all existing objects immortal; modules, functions and constants live as long as the process anyway.
Python also places new objects of a child in gaps between the parent's objects, so that each small
object copies a page. Therefore this module fills the gaps.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from types import CodeType
from typing import Any

_NEVER_FREED = 0xFFFFFFFF  # lower half of the reference count of an immortal Python object
_count_of = ctypes.c_uint32.from_address

# Sizes in bytes of Python's allocator, which has separate pools per object size up to LARGEST.
STEP, LARGEST = 16, 512
POOL, POOL_HEADER = 1 << 14, 48
MOST_FILLED = 1 << 20  # maximum filler bytes per size, in case of another allocator
_fillers: list[object] = []


def keep_shared() -> None:
    """Prepare the process for forking: keep all existing objects in shared memory."""
    gc.collect()
    if can_be_immortal():
        make_immortal()
    fill_gaps()
    gc.freeze()  # excludes the objects from garbage collection in children


def can_be_immortal() -> bool:
    """Return True if this Python version marks immortal objects in the known way."""
    return (
        sys.implementation.name == "cpython"
        and sys.version_info[:2] in ((3, 12), (3, 13))  # 3.14 marks immortal objects differently
        and sys.maxsize > 1 << 32
        and sys.byteorder == "little"
        and not sys.abiflags  # no debug builds, no free-threaded builds
    )


def make_immortal() -> int:
    """Make all Python objects immortal, so that forked children do not write their counts."""
    changed, pending = 0, gc.get_objects()
    while pending:
        item = pending.pop()
        count = _count_of(id(item))
        if count.value != _NEVER_FREED:
            count.value = _NEVER_FREED
            changed += 1
            pending += (
                _code_referents(item) if isinstance(item, CodeType) else gc.get_referents(item)
            )
    return changed


def _code_referents(code: CodeType) -> list[Any]:
    """Return the objects that a code object refers to, which the garbage collector cannot list."""
    names = code.co_filename, code.co_name, code.co_qualname
    tables = code.co_linetable, code.co_exceptiontable
    return [code.co_consts, code.co_names, *names, *tables]


def fill_gaps() -> None:
    """Fill the gaps in Python's memory pools, so that new objects in children share no pages."""
    for size in range(STEP, LARGEST + 1, STEP):
        contiguous = last = 0
        for _ in range(MOST_FILLED // size):
            filler = _object_of_size(size)
            _fillers.append(filler)
            contiguous = contiguous + 1 if id(filler) == last + size else 1
            if contiguous == (POOL - POOL_HEADER) // size:
                break
            last = id(filler)


def _object_of_size(size: int) -> object:
    """Return a new object that occupies `size` bytes.

    >>> sizes = 16, 32, 48, 256, 512
    >>> all(size - STEP < sys.getsizeof(_object_of_size(size)) <= size for size in sizes)
    True
    """
    if size == STEP:
        return object()
    if size == 2 * STEP:
        return (1 << 30) + len(_fillers)  # a large int, which Python does not cache
    return bytes(size - sys.getsizeof(b""))
