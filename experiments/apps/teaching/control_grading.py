"""Grading of a student's congestion control: compiled in a seal, measured live, judged by a lab.

A judge reads the file and refuses what cannot be a control; it starts no process, so the grader
does the rest, one submission after another: measurements must not share the machine. The control is
registered in the sandbox of a lab and ends with it. Needs root, and a kernel with controls in eBPF.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import signal
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from pillarbox.experiments.apps.teaching.child import StudentError
from pillarbox.experiments.apps.teaching.control_compiler import FILE, compiled_control
from pillarbox.experiments.apps.teaching.grading_engine import (
    Exercise,
    Mark,
    Sheet,
    hidden_draw,
    mark_of_check,
    no_marks,
    skeleton_of,
    suffix_of,
)
from pillarbox.experiments.apps.teaching.judge import JudgeFailure
from pillarbox.experiments.apps.teaching.labs import lab11
from pillarbox.experiments.apps.teaching.labs.control_runs import (
    ControlMeasurements,
    ControlRuns,
    FlowMeasurement,
    SharedCable,
    measured_control,
)
from pillarbox.experiments.apps.teaching.marking import MOST_TEXT, GradingTask
from pillarbox.experiments.apps.teaching.similarity import fingerprints
from pillarbox.experiments.base.text import printable
from pillarbox.experiments.lab.linux.congestion import control_in_use, in_kernel, shipped
from pillarbox.hosts.linux.bpf import BpfError
from pillarbox.hosts.linux.struct_ops import CongestionControl
from pillarbox.topos.base.errors import (
    NotPermittedError,
    PillarboxError,
    UnsupportedError,
    require,
)

PREFIX = "sheet_"  # begin of a control's name in the kernel, which has room for 15 characters
MOST_S = 300  # time limit of all runs of a control, in seconds
# Largest values that a measurement may have.
MOST_BPS, MOST_MS = 1e12, 1e6


class GradedControl(NamedTuple):
    """Marks of a control, notes for its author, and its figures for the leaderboard."""

    marks: list[Mark]
    notes: list[str]
    figures: dict[str, float]


def check_machine() -> None:
    """Raise PillarboxError if this machine cannot run a student's congestion control."""
    require(
        os.geteuid() == 0,
        "a congestion control is graded on a live network, which needs root: use sudo",
        NotPermittedError,
    )
    try:
        with control_in_use(min(shipped())):
            pass
    except PillarboxError as error:
        raise UnsupportedError(
            f"this machine cannot run a congestion control of your own ({error}): see "
            "`pillarbox doctor`"
        ) from None


def measured_answers(
    tasks: Sequence[GradingTask],
    answers: Iterable[tuple[int, dict[str, Any] | PillarboxError | JudgeFailure]],
) -> Iterator[tuple[int, dict[str, Any] | PillarboxError | JudgeFailure]]:
    """Yield the judges' answers with measurements, made one by one after all judges have ended."""
    for number, answer in [*answers]:
        if not isinstance(answer, dict):
            yield number, answer
            continue
        try:
            yield number, with_measurements(tasks[number], answer)
        except PillarboxError as error:
            yield number, JudgeFailure(str(error))


def with_measurements(task: GradingTask, answer: dict[str, Any]) -> dict[str, Any]:
    """Return a judge's answer with marks of a measurement, unless the judge refused the file."""
    source = answer.get("source")
    if not source or not isinstance(source, str):
        return answer
    made = graded_control(task.sheet, source, task.secret, unsealed=task.unsealed)
    marks = [one._asdict() for one in made.marks]
    return {**answer, "marks": marks, "notes": made.notes, "figures": made.figures}


def fingerprints_of_shipped_controls(lab: Exercise) -> dict[str, frozenset[int]]:
    """Return the fingerprints of Pillarbox's own controls, without those of a lab's skeleton."""
    suffix = suffix_of(lab)
    given = fingerprints(skeleton_of(lab), suffix)
    return {
        f"shipped {name}": fingerprints(file.read_text(encoding="utf-8"), suffix) - given
        for name, file in shipped().items()
    }


def graded_control(
    sheet: Sheet, source: str, secret: str = "", *, unsealed: bool = False
) -> GradedControl:
    """Compile, measure and judge a student's control; a control that is refused gets no points."""
    cable = lab11.cable_of(sheet.values)
    hidden = lab11.hidden_cable(hidden_draw(sheet, secret, "network"))
    name = f"{PREFIX}{secrets.token_hex(4)}"
    try:
        made = compiled_control(source, name, unsealed=unsealed)
        found, doubts = _measured(made, name, cable, hidden)
    except StudentError as error:
        return GradedControl(no_marks(sheet.lab, str(error)), [], {})
    work = lab11.ControlWork(found, cable, hidden)
    marks = [mark_of_check(check, work)[0] for check in lab11.CHECKS]
    return GradedControl(marks, [*lab11.notes(work), *doubts], lab11.figures(work))


def _measured(made: bytes, name: str, cable: SharedCable, hidden: SharedCable) -> ControlRuns:
    """Run a control's flows in a sandbox; raise StudentError if the kernel refuses the control."""
    from pillarbox.experiments.lab.linux import sandbox

    with tempfile.TemporaryDirectory(prefix="pillarbox-live-") as folder:
        place = Path(folder)
        (place / "control.bpf.o").write_bytes(made)
        sandbox.run(lambda: _run_control(name, cable, hidden, place))
        written = place / "answer.json"
        require(
            written.is_file(),
            f"the live network ended before all flows were measured, or after {MOST_S} s: see the "
            "errors above",
        )
        answer = json.loads(written.read_text())
    if "refused" in answer:
        raise StudentError(printable(str(answer["refused"]), MOST_TEXT))
    if "failed" in answer:
        raise PillarboxError(printable(str(answer["failed"]), MOST_TEXT))
    doubts = [printable(str(doubt), MOST_TEXT) for doubt in answer["doubts"]]
    return ControlRuns(validated_measurements(answer["found"]), doubts)


def _run_control(name: str, cable: SharedCable, hidden: SharedCable, folder: Path) -> int:
    """Register a control, run its flows, and write the measurements to a file for the parent."""
    signal.alarm(MOST_S)  # ends this process, and with it the sandbox
    answer: dict[str, Any]
    try:
        control = CongestionControl(folder / "control.bpf.o", FILE, restricted=True)
    except BpfError as error:
        answer = {"refused": str(error)}
    else:
        with closing(control):
            answer = _flows_of_control(name, cable, hidden, folder)
    (folder / "answer.json").write_text(json.dumps(answer))
    return 0


def _flows_of_control(
    name: str, cable: SharedCable, hidden: SharedCable, folder: Path
) -> dict[str, Any]:
    if name not in in_kernel():
        return {"refused": f"{FILE} sets a .name of its own: omit it, CONTROL does it"}
    try:
        found, doubts = measured_control(name, cable, hidden, folder)
        return {"found": found, "doubts": doubts}
    except PillarboxError as error:
        return {"failed": str(error)}


def validated_measurements(plain: Sequence[Sequence[float]]) -> ControlMeasurements:
    """Return the measurements of a sandbox; raise PillarboxError if a number is out of range."""
    flows = [FlowMeasurement(*map(float, one)) for one in plain]
    require(
        all(
            math.isfinite(bps) and math.isfinite(ms) and 0 <= bps <= MOST_BPS and 0 <= ms <= MOST_MS
            for bps, ms in flows
        ),
        "the live network returned measurements that are out of range: grade the file again",
    )
    return ControlMeasurements(*flows)
