"""Programs of tests that run as an ordinary user, whoever runs the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

NOBODY = 65534
ROOT = Path(__file__).parents[2]
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
SKIPPED = "an ordinary user cannot run labs here: "


def as_ordinary_user(
    *arguments: str | Path, time_limit_s: float = 250.0
) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments as an ordinary user, in a folder of the user's own."""
    if refused := _refusal():
        pytest.skip(SKIPPED + refused)
    with tempfile.TemporaryDirectory(prefix="pillarbox-user-", dir="/tmp") as home:
        if os.geteuid() == 0:
            os.chown(home, NOBODY, NOBODY)
        for argument in arguments:
            if isinstance(argument, Path):
                shutil.copy(argument, home)
                Path(home, argument.name).chmod(0o644)
        words = [one.name if isinstance(one, Path) else one for one in arguments]
        return _run(words, home, time_limit_s)


def _run(words: list[str], home: str, time_limit_s: float) -> subprocess.CompletedProcess[str]:
    user = AS_NOBODY if os.geteuid() == 0 else ()
    return subprocess.run(
        [*user, sys.executable, *words],
        env={**os.environ, "HOME": home, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=time_limit_s,
    )


@cache
def _refusal() -> str:
    """Return why an ordinary user cannot run labs here, "" if one can."""
    asks = "from pillarbox.hosts.linux.user_namespace import refusal; print(refusal())"
    done = _run(["-c", asks], "/tmp", 60.0)
    return done.stdout.strip() if done.returncode == 0 else "the checkout is closed to others"
