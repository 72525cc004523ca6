"""Another user holds, prepares or replaces the files by which labs know of one another."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pillarbox.experiments.base import files
from pillarbox.experiments.base.files import private_folder
from pillarbox.experiments.lab.emulation import lab_registry
from pillarbox.experiments.lab.linux import kernel_settings, shaping
from pillarbox.hosts.linux import tcx
from pillarbox.topos.base.errors import PillarboxError

STRANGER = 61_002  # a number without an account
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of others")


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the lock of a machine on which no kernel setting has been changed."""
    for module, name in ((tcx, "HURRY"), (shaping, "HYSTERESIS")):
        setting = tmp_path / name
        setting.write_text("0\n")
        monkeypatch.setattr(module, name, setting)
    monkeypatch.setattr(tcx, "is_supported", lambda: True)
    monkeypatch.setattr(shaping, "load_htb", lambda: None)
    found = tmp_path / "run" / "settings"
    monkeypatch.setattr(kernel_settings, "HELD", found)
    return found


def values(held: Path) -> set[str]:
    return {(held.parent.parent / name).read_text().strip() for name in ("HURRY", "HYSTERESIS")}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def locked(file: Path, how: int) -> Iterator[None]:
    opened = os.open(file, os.O_RDONLY)
    fcntl.flock(opened, how)
    try:
        yield
    finally:
        os.close(opened)


def test_nobody_else_can_open_the_lock(held: Path) -> None:
    with kernel_settings.KernelSettings():
        assert (mode(held.parent), mode(held)) == (0o700, 0o600)


@pytest.mark.parametrize("how", [fcntl.LOCK_SH, fcntl.LOCK_EX])
def test_a_lock_from_when_all_could_open_the_file_keeps_nothing(held: Path, how: int) -> None:
    """An exclusive one made the next lab wait for ever, a shared one kept the settings changed."""
    held.parent.mkdir(mode=0o755)
    held.touch(mode=0o644)
    held.chmod(0o644)
    with locked(held, how):
        with kernel_settings.KernelSettings():
            assert values(held) == {kernel_settings.OURS}
        assert values(held) == {"0"} and not held.exists()


@as_root
def test_a_file_of_another_user_is_replaced(held: Path) -> None:
    held.parent.mkdir()
    held.touch(mode=0o600)
    os.chown(held, STRANGER, STRANGER)
    with kernel_settings.KernelSettings():
        assert held.stat().st_uid == 0


def test_a_link_in_the_place_of_the_lock_is_not_followed(held: Path, tmp_path: Path) -> None:
    held.parent.mkdir(mode=0o700)
    target = tmp_path / "target"
    held.symlink_to(target)
    with pytest.raises(PillarboxError, match="is a symbolic link: remove it"):
        kernel_settings.KernelSettings()
    assert not target.exists()


def test_a_wait_names_the_holder_and_ends(
    held: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernel_settings, "SAY_S", 0.0)
    monkeypatch.setattr(kernel_settings, "LOCK_S", 0.1)
    first = kernel_settings.KernelSettings()
    with locked(held, fcntl.LOCK_SH):
        first.end()
    with kernel_settings._lock_file(), locked(held, fcntl.LOCK_EX):
        sentence = rf"has been locked for .* by process {os.getpid()} \(.+\): end that process"
        with pytest.raises(PillarboxError, match=sentence):
            kernel_settings.KernelSettings()
    assert capsys.readouterr().err.startswith(f"pillarbox: waiting for process {os.getpid()} (")


@as_root
@pytest.mark.parametrize("what", ["link", "file", "folder of another"])
def test_a_prepared_folder_is_refused(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "pillarbox"
    if what == "link":
        place.symlink_to(tmp_path)
    elif what == "file":
        place.touch()
    else:
        place.mkdir()
        os.chown(place, STRANGER, STRANGER)
    refused = r"(is not a folder|belongs to another user).*: "
    with pytest.raises(PillarboxError, match=refused + "remove it, or chown it"):
        private_folder(place)
    monkeypatch.setattr(files, "TEMPORARY", tmp_path)
    with pytest.raises(PillarboxError, match=refused + "set XDG_RUNTIME_DIR to a folder of your"):
        private_folder(place)


def test_a_users_labs_are_in_the_folder_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "is_machine_root", lambda: False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert files.runtime_folder() == tmp_path / "pillarbox"
    for other in (str(tmp_path / "missing"), "", "."):
        monkeypatch.setenv("XDG_RUNTIME_DIR", other)
        monkeypatch.chdir(tmp_path)
        assert not files.runtime_folder().absolute().is_relative_to(tmp_path)


@as_root
@pytest.mark.parametrize("what", ["folder", "link"])
def test_labs_in_a_folder_of_another_user_are_refused(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their control sockets would be that user's, and name programs to run."""
    theirs = tmp_path / "theirs"
    (theirs / "labs" / "1").mkdir(parents=True)
    place = tmp_path / "link" if what == "link" else theirs
    if what == "link":
        place.symlink_to(theirs)
    os.chown(place, STRANGER, STRANGER, follow_symlinks=False)
    monkeypatch.setattr(lab_registry, "LABS", place / "labs")
    for use in (lab_registry.living_labs, lab_registry.folder_of, lab_registry.create_lab_folder):
        with pytest.raises(PillarboxError, match=r"is not a folder|belongs to another user"):
            use()


@as_root
def test_labs_are_in_a_folder_that_only_root_enters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labs = tmp_path / "pillarbox" / "labs"
    labs.mkdir(parents=True)
    labs.parent.chmod(0o755)
    labs.chmod(0o777)
    monkeypatch.setattr(lab_registry, "LABS", labs)
    lab_registry.remove_lab_folder(lab_registry.create_lab_folder())
    assert (mode(labs.parent), mode(labs)) == (0o700, 0o700)
