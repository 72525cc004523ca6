"""A network of one's own, as the guide's pages make it: in a folder, beside this checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def checkout(folder: Path, name: str, **sources: str) -> Path:
    """Return a folder that holds these packages with one more file each, and nothing else."""
    for package, source in sources.items():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
        (folder / package / f"{name}.py").write_text(source)
    return folder


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with that folder's packages and everything else of this checkout."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
    )
