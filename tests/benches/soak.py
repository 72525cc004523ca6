"""Half an hour of traffic and random faults: crashes, memory growth and unexplained losses."""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from random import Random
from typing import Any

from pillarbox.experiments.base.processes import own_mib
from pillarbox.experiments.runs.trust.machine import between, machine
from pillarbox.hosts.base.faults import Fault
from pillarbox.topos.base.spec import parse
from tests.benches._frame import Row, from_child
from tests.benches._labs import sandboxed

# Networks of about 32 servers, each with a routing that survives failures.
CASES = (
    ("bcube,4,2,servers=32", "bsr"),
    ("dcell,4,1", "dfr"),
    ("dpillar,4,3", "mp-both"),
    ("ficonn,4,2", "tar"),
)
QUICK_CASES = (("dcell,4,1", "dfr"),)
PLANES = ("python", "ebpf")
TIMERS, QUICK_TIMERS = ("fast", "paper"), ("fast",)
LENGTH_S, QUICK_S = 30 * 60.0, 20.0  # total duration of all cases, in seconds
SEED = 4
STREAMS, CONNECTIONS = 16, 16
KINDS = ("cut", "silent cut", "kill", "switch", "rack")
FAULT_S, PAUSE_S = 4.0, 4.0  # upper bounds of a fault and of a pause, in seconds, after settling
# Settling time: a fault or repair explains losses until routers have adapted. Routers need TIMEOUTS
# neighbour timeouts, and keep overheard states for two seconds; SETTLE_S is the minimum in seconds.
SETTLE_S, TIMEOUTS = 2.5, 4
# TCP's retransmission timeout doubles: after an outage of 10 s it waits for 10 s more. With the
# papers' timers an outage lasts two times to settle and a fault, and TCP's first try after the
# outage comes after 51 s.
STALLED_S, SETTLINGS = 30.0, 3
LAST_S = 40.0  # time for TCP's retransmissions after the last repair, in seconds
DRAIN_S = 2.0  # wait for datagrams in flight on a busy machine, in seconds
WARM_SHARE = 0.25
MOST_GROWTH_MIB = 1.0
LEAST_IDLE_PERCENT = 10.0
NOTES = f"""
Numbered datagrams ({STREAMS} streams), {CONNECTIONS} long TCP connections and four short ones per
second between random servers, all with verified content, while cables are cut (also silently),
servers killed, and switches and racks stopped, one or two at a time, and everything is repaired
again. The seed is {SEED}. Lost datagrams are divided: lost_at_changes within the time that routers
need to detect a fault or a repair ({SETTLE_S:g} s with fast timers, 20 s with the papers'),
lost_without_path while the routing has no path between the two servers, lost_counted at other times
and counted by servers as drops, unexplained all others.
broken: TCP connections that ended in an error, or stalled, although both servers were alive. If all
tries of TCP met a fault, no try on a working path was unsuccessful.
crashed: forwarders that ended without being killed. growth_mib: of forwarders that lived for the
whole run, growth of private memory from the first quarter to the end, median (and maximum).
idle_percent: idle time of the machine. Below {LEAST_IDLE_PERCENT:g}, heartbeats are late and
working links are declared down.
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each plane of each network, with both kinds of timers."""
    networks, timings = (QUICK_CASES, QUICK_TIMERS) if quick else (CASES, TIMERS)
    cases = [(*case, plane, timers) for case in networks for timers in timings for plane in PLANES]
    length_s = (QUICK_S if quick else LENGTH_S) / len(cases)
    for spec, routing, plane, timers in cases:
        row: Row = {"network": spec, "routing": routing, "plane": plane, "timers": timers}
        if os.geteuid():
            yield row | dict.fromkeys(COLUMNS) | {"outcome": "skipped: a lab needs root"}
            continue
        call = soak_lab, spec, routing, plane, timers, length_s
        limit_s = (
            length_s + 240
        )  # time limit; 240 s are for the last fault and TCP's retransmissions
        yield from_child(row, COLUMNS, itemgetter("outcome"), *call, time_limit_s=limit_s)


REASONS = ("at changes", "without path", "counted")
BREAKS = ("broken", "stalled", "wrong echo", "closed by the other side")
COLUMNS = (
    *("length_s", "faults", "datagrams", "lost_at_changes", "lost_without_path", "lost_counted"),
    *("unexplained", "connections", "broken", "crashed", "growth_mib", "worst_growth_mib"),
    "idle_percent",
)


def soak_lab(spec: str, routing: str, plane: str, timers: str, length_s: float) -> Row:
    """Run the soak test in a lab in a sandbox; return the benchmark columns."""
    with sandboxed(parse(spec), routing=routing, plane=plane, timers=timers) as lab:
        soak = Soak(lab, Random(f"{SEED} {spec} {plane} {timers}"))
        try:
            return soak.run(length_s)
        finally:
            soak.traffic.close()


class Soak:
    """Soak test of one lab: traffic, random faults, and counts of losses and crashes."""

    def __init__(self, lab: Any, draw: Random) -> None:
        from pillarbox.hosts.base.timers import timers_for
        from tests.benches._traffic import BenchTraffic

        self.lab, self.draw = lab, draw
        timers = timers_for(lab.topology, lab.settings.timers, os.cpu_count() or 1)
        self.settle_s = max(SETTLE_S, TIMEOUTS * timers.neighbour_timeout_s)
        self.stalled_s = max(STALLED_S, SETTLINGS * self.settle_s)
        self.traffic = BenchTraffic(
            lab, draw, streams=STREAMS, connections=CONNECTIONS, stalled_s=self.stalled_s
        )
        self.faults: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self._cables = list(lab.topology.links())

    def run(self, length_s: float) -> Row:
        """Inject random faults for a period in seconds; return the benchmark columns."""
        start_s, before = time.monotonic(), machine()
        self._run_without_changes(1.0)
        warm = None
        while time.monotonic() < start_s + length_s:
            if warm is None and time.monotonic() > start_s + WARM_SHARE * length_s:
                warm = self._memory_mib()
            self._fault_and_repair()
        length_s = time.monotonic() - start_s
        idle = between(before, machine()).idle
        self._end_connections()
        return self._row(length_s, warm or self._memory_mib(), idle * 100)

    # -- the phases ------------------------------------------------------------------------------

    def _fault_and_repair(self) -> None:
        undo = [
            self._begin_fault(kind) for kind in self.draw.sample(KINDS, self.draw.choice((1, 1, 2)))
        ]
        self._wait_settled()
        self._run_without_changes(self.draw.uniform(1.0, FAULT_S))
        for repair in undo:
            repair()
        self._wait_settled()
        self._run_without_changes(self.draw.uniform(1.0, PAUSE_S))

    def _wait_settled(self) -> None:
        """Run traffic until routers have adapted to a fault; attribute the losses to the fault."""
        self._run_traffic(self.settle_s)
        self._attribute_losses("at changes")

    def _run_without_changes(self, length_s: float) -> None:
        """Run traffic without changes; servers must count every loss between connected servers."""
        dropped = self._drops()
        cut_off = {
            number
            for number, stream in enumerate(self.traffic.streams)
            if not self.lab.computed(stream.source, stream.destination)
        }
        tries = self.traffic.tries()
        self._run_traffic(length_s)
        self.traffic.tried(tries)
        self._attribute_losses("without path", cut_off)
        lost = self._attribute_losses("counted")
        counted = sum((self._drops() - dropped).values())
        unexplained = max(0, lost - counted)
        self.losses["counted"] -= unexplained
        self.losses["unexplained"] += unexplained

    def _run_traffic(self, length_s: float) -> None:
        """Run test traffic for a period, then wait until its datagrams have arrived."""
        end = time.monotonic() + length_s
        while (now := time.monotonic()) < end or (now < end + DRAIN_S and self.traffic.missing()):
            self.traffic.step(now, 0.01, datagrams=now < end)

    def _attribute_losses(self, why: str, only: set[int] | None = None) -> int:
        """Attribute datagram losses since the last call to a cause; return their number."""
        numbers = range(STREAMS) if only is None else only
        lost = sum(self.traffic.streams[number].lost() for number in numbers)
        self.losses[why] += lost
        return lost

    def _end_connections(self) -> None:
        """Let TCP connections finish after all faults are repaired."""
        end = time.monotonic() + max(LAST_S, self.stalled_s)
        while self.traffic.end() and (now := time.monotonic()) < end:
            self.traffic.step(now, 0.05, datagrams=False)

    # -- faults ----------------------------------------------------------------------------------

    def _begin_fault(self, kind: str) -> Callable[[], object]:
        """Inject a fault at a random node or cable; return the function that repairs it."""
        lab, before = self.lab, set(self.lab.dead)
        self.faults[kind] += 1
        if kind == "kill":
            server = self.draw.choice(sorted(set(range(lab.topology.servers)) - before))
            lab.kill(server)
            undo = partial(self._revive, server)
        else:
            undo = partial(lab.end, self._cable_or_switch(kind))
        for server in lab.dead - before:
            self.traffic.server_died(server)
        return undo

    def _cable_or_switch(self, kind: str) -> Any:
        if kind in ("cut", "silent cut"):
            cable = self.draw.choice(self._cables)
            return self.lab.cut(cable.a, cable.b, silent=kind == "silent cut")
        switch = self.draw.randrange(self.lab.topology.switches)
        return self.lab.begin(Fault(kind, (f"s{switch}",)))

    def _revive(self, server: int) -> None:
        if server in self.lab.dead:  # a rack's repair may have revived this server already
            self.lab.revive(server)

    # -- results ---------------------------------------------------------------------------

    def _drops(self) -> Counter[int]:
        """Return the number of packets that each live server has dropped so far."""
        from pillarbox.experiments.lab.emulation.drops import drops_by_reason

        dropped: Counter[int] = Counter()
        for server in set(range(self.lab.topology.servers)) - self.lab.dead:
            dropped[server] += sum(drops_by_reason(self.lab.state(server)).values())
        return dropped

    def _memory_mib(self) -> dict[Any, float]:
        """Return the private memory of each server's forwarder in MiB, by process."""
        if self.lab.fabric.machines > 1:
            parts = self.lab.fabric.ask_living_machines(ask="memory")
            return {(machine, *one): mib for machine, found in parts.items() for *one, mib in found}
        pids = [pid for pid in self.lab.forwarders.pids.values() if pid]
        return {pid: own_mib(pid) for pid in pids}

    def _crashes(self) -> int:
        """Return the number of server forwarders that ended without being killed."""
        events = map(json.loads, (self.lab.folder / "events.jsonl").read_text().splitlines())
        ended = [one for one in events if one["event"] == "forwarder ended"]
        return len([one for one in ended if one["status"] != -signal.SIGKILL]) + len(self.lab.dead)

    def _row(self, length_s: float, warm: dict[Any, float], idle_percent: float) -> Row:
        now = self._memory_mib()
        growth = [now[pid] - warm[pid] for pid in now.keys() & warm.keys()]
        counts = self.traffic.counts
        stuck = self.traffic.end()
        row: Row = {"length_s": length_s, "faults": self.faults.total()}
        row |= {"datagrams": sum(stream.sent for stream in self.traffic.streams)}
        row |= {f"lost_{why.replace(' ', '_')}": self.losses[why] for why in REASONS}
        row |= {"unexplained": self.losses["unexplained"], "connections": counts["begun"]}
        row |= {"broken": sum(counts[how] for how in BREAKS) + stuck, "crashed": self._crashes()}
        row |= {"growth_mib": statistics.median(growth), "worst_growth_mib": max(growth)}
        row |= {"idle_percent": idle_percent}
        return row | {"outcome": self._verdict(row)}

    def _verdict(self, row: Row) -> str:
        missed = [
            f"{row[name]} {name}" for name in ("unexplained", "broken", "crashed") if row[name]
        ]
        if row["broken"]:
            missed += [f"{how} {self.traffic.counts[how]}" for how in BREAKS[1:]]
        missed += [f"{name} {n}" for name, n in self.traffic.errors.items()] if missed else []
        if row["growth_mib"] > MOST_GROWTH_MIB:
            missed.append(f"under {MOST_GROWTH_MIB:g} MiB growth wanted")
        if missed and row["idle_percent"] < LEAST_IDLE_PERCENT:
            missed.append("but no processor was free: the run is not conclusive")
        return f"missed: {'; '.join(missed)}" if missed else "ok"
