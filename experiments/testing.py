"""Everything that is checked before a change lands, in one order, for people and for CI alike."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


def run(args: list[str]) -> int:
    """Run the formatter, the linters, the type checker and, last, pytest.

    Every step runs, whatever the ones before it said. What failed is named before pytest
    starts, so that pytest's closing line is the last one printed.

    Parameters
    ----------
    args : list of str
        Arguments for pytest.

    Returns
    -------
    int
        0 if every step passed; else pytest's exit code or, if pytest passed, 1.
    """
    with _cache_folder() as caches:
        failed = []
        for name, command in _static_checks(caches):
            if _run_step(name, command, caches) != 0:
                failed.append(name)
        if failed:
            print(f"\nFailed before pytest: {', '.join(failed)}.", flush=True)
        code = _run_step("pytest", _pytest_command(caches, args), caches)
    return code or (1 if failed else 0)


def _static_checks(caches: Path | None) -> list[tuple[str, list[str]]]:
    ruff = _tool("ruff")
    ruff_cache = ["--cache-dir", str(caches / "ruff")] if caches else []
    mypy_cache = ["--cache-dir", str(caches / "mypy")] if caches else []
    lint_cache = ["--cache-dir", str(caches / "imports")] if caches else []
    return [
        ("ruff format", [ruff, "format", "--check", *ruff_cache]),
        ("ruff check", [ruff, "check", *ruff_cache]),
        ("mypy", [sys.executable, "-m", "mypy", *mypy_cache]),
        ("lint-imports", [_tool("lint-imports"), *lint_cache]),
    ]


def _pytest_command(caches: Path | None, args: list[str]) -> list[str]:
    no_cache = ["-p", "no:cacheprovider"] if caches else []
    return [sys.executable, "-m", "pytest", *no_cache, *args]


def _run_step(name: str, command: list[str], caches: Path | None) -> int:
    print(f"\n== {name}", flush=True)
    environment = dict(os.environ)
    if caches:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        environment["HYPOTHESIS_STORAGE_DIRECTORY"] = str(caches / "hypothesis")
    return subprocess.run(command, cwd=CHECKOUT, env=environment, check=False).returncode


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
