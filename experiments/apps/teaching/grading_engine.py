"""Grading of a student's file: each check is a list of cases, each case yields a share of points.

A lab is a module in labs/ with

- ``TITLE``, and ``FOLDER``, the folder in vagrant/labs/ with its sheet and its skeleton;
- ``MODULES``, the modules of Pillarbox that the file may import, and ``NETWORKS``, the specs of all
  networks that the file may be called with;
- ``values(draw)``, the student's values: drawn from a seed and shown on the sheet;
- ``CHECKS``, whose points sum to 100, and optionally a live part (live_grading.py);
- optionally ``SUFFIX``, the suffix of a file that is not Python: a congestion control, which the
  grader compiles and measures live (control_grading.py);
- optionally ``RUNS``, folders of runs that are submitted with the file (evidence.py);
- optionally ``prepare(values)``, which computes the correct answers that need a compiler before the
  judge is sealed.

A check's `cases` function makes its cases from the student's `Work`. A case has a text of the
question, so that the student can repeat it, and a function that judges the answer. Hidden draws
come from `Work.draw`; they depend on the student and on the teacher's secret.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pillarbox.experiments.apps.teaching.child import (
    ChildKeeper,
    ChildKilled,
    SealedChild,
    StudentError,
)
from pillarbox.experiments.apps.teaching.sealed_router import SealedChildRouter
from pillarbox.experiments.apps.teaching.similarity import source_tokens
from pillarbox.experiments.apps.teaching.submissions import PYTHON, Files
from pillarbox.experiments.base.files import SHEETS
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.wire.marks import serial_of
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

MOST_STOPS = 2  # number of killed sealed children after which a lab's remaining checks are skipped
WHOLE = 100.0
UNFILLED = "the skeleton is unchanged: fill it in"
EMPTY = "the file is empty: begin with the skeleton of the lab"
MOST_SHOWN = 4  # maximum number of wrong test cases in the report of a check


class Judgement(NamedTuple):
    """Judgement of a test case: share of its points, from 0 to 1, and a sentence on the error."""

    share: float
    wrong: str = ""


RIGHT = Judgement(1.0)


def all_or_nothing(right: bool, wrong: str) -> Judgement:
    """Return a test case's judgement: all points for a right answer, else none and the error."""
    return RIGHT if right else Judgement(0.0, wrong)


class GradedCase(NamedTuple):
    """A test case of a check: the text of its question, and the function that judges the answer."""

    asked: str
    judge: Callable[[], Judgement]


@dataclass(frozen=True)
class GradedPart:
    """A check of a lab: its name, its points and its test cases."""

    name: str
    points: float
    cases: Callable[[Any], Sequence[GradedCase]]  # takes a `Work` or a `LiveWork`


class Mark(NamedTuple):
    """Result of one check of a student's file: points and errors."""

    name: str
    points: float
    got: float
    why: str
    wrong: Sequence[str] = ()  # errors of further wrong test cases, at most MOST_SHOWN - 1


class Exercise(Protocol):
    """Interface of a graded lab's module in experiments/apps/teaching/labs/."""

    TITLE: str
    FOLDER: str
    MODULES: tuple[str, ...]
    NETWORKS: tuple[str, ...]
    CHECKS: tuple[GradedPart, ...]

    def values(self, draw: random.Random) -> dict[str, Any]:
        """Draw the values of a student's lab sheet."""
        ...


@dataclass(frozen=True)
class Sheet:
    """A student's lab sheet: the lab, the student and the values drawn for the student."""

    number: int
    student: str
    lab: Exercise
    values: dict[str, Any]


@dataclass
class Report:
    """Marks of a student's file, with notes on the way of grading."""

    sheet: Sheet
    marks: list[Mark] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    secret: bool = False  # True if the teacher's secret seeds the test cases

    @property
    def got(self) -> float:
        """Points that the student's file received."""
        return round(sum(mark.got for mark in self.marks), 2)

    @property
    def points(self) -> float:
        """Maximum number of points of the lab."""
        return sum(mark.points for mark in self.marks)


def hidden_draw(sheet: Sheet, secret: str, name: str) -> random.Random:
    """Return a random number generator for test cases of a student, seeded with the secret."""
    return random.Random(f"{secret}/{sheet.number}/{sheet.student}/{name}")


class Work:
    """A student's file under test; checks call its functions and routers through this class."""

    def __init__(
        self, sheet: Sheet, keeper: ChildKeeper, secret: str, files: Files | None = None
    ) -> None:
        self.sheet, self.values = sheet, sheet.values
        self.files = files or {}  # further files of the submission
        self.kept: dict[str, Any] = {}  # values that one check of the lab stores for later checks
        self._keeper, self._secret = keeper, secret
        self._child: SealedChild | None = None

    def draw(self, name: str) -> random.Random:
        """Return a random number generator for test cases, seeded with the grading secret."""
        return hidden_draw(self.sheet, self._secret, name)

    def call(
        self,
        function: str,
        *arguments: Any,
        network: str | None = None,
        paths: int | None = None,
    ) -> Any:
        """Return the value of a function in the student's file; a network is its first argument.

        `paths` is the position of an argument with paths, whose steps have `port` and `peer`. Lists
        in the answer may have been tuples. Raises StudentError and ChildKilled.
        """
        question = {"call": function, "arguments": arguments, "network": network, "paths": paths}
        return self._ask_child(question)

    def attribute(self, name: str, *arguments: Any, network: str | None = None) -> Any:
        """Return an attribute of the student's topology, or a method's result; None: of its class.

        The network is made from the spec's numbers; the spec's name is ignored. Raises
        StudentError and ChildKilled.
        """
        return self._ask_child({"of": name, "network": network, "arguments": arguments})

    def step(self, topology: Topology, server: int, destination: int, came_by: int | None) -> Any:
        """Return the next hop that a `HopByHop` router of one server chooses, as a list."""
        made = {"network": topology.spec, "server": server, "seed": 0, "now": 0.0}
        self._ask_child({"router": {**made, "timers": vars(FAST)}})
        return self._ask_child({"step": [destination, came_by]})

    @contextmanager
    def network(self, topology: Topology, seed: int = 0) -> Iterator[MemoryNetwork]:
        """Yield a network in memory whose servers run the file's router in sealed children."""
        children: list[SealedChild] = []
        asked: Counter[str] = Counter()

        def accepts(server: int, packet: bytes) -> bool:
            serial = serial_of(packet)
            known = serial is not None and serial < len(network.trips)
            return known and network.trips[serial or 0].destination == server

        def make(network: Topology, server: int) -> SealedChildRouter:
            child = self._keeper.child(among=topology.servers)
            children.append(child)
            given: Any = {"child": child, "accepts": accepts, "asked": asked}
            return SealedChildRouter(network, server, timers=FAST, seed=seed, **given)

        try:
            network = MemoryNetwork(topology, make)
            yield network
        finally:
            for child in children:
                child.close()

    def close(self) -> None:
        """End the sealed child with the student's functions; the next question starts a new one."""
        if self._child:
            self._child.close()
        self._child = None

    def _ask_child(self, question: dict[str, Any]) -> Any:
        if self._child is None:
            self._child = self._keeper.child()
        return self._child.ask(question)


def grade(
    sheet: Sheet,
    source: str,
    secret: str = "",
    *,
    unsealed: bool = False,
    files: Files | None = None,
    seal: Callable[[], None] = lambda: None,
) -> Report:
    """Return the marks of a student's file and of further `files` of the submission.

    If this machine cannot seal the file, raise PillarboxError, or with `unsealed` add a note to the
    report. `seal` is called after the keeper has started and before any text of the student is
    parsed.
    """
    report = Report(sheet, secret=bool(secret))
    skeleton = skeleton_of(sheet.lab)
    with ChildKeeper(source, sheet.lab.MODULES, sheet.lab.NETWORKS, unsealed=unsealed) as keeper:
        seal()
        unfilled = unfilled_reason(sheet.lab, source, skeleton)
        if unfilled and not (files and unfilled == EMPTY):
            report.marks = no_marks(sheet.lab, unfilled)
            return report
        hindered = _loading_error(keeper)
        work, stops = Work(sheet, keeper, secret, files), 0
        for number, check in enumerate(sheet.lab.CHECKS, 1):
            if hindered:
                report.marks.append(Mark(check.name, check.points, 0.0, hindered))
                continue
            mark, stopped = mark_of_check(check, work, number)
            report.marks.append(mark)
            work.close()
            stops += stopped
            if stops == MOST_STOPS:
                hindered = f"not tried: the file had to be stopped {stops} times before"
        report.notes += keeper.unsealed
    return report


def unfilled_reason(lab: Exercise, source: str, skeleton: str) -> str:
    """Return the reason why a file has nothing to grade, empty if it has something."""
    found = source_tokens(source, suffix_of(lab))
    if not any(map(str.strip, found)):
        return EMPTY
    return UNFILLED if found == source_tokens(skeleton, suffix_of(lab)) else ""


def no_marks(lab: Exercise, why: str) -> list[Mark]:
    """Return the marks of a file that gets no points for one reason."""
    return [Mark(check.name, check.points, 0.0, why) for check in lab.CHECKS]


def suffix_of(lab: Exercise) -> str:
    """Return the suffix of a lab's files: ``.py``, or ``.bpf.c`` of a congestion control."""
    return str(getattr(lab, "SUFFIX", PYTHON))


def is_control(lab: Exercise) -> bool:
    """Return True if a lab's files are congestion controls, graded on a live network only."""
    return suffix_of(lab) != PYTHON


def skeleton_of(lab: Exercise) -> str:
    """Return a lab's skeleton, empty if the sheets are not installed."""
    file = SHEETS / lab.FOLDER / f"skeleton{suffix_of(lab)}"
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _loading_error(keeper: ChildKeeper) -> str:
    """Return the reason why the student's file cannot be loaded, empty without an error."""
    try:
        keeper.child().close()
    except StudentError as mistake:
        return f"the file fails when it is loaded: {mistake}"
    except ChildKilled as stopped:
        return f"stopped while the file was loaded: {stopped}"
    return ""


class Replayed(NamedTuple):
    """A repeated test case: the question, the output of the student's file and the judgement."""

    asked: str
    printed: Sequence[str]
    judgement: Judgement


def replay(
    sheet: Sheet,
    source: str,
    case: str,
    secret: str = "",
    *,
    unsealed: bool,
    files: Files | None = None,
    seal: Callable[[], None] = lambda: None,
) -> Replayed:
    """Repeat a test case, given by its number in a grading report (``2.14``); return its result.

    All cases before this case are repeated too, since a case may depend on earlier ones.
    """
    part, _, place = case.partition(".")
    checks = sheet.lab.CHECKS
    require(
        part.isdecimal() and place.isdecimal() and 0 < int(part) <= len(checks),
        f"name a test case as in the report, such as 2.14; the lab has {len(checks)} parts",
    )
    with ChildKeeper(source, sheet.lab.MODULES, sheet.lab.NETWORKS, unsealed=unsealed) as keeper:
        seal()
        hindered = _loading_error(keeper)
        if hindered:
            return Replayed("the file is read", keeper.printed, Judgement(0.0, hindered))
        work = Work(sheet, keeper, secret, files)
        for check in checks[: int(part) - 1]:
            mark_of_check(check, work)
            work.close()
        try:
            cases = checks[int(part) - 1].cases(work)
            require(
                0 < int(place) <= len(cases), f"part {part} of the lab has {len(cases)} test cases"
            )
            for one in cases[: int(place)]:
                keeper.printed, asked = [], one.asked
                try:
                    found = one.judge()
                except StudentError as mistake:
                    found = Judgement(0.0, str(mistake))
        except (StudentError, ChildKilled) as reason:
            asked, found = f"case {case}, or one before it", Judgement(0.0, str(reason))
        return Replayed(asked, keeper.printed, found)


def mark_of_check(check: GradedPart, work: Any, number: int = 0) -> tuple[Mark, bool]:
    """Return a check's mark, and True if the student's code had to be killed."""
    shares, total, right, stopped = 0.0, 0, 0, ""
    faults: list[str] = []
    asked = "before the first question"
    try:
        cases = check.cases(work)
        total = len(cases)
        for place, (asked, judge) in enumerate(cases, 1):
            try:
                share, wrong = judge()
            except StudentError as mistake:
                share, wrong = 0.0, str(mistake)
            wrong += f" (--case {number}.{place})" if number else ""
            shares += share
            right += share == 1.0
            faults += [f"{asked}: {wrong}"] if share < 1.0 else []
    except ChildKilled as reason:
        stopped = f"stopped at {asked}: {reason}. "
    except StudentError as mistake:
        faults = [f"{asked}: {mistake}"]
    got = round(check.points * shares / total, 2) if total else 0.0
    why = stopped + f"{right} of {total} right" + (f"; first {faults[0]}" if faults else "")
    return Mark(check.name, check.points, got, why, faults[1:MOST_SHOWN]), bool(stopped)
