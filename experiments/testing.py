"""Everything that is checked before a change lands, in one order, for people and for CI alike.

Three sections, by two marks of the tests (experiments/forked_tests.py)::

    together   static checks, and every test that a busy machine does not change, on all processors
    alone      tests marked `alone`, one at a time: they assert what a busy machine changes
    all        only with `--all`: tests marked `long`, one at a time, and the benches
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from experiments.files import CHECKOUT

SLOWEST = "--durations=20"
# Whole, where half a minute of it says little; of the others only that they run and judge.
WHOLE_BENCHES = ("fuzz", "fuzz-readers", "fuzz-routers", "soak")


class TestStep(NamedTuple):
    """A command, and the name by which a failure is told."""

    name: str
    command: list[str]


def run(args: list[str], *, everything: bool = False) -> int:
    """Run the formatter, the linters, the type checker and pytest.

    Every step runs, whatever the ones before it said. The last line names what failed.

    Parameters
    ----------
    args : list of str
        Arguments for pytest, which then runs once, with every test in turn.
    everything : bool
        Also run what takes long: the tests marked `long`, with many examples, and the benches.

    Returns
    -------
    int
        0 if every step passed; else pytest's exit code or, if pytest passed, 1.
    """
    with _cache_folder() as caches:
        beside = _static_checks(caches)
        code = _run_step(_pytest(caches, args, everything=everything), caches)
        failed = ["pytest"] if code else []
        failed += _failed(beside)
        if everything:
            failed += [step.name for step in _benches() if _run_step(step, caches) != 0]
    print(f"\nFailed: {', '.join(failed)}." if failed else "\nAll passed.", flush=True)
    return code or (1 if failed else 0)


def run_static() -> int:
    """Run the formatter, the linters and the type checker; return 0 if all of them passed."""
    with _cache_folder() as caches:
        return 1 if _failed(_static_checks(caches)) else 0


def _static_checks(caches: Path | None) -> dict[str, subprocess.Popen[str]]:
    """Start what reads the code and does not run it."""
    ruff = _tool("ruff")
    ruff_cache = ["--cache-dir", str(caches / "ruff")] if caches else []
    mypy_cache = ["--cache-dir", str(caches / "mypy")] if caches else []
    lint_cache = ["--cache-dir", str(caches / "imports")] if caches else []
    steps = [
        TestStep("mypy", [sys.executable, "-m", "mypy", *mypy_cache]),  # the longest, so it begins
        TestStep("ruff format", [ruff, "format", "--check", *ruff_cache]),
        TestStep("ruff check", [ruff, "check", *ruff_cache]),
        TestStep("lint-imports", [_tool("lint-imports"), *lint_cache]),
    ]
    return {step.name: _started(step, caches) for step in steps}


def _pytest(caches: Path | None, args: list[str], *, everything: bool) -> TestStep:
    no_cache = ["-p", "no:cacheprovider"] if caches else []
    command = [sys.executable, "-m", "pytest", SLOWEST, *no_cache]
    if args:
        return TestStep("pytest", [*command, *args])
    many = ["--hypothesis-profile=many", "-m", ""] if everything else []
    # More than processors: tests of live networks wait longer than they compute.
    workers = ["--side-by-side", str((os.cpu_count() or 1) + 3)]
    return TestStep("pytest", [*command, *many, "-p", "experiments.forked_tests", *workers])


def _benches() -> Iterator[TestStep]:
    from experiments.benches import _frame as frame

    for name in frame.titles():
        quick = [] if name in WHOLE_BENCHES else ["--quick"]
        yield TestStep(
            f"bench {name}", [sys.executable, "-m", "experiments", "bench", name, *quick]
        )


def _run_step(step: TestStep, caches: Path | None) -> int:
    print(f"\n== {step.name}", flush=True)
    environment = _environment(caches)
    return subprocess.run(step.command, cwd=CHECKOUT, env=environment, check=False).returncode


def _started(step: TestStep, caches: Path | None) -> subprocess.Popen[str]:
    """Start a step beside others; what it prints is kept until its end is waited for."""
    return subprocess.Popen(
        step.command,
        cwd=CHECKOUT,
        env=_environment(caches),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _failed(started: dict[str, subprocess.Popen[str]]) -> list[str]:
    """Wait for steps to end; print what they printed; return the names of those that failed."""
    for name, process in started.items():
        printed, _ = process.communicate()
        print(f"\n== {name}\n{printed}", end="", flush=True)
    return [name for name, process in started.items() if process.returncode]


def _environment(caches: Path | None) -> dict[str, str]:
    environment = dict(os.environ)
    # Else each of the many Pythons that tests start would compile all that it imports.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if caches:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        environment["HYPOTHESIS_STORAGE_DIRECTORY"] = str(caches / "hypothesis")
        environment["NUMBA_CACHE_DIR"] = str(caches / "numba")  # for all workers
    return environment


def _tool(name: str) -> str:
    # Beside the interpreter, where its link stands: resolved, it would be Debian's own folder.
    return str(Path(sys.executable).parent / name)


@contextmanager
def _cache_folder() -> Iterator[Path | None]:
    """Give None where tools may keep caches in the checkout, else a folder for this run only.

    Root must not leave files that the checkout's owner cannot remove.
    """
    mine = CHECKOUT.stat().st_uid == os.geteuid()
    if mine and os.access(CHECKOUT, os.W_OK):
        yield None
    else:
        with tempfile.TemporaryDirectory(prefix="pillarbox-test-") as folder:
            yield Path(folder)
