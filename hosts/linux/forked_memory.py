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

# Sizes in bytes in Python's memory allocator: its pools hold objects of one size, up to LARGEST.
STEP, LARGEST = 16, 512
POOL, POOL_HEADER = 1 << 14, 48
# Maximum bytes of filler objects per size, in case Python has another allocator.
MOST_FILLED = 1 << 20
_fillers: list[object] = []


def share_objects_with_children() -> None:
    """Prepare this process for forking, so that children share the memory of all Python objects."""
    gc.collect()
    if can_be_immortal():
        make_immortal()
    fill_memory_pool_gaps()
    gc.freeze()  # garbage collection in children ignores these objects, so it writes to none


def can_be_immortal() -> bool:
    """Return True if this Python version marks immortal objects by their reference count."""
    return (
        sys.implementation.name == "cpython"
        and sys.version_info[:2] in ((3, 12), (3, 13))  # 3.14 marks immortal objects differently
        and sys.maxsize > 1 << 32
        and sys.byteorder == "little"
        and not sys.abiflags  # excludes debug builds and free-threaded builds of Python
    )


def make_immortal() -> int:
    """Make all Python objects immortal: forked children then never write reference counts."""
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
    """Return the objects that a Python code object refers to, unknown to the garbage collector."""
    names = code.co_filename, code.co_name, code.co_qualname
    tables = code.co_linetable, code.co_exceptiontable
    return [code.co_consts, code.co_names, *names, *tables]


def fill_memory_pool_gaps() -> None:
    """Fill the gaps in Python's memory pools, so that children put new objects into new pages."""
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
    """Return a new Python object that occupies `size` bytes of memory.

    >>> sizes = 16, 32, 48, 256, 512
    >>> all(size - STEP < sys.getsizeof(_object_of_size(size)) <= size for size in sizes)
    True
    """
    if size == STEP:
        return object()
    if size == 2 * STEP:
        return (1 << 30) + len(_fillers)  # a large int, which Python does not cache
    return bytes(size - sys.getsizeof(b""))
