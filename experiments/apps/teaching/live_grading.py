"""Grading on a live network: real packets, and the file's sealed router on every server.

Each server's forwarder runs Pillarbox's `SealedRouter`, which asks a sealed child for every
decision. So a student's file has the same rights as in the network in memory.

A lab that can run live has ``LIVE_NETWORK``, a small spec, and ``LIVE``, checks whose cases are
made from a `LiveWork`. Their points are added to the lab's points. If the file has functions
instead of a router, ``LIVE_ROUTER`` is the lab's own `SealedRouter`, which calls these functions. A
lab with ``LIVE_ROUTING`` runs that routing on all servers, and calls the file through
`LiveWork.student`.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pillarbox import topos
from pillarbox.experiments.apps.teaching.child import ChildKeeper, ChildKilled, SealedChild
from pillarbox.experiments.apps.teaching.grading_engine import (
    GradedPart,
    Mark,
    Report,
    Sheet,
    Work,
    mark_of_check,
)
from pillarbox.experiments.apps.teaching.sealed_router import SealedChildRouter
from pillarbox.experiments.base.text import printable
from pillarbox.hosts.base.actions import Action, Drop
from pillarbox.hosts.base.timers import timers_for
from pillarbox.hosts.linux.user_namespace import require_root_or_user_namespace
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

FOREVER_S = 1e9
# Timeout of a ping's reply in whole seconds, and interval between packets of a flow in seconds.
PING_S, PING_EVERY_S = 2, 0.2
# Number of packets per traced path: on a busy machine late heartbeats can cost a packet, whereas a
# wrong router loses every packet.
TRIES = 3
RECOVERED_S = 4.0
SETTLE_SPARE_S = 3.0  # margin for a flow to change its path after probing, in seconds
FLOW_PORT = 4000
STREAM_BYTES, STREAM_S = 1400, 60
MOST_TEXT = 2000  # maximum length of a sentence in a mark, in characters

ROUTER = '''"""The router that a grader's forwarders load."""
from {module} import {name}


class Student({name}):
    GIVEN = {given!r}
    PARTNER = {partner!r}
'''


def sealed_child(given: str, topology: Topology) -> SealedChild:
    """Start a sealed process that runs the student's file in a JSON text of `_file_as_json`."""
    file = json.loads(given)
    keeper = ChildKeeper(
        file["source"], file["modules"], [topology.spec], unsealed=file["unsealed"]
    )
    return keeper.child(among=topology.servers)


class SealedRouter(SealedChildRouter):
    """Router of a live server that runs a student's code in a sealed child process."""

    GIVEN: ClassVar[str] = ""  # JSON text with the student's file: see `sealed_child`
    PARTNER: ClassVar[str] = ""  # file of another student, for the second half of the servers

    def __init__(self, topology: Topology, server: int, **options: Any) -> None:
        given = self.PARTNER if self.PARTNER and in_second_half(topology, server) else self.GIVEN
        super().__init__(topology, server, child=sealed_child(given, topology), **options)

    def _ask(self, what: str, packet: bytes, now: float, *arguments: Any) -> list[Action]:
        """Ask the sealed child for actions; if it was killed, drop the packet and stop polling."""
        self.asked.clear()  # no limit on calls of a live student router: heartbeats never end
        try:
            return super()._ask(what, packet, now, *arguments)
        except ChildKilled as stopped:
            self._next_poll = now + FOREVER_S
            return self._counted([Drop(f"stopped: {stopped}", packet)], now)


def in_second_half(topology: Topology, server: int) -> bool:
    """Return True if a server runs the router of the second student."""
    return 2 * server >= topology.servers


class PartnerStudent(NamedTuple):
    """Sheet and file of a second student, whose router half of the servers run."""

    sheet: Sheet
    source: str


@dataclass
class LiveWork:
    """A live lab whose servers run a student's router, and operations for the live checks."""

    sheet: Sheet
    lab: Lab
    student: Work | None = None  # the student's file, if checks call its functions directly
    partner: Sheet | None = None

    def sheet_at(self, server: int) -> Sheet:
        """Return the sheet of the student whose router a server runs."""
        second = self.partner and in_second_half(self.lab.topology, server)
        return self.partner if self.partner and second else self.sheet

    def pings(self, source: int, destination: int) -> bool:
        """Return True if any packet of a ping is answered; all packets belong to one flow.

        A correct router may lose the first packet: its loss reveals the failed path to the source.
        """
        target = self.lab.topology.ip(destination)
        until_one = ["ping", "-c", "1", "-w", str(PING_S), "-i", str(PING_EVERY_S), target]
        ping = self.lab.host(source).popen(until_one)
        ping.communicate()
        return bool(ping.returncode == 0)

    def traced_path(self, source: int, destination: int) -> tuple[list[str], str]:
        """Trace a packet; return the addresses on its path, and the reason of a loss."""
        for _ in range(TRIES):
            found = self.lab.trace(source, destination)
            if found["delivered"]:
                break
        lost = "" if found["delivered"] else found["dropped"] or "it never arrived"
        return found["path"], lost

    def wait_for_pings(self, *pairs: tuple[int, int]) -> bool:
        """Wait until pings between all pairs are answered; return False after a timeout."""
        deadline = time.monotonic() + RECOVERED_S
        waiting = list(pairs)
        while waiting and time.monotonic() < deadline:
            if self.pings(*waiting[-1]):
                waiting.pop()
        return not waiting

    def wait_for_path(
        self, pair: tuple[int, int], fits: Callable[[list[str]], bool], *, new_flows: bool = False
    ) -> tuple[bool, list[str]]:
        """Wait until a packet's path fits; return True if it did in time, and the last path.

        All packets belong to one flow, or with `new_flows` to a new flow each: a flow keeps its
        path until its next probe, which with FiConn's timers takes half a minute.
        """
        deadline = time.monotonic() + SETTLE_SPARE_S + (0.0 if new_flows else self._round_s)
        for number in count():
            found = self.lab.trace(*pair, source_port=FLOW_PORT + number * new_flows)
            if found["delivered"] and fits(found["path"]):
                return True, found["path"]
            if time.monotonic() > deadline:
                break
        return False, found["path"]

    @property
    def _round_s(self) -> float:
        """Upper bound of the interval after which a flow probes its paths again, in seconds."""
        timers = timers_for(self.lab.topology, self.lab.settings.timers)
        return timers.longest_probe_interval_s + timers.probe_timeout_s

    @contextmanager
    def udp_load(self, source: int, destination: int, rate_bps: float) -> Iterator[None]:
        """Send UDP packets between two servers, on any path, for the duration of the block."""
        iperf3 = ["iperf3", "--udp", "--length", str(STREAM_BYTES), "--bitrate", str(int(rate_bps))]
        target = self.lab.topology.ip(destination)
        listener = self.lab.host(destination).popen(
            ["iperf3", "--server", "--one-off", "--forceflush", "--bind", target], text=True
        )
        sender = None
        try:
            if not any("listening" in line for line in listener.stdout):
                raise PillarboxError(
                    f"the iperf3 server of a live check does not start: {listener.stderr.read()}"
                )
            host = self.lab.host(source)
            sender = host.popen([*iperf3, "--client", target, "--time", str(STREAM_S)])
            yield
        finally:
            for program in filter(None, (sender, listener)):
                program.kill()
                program.communicate()


def add_live(
    report: Report,
    source: str,
    secret: str = "",
    *,
    unsealed: bool = False,
    partner: PartnerStudent | None = None,
) -> None:
    """Run a lab's live checks in a sandbox and add their marks to the grading report.

    With a partner, the checks are those in which both students' routers share a network.
    """
    sheet = report.sheet
    checks = live_checks_of(sheet, partner)
    what = " with a partner" if partner else ""
    require(bool(checks), f"lab {sheet.number} has no live checks{what}: leave out --live")
    require_root_or_user_namespace("a live check of `pillarbox grade` (--live)")
    if not report.got:
        why = "not tried: the file gets no points in memory"
        report.marks += [Mark(check.name, check.points, 0.0, why) for check in checks]
        return
    from pillarbox.experiments.lab.linux import sandbox

    with tempfile.TemporaryDirectory(prefix="pillarbox-live-") as name:
        folder = Path(name)
        sandbox.run(lambda: _run_live_checks(sheet, source, folder, secret, unsealed, partner))
        marks = folder / "marks.json"
        require(
            marks.is_file(),
            "the live network ended before its checks were done: see the errors above",
        )
        report.marks += [_printable_mark(*mark) for mark in json.loads(marks.read_text())]


def _printable_mark(name: str, points: float, got: float, why: str, wrong: Sequence[str]) -> Mark:
    """Return a mark whose texts, which may come from the student, are printable."""
    return Mark(name, points, got, printable(why, MOST_TEXT), [printable(text) for text in wrong])


def live_checks_of(sheet: Sheet, partner: PartnerStudent | None) -> Sequence[GradedPart]:
    """Return the live checks of a lab, for a single student or with a partner."""
    found: Sequence[GradedPart] = getattr(sheet.lab, "INTEROP" if partner else "LIVE", ())
    return found


def _run_live_checks(
    sheet: Sheet,
    source: str,
    folder: Path,
    secret: str,
    unsealed: bool,
    partner: PartnerStudent | None,
) -> int:
    """Run a lab's live checks, and write the marks to a file for the parent process."""
    lab: Any = sheet.lab
    if routing := getattr(lab, "LIVE_ROUTING", ""):
        with ChildKeeper(source, lab.MODULES, lab.NETWORKS, unsealed=unsealed) as keeper:
            student = Work(sheet, keeper, secret)
            marks = _live_marks(sheet, routing, folder, student)
            student.close()
    else:
        router = folder / "router.py"
        given = _file_as_json(sheet, source, unsealed)
        other = _file_as_json(partner.sheet, partner.source, unsealed) if partner else ""
        asks = getattr(lab, "LIVE_ROUTER", SealedRouter)
        named = {"module": asks.__module__, "name": asks.__name__}
        router.write_text(ROUTER.format(given=given, partner=other, **named))
        marks = _live_marks(sheet, str(router), folder, partner=partner)
    (folder / "marks.json").write_text(json.dumps(marks))
    return 0


def _file_as_json(sheet: Sheet, source: str, unsealed: bool) -> str:
    """Return a student's file, allowed imports and sheet values as JSON for `sealed`."""
    modules = list(sheet.lab.MODULES)
    file = {"source": source, "modules": modules, "values": sheet.values, "unsealed": unsealed}
    return json.dumps(file)


def _live_marks(
    sheet: Sheet,
    routing: str,
    folder: Path,
    student: Work | None = None,
    partner: PartnerStudent | None = None,
) -> list[Mark]:
    from pillarbox.experiments.lab.emulation.local_fabric import running

    lab: Any = sheet.lab
    settings, checks = LabSettings(routing=routing, plane="python"), live_checks_of(sheet, partner)
    try:
        with running(topos.parse(lab.LIVE_NETWORK), settings, folder) as live:
            work = LiveWork(sheet, live, student, partner and partner.sheet)
            return [mark_of_check(check, work)[0] for check in checks]
    except PillarboxError as error:
        why = f"the live network did not come up: {error}"
        return [Mark(check.name, check.points, 0.0, why) for check in checks]
