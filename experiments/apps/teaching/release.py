"""Release for students: sheets, skeletons, and Pillarbox without solutions.

A release is a copy of this checkout without the teacher's folders: model answers, wrong answers,
and the tests that use them. The copy is then searched: no file may be similar to a model answer.
Pillarbox's own routers stay, since they follow the papers.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pillarbox.experiments.apps.teaching.similarity import THRESHOLD, fingerprints, shared_fraction
from pillarbox.experiments.base.files import CHECKOUT, output_folder
from pillarbox.topos.base.errors import PillarboxError, require

ANSWERS = "tests/vagrant/labs"
SUFFIXES = (".py", ".bpf.c")  # kinds of files that students write
MUCH_LONGER = 2  # a file longer than a model answer by this factor is not counted as its copy
# Path patterns of model solutions, their sources and their tests.
TEACHERS = (
    ANSWERS,
    "tests/experiments/apps/teaching",
    *(f"tests/security/{name}.py" for name in ("hostile_class", "test_hostile_class")),
    "tests/security/test_grading_attacks.py",
    ".git",
)


def write_release(out: Path, checkout: Path = CHECKOUT) -> list[str]:
    """Copy Pillarbox without the model solutions into a new folder; return the file names."""
    require(
        not out.exists() or not any(out.iterdir()),
        f"the folder {out} is not empty: name another folder with --out",
    )
    files = tracked_for_students(checkout)
    for name in files:
        place = out / name
        output_folder(place.parent)
        shutil.copy2(checkout / name, place, follow_symlinks=False)
    found = [*solutions_in(out, checkout / ANSWERS / "answers")]
    require(not found, f"the release folder {out} contains solutions: {', '.join(found)}")
    return files


def tracked_for_students(checkout: Path) -> list[str]:
    """Return the tracked files of a Pillarbox checkout that are not reserved for teachers."""
    return [name for name in _tracked_files(checkout) if not _is_reserved_for_teachers(name)]


def solutions_in(folder: Path, answers: Path) -> Iterator[str]:
    """Yield the files that are similar to a model solution, skeletons excluded."""
    for suffix in SUFFIXES:
        skeletons = folder.rglob(f"skeleton{suffix}")
        given: frozenset[int] = frozenset().union(*map(_file_fingerprints, skeletons))
        models = [_file_fingerprints(file) - given for file in answers.rglob(f"*{suffix}")]
        for file in sorted(folder.rglob(f"*{suffix}")):
            known = _file_fingerprints(file) - given
            like = (model for model in models if shared_fraction(known, model) >= THRESHOLD)
            if any(len(known) < MUCH_LONGER * len(model) for model in like):
                yield str(file.relative_to(folder))


def _file_fingerprints(file: Path) -> frozenset[int]:
    return fingerprints(file.read_text(encoding="utf-8"), file.suffix)


def _is_reserved_for_teachers(name: str) -> bool:
    return any(name == folder or name.startswith(f"{folder}/") for folder in TEACHERS)


def _tracked_files(checkout: Path) -> list[str]:
    """Return the paths of the files that git tracks in a checkout of Pillarbox."""
    git = ["git", "-c", f"safe.directory={checkout}", "-C", str(checkout), "ls-files", "-z"]
    try:
        done = subprocess.run(git, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PillarboxError(
            f"a release needs a git checkout of Pillarbox, but git fails: {error}"
        ) from None
    return [name for name in done.stdout.split("\0") if name and (checkout / name).exists()]
