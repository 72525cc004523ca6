"""Objects that are never freed, so that looking at them writes nothing: what a child copies."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hosts.linux import immortal

# A child looks at all that its parent has, and tells how much of the memory it then has alone.
LOOKS = """
import gc, os, sys
import hosts.live.nursery
from hosts.linux import immortal

def private_kib():
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))

gc.collect()
if sys.argv[1] == "immortal":
    assert immortal.become() > 10_000
    assert immortal.become() < 100  # what came to be meanwhile
gc.freeze()
reads, writes = os.pipe()
if os.fork() == 0:
    before = private_kib()
    for module in list(sys.modules.values()):
        for one in list(vars(module).values()):
            getattr(one, "__code__", None)
    os.write(writes, str(private_kib() - before).encode())
    os._exit(0)
print(os.read(reads, 100).decode())
"""
USES = """
import gc, hosts.live.nursery, json, sys, weakref
from hosts.linux import immortal
immortal.become()
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


@pytest.mark.skipif(not immortal.can_be(), reason="this Python counts references of all objects")
def test_a_child_that_looks_at_objects_copies_a_fraction() -> None:
    counted, never_freed = (int(said(LOOKS, how)) for how in ("counted", "immortal"))
    assert never_freed < counted / 2


def test_what_comes_later_is_freed_and_the_process_ends_well() -> None:
    assert said(USES) == ""


@pytest.mark.skipif(immortal.can_be(), reason="this Python has objects that are never freed")
def test_where_there_are_none_nothing_is_changed() -> None:
    one = object()
    before = sys.getrefcount(one)
    assert immortal.become() == 0
    assert sys.getrefcount(one) == before
