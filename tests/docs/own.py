"""A network of one's own, as the guide's pages make it: in a folder laid out like a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def checkout(folder: Path, name: str, **sources: str) -> Path:
    """Return a folder like this checkout, with one more file in these packages."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", folder / "src", symlinks=True, ignore=ignored)
    for package in ("topos", "hosts", "experiments"):
        if package in sources:
            shutil.copytree(ROOT / package, folder / package, ignore=ignored)
            (folder / package / f"{name}.py").write_text(sources[package])
        else:
            (folder / package).symlink_to(ROOT / package)
    return folder


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with that folder's packages, and with this checkout's tests."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(ROOT)])},
    )
