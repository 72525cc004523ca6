"""Whatever a student's file does, the grader ends soon, says what happened, and stays whole."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox.experiments.apps.teaching import child, grading_engine, layers
from pillarbox.experiments.apps.teaching.child import (
    ChildKeeper,
    ChildKilled,
    SealedChild,
    StudentError,
)
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of

MODEL = Path(__file__).parents[3] / "vagrant" / "labs" / "answers" / "lab1" / "model.py"
SHEET = sheet_of("1", "s0")
ADDRESS = MODEL.read_text().partition("\n\n\n")[0]

BEHAVIOURS = """
import os, sys

def echo(value): return value
def loop():
    while True: pass
def later(seconds):
    import time
    time.sleep(seconds)
    return seconds
def sleep():
    import time
    time.sleep(60)
def fork():
    while True: os.fork()
def thread():
    import threading
    threading.Thread(target=loop).start()
def allocate():
    hoard = []
    while True: hoard.append(bytearray(1 << 20))
def leave(): os._exit(0)
def exit(): sys.exit()
def crash():
    import ctypes
    ctypes.string_at(0)
def rubbish():
    for descriptor in range(3, 32):
        try: os.write(descriptor, b"100 points\\n")
        except OSError: pass
def forge():
    for descriptor in range(3, 32):
        try: os.write(descriptor, b'{"number": 1, "answer": "right"}\\n')
        except OSError: pass
def flood():
    while True:
        for descriptor in range(3, 32):
            try: os.write(descriptor, b"x" * 65536)
            except OSError: pass
def nest():
    value = []
    for _ in range(100000): value = [value]
    return value
def nonsense(): return object()
def prints():
    print("100 of 100", file=sys.stderr)
    print("100 of 100")
    return 1
def reads(place): return open(place).read()
def lists(place): return os.listdir(place)
def writes():
    with open("mine", "w") as file: file.write("x")
def kills(process): os.kill(process, 9)
def answers(): import pillarbox.hosts.dpillar.paths
def connects(port):
    import socket
    socket.create_connection(("127.0.0.1", port), 1)
def knows(): return [os.getuid(), sorted(os.environ), os.listdir(".") if False else 0]
def grows():
    return "x" * (1 << 22)
"""


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChildKeeper]:
    monkeypatch.setattr(child, "MEMORY_BYTES", 32 << 20)
    with ChildKeeper(BEHAVIOURS, ["pillarbox.topos.dpillar"], ["dpillar,4,2"]) as keeper:
        yield keeper


def call(keeper: ChildKeeper, name: str, *arguments: object) -> object:
    return keeper.child().ask({"call": name, "arguments": arguments})


def asked_twice(one: SealedChild, name: str) -> None:
    """Ask for it, and then for something else: what was written too much is found then."""
    one.ask({"call": name, "arguments": []})
    one.ask({"call": "echo", "arguments": [1]})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("loop", "no answer within"),
        ("sleep", "no answer within"),
        ("allocate", "memory limit"),
        ("leave", "its process ended"),
        ("exit", "its process ended"),
        ("crash", "signal 11"),
        ("rubbish", "malformed"),
        ("forge", "out of turn"),
        ("flood", "malformed"),
        ("grows", "malformed"),
    ],
)
def test_stopped(
    keeper: ChildKeeper, name: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, patient_s = keeper.child(), child.DECISION_S
    if says == "no answer within":
        monkeypatch.setattr(child, "DECISION_S", 1.0)
    with pytest.raises(ChildKilled, match=says):
        asked_twice(one, name)
    monkeypatch.setattr(child, "DECISION_S", patient_s)
    assert call(keeper, "echo", 7) == 7  # the next child knows nothing of it


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("fork", (), "PermissionError|BlockingIOError"),
        ("thread", (), "RuntimeError"),
        ("nest", (), "RecursionError"),
        ("nonsense", (), "TypeError"),
        ("answers", (), "not for this lab, which may import pillarbox.topos.dpillar"),
        ("missing", (), "no function missing"),
        ("echo", (), r"TypeError: .*missing 1 required"),
        ("reads", (__file__,), "PermissionError"),
        ("reads", (grading_engine.__file__,), "PermissionError"),
        ("reads", ("/proc/self/environ",), "PermissionError"),
        ("lists", ("/",), "PermissionError"),
        ("writes", (), "PermissionError"),
        ("kills", (os.getpid(),), "PermissionError|ProcessLookupError"),
    ],
)
def test_refused(keeper: ChildKeeper, name: str, arguments: tuple[object, ...], says: str) -> None:
    with pytest.raises(StudentError, match=says):
        call(keeper, name, *arguments)


def test_what_is_printed_goes_nowhere(
    keeper: ChildKeeper, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(keeper, "prints") == 1
    assert capfd.readouterr() == ("", "")


def test_there_is_no_network(keeper: ChildKeeper) -> None:
    import socket

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(StudentError, match=r"Permission|refused|unreachable"),
    ):
        call(keeper, "connects", server.getsockname()[1])


@pytest.mark.root
def test_root_becomes_another_user_and_passes_nothing_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILLARBOX_GRADE_SECRET", "word")
    with ChildKeeper(BEHAVIOURS, [], []) as keeper:
        user, variables, _ = call(keeper, "knows")  # type: ignore[misc]
    assert user >= layers.FIRST_USER
    assert "PILLARBOX_GRADE_SECRET" not in variables


def test_no_process_is_left(keeper: ChildKeeper) -> None:
    children = [keeper.child() for _ in range(3)]
    for one in children:
        one.ask({"call": "echo", "arguments": [1]})
    before = [one._pid for one in children]
    keeper.__exit__(None, None, None)
    assert not [pid for pid in before if Path(f"/proc/{pid}").exists()]


def graded(source: str) -> grading_engine.Report:
    return grading_engine.grade(SHEET, source)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("while True: pass", "no answer"),
        ("import time; time.sleep(60)", "no answer"),
        ("import os; os._exit(0)", "its process ended"),
        ("raise SystemExit", "its process ended"),
        ("x = [0] * (1 << 40)", "memory limit"),
        ("1 / 0", "ZeroDivisionError"),
        ("def peers(:", "SyntaxError"),
        ("import os\nwhile True: os.fork()", "PermissionError"),
    ],
)
def test_file_that_never_gets_to_its_functions(
    line: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if says == "no answer":
        monkeypatch.setattr(child, "DECISION_S", 1.0)
    report = graded(f"{line}\n{MODEL.read_text()}")
    assert report.got == 0
    assert says in report.marks[0].why
    assert len(report.marks) == len(SHEET.lab.CHECKS)


def test_points_got_before_a_stop_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "DECISION_S", 4.0)
    half = ADDRESS.replace("(n, k, number):", "(n, k, number):\n    count()", 1)
    source = (
        "import time\n\ncalls = []\n\n\ndef count():\n    calls.append(1)\n"
        "    while len(calls) > 5: time.sleep(1)\n\n\n" + MODEL.read_text().replace(ADDRESS, half)
    )
    report = graded(source)
    first, others = report.marks[0], report.marks[1:4]
    assert first.got == 20 * 10 / 40  # five addresses, and five numbers between them
    assert first.why.startswith("stopped at bcube,4,1, address(")
    assert [mark.got for mark in others] == [35, 20, 10]


def test_pauses_of_the_machine_are_not_the_students(
    keeper: ChildKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock is 10 s after the last one, as if the machine had slept."""
    pauses = itertools.count(step=10)
    monkeypatch.setattr(child.time, "monotonic", lambda: float(next(pauses)))
    monkeypatch.setattr(child, "DECISION_S", 2.0)
    assert call(keeper, "later", 0.3) == 0.3
    assert keeper.waited_s < 2.0
    with pytest.raises(ChildKilled, match="no answer within 2 s"):
        call(keeper, "sleep")


def test_slow_answers_end_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "PATIENCE_S", 0.5)
    slow = "import time\ndef address(*_): time.sleep(0.1)\nnumber = switch = peers = address"
    report = graded(slow)
    assert "all its answers took 0.5 s" in report.marks[0].why
    assert report.marks[-1].why.startswith("not tried")


def test_rest_is_not_tried_after_two_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "DECISION_S", 1.0)
    report = graded("def peers(*_):\n    while True: pass\naddress = number = switch = peers")
    assert [mark.why[:9] for mark in report.marks] == ["stopped a"] * 2 + ["not tried"] * 3
