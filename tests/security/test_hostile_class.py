"""A hostile class: every honest student has the right marks, every hostile one a sentence.

It is graded as root, as an ordinary user, as root of a container (with Docker's capabilities, as in
Gradescope), and as the only user of a user namespace in which no namespace can be created.
"""

from __future__ import annotations

import csv
import ctypes
import os
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from pillarbox.experiments.apps.teaching import child
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from pillarbox.experiments.cli.commands.grade_all import command
from tests.security.hostile_class import HONEST, HOSTILE, SECRET, hand_in, remove

PR_CAPBSET_DROP, CAPABILITIES, CLONE_NEWUSER = 24, range(41), 0x10000000
OF_DOCKER = {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31}
USER = 65533
PARTS = [check.name for check in sheet_of("1", "anybody").lab.CHECKS]
A_FEW = ["link", "nested", "=cmd|' -C calc'!A0", "forks", "prints", "preload", "surrogates"]
libc = ctypes.CDLL(None, use_errno=True)


def become_user() -> None:
    os.setgroups([])
    os.setgid(USER)
    os.setuid(USER)


def enter_container() -> None:
    """Drop all capabilities that Docker does not give, for all programs that are started."""
    for capability in sorted({*CAPABILITIES} - OF_DOCKER):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def lose_namespaces() -> None:
    """Become root of a user namespace with one user, in which no namespace can be created."""
    assert not libc.unshare(CLONE_NEWUSER), os.strerror(ctypes.get_errno())
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text("0 0 1")
    Path("/proc/self/gid_map").write_text("0 0 1")
    for kind in ("user", "net", "ipc", "mnt"):
        Path(f"/proc/sys/user/max_{kind}_namespaces").write_text("0")


AS: dict[str, Callable[[], None]] = {
    "root": lambda: None,
    "user": become_user,
    "container": enter_container,
    "without namespaces": lose_namespaces,
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder that every user can reach and write to."""
    place = Path(tempfile.mkdtemp(prefix="pillarbox-class-"))
    place.chmod(0o777)
    yield place
    remove(place)


def grade(folder: Path, become: Callable[[], None]) -> None:
    """Grade the class as somebody."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            become()
            names = str(folder / "in"), "--out", str(folder / "out"), "--jobs", "6"
            arguments = ["1", *names, "--secret-file", str(folder / "word")]
            done = CliRunner().invoke(
                command, arguments, catch_exceptions=False, standalone_mode=False
            )
            (folder / "said").write_text(done.output)
            code = 0 if done.return_value == 1 else 2  # some were refused
        except BaseException:  # noqa: BLE001 - shown by the parent's own failure
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def held(folder: Path, honest: int, hostile: list[str]) -> None:
    """Assert that all marks and remarks are right, and that the secret did not leak."""
    text = (folder / "out" / "marks.csv").read_text()
    rows = {row["file"]: row for row in csv.DictReader(text.splitlines())}
    assert len(rows) == honest + len(hostile)
    for student in list(HONEST)[:honest]:
        row = rows[f"{student}.py"]
        assert [float(row[part]) for part in PARTS] == HONEST[student], row
        assert not row["remark"], row
    for name in hostile:
        shown = name.encode("unicode_escape").decode() if "\n" in name else name
        row = next(rows[at] for at in (shown, f"{shown}.py", f"'{shown}.py") if at in rows)
        assert float(row["points"]) == 0, row
        assert re.search(HOSTILE[name].says, row["remark"]), (name, row["remark"])
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row.values()), row
    for file in [*(folder / "out").rglob("*.*"), folder / "said"]:
        written = file.read_text(encoding="utf-8")
        assert SECRET not in written, file
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", written), file


@pytest.mark.skipif(os.geteuid() != 0, reason="is root's way to be somebody else")
@pytest.mark.parametrize("who", AS)
@pytest.mark.parametrize(
    ("honest", "hostile"),
    [
        pytest.param(3, A_FEW, id="few"),
        pytest.param(len(HONEST), [*HOSTILE], id="all", marks=pytest.mark.long),
    ],
)
def test_every_honest_student_has_the_marks_and_every_hostile_one_a_sentence(
    who: str, honest: int, hostile: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "DECISION_S", 10.0)  # a busy machine's right answers are right
    monkeypatch.setattr(child, "PATIENCE_S", 300.0)
    hand_in(folder / "in", honest, hostile)
    grade(folder, AS[who])
    held(folder, honest, hostile)
