"""Another user changes a FILE.py that root is going to run, or a directory on the way to it."""

from __future__ import annotations

import grp
import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pillarbox.hosts.base import file_ownership
from pillarbox.hosts.base.load import module_from
from pillarbox.topos.base.errors import PillarboxError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root refuses files of others")

CALLER, STRANGER, CLASS = 61_001, 61_002, 61_003  # numbers without an account


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of the caller of sudo, in a directory of its own."""
    monkeypatch.setenv("SUDO_UID", str(CALLER))
    folder = tmp_path / "work"
    folder.mkdir()
    found = folder / "router.py"
    found.write_text(f"import os\nos.mkdir({str(tmp_path / 'ran')!r})\n")
    for path in (folder, found):
        os.chown(path, CALLER, CALLER)
    return found


def give_to_class(path: Path, mode: int) -> None:
    os.chown(path, CALLER, CLASS)
    path.chmod(mode)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "file of a stranger": (
        lambda file: os.chown(file, STRANGER, 0),
        "belongs to user 61002: chown",
    ),
    "file of a group": (
        lambda file: give_to_class(file, 0o664),
        "group class may write to .*chmod g-w",
    ),
    "file of everybody": (lambda file: file.chmod(0o646), "every user may write to .*chmod o-w"),
    "directory of a stranger": (lambda file: os.chown(file.parent, STRANGER, 0), "work belongs to"),
    "directory of a group": (
        lambda file: give_to_class(file.parent, 0o775),
        "work: chmod g-w .*work",
    ),
    "directory of everybody": (lambda file: file.parent.chmod(0o777), "work: chmod o-w .*work"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_root_refuses_what_others_may_change(
    change: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    students = SimpleNamespace(gr_name="class", gr_mem=["eve"])
    known = grp.getgrgid
    monkeypatch.setattr(grp, "getgrgid", lambda gid: students if gid == CLASS else known(gid))
    do, sentence = CHANGES[change]
    do(file)
    with pytest.raises(PillarboxError, match=f"other users can modify the file: .*{sentence}"):
        module_from(file, "router")
    assert not (file.parent.parent / "ran").exists()


def test_root_runs_the_callers_file_with_a_private_group(file: Path) -> None:
    file.chmod(0o664)  # as with umask 002; nobody else is in the caller's group
    file.parent.chmod(0o1777)  # as /tmp
    module_from(file, "router")
    assert (file.parent.parent / "ran").exists()


def test_a_link_in_a_strangers_directory_is_refused(file: Path, tmp_path: Path) -> None:
    """The link leads to a safe file, but the stranger may point it elsewhere."""
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "link.py").symlink_to(file)
    os.chown(foreign, STRANGER, STRANGER)
    with pytest.raises(PillarboxError, match="foreign belongs to"):
        module_from(foreign / "link.py", "router")


def test_a_link_of_a_stranger_in_a_sticky_directory_is_refused(file: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "link.py"
    link.symlink_to(file)
    module_from(link, "router")  # root's own link
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(PillarboxError, match=r"link\.py belongs to"):
        module_from(link, "router")


def test_the_directories_behind_a_link_are_checked(file: Path, tmp_path: Path) -> None:
    """`..` after a link leads to the parent of its target, not of the link."""
    foreign = tmp_path / "foreign"
    (foreign / "sub").mkdir(parents=True)
    (foreign / "router.py").write_text("")
    os.chown(foreign, STRANGER, STRANGER)
    (file.parent / "link").symlink_to(foreign / "sub")
    with pytest.raises(PillarboxError, match="foreign belongs to"):
        module_from(file.parent / "link" / ".." / "router.py", "router")


def test_a_circle_of_links_is_one_sentence(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)
    with pytest.raises(PillarboxError, match="too many symbolic links"):
        module_from(file, "router")


def test_an_access_list_lets_others_write(file: Path) -> None:
    nobody = 0xFFFFFFFF
    entries = ((1, 6, nobody), (2, 6, STRANGER), (4, 4, nobody), (16, 6, nobody), (32, 4, nobody))
    listed = b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(file, file_ownership.ACCESS_LIST, struct.pack("<I", 2) + listed)
    except OSError as error:
        pytest.skip(f"this file system has no access control lists: {error}")
    with pytest.raises(PillarboxError, match="access control list"):
        module_from(file, "router")


def test_an_ordinary_user_runs_the_own_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.parent.chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: CALLER)
    module_from(file, "router")
    assert file_ownership.foreign_writer(file, {CALLER}).startswith(
        f"every user may write to {file.parent}"
    )
