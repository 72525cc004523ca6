"""The seal's layers: every attack is held, or the report names what a file could do.

As root, as a user, and as root of a container (without CAP_SYS_ADMIN); whole, and without each
layer. Attacks are real: whether one has succeeded is looked up where it would have struck.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import socket
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pillarbox.experiments.apps.teaching import child, grading_engine
from pillarbox.experiments.apps.teaching.child import (
    ChildKeeper,
    ChildKilled,
    SealedChild,
    StudentError,
)
from pillarbox.experiments.cli.commands.grade import command
from pillarbox.topos.base.errors import PillarboxError

ANSWERS = Path(__file__).parents[3] / "vagrant" / "labs" / "answers"
MEMORY_BYTES = 32 << 20
PR_CAPBSET_DROP, CAP_SYS_ADMIN = 24, 21
LAYERS = ("limits", "user", "namespaces", "landlock", "calls")
USER = 65533
UNHARMED = [False, True, True]  # an attack that is refused is an error, and all goes on

ATTACKS = """
import ctypes, mmap, os, resource, signal, socket

libc = ctypes.CDLL(None, use_errno=True)

def answer(): return 1
def reads(world): return open(world["file"]).read()
def writes(world):
    with open(world["file"], "a") as file: return file.write("more")
def creates(world): return open(world["new"], "w").close()
def chmods(world): return os.chmod(world["file"], 0)
def touches(world): return os.utime(world["file"], (1, 1))
def marks(world): return os.setxattr(world["file"], "user.mark", b"1")
def sends(world):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        return one.sendto(b"100", ("127.0.0.1", world["udp"]))
def connects(world):
    with socket.socket(socket.AF_UNIX) as one: return one.connect(world["path"])
def kills(world): return os.kill(world["process"], signal.SIGKILL)
def kills_another(world): return os.kill(world["other"], signal.SIGKILL)
def slows(world): return os.setpriority(os.PRIO_PROCESS, world["process"], 7)
def pins(world): return os.sched_setaffinity(world["process"], {0})
def starves(world): return resource.prlimit(world["process"], resource.RLIMIT_NOFILE, (3, 3))
def forks(world):
    if not os.fork(): os._exit(0)
def hoards(world): return len(mmap.mmap(-1, 64 << 20))
def checked(number):
    if number < 0: raise OSError
    return number
def shares(world): return libc.shmctl(checked(libc.shmget(0, 1 << 20, 0o600)), 0, None)
def becomes_root(world): return checked(libc.unshare(0x10000000))
def survives(world): return checked(libc.prctl(1, 0, 0, 0, 0))
"""
# What the report has to say where an attack succeeds.
NAMES = {
    "reads": "open other files",
    "writes": "open other files",
    "creates": "open other files",
    "chmods": "change files of the grading user",
    "touches": "change files of the grading user",
    "marks": "change files of the grading user",
    "sends": "use the network",
    "connects": "connect to other programs",
    "kills": "signal or slow down other processes",
    "kills_another": "signal or slow down other processes",
    "slows": "signal or slow down other processes",
    "pins": "signal or slow down other processes",
    "starves": "signal or slow down other processes",
    "forks": "start processes",
    "hoards": "exceed its memory limit",
    "shares": "exceed its memory limit",
    "becomes_root": "create namespaces",
    "survives": "create namespaces",
}


class World:
    """What attacks aim at: all of it is the grading user's, in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.file, self.new, self.path = (folder / name for name in ("file", "new", "socket"))
        self.file.write_text("secret")
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.udp.setblocking(False)
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(self.path))
        self.unix.listen()
        self.unix.setblocking(False)
        self.process = subprocess.Popen(["sleep", "600"])
        self.before = self.state()

    def told(self, other: SealedChild) -> dict[str, Any]:
        """Return what an attack has to know."""
        return {
            **{name: str(getattr(self, name)) for name in ("file", "new", "path")},
            "udp": self.udp.getsockname()[1],
            "process": self.process.pid,
            "other": other._pid,
        }

    def changed(self) -> bool:
        """Tell whether anything is not as it was."""
        return self.process.poll() is not None or self.state() != self.before

    def state(self) -> list[Any]:
        """Return all that an attack may change."""
        pid, status = self.process.pid, self.file.stat()
        return [
            self.file.read_text() if status.st_mode & 0o400 else None,
            self.new.exists(),
            status.st_mode,
            status.st_mtime,
            os.listxattr(self.file),
            [_taken(self.udp.recv), _taken(self.unix.accept)],
            os.getpriority(os.PRIO_PROCESS, pid),
            os.sched_getaffinity(pid),
            resource.prlimit(pid, resource.RLIMIT_NOFILE),
        ]

    def close(self) -> None:
        """End what is there."""
        self.process.kill()
        self.process.wait()
        self.udp.close()
        self.unix.close()


def _taken(take: Callable[..., Any]) -> bool:
    try:
        taken = take(*([10] if take.__name__ == "recv" else []))
    except BlockingIOError:
        return False
    if isinstance(taken, tuple):
        taken[0].close()
    return True


@contextmanager
def world_in(folder: Path) -> Iterator[World]:
    world = World(folder)
    try:
        yield world
    finally:
        world.close()


def succeeds(keeper: ChildKeeper, world: World, name: str) -> bool:
    """Have a child attack; tell whether anything came of it."""
    one, other = keeper.child(), keeper.child()
    answered = []
    for child_, question in (
        (one, {"call": name, "arguments": [world.told(other)]}),
        (one, {"call": "answer", "arguments": []}),
        (other, {"call": "answer", "arguments": []}),
    ):
        try:
            child_.ask(question)
            answered.append(True)
        except (StudentError, ChildKilled):
            answered.append(False)
    one.close()
    other.close()
    return answered != UNHARMED or world.changed()


def attacked(folder: Path, without: tuple[str, ...]) -> tuple[list[str], str]:
    """Return the attacks that succeed, and what the report says that a file could do."""
    succeed = []
    with ChildKeeper(ATTACKS, [], [], unsealed=True, without=without) as keeper:
        for name in NAMES:
            place = folder / name
            place.mkdir()
            with world_in(place) as world:
                if succeeds(keeper, world, name):
                    succeed.append(name)
        return succeed, "".join(keeper.unsealed)


def become_user() -> None:
    os.setgroups([])
    os.setgid(USER)
    os.setuid(USER)


def lose_admin() -> None:
    assert not ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0)


AS: dict[str, Callable[[], None]] = {
    "root": lambda: None,
    "user": become_user,
    "container": lose_admin,
}


def apart(become: Callable[[], None], folder: Path, work: Callable[[], object]) -> Any:
    """Return what a function returns in a process that has become somebody else first."""
    told = folder / "told"
    pid = os.fork()
    if pid == 0:
        try:
            become()
            told.write_text(json.dumps(work()))
        except BaseException:  # noqa: BLE001 - shown by the parent's own failure
            traceback.print_exc()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return json.loads(told.read_text())


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder that every user can reach."""
    with tempfile.TemporaryDirectory(prefix="pillarbox-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


# Each layer is left out for root; for others, with --all.
LEFT_OUT = [
    pytest.param(
        who, missing, marks=[pytest.mark.long] if who != "root" and missing in LAYERS else []
    )
    for who in AS
    for missing in ("nothing", *LAYERS, "everything")
]


@pytest.mark.skipif(os.geteuid() != 0, reason="is root's way to be somebody else")
@pytest.mark.parametrize(("who", "missing"), LEFT_OUT)
def test_every_attack_is_held_or_named(
    who: str, missing: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "MEMORY_BYTES", MEMORY_BYTES)
    without = {"nothing": (), "everything": LAYERS}.get(missing, (missing,))
    succeed, named = apart(AS[who], folder, lambda: attacked(folder, without))
    assert [name for name in succeed if NAMES[name] not in named] == []
    if missing == "nothing":
        assert (succeed, named) == ([], "")
    if (who, missing) == ("root", "everything"):
        assert succeed == list(NAMES), "else these attacks prove nothing"


def test_nothing_is_graded_that_is_not_sealed(tmp_path: Path) -> None:
    loaded = tmp_path / "loaded"
    source = f"open({str(loaded)!r}, 'w').close()"
    with ChildKeeper(source, [], [], without=["landlock", "calls", "user"]) as keeper:
        with pytest.raises(PillarboxError, match="a file could open other files"):
            keeper.child()
        assert not loaded.exists()


def test_what_is_graded_all_the_same_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grading_engine, "ChildKeeper", partial(ChildKeeper, without=["landlock"]))
    (tmp_path / "mine.py").write_text("x = 1\n")
    arguments = ["1", "--student", "s0", str(tmp_path / "mine.py")]
    with pytest.raises(PillarboxError, match="--unsealed grades it anyway"):
        CliRunner().invoke(command, arguments, catch_exceptions=False)
    told = CliRunner().invoke(command, [*arguments, "--unsealed"], catch_exceptions=False).output
    assert "note: a file could open other files (" in told
    assert "no landlock: left out)" in told


# Answers, and computes until the next question arrives.
BACKGROUND = """
import json, select, sys

def answer():
    frame = sys._getframe()
    while "lines" not in frame.f_locals: frame = frame.f_back
    lines, number = frame.f_locals["lines"], frame.f_locals["number"]
    while True:
        lines.write(json.dumps({"number": number, "answer": 1}) + "\\n")
        lines.flush()
        while not select.select([frame.f_locals["stream"]], [], [], 0)[0]: pass
        number = json.loads(lines.readline())["number"]
"""


@pytest.mark.parametrize(("background_s", "is_killed"), [(0.02, False), (0.55, True)])
def test_a_child_that_computes_after_its_answer_is_killed(
    background_s: float, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_killed:
        monkeypatch.setattr(child, "BACKGROUND_S", 5.0)  # it goes on until the next question
    with ChildKeeper(BACKGROUND, [], [], unsealed=True) as keeper:
        one = keeper.child()
        question = {"call": "answer", "arguments": []}
        assert one.ask(question) == 1
        waited_s = keeper.waited_s
        while one._cpu_s() < one._answered_cpu_s + background_s:
            os.sched_yield()
        if is_killed:
            with pytest.raises(ChildKilled, match="computes after its answer"):
                one.ask(question)
        else:
            assert one.ask(question) == 1
            assert keeper.waited_s >= waited_s + background_s
