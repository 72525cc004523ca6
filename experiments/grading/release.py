"""What students get: the sheets, the skeletons, and Pillarbox without any solution.

A release is a copy of this checkout without the folders that only a teacher has: model answers and
wrong answers, and the tests that are made of them. It is searched before it is handed out: no file
of it may be like a model answer. Pillarbox's own routers stay, as they are in the papers.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from experiments.files import CHECKOUT, output_folder
from experiments.grading.similarity import THRESHOLD, fingerprints, shared
from topos.base.errors import PillarboxError, require

ANSWERS = "tests/vagrant/labs"
MUCH_LONGER = 2  # than a model: what has so much else in it is no answer
# What stands in solutions, or of which they are made; what tests them goes as well.
TEACHERS = (
    ANSWERS,
    "tests/experiments/grading",
    *(f"tests/security/{name}.py" for name in ("hostile_class", "test_hostile_class")),
    "tests/security/test_grading_attacks.py",
    ".git",
)


def release(out: Path, checkout: Path = CHECKOUT) -> list[str]:
    """Copy what students get into a new folder; return the files, by name."""
    require(
        not out.exists() or not any(out.iterdir()), f"{out} is not empty: name another with --out"
    )
    files = tracked_for_students(checkout)
    for name in files:
        place = out / name
        output_folder(place.parent)
        shutil.copy2(checkout / name, place, follow_symlinks=False)
    found = [*solutions_in(out, checkout / ANSWERS / "answers")]
    require(not found, f"{out} has solutions in it: {', '.join(found)}")
    return files


def tracked_for_students(checkout: Path) -> list[str]:
    """Return the files of a checkout that are not a teacher's alone."""
    return [name for name in _tracked(checkout) if not _is_a_teachers(name)]


def solutions_in(folder: Path, answers: Path) -> Iterator[str]:
    """Yield the Python files that are like a model answer, but for what skeletons give."""
    given: frozenset[int] = frozenset().union(*map(_prints, folder.rglob("skeleton.py")))
    models = [_prints(file) - given for file in answers.rglob("*.py")]
    for file in sorted(folder.rglob("*.py")):
        known = _prints(file) - given
        like = (model for model in models if shared(known, model) >= THRESHOLD)
        if any(len(known) < MUCH_LONGER * len(model) for model in like):
            yield str(file.relative_to(folder))


def _prints(file: Path) -> frozenset[int]:
    return fingerprints(file.read_text(encoding="utf-8"))


def _is_a_teachers(name: str) -> bool:
    return any(name == folder or name.startswith(f"{folder}/") for folder in TEACHERS)


def _tracked(checkout: Path) -> list[str]:
    """Return the checkout's files, without whatever else lies about in it."""
    git = ["git", "-c", f"safe.directory={checkout}", "-C", str(checkout), "ls-files", "-z"]
    try:
        done = subprocess.run(git, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PillarboxError(f"a release is made of a git checkout: {error}") from None
    return [name for name in done.stdout.split("\0") if name and (checkout / name).exists()]
