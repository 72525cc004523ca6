"""Atomic writing of a run's files, which belong to the user who called sudo."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.base.files import give_to_user
from pillarbox.topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    import pandas

FILE_MODE, FOLDER_MODE = 0o644, 0o755
UNFINISHED = ".unfinished"


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, replacing an existing file."""
    write_by(path, lambda file: file.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write plain data as a JSON file atomically, replacing an existing file."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, or raise PillarboxError with the reason."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise PillarboxError(f"{path} cannot be read: {why}") from None


def read_table(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file that has an object at its top, or raise PillarboxError."""
    found = read_json(path)
    require(isinstance(found, dict), f"{path} is not a JSON object: it must begin with {{")
    return dict(found)


def read_parquet(path: Path) -> pandas.DataFrame:
    """Return the content of a Parquet file as a pandas frame, or raise PillarboxError.

    The file is read without threads: they take memory, and starting one may fail.
    """
    from pyarrow import ArrowException, parquet

    unreadable = (OSError, LookupError, NotImplementedError, TypeError, ValueError, ArrowException)
    try:
        return parquet.ParquetFile(path).read(use_threads=False).to_pandas(use_threads=False)
    except unreadable as error:
        raise PillarboxError(f"{path} cannot be read: {error}") from None


def write_by(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file atomically: `write` creates it under another name, then it is renamed."""
    unfinished = path.with_name(path.name + UNFINISHED)
    write(unfinished)
    settle(unfinished)
    unfinished.replace(path)
    _sync(path.parent)


def new_folder(path: Path) -> Path:
    """Create an empty temporary folder, to be filled and renamed to `path`; return it."""
    unfinished = path.with_name(path.name + UNFINISHED)
    if unfinished.exists():  # A killed trial leaves its unfinished folder.
        shutil.rmtree(unfinished)
    unfinished.mkdir()
    return unfinished


def put_in_place(unfinished: Path, path: Path) -> None:
    """Rename a temporary folder to its final name after its files are on disk."""
    for file in unfinished.iterdir():
        settle(file)
    settle(unfinished)
    unfinished.rename(path)
    _sync(path.parent)


def settle(path: Path) -> None:
    """Make a record file or folder readable, give it to the calling user, and sync it to disk."""
    path.chmod(FOLDER_MODE if path.is_dir() else FILE_MODE)
    give_to_user(path)
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
