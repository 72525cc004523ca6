"""Files that a run leaves behind, and whose they are."""

from __future__ import annotations

import os
from pathlib import Path

from topos.base.errors import TopologyError


def output_folder(path: Path) -> Path:
    """Make the folder for a command's files, or raise TopologyError saying why it cannot be."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TopologyError(
            f"{path} cannot be made a folder ({error.strerror}); name another with --out"
        ) from None
    for folder in missing:
        give_to_user(folder)
    return path


def give_to_user(path: Path) -> None:
    """Hand a file or folder that sudo made to the user who called sudo."""
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() == 0 and user.isdecimal() and group.isdecimal():
        os.chown(path, int(user), int(group), follow_symlinks=False)
