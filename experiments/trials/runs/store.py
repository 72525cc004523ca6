"""Files of a run: each is there whole or not at all, and belongs to the user who called sudo."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.files import give_to_user
from topos.base.errors import PillarboxError, require

FILE_MODE, FOLDER_MODE = 0o644, 0o755
UNFINISHED = ".unfinished"


def write_text(path: Path, text: str) -> None:
    """Write a file, or replace it."""
    write_by(path, lambda file: file.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write plain data, or replace it."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Return plain data, or raise PillarboxError saying why it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise PillarboxError(f"{path} cannot be read: {why}") from None


def read_table(path: Path) -> dict[str, Any]:
    """Return plain data that is a table at its top, or raise PillarboxError."""
    found = read_json(path)
    require(isinstance(found, dict), f"{path} is no table: it begins with {{")
    return dict(found)


def write_by(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a file under another name, then put it in its place."""
    unfinished = path.with_name(path.name + UNFINISHED)
    write(unfinished)
    settle(unfinished)
    unfinished.replace(path)
    _sync(path.parent)


def new_folder(path: Path) -> Path:
    """Make an empty folder whose files `put_in_place` will put in place; return it."""
    unfinished = path.with_name(path.name + UNFINISHED)
    if unfinished.exists():  # of a trial that was killed
        shutil.rmtree(unfinished)
    unfinished.mkdir()
    return unfinished


def put_in_place(unfinished: Path, path: Path) -> None:
    """Give a folder its name, now that all of its files are written."""
    for file in unfinished.iterdir():
        settle(file)
    settle(unfinished)
    unfinished.rename(path)
    _sync(path.parent)


def settle(path: Path) -> None:
    """See to it that a file or folder is on the disk, can be read, and is the user's."""
    path.chmod(FOLDER_MODE if path.is_dir() else FILE_MODE)
    give_to_user(path)
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
