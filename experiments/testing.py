"""Everything that is checked before a change lands, in one order, for people and for CI alike."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.files import CHECKOUT


def run(args: list[str]) -> int:
    """Run the formatter, the linters, the type checker and, last, pytest.

    Every step runs, whatever the ones before it said. What failed is named before pytest's last
    run starts, so that its closing line is the last one printed.

    Without arguments, pytest runs twice: what needs no root on all processors at once, and then
    live networks one at a time, which would disturb one another.

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
        *before, last = [*_static_checks(caches), *_pytests(caches, args)]
        failed = [name for name, command in before if _run_step(name, command, caches) != 0]
        if failed:
            print(f"\nFailed so far: {', '.join(failed)}.", flush=True)
        code = _run_step(*last, caches)
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


def _pytests(caches: Path | None, args: list[str]) -> list[tuple[str, list[str]]]:
    no_cache = ["-p", "no:cacheprovider"] if caches else []
    command = [sys.executable, "-m", "pytest", *no_cache]
    if args:
        return [("pytest", [*command, *args])]
    together = ["-m", "not root", "--numprocesses", str(os.cpu_count() or 1)]
    return [
        ("pytest: what needs no root", [*command, *together]),
        ("pytest: live networks", [*command, "-m", "root"]),
    ]


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
