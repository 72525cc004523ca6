"""What is compiled is what stands in the files, whichever of them a rule stands in."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numba
import numpy
import pytest

from pillarbox.experiments.base.files import CHECKOUT
from pillarbox.experiments.models.arrays import Ints
from pillarbox.experiments.models.simulator.compiled import (
    _compiled,
    bound,
    digest,
    native,
    native_in_place,
    numba_cache_folder,
)
from pillarbox.experiments.models.simulator.references import TupleReference, by_reference

CALLED = """
STEP = 1

def onward(here):
    while here < 3:
        here += STEP
        yield here
"""
CALLING = """
from called import onward

def rule(here):
    raise NotImplementedError

def last(here):
    found = -1
    for found in onward(here):
        pass
    return found

def total(here):
    found = 0
    for one in rule(here):
        found += one
    return found
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], ModuleType]:
    """Return what writes a module, and imports it as it is now."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)

    def write(name: str, text: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(text)
        spec = importlib.util.spec_from_file_location(name, tmp_path / f"{name}.py")
        assert spec and spec.loader
        found = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, found)
        exec(compile(text, str(spec.origin), "exec"), found.__dict__)  # not what lies in a cache
        return found

    return write


def test_another_checkout_of_the_same_code_has_it_compiled(
    module: Callable[[str, str], ModuleType], tmp_path: Path
) -> None:
    module("called", CALLED)
    one = module("calling", CALLING).last
    assert native(one)(0) == 3
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / "calling.py").write_text(CALLING)
    code = compile(CALLING, str(elsewhere / "calling.py"), "exec")
    exec(code, other := {"__name__": "calling"})
    assert native(other["last"])(0) == 3
    assert sum(_compiled(other["last"], (), kept=True).stats.cache_hits.values()) == 1


def test_it_is_kept_in_a_home_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert numba_cache_folder() == tmp_path / ".cache" / "pillarbox" / "compiled"
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert numba_cache_folder() is None
    monkeypatch.undo()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert numba_cache_folder() is None


def test_a_loop_is_compiled_for_each_rule(module: Callable[[str, str], ModuleType]) -> None:
    called, calling = module("called", CALLED), module("calling", CALLING)
    twice = module("twice", "def twice(here):\n    yield here\n    yield here\n").twice
    assert native(calling.total, rule=called.onward)(0) == 1 + 2 + 3
    assert native(calling.total, rule=twice)(5) == 10
    assert native(calling.total, rule=called.onward)(1) == 2 + 3


def test_rules_of_the_same_name_keep_their_compiled_code(
    module: Callable[[str, str], ModuleType], tmp_path: Path
) -> None:
    total = module("calling", CALLING.replace("from called import onward\n", "onward = None")).total
    for name in ("one", "other"):
        assert native(total, rule=module(name, CALLED).onward)(0) == 6
    assert len(list(tmp_path.rglob("*total.*.nbi"))) == 2


LOOP = """
def rule(here):
    raise NotImplementedError

def total(here):
    raise NotImplementedError

def twice(here):
    return 2 * total(here)
"""


def test_a_called_function_is_compiled_for_each_rule(
    module: Callable[[str, str], ModuleType],
) -> None:
    called, calling = module("called", CALLED), module("calling", CALLING)
    loop, others = module("loop", LOOP), module("others", "def others(here):\n    yield 7\n")
    totals = [bound(calling.total, rule=rule) for rule in (called.onward, others.others)]
    assert [native(loop.twice, total=total)(1) for total in totals] == [10, 14]
    assert bound(calling.total, rule=called.onward) is totals[0]
    digests = {digest(loop.twice, (("total", total),)) for total in totals}
    assert len(digests) == 2
    with pytest.raises(NotImplementedError):
        calling.total(1)  # the function itself is unchanged


ROWS = """
def largest(row):
    found = row[0]
    for value in row:
        found = max(found, value)
    return found

def write(rows, found):
    for i in range(len(rows)):
        found[i] = largest(rows[i])
"""


def test_in_place_nobody_counts_who_uses_the_memory(
    module: Callable[[str, str], ModuleType],
) -> None:
    write = module("rows", ROWS).write
    rows, found = numpy.array([[1, 5, 2], [7, 3, 4]]), numpy.zeros(2, numpy.int64)
    native_in_place(write)(rows, found)
    assert found.tolist() == [5, 7]
    (code,) = _compiled(write, (), kept=True, in_place=True).inspect_llvm().values()
    assert "NRT_incref" not in code


class Tables(NamedTuple):
    """A named tuple of arrays, one of which is nested."""

    rows: Ints
    nested: tuple[Ints, Ints]
    factor: int


def doubled_sum(tables: Tables) -> int:
    tables = by_reference(tables)
    return sum_into(tables, 1) * tables.factor


def sum_into(tables: Tables, place: int) -> int:
    tables.nested[place][0] += tables.rows[0] + tables.rows[1]
    return len(tables.rows) + tables.nested[place][0]


@pytest.mark.parametrize("compiled", [native, native_in_place, lambda function: function])
def test_a_tuple_by_reference_is_the_same_tuple(compiled: Callable[..., Any]) -> None:
    sums = numpy.zeros(1, numpy.int64), numpy.zeros(1, numpy.int64)
    tables = Tables(numpy.array([3, 4]), sums, 2)
    references = [sys.getrefcount(array) for array in (tables.rows, *sums)]
    assert compiled(doubled_sum)(tables) == 2 * (2 + 7)
    assert [one.tolist() for one in sums] == [[0], [7]]
    assert [sys.getrefcount(array) for array in (tables.rows, *sums)] == references


def test_a_tuple_by_reference_is_not_copied() -> None:
    sums = numpy.zeros(1, numpy.int64), numpy.zeros(1, numpy.int64)
    tables = Tables(numpy.array([3, 4]), sums, 2)
    caller, callee = (_compiled(one, kept=False, in_place=True) for one in (doubled_sum, sum_into))
    caller.compile((numba.typeof(tables),))
    assert {isinstance(types[0], TupleReference) for types in callee.signatures} == {True}


@pytest.mark.parametrize(
    ("before", "after", "then"),
    [("STEP = 1", "STEP = 2", 4), ("here < 3", "here < 5", 5)],
    ids=["a constant", "a rule"],
)
def test_what_was_kept_is_left_when_another_file_changes(
    module: Callable[[str, str], ModuleType], before: str, after: str, then: int
) -> None:
    module("called", CALLED)
    old = module("calling", CALLING).last
    assert native(old)(0) == 3
    kept = digest(old)
    same = module("calling", CALLING).last
    assert digest(same) == kept
    assert native(same)(0) == 3
    assert sum(_compiled(same, (), kept=True).stats.cache_hits.values()) == 1
    module("called", CALLED.replace(before, after))
    new = module("calling", CALLING).last
    assert digest(new) != kept
    assert native(new)(0) == then == new(0)


PAIRS = """
from typing import NamedTuple

class Pair(NamedTuple):
    one: int
    other: int

def total(pair):
    return pair.one + pair.other
"""


def test_an_index_with_a_type_that_was_renamed_counts_as_empty(
    module: Callable[[str, str], ModuleType],
) -> None:
    old = module("pairs", PAIRS)
    assert native(old.total)(old.Pair(1, 2)) == 3
    new = module("pairs", PAIRS.replace("Pair(", "Ends("))
    assert native(new.total)(new.Ends(2, 3)) == 5


def test_of_processes_that_need_it_at_once_one_compiles(
    module: Callable[[str, str], ModuleType], tmp_path: Path
) -> None:
    module("called", CALLED)
    module("calling", CALLING)
    program = """
import sys
from called import onward
from calling import total
from pillarbox.experiments.models.simulator import compiled

print("ready", flush=True)
sys.stdin.readline()
assert compiled.native(total, rule=onward)(0) == 6
print(sum(compiled._compiled(total, (("rule", onward),), kept=True).stats.cache_misses.values()))
"""
    both = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": f"{tmp_path}:{CHECKOUT}/src"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for one in both:
        assert one.stdout and one.stdout.readline() == "ready\n"
    for one in both:
        assert one.stdin
        one.stdin.write("go\n")
        one.stdin.flush()
    compiled = [int(one.communicate(timeout=60)[0]) for one in both]
    assert sorted(compiled) == [0, 1]
