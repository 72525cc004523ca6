"""Mutation run: change one operator or constant at a time and check that some test fails.

Run it from the root of the tree: `python tests/mutations.py --draw 200`. Each worker changes its own
copy of the tree, never the tree itself. A mutant survives if all its tests pass; a test run that
exceeds the time limit counts as a failure.
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TIME_LIMIT_S = 300
FLUID, PACKETS = "experiments/analysis/fluid", "experiments/analysis/packets"
TRUST, RUNS = "experiments/trials/trust", "experiments/trials/runs"
# files to change, and their tests besides the test file of the same name
GUARDED: dict[str, tuple[str, ...]] = {
    "hosts/base/rules.py": ("hosts/test_paths.py",),
    "hosts/bcube/rules.py": ("hosts/test_paths.py", "hosts/bcube"),
    "hosts/dcell/rules.py": ("hosts/test_paths.py", "hosts/dcell"),
    "hosts/dpillar/rules.py": ("hosts/test_paths.py", "hosts/dpillar"),
    "hosts/ficonn/rules.py": ("hosts/test_paths.py", "hosts/ficonn"),
    f"{TRUST}/*.py": (TRUST,),
    f"{RUNS}/statistics.py": (),
    f"{PACKETS}/sender.py": (f"{PACKETS}/test_sender_rfcs.py",),
    f"{FLUID}/*.py": (FLUID, "experiments/analysis/arrivals", "experiments/test_gap.py"),
}
SWAPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
}
EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
# fields without effect on results: types, texts, decorators, and the conditions of assertions
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
        new = ast.copy_location(changes_of(old)[self.change], old)
        text = ast.unparse(Replacement(old, new).visit(tree))
        pairs = zip(ast.unparse(ast.parse(source)).splitlines(), text.splitlines(), strict=True)
        before, after = next(pair for pair in pairs if pair[0] != pair[1])
        place = f"{self.file}:{getattr(old, 'lineno', 0)}"
        return text, f"{place}: {before.strip()}  ->  {after.strip()}"


def nodes_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node whose change can change a result."""
    for name, value in ast.iter_fields(node):
        if name in SKIPPED_FIELDS:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, SKIPPED_NODES):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            yield child
            yield from nodes_of(child)


def changes_of(node: ast.AST) -> list[ast.AST]:
    """Return the nodes that may replace this node."""
    found: list[ast.AST] = []

    def replaced(field: str, value: object) -> None:
        other = copy.deepcopy(node)
        setattr(other, field, value)
        found.append(other)

    if isinstance(node, ast.Compare):
        for place, op in enumerate(node.ops):
            for swap in SWAPS.get(type(op), ()):
                replaced("ops", [*node.ops[:place], swap(), *node.ops[place + 1 :]])
    elif isinstance(node, (ast.BinOp, ast.BoolOp, ast.AugAssign)):
        for swap in SWAPS.get(type(node.op), ()):
            replaced("op", swap())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        found.append(node.operand)
    elif isinstance(node, ast.Return) and node.value is not None:
        if ast.unparse(node.value) != "None":
            replaced("value", ast.Constant(None))
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        replaced("value", not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        replaced("value", node.value + 1)
        if node.value not in {0, 1}:
            replaced("value", 2 * node.value)
    elif isinstance(node, ast.Name) and node.id in EXTREMES:
        replaced("id", EXTREMES[node.id])
    elif isinstance(node, ast.Attribute) and node.attr in EXTREMES:
        replaced("attr", EXTREMES[node.attr])
    return found


class Replacement(ast.NodeTransformer):
    """Replaces one node of a tree, without changing the tree's other nodes."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        """Return the new node for the old one."""
        return self.new if node is self.old else super().generic_visit(node)


def mutants_of(pattern: str) -> Iterator[Mutant]:
    """Yield every mutant of the files of a pattern."""
    for path in sorted(ROOT.glob(pattern)):
        file = str(path.relative_to(ROOT))
        tests = tests_of(pattern, file)
        for index, node in enumerate(nodes_of(ast.parse(path.read_text()))):
            for change, _ in enumerate(changes_of(node)):
                yield Mutant(file, tests, index, change)


def tests_of(pattern: str, file: str) -> tuple[str, ...]:
    """Return the tests of a file, the closest first: doctests, then the test file of its name."""
    path = Path(file)
    own = Path("tests") / path.parent / f"test_{path.name}"
    tests = [str(own), *(f"tests/{test}" for test in GUARDED[pattern])]
    return (file, *(test for test in tests if (ROOT / test).exists()))


def is_killed(mutant: Mutant, text: str, tree: Path) -> bool:
    """Run a mutant's tests in a copy of the tree; return True if one fails or time runs out."""
    target = tree / mutant.file
    kept = target.read_text()
    target.write_text(text)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not long"]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [*command, *mutant.tests], cwd=tree, env=environment, capture_output=True,
            timeout=TIME_LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return True
    finally:
        target.write_text(kept)
    return done.returncode != 0


def main() -> None:
    """Draw mutants, run their tests, and print those that survive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", type=int, default=200, help="Number of mutants drawn.")
    parser.add_argument("--seed", type=int, default=1, help="Seed of the draw.")
    parser.add_argument("--workers", type=int, default=2, help="Number of parallel test runs.")
    parser.add_argument("--only", default="", help="Draw from files whose path contains this text.")
    given = parser.parse_args()
    mutants = [one for pattern in GUARDED for one in mutants_of(pattern) if given.only in one.file]
    drawn = random.Random(given.seed).sample(mutants, min(given.draw, len(mutants)))  # noqa: S311
    print(f"{len(drawn)} of {len(mutants)} mutants", flush=True)
    trees: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.workers) as pool:
        for worker in range(given.workers):
            tree = Path(folder) / str(worker)
            skipped = shutil.ignore_patterns(".venv", ".git", "node_modules", "__pycache__", ".*_cache")
            shutil.copytree(ROOT, tree, symlinks=True, ignore=skipped)
            trees.put(tree)

        def run(mutant: Mutant) -> bool:
            tree, (text, change) = trees.get(), mutant.text()
            killed = is_killed(mutant, text, tree)
            trees.put(tree)
            print("killed  " if killed else "SURVIVED", change, flush=True)
            return killed

        killed = sum(pool.map(run, drawn))
    print(f"{killed} of {len(drawn)} killed: {100 * killed / max(len(drawn), 1):.1f} %")


if __name__ == "__main__":
    main()
