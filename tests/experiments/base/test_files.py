"""Output files: special files are written to, not replaced."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from pillarbox.experiments.base.files import give_to_user, write_atomically
from pillarbox.topos.base.errors import PillarboxError


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe, received = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, b"content")
    reader.join()
    assert pipe.is_fifo() and received == [b"content"]


def test_a_file_is_replaced_and_a_folder_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"before")
    before = (tmp_path / "file").stat().st_ino
    write_atomically(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
    assert (tmp_path / "file").stat().st_ino != before
    with pytest.raises(PillarboxError, match="Is a directory"):
        write_atomically(tmp_path, b"content")


def test_a_link_of_this_user_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"before")
    link = tmp_path / "link"
    link.symlink_to("file")
    write_atomically(link, b"content")
    assert link.is_symlink() and (tmp_path / "file").read_bytes() == b"content"


@pytest.mark.root
def test_the_user_of_sudo_gets_files_but_no_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1234")
    file, pipe = tmp_path / "file", tmp_path / "pipe"
    file.touch()
    os.mkfifo(pipe)
    for path in (file, pipe):
        give_to_user(path)
    assert (file.stat().st_uid, pipe.stat().st_uid) == (1234, 0)


@pytest.mark.root
def test_a_link_of_another_user_is_replaced(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    os.lchown(link, 1234, 1234)
    write_atomically(link, b"content")
    assert pipe.is_fifo() and not link.is_symlink() and link.read_bytes() == b"content"
