"""Mutation run: change one operator or constant at a time, and check that a test fails.

Usage: `.venv/bin/python tests/mutations.py --draw 200`. Each worker changes its own copy of the
tree. A mutant survives if all its tests pass; a test run that exceeds its time limit fails.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LIMIT_S = 600  # for one run of tests, in seconds
FLUID, PACKETS = "experiments/models/fluid", "experiments/models/packets"
TRUST, RUNS = "experiments/runs/trust", "experiments/runs/trials"
NOT_COPIED = (".venv", ".git", "node_modules", "__pycache__", ".*_cache")
# files to change, and their tests besides the test file of the same name
GUARDED: dict[str, tuple[str, ...]] = {
    "hosts/base/rules.py": ("hosts/test_paths.py",),
    "hosts/bcube/rules.py": ("hosts/test_paths.py", "hosts/bcube"),
    "hosts/dcell/rules.py": ("hosts/test_paths.py", "hosts/dcell"),
    "hosts/dpillar/rules.py": ("hosts/test_paths.py", "hosts/dpillar"),
    "hosts/ficonn/rules.py": ("hosts/test_paths.py", "hosts/ficonn"),
    f"{TRUST}/*.py": (TRUST,),
    f"{RUNS}/statistics.py": (),
    f"{PACKETS}/sender.py": (f"{PACKETS}/test_sender_rfcs.py", f"{PACKETS}/test_hystart.py"),
    f"{FLUID}/*.py": (FLUID, "experiments/models/arrivals", "experiments/cli/commands/test_gap.py"),
}
# operators, and those that replace them
SWAPS = {
    "Lt": "LtE GtE", "LtE": "Lt Gt", "Gt": "GtE LtE", "GtE": "Gt Lt", "Eq": "NotEq", "NotEq": "Eq",
    "Is": "IsNot", "IsNot": "Is", "In": "NotIn", "NotIn": "In", "And": "Or", "Or": "And",
    "Add": "Sub", "Sub": "Add", "Mult": "Add", "Div": "Mult", "FloorDiv": "Mult", "Mod": "FloorDiv",
    "Pow": "Mult", "BitAnd": "BitOr", "BitOr": "BitAnd", "LShift": "RShift", "RShift": "LShift",
}  # fmt: skip
EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
NOTHING = {"return", "return None", "return False"}  # the same to most callers
# fields and statements without effect on results: types, decorators, assertions and messages
SKIPPED_FIELDS = {"annotation", "returns", "decorator_list"}
SKIPPED_NODES = (ast.JoinedStr, ast.Assert, ast.Raise, ast.Import, ast.ImportFrom)


class Mutant(NamedTuple):
    """A change of a file: the number of a node, and of the node's replacement."""

    file: str
    tests: tuple[str, ...]
    node: int
    change: int

    def text(self) -> tuple[str, str]:
        """Return the changed file, and a line that says what changed."""
        source = (ROOT / self.file).read_text()
        tree = ast.parse(source)
        old = list(nodes_of(tree))[self.node]
        new = changes_of(old)[self.change]
        line = getattr(old, "lineno", 0)
        old.__class__, old.__dict__ = type(new), vars(new)  # the old node becomes the new one
        text = ast.unparse(tree)
        pairs = zip(ast.unparse(ast.parse(source)).splitlines(), text.splitlines(), strict=True)
        before, after = next(pair for pair in pairs if pair[0] != pair[1])
        return text, f"{self.file}:{line}: {before.strip()}  ->  {after.strip()}"


def nodes_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node whose change can change a result."""
    for name, value in ast.iter_fields(node):
        if name in SKIPPED_FIELDS:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, SKIPPED_NODES):
                continue
            if ast.unparse(child).startswith(("if TYPE_CHECKING", "strict=")):
                continue
            yield child
            yield from nodes_of(child)


def swaps_of(operator: ast.AST) -> list[ast.AST]:
    """Return the operators that may replace an operator."""
    return [getattr(ast, name)() for name in SWAPS.get(type(operator).__name__, "").split()]


def changes_of(node: ast.AST) -> list[ast.AST]:
    """Return the nodes that may replace this node."""
    found: list[ast.AST] = []

    def replaced(field: str, value: object) -> None:
        other = copy.deepcopy(node)
        setattr(other, field, value)
        found.append(other)

    if isinstance(node, ast.Compare):
        for place, op in enumerate(node.ops):
            for swap in swaps_of(op):
                replaced("ops", [*node.ops[:place], swap, *node.ops[place + 1 :]])
    elif isinstance(node, (ast.BinOp, ast.BoolOp, ast.AugAssign)):
        for swap in swaps_of(node.op):
            replaced("op", swap)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        found.append(node.operand)
    elif isinstance(node, ast.Return) and ast.unparse(node) not in NOTHING:
        replaced("value", ast.Constant(None))
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        replaced("value", not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        replaced("value", node.value + 1)
        if node.value not in {0, 1}:
            replaced("value", 2 * node.value)
    for field in ("id", "attr"):  # of min, numpy.minimum and the like
        if getattr(node, field, None) in EXTREMES:
            replaced(field, EXTREMES[getattr(node, field)])
    return found


def mutants_of(pattern: str) -> Iterator[Mutant]:
    """Yield every mutant of the files of a pattern."""
    for path in sorted(ROOT.glob(pattern)):
        file = str(path.relative_to(ROOT))
        tests = tests_of(pattern, file)
        for index, node in enumerate(nodes_of(ast.parse(path.read_text()))):
            for change, _ in enumerate(changes_of(node)):
                yield Mutant(file, tests, index, change)


def tests_of(pattern: str, file: str) -> tuple[str, ...]:
    """Return the tests of a file: its doctests, the test file of its name, and further ones."""
    path = Path(file)
    own = Path("tests") / path.parent / f"test_{path.name}"
    tests = [str(own), *(f"tests/{test}" for test in GUARDED[pattern])]
    return (f"src/pillarbox/{file}", *(test for test in tests if (ROOT / test).exists()))


def is_green(tests: Iterable[str], tree: Path) -> bool:
    """Run tests in a copy of the tree; return False if one fails or time runs out."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": f"{tree}/src:{tree}", "PYTHONDONTWRITEBYTECODE": "1"}
    with suppress(subprocess.CalledProcessError, subprocess.TimeoutExpired):
        subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, check=True, timeout=LIMIT_S
        )
        return True
    return False


def is_killed(mutant: Mutant, text: str, tree: Path) -> bool:
    """Run a mutant's tests in a copy of the tree; return True if they are not green."""
    target = tree / mutant.file
    kept = target.read_text()
    target.write_text(text)
    green = is_green(mutant.tests, tree)
    target.write_text(kept)
    return not green


def main() -> None:
    """Draw mutants, run their tests, and print those that survive."""
    parser = argparse.ArgumentParser(description="Change the code and check that tests fail.")
    parser.add_argument("--draw", type=int, default=200, help="Number of mutants drawn.")
    parser.add_argument("--seed", type=int, default=1, help="Seed of the draw.")
    parser.add_argument("--only", default="", help="Draw from files whose path contains this text.")
    given = parser.parse_args()
    mutants = [one for pattern in GUARDED for one in mutants_of(pattern) if given.only in one.file]
    drawn = random.Random(given.seed).sample(mutants, min(given.draw, len(mutants)))
    trees: SimpleQueue[Path] = SimpleQueue()
    workers = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        for worker in range(workers):
            tree = Path(folder) / str(worker)
            shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
            trees.put(tree)
        if not is_green(sorted({test for mutant in drawn for test in mutant.tests}), tree):
            sys.exit("a test fails without a mutant, or takes too long: run the tests first")

        def run(mutant: Mutant) -> bool:
            """Run a mutant in a free copy of the tree; return True if it is killed."""
            tree, (text, change) = trees.get(), mutant.text()
            killed = is_killed(mutant, text, tree)
            trees.put(tree)
            print("killed  " if killed else "SURVIVED", change, flush=True)
            return killed

        killed = sum(pool.map(run, drawn))
    print(f"{killed} of {len(drawn)} mutants killed, drawn from {len(mutants)}")


if __name__ == "__main__":
    main()
