"""What a child shares with its parent, though it looks at all of it and makes things of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pillarbox.hosts.linux import forked_memory

needs_immortals = pytest.mark.skipif(
    not forked_memory.can_be_immortal(), reason="this Python counts references of all objects"
)
CHILD = """
import os, sys
import pillarbox.hosts.live.nursery
from pillarbox.hosts.linux import forked_memory

def private_kib():
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))

def tell_of_child(deed):
    reads, writes = os.pipe()
    if os.fork() == 0:
        before = private_kib()
        kept = deed()
        os.write(writes, str(private_kib() - before).encode())
        os._exit(0)
    print(os.read(reads, 100).decode())
"""
LOOKS = """
def look():
    for module in list(sys.modules.values()):
        for one in list(vars(module).values()):
            getattr(one, "__code__", None)

if sys.argv[1] == "immortal":
    assert forked_memory.make_immortal() > 10_000
    assert forked_memory.make_immortal() < 100  # what came to be meanwhile
tell_of_child(look)
"""
MAKES = """
some = [bytes(100 + i % 300) for i in range(40_000)]
del some[::20]
if sys.argv[1] == "filled":
    forked_memory.fill_memory_pool_gaps()
tell_of_child(lambda: [bytes(100 + i % 300) for i in range(1_000)])
"""
USES = """
import gc, json, sys, weakref
import pillarbox.hosts.live.nursery
from pillarbox.hosts.linux import forked_memory
forked_memory.share_objects_with_children()
class Each: pass
some = [Each() for _ in range(10_000)]
gone = weakref.ref(some[0])
assert sys.getrefcount(some) < 10
assert json.loads(json.dumps({"a": [1, 2.5, None]})) == {"a": [1, 2.5, None]}
del some
gc.collect()
assert gone() is None
"""


def said(program: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True
    )
    return done.stdout


@needs_immortals
def test_a_child_that_looks_at_objects_copies_a_fraction() -> None:
    counted, immortal = (int(said(CHILD + LOOKS, how)) for how in ("counted", "immortal"))
    assert immortal < counted / 2


def test_what_a_child_makes_lies_together() -> None:
    scattered, together = (int(said(CHILD + MAKES, how)) for how in ("as it is", "filled"))
    assert together < scattered / 2


def test_what_comes_later_is_freed_and_the_process_ends_well() -> None:
    assert said(USES) == ""
