"""Graded controls: the command, a class with its leaderboard, and live flows over a cable."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pillarbox.experiments.apps.teaching import (
    autograder,
    control_grading,
    grading_engine,
    submissions,
)
from pillarbox.experiments.apps.teaching.control_grading import (
    GradedControl,
    graded_control,
    validated_measurements,
)
from pillarbox.experiments.apps.teaching.labs import control_runs, lab11
from pillarbox.experiments.apps.teaching.labs.control_runs import FlowMeasurement
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from pillarbox.experiments.cli.commands import grade, grade_all
from pillarbox.experiments.lab.linux.congestion import in_kernel, shipped
from pillarbox.topos.base.errors import NotPermittedError, PillarboxError, UnsupportedError

ROOT = Path(__file__).parents[4]
SKELETON = (ROOT / "vagrant" / "labs" / lab11.FOLDER / "skeleton.bpf.c").read_text()
MODEL = (ROOT / "tests" / "vagrant" / "labs" / "answers" / "lab11" / "model.bpf.c").read_text()
RENO = """#include "control.h"
SEC("struct_ops/ssthresh") __u32 BPF_PROG(after_loss, struct sock *sk)
{
    return tcp_reno_ssthresh(sk);
}
SEC("struct_ops/cong_avoid") void BPF_PROG(grow, struct sock *sk, __u32 ack, __u32 acked)
{
    tcp_reno_cong_avoid(sk, ack, acked);
}
SEC("struct_ops/undo_cwnd") __u32 BPF_PROG(undo, struct sock *sk)
{
    return tcp_reno_undo_cwnd(sk);
}
CONTROL(mine, .ssthresh = FN(after_loss), .cong_avoid = FN(grow), .undo_cwnd = FN(undo));
"""


LIVE = pytest.mark.skipif(
    not Path("/sys/kernel/btf/vmlinux").exists() or shutil.which("clang") is None,
    reason="this machine has no controls in eBPF",
)


def with_growth(code: str) -> str:
    """Return Reno with other code on each ACK."""
    line = "tcp_reno_cong_avoid(sk, ack, acked);"
    assert RENO.count(line) == 1
    return RENO.replace(line, code)


# Each hostile control, and what its flows do.
SILENT = with_growth("TCP(sk)->snd_cwnd = 0;")
DIVIDES = with_growth("tcp_cong_avoid_ai(TCP(sk), 0, acked); TCP(sk)->snd_cwnd_cnt /= ack - ack;")
GREEDY = with_growth("TCP(sk)->snd_cwnd = 400;").replace("tcp_reno_ssthresh(sk)", "400")


def measured(score: float) -> GradedControl:
    """Return a control's grading with a score."""
    figures = {"score": score, "goodput": 0.9, "queue": 0.2, "fairness": 1.0, "reno": 0.8}
    marks = [
        grading_engine.Mark(check.name, check.points, check.points, "1 of 1 right")
        for check in lab11.CHECKS
    ]
    return GradedControl(marks, ["a note"], figures)


@pytest.fixture
def no_kernel(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Replace live measurements by a score in the file's first line; count them by score."""
    counts: dict[str, int] = {}

    def graded(_: Any, source: str, *__: Any, **___: Any) -> GradedControl:
        word = source.split()[1]
        counts[word] = counts.get(word, 0) + 1
        if word == "busy":
            raise PillarboxError("this machine is too busy to measure")
        return measured(float(word))

    monkeypatch.setattr(control_grading, "check_machine", lambda: None)
    monkeypatch.setattr(control_grading, "graded_control", graded)
    return counts


@pytest.fixture
def handed_in(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for student, word in {"ada": "2.5", "bob": "4.0", "eve": "2.5", "dan": "busy"}.items():
        (folder / f"{student}.bpf.c").write_text(f"// {word} .\nint of_{student};\n" + MODEL)
    (folder / "cat.bpf.c").write_text("// 1.0 .\n" + shipped()["delay"].read_text())
    (folder / "fay").mkdir()
    (folder / "fay" / "mine.bpf.c").write_text("// 0.5 .\n" + RENO)
    (folder / "gus.bpf.c").write_text("// 9 .\n" + SKELETON)
    (folder / "hal.bpf.c").write_text('// 9 .\n#include "/etc/shadow"\n' + MODEL)
    (folder / "ida.bpf.c").write_text("// 9 .\n" + "x" * submissions.MOST_SOURCE_BYTES)
    (folder / "jan.bpf.c").symlink_to(folder / "bob.bpf.c")
    (folder / "kim.c").write_text("// 9 .\n" + RENO)
    return folder


def graded(folder: Path, *options: str) -> Result:
    arguments = ["11", str(folder), "--out", str(folder.parent / "out"), "--secret", "x", *options]
    return CliRunner().invoke(grade_all.command, arguments, catch_exceptions=False)


def rows_of(out: Path) -> dict[str, dict[str, str]]:
    lines = (out / "marks.csv").read_text().splitlines()
    return {row["student"]: row for row in csv.DictReader(lines)}


def test_a_class_has_a_leaderboard(handed_in: Path, no_kernel: dict[str, int]) -> None:
    graded(handed_in)
    out = handed_in.parent / "out"
    rows = rows_of(out)
    scores = {student: float(row["score"]) for student, row in rows.items()}
    assert scores == {
        **dict.fromkeys(("ada", "eve"), 2.5),
        "bob": 4.0,
        "cat": 1.0,
        "fay": 0.5,
        **dict.fromkeys(("dan", "gus", "hal", "ida", "jan", "kim.c"), 0.0),
    }
    reasons = {
        "dan": "not graded: this machine is too busy to measure",
        "gus": grading_engine.UNFILLED,
        "hal": 'line 2 includes "/etc/shadow": include "control.h" only',
        "ida": "is longer than 200000 bytes",
        "jan": "is a link",
        "kim.c": "is not a .bpf.c file",
    }
    for student, reason in reasons.items():
        assert reason in rows[student]["remark"], student
    assert rows["ada"]["points"] == "100.0"
    assert "shipped delay (100%)" in rows["cat"]["like"]
    assert "bob (" in rows["ada"]["like"]
    assert "shipped" not in "".join(rows[student]["like"] for student in ("ada", "bob", "fay"))
    page = (out / "class.html").read_text()
    board = page.partition("Leaderboard")[2].partition("Where points were lost")[0]
    places = {student: board.index(f"<td>{student}</td>") for student in ("bob", "ada", "eve")}
    assert sorted(places, key=lambda student: places[student]) == ["bob", "ada", "eve"]
    assert "gus" not in board
    assert "a note" in (out / "students" / "ada.html").read_text()


def test_equal_scores_share_a_rank(handed_in: Path, no_kernel: dict[str, int]) -> None:
    made = graded_class(handed_in)
    assert [(rank, one.student) for rank, one in made.leaderboard] == [
        (1, "bob"),
        (2, "ada"),
        (2, "eve"),
        (4, "cat"),
        (5, "fay"),
    ]


def graded_class(folder: Path) -> Any:
    from pillarbox.experiments.apps.teaching.class_grading import grade_all as of_class

    return of_class("11", folder, "x", threshold=0.7, jobs=2)


def test_an_unchanged_control_keeps_its_measurement(
    handed_in: Path, no_kernel: dict[str, int]
) -> None:
    graded(handed_in)
    first = (handed_in.parent / "out" / "marks.csv").read_text()
    (handed_in / "bob.bpf.c").write_text("// 3.0 .\n" + MODEL)
    before = dict(no_kernel)
    graded(handed_in, "--changed")
    rows = rows_of(handed_in.parent / "out")
    assert rows["bob"]["score"] == "3.0"
    assert rows["ada"]["score"] == "2.5"
    assert "4.0" in first
    again = {word for word, count in no_kernel.items() if count > before.get(word, 0)}
    assert again == {"3.0", "busy"}


def of_ada(*options: str) -> Result:
    arguments = ["11", "--student", "ada", *options]
    return CliRunner().invoke(grade.command, arguments, catch_exceptions=False)


def test_one_control_is_graded_with_the_call_of_other_sheets(
    handed_in: Path, no_kernel: dict[str, int]
) -> None:
    told = of_ada(str(handed_in / "ada.bpf.c"))
    assert told.output.splitlines()[0] == "Lab 11, Your own congestion control: ada"
    assert "   100 of 100" in told.output
    assert "note: a note" in told.output
    assert json.loads(of_ada(str(handed_in / "ada.bpf.c"), "--json").output)["score"] == 100
    assert "include" in of_ada(str(handed_in / "hal.bpf.c")).output
    assert no_kernel == {"2.5": 2}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--live"], "lab 11 always runs live: leave out --live"),
        (["--case", "1.1"], "grade the file again, without --case"),
    ],
)
def test_options_of_other_sheets_are_refused(
    handed_in: Path, no_kernel: dict[str, int], options: list[str], said: str
) -> None:
    with pytest.raises(PillarboxError, match=said):
        of_ada(str(handed_in / "ada.bpf.c"), *options)
    assert not no_kernel


def test_without_root_or_kernel_it_is_a_sentence(
    handed_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NotPermittedError, match="needs root: use sudo"):
        of_ada(str(handed_in / "ada.bpf.c"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def lacks(_: str) -> None:
        raise UnsupportedError("no BTF")

    monkeypatch.setattr(control_grading, "control_in_use", lacks)
    with pytest.raises(
        UnsupportedError, match=r"cannot run a congestion control .* \(no BTF\): se"
    ):
        of_ada(str(handed_in / "ada.bpf.c"))


def test_no_autograder_measures_controls(tmp_path: Path) -> None:
    for form in autograder.FORMS:
        with pytest.raises(PillarboxError, match="lab 11 is measured on a live network"):
            autograder.write_autograder(form, "11", tmp_path / "lab.zip", "")


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf"), 1e13])
def test_a_measurement_out_of_range_is_refused(wrong: float) -> None:
    flows = [[1e6, 10.0]] * 8
    assert validated_measurements(flows).alone == FlowMeasurement(1e6, 10.0)
    for place in range(2):
        flow = [1e6, 10.0]
        flow[place] = wrong
        with pytest.raises(PillarboxError, match="out of range"):
            validated_measurements([*flows[:7], flow])


# -- live ----------------------------------------------------------------------------------------


def points(source: str) -> dict[str, float]:
    """Return the points of a control by part; no control stays in the kernel."""
    found = graded_control(sheet_of("11", "ada"), source, "a word")
    assert not [name for name in in_kernel() if name.startswith(control_grading.PREFIX)]
    return {mark.name: mark.got for mark in found.marks}


@LIVE
@pytest.mark.root
@pytest.mark.parametrize(
    "source",
    [
        pytest.param(SILENT, id="silent"),
        pytest.param(DIVIDES, id="divides", marks=pytest.mark.long),
    ],
)
def test_a_control_that_stops_itself_is_marked(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_runs, "DURATION_S", 1.0)
    monkeypatch.setattr(control_runs, "SETTLED_S", 0.5)
    monkeypatch.setattr(control_runs, "LEAST_OF_RENO", 0.0)
    monkeypatch.setattr(control_runs, "reasons_of", lambda _: [])
    found = graded_control(sheet_of("11", "ada"), source, "a word")
    assert found.figures["score"] < 1.5
    if source == SILENT:
        assert sum(mark.got for mark in found.marks) == 0
        assert found.figures["score"] < 0.05


@LIVE
@pytest.mark.root
def test_a_measurement_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_grading, "MOST_S", 1)
    monkeypatch.setattr(control_grading, "measured_control", lambda *_: signal.pause())
    with pytest.raises(PillarboxError, match="ended before all flows were measured, or after 1 s"):
        points(RENO)


@LIVE
@pytest.mark.root
def test_a_control_that_the_kernel_refuses_gets_a_sentence_and_no_points() -> None:
    loops = with_growth("for (;;) bpf_ktime_get_ns();")
    found = graded_control(sheet_of("11", "ada"), loops, "a word")
    assert [mark.got for mark in found.marks] == [0] * len(lab11.CHECKS)
    assert re.search(r"refuses mine\.bpf\.c, line 8: .*infinite loop", found.marks[0].why)
    assert found.figures == {}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Replace live runs: Reno has 19 Mbit/s, and a run of `busy` is never valid; list the runs."""
    made: list[tuple[str, ...]] = []

    def run(lab: float, *controls: str) -> tuple[list[FlowMeasurement], list[str]]:
        made.append(controls)
        reasons = ["the kernel was overloaded"] if "busy" in controls else []
        return [FlowMeasurement(lab, 50.0) for _ in controls], reasons

    @contextmanager
    def running(cable: control_runs.SharedCable, _: Path) -> Iterator[float]:
        yield cable.payload_bps

    monkeypatch.setattr(control_runs, "flows_in", run)
    monkeypatch.setattr(control_runs, "_running", running)
    monkeypatch.setattr(control_runs, "RENO", "reno")
    return made


CABLE = control_runs.SharedCable(20.0, 1.0)


def test_a_run_that_is_not_valid_is_repeated(
    runs: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = control_runs.measured_control("mine", CABLE, CABLE, tmp_path)
    alone = [("reno",), ("mine",)]
    assert runs == [*alone, ("mine", "mine"), ("mine", "reno"), *alone]
    assert found.doubts == []
    runs.clear()
    found = control_runs.measured_control("busy", CABLE, CABLE, tmp_path)
    assert runs[: 2 + control_runs.TRIES] == [
        ("reno",),
        *[("busy",)] * control_runs.TRIES,
        ("reno",),
    ]
    assert found.doubts[0] == "a run with your control is not valid: the kernel was overloaded"
    monkeypatch.setattr(control_runs, "RENO", "busy")
    with pytest.raises(PillarboxError, match=r"too busy to measure \(the kernel was overloaded\)"):
        control_runs.measured_control("mine", CABLE, CABLE, tmp_path)


@pytest.mark.parametrize(
    ("share", "valid"),
    [(control_runs.LEAST_OF_RENO + 0.01, True), (control_runs.LEAST_OF_RENO - 0.01, False)],
)
def test_reno_has_to_use_its_cable(
    share: float, valid: bool, runs: list[tuple[str, ...]], tmp_path: Path
) -> None:
    runner = control_runs._ControlRunner(share * CABLE.payload_bps, CABLE, "mine")  # type: ignore[arg-type]
    if valid:
        runner.of_reno()
        return
    with pytest.raises(PillarboxError, match="Reno reaches 84% of its cable"):
        runner.of_reno()
    assert len(runs) == control_runs.TRIES


@LIVE
@pytest.mark.root
@pytest.mark.alone
@pytest.mark.long
def test_a_good_control_has_most_points_and_reno_its_own() -> None:
    assert sum(points(MODEL).values()) >= 90
    reno = points(RENO)
    assert reno["goodput"] == 15
    assert reno["a short queue"] == 0
    assert 45 <= sum(reno.values()) <= 60


@LIVE
@pytest.mark.root
@pytest.mark.alone
@pytest.mark.long
def test_a_control_that_starves_others_loses_these_points() -> None:
    found = points(GREEDY)
    assert found["fairness towards Reno"] == 0
    assert found["a short queue"] == 0
