"""Test runner of ``pillarbox test``: static checks, tests and benches, for developers and CI.

Three sections, by two marks of the tests (tests/harness/forked_tests.py)::

    together   static checks, and all tests that do not depend on the machine's load, in parallel
    alone      tests marked `alone`, one at a time: their results depend on the machine's load
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

from pillarbox.experiments.base.files import CHECKOUT

SLOWEST = "--durations=20"  # Pytest option that prints the 20 slowest tests.
# Benches that run at full length, as a short run finds little. All others run with --quick, which
# only tests that they work.
WHOLE_BENCHES = ("fuzz", "fuzz-readers", "fuzz-routers", "soak")


class TestStep(NamedTuple):
    """A step of `pillarbox test`: a check's command line, and its name in the list of failures."""

    name: str
    command: list[str]


def run(args: list[str], *, everything: bool = False) -> int:
    """Run the formatter, the linters, the type checker and pytest.

    Every step runs, even after failures. The last line of output names the failed steps.

    Parameters
    ----------
    args : list of str
        Arguments for pytest, which then runs in one process, one test at a time.
    everything : bool
        True also runs the tests marked `long`, with many examples, and the benches.

    Returns
    -------
    int
        0 if every step passed; else pytest's exit code or, if pytest passed, 1.
    """
    with _cache_folder() as caches:
        static_checks = _static_checks(caches)
        code = _run_step(_pytest_step(caches, args, everything=everything), caches)
        failed = ["pytest"] if code else []
        failed += _failed_steps(static_checks)
        if everything:
            failed += [step.name for step in _bench_steps() if _run_step(step, caches) != 0]
    print(f"\nFailed: {', '.join(failed)}." if failed else "\nAll passed.", flush=True)
    return code or (1 if failed else 0)


def run_static() -> int:
    """Run the formatter, the linters and the type checker; return 0 if all of them passed."""
    with _cache_folder() as caches:
        return 1 if _failed_steps(_static_checks(caches)) else 0


def _static_checks(caches: Path | None) -> dict[str, subprocess.Popen[str]]:
    """Start the static checks (mypy, ruff, lint-imports) in parallel; return the processes."""
    ruff = _tool_path("ruff")
    ruff_cache = ["--cache-dir", str(caches / "ruff")] if caches else []
    mypy_cache = ["--cache-dir", str(caches / "mypy")] if caches else []
    lint_cache = ["--cache-dir", str(caches / "imports")] if caches else []
    steps = [
        # mypy starts first, as it is the slowest step.
        TestStep("mypy", [sys.executable, "-m", "mypy", *mypy_cache]),
        TestStep("ruff format", [ruff, "format", "--check", *ruff_cache]),
        TestStep("ruff check", [ruff, "check", *ruff_cache]),
        TestStep("lint-imports", [_tool_path("lint-imports"), *lint_cache]),
    ]
    return {step.name: _start_step(step, caches) for step in steps}


def _pytest_step(caches: Path | None, args: list[str], *, everything: bool) -> TestStep:
    no_cache = ["-p", "no:cacheprovider"] if caches else []
    command = [sys.executable, "-m", "pytest", SLOWEST, *no_cache]
    if args:
        return TestStep("pytest", [*command, *args])
    many = ["--hypothesis-profile=many", "-m", ""] if everything else []
    # More test workers than processors: tests of live labs wait longer than they compute.
    workers = ["--side-by-side", str((os.cpu_count() or 1) + 3)]
    return TestStep("pytest", [*command, *many, "-p", "tests.harness.forked_tests", *workers])


def _bench_steps() -> Iterator[TestStep]:
    from tests.benches import _frame as frame

    for name in frame.titles():
        quick = [] if name in WHOLE_BENCHES else ["--quick"]
        yield TestStep(f"bench {name}", [sys.executable, "-m", "pillarbox", "bench", name, *quick])


def _run_step(step: TestStep, caches: Path | None) -> int:
    print(f"\n== {step.name}", flush=True)
    environment = _environment(caches)
    return subprocess.run(step.command, cwd=CHECKOUT, env=environment, check=False).returncode


def _start_step(step: TestStep, caches: Path | None) -> subprocess.Popen[str]:
    """Start a static check or the tests in the background, with buffered output."""
    return subprocess.Popen(
        step.command,
        cwd=CHECKOUT,
        env=_environment(caches),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _failed_steps(started: dict[str, subprocess.Popen[str]]) -> list[str]:
    """Wait for static checks and tests, print their output; return the names of failed ones."""
    for name, process in started.items():
        printed, _ = process.communicate()
        print(f"\n== {name}\n{printed}", end="", flush=True)
    return [name for name, process in started.items() if process.returncode]


def _environment(caches: Path | None) -> dict[str, str]:
    environment = dict(os.environ)
    # Without bytecode files every Python process of a test would compile its imports again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if caches:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        environment["HYPOTHESIS_STORAGE_DIRECTORY"] = str(caches / "hypothesis")
        # All test workers share Numba's cache.
        environment["NUMBA_CACHE_DIR"] = str(caches / "numba")
    return environment


def _tool_path(name: str) -> str:
    # Tools are in the virtual environment. Its interpreter is a symbolic link to Debian's, so the
    # path must not be resolved.
    return str(Path(sys.executable).parent / name)


@contextmanager
def _cache_folder() -> Iterator[Path | None]:
    """Yield None if tools may write caches to the checkout, else a temporary cache folder.

    Root must not leave files that the checkout's owner cannot remove.
    """
    is_owner = CHECKOUT.stat().st_uid == os.geteuid()
    if is_owner and os.access(CHECKOUT, os.W_OK):
        yield None
    else:
        with tempfile.TemporaryDirectory(prefix="pillarbox-test-") as folder:
            yield Path(folder)
