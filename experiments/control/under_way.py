"""A workload that is under way in a lab: how far its flows are, their ideal, the verdict so far.

A lab has one at a time, begun by `run` at the prompt or from the live page. Samples
of the lab show it, and `finish` ends it early.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from experiments.traffic.collectives.plan import is_collective
from experiments.traffic.flows import Finishing, Tool
from experiments.trials.runs.paths import live_paths, paths_of
from experiments.trials.trust.verdict import judge
from experiments.units import with_prefix
from topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from experiments.analysis.fluid.ideal import Ideal
    from experiments.emulation.lab import Lab
    from experiments.trials.runs.order import Order
    from experiments.trials.trust.watch import Watch
    from hosts.base.failures import Failures

LOOK_S = 0.1  # as often as a trial's own rows
MOST_ROWS = 300  # that are kept for who asks late
MOST_FLOWS = 400  # that are told one by one; of more, only their sum
SETTLED_S = 0.5  # after a start or a fault, until the paths in use are known
# The first verdict, and then each time that the trial is a tenth longer: to judge takes time from
# those who watch, and the more the longer they have.
VERDICT_S, VERDICT_SHARE = 1.5, 0.1

RATE_S = 1.0  # over which the goodput now is told
END_S = 0.5  # for threads to see that it is over; a verdict that takes longer is not waited for

_LAST: WeakKeyDictionary[Lab, UnderWay] = WeakKeyDictionary()
_BEGINNING = threading.Lock()


class UnderWay:
    """One workload, from before its flows are connected until after their end."""

    def __init__(
        self,
        lab: Lab,
        order: Order,  # what is sent
        what: str,  # the words that asked for it
    ) -> None:
        self._lab, self._order, self.what = lab, order, what
        self.began_s = time.monotonic()
        self.phase, self._said, self._barrier_s = "connecting", "", 0.0
        self._tool: Tool | None = None
        self._watch: Watch | None = None
        self._rows: deque[tuple[float, list[int]]] = deque(maxlen=MOST_ROWS)
        self._ended_flows = 0
        self._ideal: dict[str, Any] | None = None
        self._verdict: dict[str, Any] | None = None
        self._over = threading.Event()
        followers = (self._follow, self._assess)
        self._threads = [threading.Thread(target=one, daemon=True) for one in followers]
        with _BEGINNING:
            last = _LAST.get(lab)
            require(
                last is None or last.phase == "ended",
                f"{last and last.what} is under way: `finish` ends it",
            )
            _LAST[lab] = self

    def begun(self, tool: Tool, watch: Watch, barrier_s: float) -> None:
        """Follow what sends and what watches, from the barrier on."""
        self._tool, self._watch, self._barrier_s = tool, watch, barrier_s
        self.phase = "sending"
        for thread in self._threads:
            thread.start()

    def end(self, said: str) -> None:
        """Follow no more; `said` tells what came of it."""
        self._over.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(END_S)
        self._said, self.phase = said, "ended"

    def finish(self) -> None:
        """End flows that have a duration now."""
        tool: object = self._tool
        require(tool is not None, f"{self.what} is connecting: ask again in a moment")
        if self._order.workload.duration_s is None or not isinstance(tool, Finishing):
            raise PillarboxError(f"{self.what} ends by itself: it sends no flows with duration_s")
        tool.finish()

    # -- meanwhile -------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Note how far the flows are."""
        assert self._tool is not None
        while not self._over.wait(LOOK_S):
            progress = self._tool.progress()
            self._ended_flows = sum(one.ended for one in progress)
            delivered = [one.delivered_bytes for one in progress]
            row = delivered if self._tells_flows else [sum(delivered)]
            self._rows.append((time.monotonic(), row))

    def _assess(self) -> None:
        """Find the ideal anew after each fault, and the verdict so far."""
        state, ideal_s = self._state(), self._barrier_s + SETTLED_S
        verdict_s = self._barrier_s + VERDICT_S
        while not self._over.wait(LOOK_S):
            now_s, now = time.monotonic(), self._state()
            if now != state:
                state, ideal_s = now, now_s + SETTLED_S
            if now_s >= ideal_s:
                self._ideal, ideal_s = self._ideal_now(state[0]), float("inf")
            if now_s >= verdict_s:
                self._judge(now_s)
                verdict_s = now_s + max(VERDICT_S, VERDICT_SHARE * (now_s - self._barrier_s))

    def _state(self) -> tuple[Failures, dict[Any, Any]]:
        """Return what the ideal depends on: what has failed, and which cables are not as usual."""
        return self._lab.failures(), dict(self._lab.net.shapes.changed)

    @property
    def _tells_flows(self) -> bool:
        return len(self._order.flows) <= MOST_FLOWS

    def _ideal_now(self, failures: Failures) -> dict[str, Any]:
        """Return the ideal of the paths in use, of 0 bit/s where it is not known."""
        found = None
        with suppress(PillarboxError):  # a server died meanwhile: the next look tells
            found = ideal_of_paths_in_use(self._lab, self._order, failures)
        if found is None:
            return {"at_s": time.monotonic(), "total_bps": 0, "flows_bps": []}
        flows = [round(bps) if bps == bps else 0 for bps in found.goodput_bps.tolist()]
        sums = {"at_s": time.monotonic(), "total_bps": sum(flows)}
        return {**sums, "flows_bps": flows if self._tells_flows else []}

    def _judge(self, now_s: float) -> None:
        assert self._watch is not None
        with suppress(PillarboxError):  # it ends just now
            readings = self._watch.so_far()
            if readings is None:
                return
            ideal_bps = achieved_bps = None
            if self._ideal and self._ideal["total_bps"] and self._rows and not readings.faults:
                at_s, delivered = self._rows[-1]
                ideal_bps = self._ideal["total_bps"]
                achieved_bps = sum(delivered) * 8 / (at_s - self._barrier_s)
            verdict = judge(readings, ideal_bps, achieved_bps).as_json()
            del verdict["figures"]
            self._verdict = {"at_s": now_s, **verdict}

    # -- telling ---------------------------------------------------------------------------------

    def line(self) -> str:
        """Return how far it is, in a line."""
        now_s, count = time.monotonic(), len(self._order.flows)
        if self.phase != "sending":
            return f"{self.what}: connecting {count} flows, {now_s - self.began_s:.0f} s"
        rows = [row for row in list(self._rows) if row[0] >= now_s - RATE_S]
        rate = ""
        if len(rows) > 1:
            (from_s, before), (to_s, after) = rows[0], rows[-1]
            bps = (sum(after) - sum(before)) * 8 / (to_s - from_s)
            rate = f", {with_prefix(bps, 'bit/s')}"
        ended = f"{self._ended_flows} of {count} flows have ended"
        return f"{self.what}: {max(0.0, now_s - self._barrier_s):.0f} s{rate}, {ended}"

    def news(self, since_s: float) -> dict[str, Any]:
        """Return how it is, and what is new since a moment of CLOCK_MONOTONIC.

        ``flows``, its pairs of addresses, only to who has not heard of it; ``rows``: moments, and
        what each flow has delivered until then, or all of them together where they are many.
        """
        address = self._lab.topology.address
        found: dict[str, Any] = {
            "began_s": self.began_s,
            "what": self.what,
            "phase": self.phase,
            "said": self._said,
            "rows": [row for row in list(self._rows) if row[0] > since_s],
        }
        if self.began_s > since_s:
            flows = self._order.flows
            pairs = [[address(one.source), address(one.destination)] for one in flows]
            found |= {"count": len(flows), "flows": pairs if self._tells_flows else []}
        for name, value in (("ideal", self._ideal), ("verdict", self._verdict)):
            if value and value["at_s"] > since_s:
                found[name] = value
        return found


def ideal_of_paths_in_use(lab: Lab, order: Order, failures: Failures) -> Ideal | None:
    """Return what the flows could do at best over the paths that they take now."""
    rate_mbit, workload = lab.settings.rate_mbit, order.workload
    if rate_mbit is None or lab.routing.endswith(".py") or lab.net.shapes.changed:
        return None
    if workload.arrivals or workload.options.get("distribute") or is_collective(workload):
        return None  # their flows are not all under way at once
    from experiments.analysis.fluid.ideal import ideal

    topology, flows = lab.topology, order.flows
    pairs = [(flow.source, flow.destination) for flow in flows]
    back = [(destination, source) for source, destination in pairs]
    ways = live_paths(lab, flows)
    paths, ack_paths = (
        paths_of(topology, lab.routing, ends, chosen, failures)
        for ends, chosen in zip((pairs, back), ways, strict=True)
    )
    rate_bps, mtu = rate_mbit * 1e6, lab.settings.mtu
    return ideal(topology, lab.routing, flows, rate_bps, mtu, paths, ack_paths=ack_paths)


def last_workload(lab: Lab, since_s: float) -> dict[str, Any] | None:
    """Return how the lab's last workload is, None where it has had none."""
    last = _LAST.get(lab)
    return last.news(since_s) if last else None


def line_of(lab: Lab) -> str:
    """Return how far the workload is that is under way; nothing where none is."""
    last = _LAST.get(lab)
    return last.line() if last and last.phase != "ended" else ""


def finish(lab: Lab) -> str:
    """End the workload that is under way; return what it was."""
    last = _LAST.get(lab)
    require(last is not None and last.phase != "ended", "no `run` is under way")
    assert last is not None
    last.finish()
    return last.what
