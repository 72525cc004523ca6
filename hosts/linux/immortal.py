"""What no process of a lab ever lets go of: objects whose references Python need not count.

Memory is shared by a parent and its children until either writes to it, and Python writes to each
object that it looks at: it counts a reference. Since 3.12 it has objects that are never freed, of
which it counts none (PEP 683): None, small numbers, the types that it is built of. Here whatever
there is becomes such an object, before the first child is forked. Modules, functions and constants
live as long as the process in any case.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from types import CodeType
from typing import Any

_NEVER_FREED = 0xFFFFFFFF  # in place of the lower half of an object's count
_count_of = ctypes.c_uint32.from_address


def can_be() -> bool:
    """Tell whether this Python has such objects, marked as is known here."""
    return (
        sys.implementation.name == "cpython"
        and sys.version_info[:2] == (3, 13)  # where it was tried; 3.14 marks them otherwise
        and sys.maxsize > 1 << 32
        and sys.byteorder == "little"
        and not sys.abiflags  # builds for debugging, and those without a global lock
    )


def become() -> int:
    """Let all objects that there are live for ever; return how many were to be counted before."""
    if not can_be():
        return 0
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
