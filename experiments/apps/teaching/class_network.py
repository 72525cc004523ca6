"""A live network for a whole class: each student's router file runs one server.

Students are assigned to servers, the lab runs, and in each round every server sends a packet to
every other server. The results are the points of the students (class_points.py) and a page with the
matrix of deliveries, which is written after each round.
"""

from __future__ import annotations

import csv
import io
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.apps.teaching import submissions
from pillarbox.experiments.apps.teaching.child import ChildKeeper
from pillarbox.experiments.apps.teaching.class_grading import safe_cell, submission_entries
from pillarbox.experiments.apps.teaching.class_points import Packet, Score, add_packets, packet_of
from pillarbox.experiments.apps.teaching.class_router import write_router
from pillarbox.experiments.base.files import output_folder
from pillarbox.experiments.base.text import columns, printable
from pillarbox.experiments.lab.emulation.packet_tracing import MOST_PAIRS
from pillarbox.experiments.runs.plans.fault_schedule import nodes_of
from pillarbox.experiments.runs.trials.store import write_text
from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.fault_kinds import VERBS
from pillarbox.hosts.base.faults import read
from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.load import router_for
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

PAGE, POINTS = "class-network.html", "class-network.csv"
STANDARD = "standard"  # name of a server without a student
SILENT_S = 0.5  # time without an arrival after which the packets of a round are lost, in seconds
REPAIRS = ("heal", "revive", "cable")  # commands of a file of faults that are not faults
LONGEST_ROUND = 9  # maximum number of digits of a round in a file of faults
FAULT_COMMANDS = (*VERBS, *REPAIRS)
PAUSE_S = 1.0  # interval between two rounds, in seconds
RELOAD_S = 2  # interval at which a browser loads the page again, in seconds
COLUMNS = [
    "rank",
    "student",
    "server",
    "points",
    "own",
    "relayed",
    "remark",
]  # columns of the text table
LONGEST_REMARK = 120  # maximum length of a remark in the table, in characters


@dataclass(frozen=True)
class Seat:
    """A server of the class network and its student; `refused` is the reason for a bad file."""

    server: int
    student: str = ""
    source: str = ""
    refused: str = ""


def assigned_seats(topology: Topology, folder: Path, seed: int | None = None) -> list[Seat]:
    """Return the seats of all servers, with the submissions of a folder.

    Students sit in the order of their names, or with a seed in random order. Servers without a
    student have no source.
    """
    with submissions.open_submissions(folder) as opened:
        names = [name for name in opened.names() if not name.startswith(".")]
        require(bool(names), f"{folder} has no submissions: a submission is ID.py, or a folder ID")
        require(
            len(names) <= topology.servers,
            f"{len(names)} submissions do not fit into {topology.spec}, which has "
            f"{topology.servers} servers: choose a larger network",
        )
        given = []
        for entry, name in zip(submission_entries(names, submissions.PYTHON), names, strict=True):
            source, refused = "", entry.refused.removeprefix("refused: ")
            if not refused:
                try:
                    source = submissions.read_submission(opened, name).source
                except PillarboxError as error:
                    refused = str(error)
            given.append((entry.student, source, refused and printable(f"refused: {refused}")))
    places = list(range(topology.servers))
    if seed is not None:
        random.Random(seed).shuffle(places)
    taken = {place: Seat(place, *one) for place, one in zip(places, given, strict=False)}
    return [taken.get(server, Seat(server)) for server in range(topology.servers)]


def read_faults(topology: Topology, file: Path) -> dict[int, list[str]]:
    """Return the commands of a file by the number of the round before which they run.

    A line is a round's number and a command of the prompt: ``3 cut 0.3-4.0``.
    """
    found: dict[int, list[str]] = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise PillarboxError(f"{file} cannot be read: {why}") from None
    for number, line in enumerate(lines, 1):
        when, _, command = line.partition("#")[0].strip().partition(" ")
        if not when:
            continue
        verb = command.split()[0] if command.strip() else ""
        place = f"line {number} of {file}"
        form = "write a round and a command, such as: 3 cut 0.3-4.0"
        is_round = when.isdecimal() and len(when) <= LONGEST_ROUND and int(when) > 0
        require(is_round, f"{place} begins with no round: {form}")
        require(verb in FAULT_COMMANDS, f"{place} has no command of faults: {form}")
        if verb not in REPAIRS:
            try:
                nodes_of(topology, read(command))
            except PillarboxError as error:
                raise PillarboxError(f"{place}: {error}") from None
        found.setdefault(int(when), []).append(command)
    return found


def standard_routing(topology: Topology, name: str = "") -> str:
    """Return the routing of servers without a student, by default a hop-by-hop one.

    Packets of hop-by-hop routings have the header of students' routers.
    """
    if name:
        router_for(topology, name)  # raises an error for an unknown routing
        return name
    known = algorithms(topology)
    found = [name for name, one in known.items() if one.router and issubclass(one.router, HopByHop)]
    require(bool(found), f"{topology.spec} has no hop-by-hop routing: choose another network")
    return found[0]


def packet_format(topology: Topology, routing: str) -> str:
    """Return the header that a routing adds to packets, in the words of a student's router."""
    plain_ip = getattr(router_for(topology, routing), "plain_ip", False)
    return "plain IP (plain_ip = True)" if plain_ip else f"with the header of {routing}"


def check_seal() -> None:
    """Raise PillarboxError if this machine cannot seal the processes of students' files."""
    with ChildKeeper("", [], []) as keeper:
        keeper.child().close()


def lab_settings(seats: Sequence[Seat], routing: str, lab: Path) -> LabSettings:
    """Write the students' files into a folder of the lab, and return the lab's settings."""
    folder = lab / "class"
    folder.mkdir(mode=0o700)
    refused = {seat.server: seat.refused for seat in seats if seat.refused}
    sources = {seat.server: seat.source for seat in seats if seat.student and not seat.refused}
    router = write_router(folder, routing, sources, refused)
    return LabSettings(routing=str(router), plane="python")


@dataclass
class ClassNetwork:
    """The lab of a class with its seats, the scores of all rounds, and the output directory.

    Setting `stop` ends the rounds, at the latest after the packets that are on their way.
    """

    lab: Lab
    seats: Sequence[Seat]
    out: Path
    rounds: int = 0
    scores: dict[int, Score] = field(default_factory=dict)
    packets: list[Packet] = field(default_factory=list)  # packets of the last round
    stopped: dict[int, str] = field(default_factory=dict)  # reasons of stopped servers
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._spec = self.lab.topology.spec
        self.scores = {seat.server: Score() for seat in self.seats}
        output_folder(self.out)

    @property
    def failures(self) -> Failures:
        """Faults of the lab, with the servers whose student's code was stopped as failed nodes."""
        faults = self.lab.failures()
        return replace(faults, nodes=faults.nodes | self.stopped.keys())

    def wait_converged(self) -> None:
        """Wait until the servers know which neighbours are dead."""
        from pillarbox.experiments.lab.emulation import convergence

        self.update_stopped()
        dead = self.lab.dead | self.stopped.keys()
        assert self.lab.forwarders
        convergence.wait_converged(
            self.lab.topology, self.lab.forwarders, dead, lambda: self.failures
        )

    def update_stopped(self) -> None:
        """Ask all servers whether the student's code was stopped."""
        states = {seat.server: self.lab.state(seat.server) for seat in self.seats if seat.student}
        self.stopped = {
            server: state["stopped"] for server, state in states.items() if state.get("stopped")
        }

    def run_round(self) -> None:
        """Send a packet between all pairs of servers, and add the results to the points."""
        resized = f"the network was resized: start it again as {self.lab.topology.spec}"
        require(self.lab.topology.spec == self._spec, resized)
        servers = range(self.lab.topology.servers)
        pairs = [(a, b) for a in servers for b in servers if a != b]
        sent, tracer = list[Packet](), self.lab.fabric.tracer
        scores = {server: Score() for server in servers}
        for first in range(0, len(pairs), MOST_PAIRS):
            if self.stop.is_set():
                return
            some = pairs[first : first + MOST_PAIRS]
            faults = self.lab.failures()
            traces = tracer.trace_pairs(some, SILENT_S)
            self.update_stopped()
            packets = [
                packet_of(self.lab.topology, pair, trace, self.failures)
                for pair, trace in zip(some, traces, strict=True)
            ]
            if faults == self.lab.failures():  # a fault in between would make losses ambiguous
                add_packets(scores, packets, self.lab.topology, faults, self.stopped)
            sent += packets
        self.packets = sent
        for server, score in scores.items():
            self.scores[server].add(score)
        self.rounds += 1

    def run_rounds(self, number: int, faults: Mapping[int, Sequence[str]]) -> Iterator[str]:
        """Run a number of rounds with their faults, write the page, and yield a line for each."""
        for _ in range(number):
            for command in faults.get(self.rounds + 1, ()):
                yield f"round {self.rounds + 1}: {self._execute(command)}"
            self.run_round()
            self.write(reload_s=RELOAD_S if self.rounds < number else 0)
            arrived = sum(one.arrived for one in self.packets)
            yield f"round {self.rounds}: {arrived} of {len(self.packets)} packets arrived"

    def _execute(self, command: str) -> str:
        """Run a command of the prompt in the lab; return its answer, or why the lab refuses it.

        The next rounds run nevertheless: a class waits for them.
        """
        from pillarbox.experiments.runs.control.verbs import answer

        verb, *words = command.split()
        try:
            return answer(self.lab, verb, words).said
        except PillarboxError as error:
            return f"{command} failed: {error}"

    def run_until_stopped(self) -> None:
        """Run rounds, and write the page after each, until `stop` is set."""
        try:
            while not self.stop.is_set():
                self.run_round()
                self.write(reload_s=RELOAD_S)
                self.stop.wait(PAUSE_S)
        except PillarboxError as error:
            self.lab.print_event(f"the rounds have ended: {error}")

    # -- results -----------------------------------------------------------------------------------

    def ranking(self) -> list[dict[str, Any]]:
        """Return the students' results as table rows, most points first."""
        rows = [self._row(seat) for seat in self.seats if seat.student]
        points = [row["points"] for row in rows]
        for row in rows:
            row["rank"] = 1 + sum(other > row["points"] for other in points)
        return sorted(rows, key=lambda row: (row["rank"], row["student"]))

    def _row(self, seat: Seat) -> dict[str, Any]:
        score = self.scores[seat.server]
        return {
            "rank": 0,
            "student": seat.student,
            "server": self.lab.topology.address(seat.server),
            "points": round(score.points, 1),
            "own_arrived": score.own_arrived,
            "own": score.own,
            "relayed_arrived": score.relayed_arrived,
            "relayed": score.relayed,
            "remark": self._remark(seat.server, score),
        }

    def _remark(self, server: int, score: Score) -> str:
        """Return why a server is dead, or the most frequent reason of losses at the server."""
        if server in self.lab.dead:
            return "killed"
        if server in self.stopped:
            return printable(self.stopped[server], LONGEST_REMARK)
        most = score.losses.most_common(1)
        return printable(f"{most[0][1]} lost: {most[0][0]}", LONGEST_REMARK) if most else ""

    def table(self) -> str:
        """Return the students' results as a text table."""
        shown = [
            {**row, "own": _share_text(row, "own"), "relayed": _share_text(row, "relayed")}
            for row in self.ranking()
        ]
        cells = [[str(row[name]) for name in COLUMNS] for row in shown]
        return columns([COLUMNS, *cells], numbers=[0, 3, 4, 5])

    def write(self, reload_s: int = 0) -> None:
        """Write the page and the points; a browser loads the page again every `reload_s`."""
        # Imported here: pandas starts a thread, and a lab without root begins as a single thread.
        from pillarbox.experiments.runs.reporting.report_page import rendered

        rows = self.ranking()
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(rows[0])
        table.writerows([safe_cell(cell) for cell in row.values()] for row in rows)
        page = rendered(PAGE, **self._page_values(rows), reload_s=reload_s)
        try:
            write_text(self.out / POINTS, text.getvalue())
            write_text(self.out / PAGE, page)
        except OSError as error:
            why = f"{self.out} cannot be written ({error.strerror}): choose another --out"
            raise PillarboxError(why) from None

    def _page_values(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        name = self.lab.topology.address
        dead = self.lab.dead | self.stopped.keys()
        possible = [one for one in self.packets if not dead & {one.source, one.destination}]
        return {
            "network": self.lab.topology.spec,
            "rounds": self.rounds,
            "rows": rows,
            "stopped": {name(server) for server in dead},
            "faults": [
                f"{fault.kind} {'-'.join(self.lab.names_in(fault))}"
                for fault in self.lab.faults.active
            ],
            "arrived": sum(one.arrived for one in possible),
            "sent": len(possible),
            "relayed": sum(one.arrived and bool(one.relays) for one in possible),
            "seats": [
                {
                    "name": seat.student or STANDARD,
                    "server": name(seat.server),
                    "dead": seat.server in dead,
                }
                for seat in self.seats
            ],
            "cells": [
                {
                    "row": one.source,
                    "column": one.destination,
                    "state": self._cell_state(one, dead),
                    "text": _packet_text(one, name),
                }
                for one in self.packets
            ],
        }

    @staticmethod
    def _cell_state(packet: Packet, dead: set[int]) -> str:
        if packet.arrived:
            return "relayed" if packet.relays else "direct"
        return "dead" if dead & {packet.source, packet.destination} else "lost"


def _share_text(row: dict[str, Any], what: str) -> str:
    """Return the packets of a table row that arrived, and all of them: 3/4."""
    return f"{row[f'{what}_arrived']}/{row[what]}"


def _packet_text(packet: Packet, name: Callable[[int], str]) -> str:
    """Return the path of a packet, and the reason of its loss, for a tooltip."""
    path = " → ".join(map(name, packet.path))
    return path if packet.arrived else f"{path}, not at {name(packet.destination)}: {packet.reason}"
