"""Huge pages for the memory of the test process, so that its forks are fast.

Each test marked `root` forks the process three times, and each fork copies the page table: with all
tests collected 25 ms of processor time, with huge pages a third of it (madvise(2), MADV_COLLAPSE,
Linux 6.1 and later; other kernels refuse it, and nothing changes).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

MADV_COLLAPSE = 25
HUGE_PAGE = 1 << 21  # bytes


def collapse_into_huge_pages() -> None:
    """Back the private writable memory of this process by huge pages where the kernel can."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for begin, end in _heap_areas(Path("/proc/self/maps").read_text()):
        madvise(begin, end - begin, MADV_COLLAPSE)


def _heap_areas(maps: str) -> Iterator[tuple[int, int]]:
    """Yield the whole huge pages in each area of anonymous memory, as first and last address.

    >>> [*_heap_areas("00201000-00a00000 rw-p 00000000 00:00 0 \\n")] == [(0x400000, 0xA00000)]
    True
    >>> [*_heap_areas("00400000-00a00000 r-xp 00000000 08:01 7 /usr/bin/python3\\n")]
    []
    """
    for line in maps.splitlines():
        addresses, rights, _, _, _, *name = line.split()
        begin, end = (int(word, 16) for word in addresses.split("-"))
        begin, end = -(-begin // HUGE_PAGE) * HUGE_PAGE, end // HUGE_PAGE * HUGE_PAGE
        if rights == "rw-p" and name in ([], ["[heap]"]) and begin < end:
            yield begin, end
