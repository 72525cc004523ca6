"""How processes that are forked go on to share the objects of who forked them.

Memory is shared by a parent and its children until either writes to it, a page at a time, and
Python writes where nothing is changed. It counts a reference to each object that it looks at. Since
3.12 it has objects that are never freed, of which it counts none (PEP 683): None, small numbers,
the types that it is built of. There whatever exists is made such an object here; modules, functions
and constants live as long as the process in any case. And what a child makes Python puts into gaps
between the parent's objects, so that each small thing costs it a page. Here the gaps are filled.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from types import CodeType
from typing import Any

_NEVER_FREED = 0xFFFFFFFF  # in place of the lower half of an object's count
_count_of = ctypes.c_uint32.from_address

# Python's allocator puts objects of a size into pools of their own, and larger ones elsewhere.
STEP, LARGEST = 16, 512
POOL, POOL_HEADER = 1 << 14, 48
MOST_FILLED = 1 << 20  # bytes for one size: there may be another allocator
_fillers: list[object] = []


def keep_shared() -> None:
    """Let all objects that there are stay shared with children that are forked later."""
    gc.collect()
    if can_be_immortal():
        make_immortal()
    fill_gaps()
    gc.freeze()  # a collection in a child must not touch them either


def can_be_immortal() -> bool:
    """Tell whether this Python has objects that are never freed, marked as is known here."""
    return (
        sys.implementation.name == "cpython"
        and sys.version_info[:2] in ((3, 12), (3, 13))  # 3.14 marks them otherwise
        and sys.maxsize > 1 << 32
        and sys.byteorder == "little"
        and not sys.abiflags  # builds for debugging, and those without a global lock
    )


def make_immortal() -> int:
    """Let all objects that there are live for ever; return how many were to be counted before."""
    changed, left = 0, gc.get_objects()
    while left:
        one = left.pop()
        count = _count_of(id(one))
        if count.value != _NEVER_FREED:
            count.value = _NEVER_FREED
            changed += 1
            left += _parts(one) if isinstance(one, CodeType) else gc.get_referents(one)
    return changed


def _parts(code: CodeType) -> list[Any]:
    """Return what a code object refers to: the collector of garbage does not know of it."""
    names = code.co_filename, code.co_name, code.co_qualname
    tables = code.co_linetable, code.co_exceptiontable
    return [code.co_consts, code.co_names, *names, *tables]


def fill_gaps() -> None:
    """Make objects of every size until those of a whole pool lie one behind the other."""
    for size in range(STEP, LARGEST + 1, STEP):
        in_a_row = last = 0
        for _ in range(MOST_FILLED // size):
            one = _of_size(size)
            _fillers.append(one)
            in_a_row = in_a_row + 1 if id(one) == last + size else 1
            if in_a_row == (POOL - POOL_HEADER) // size:
                break
            last = id(one)


def _of_size(size: int) -> object:
    """Return a new object that takes so many bytes.

    >>> all(size - STEP < sys.getsizeof(_of_size(size)) <= size for size in (16, 32, 48, 256, 512))
    True
    """
    if size == STEP:
        return object()
    if size == 2 * STEP:
        return (1 << 30) + len(_fillers)  # a number that there is not yet
    return bytes(size - sys.getsizeof(b""))
