"""Makes a recording of a lab that runs, by asking it again and again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from experiments.page.link import LabConnection
from experiments.page.picture import picture_of
from experiments.page.recording import Recording
from experiments.page.traffic import WorkloadTraffic
from experiments.trials.runs.trial_faults import KILL, REVIVE, hops_through
from hosts.base.failures import NONE, Failures
from hosts.base.path import Step
from topos.base.errors import PillarboxError
from topos.base.spec import parse
from topos.base.topology import Topology

FEW_SERVERS = 150
PERIOD_S, LONG_PERIOD_S = 0.2, 1.0  # between samples of a small and of a large network
NOTICE_S, LOOK_S = 5.0, 0.05  # how long news of a fault is waited for, and how often


Tell = Callable[[str, str], None]  # what kind of message, and its JSON


class Recorder:
    """Records a lab; what is new is told at once.

    Parameters
    ----------
    link : LabLink
        The lab.
    topology : Topology
        Its network when the page was opened.
    about : dict
        What the lab says of itself: its status.
    period_s : float, optional
        Between samples.
    """

    def __init__(
        self,
        link: LabConnection,
        topology: Topology,
        about: dict[str, Any],
        period_s: float | None = None,
    ) -> None:
        self._link, self.topology = link, topology
        self._about, self._period_s = about, period_s
        self.recording = self._new_recording(time.monotonic())
        self.tell: Tell = lambda _kind, _text: None
        self._last: dict[str, Any] | None = None
        self._state: dict[str, Any] = {}
        self._traffic: WorkloadTraffic | None = None  # the last
        self._failures = NONE
        self._killed: set[str] = set()  # whose forwarders end because of it
        self._noticing: set[asyncio.Task[None]] = set()

    def _new_recording(self, now_s: float) -> Recording:
        names = ("routing", "plane", "timers")
        self._begun_s = now_s
        return Recording(
            {
                "network": self.topology.spec,
                "title": f"{self.topology.title} {self.topology.spec}",
                "description": self.topology.description(),
                "about": [[name, str(self._about.get(name, ""))] for name in names],
                "rate_mbit": self._about.get("rate_mbit"),
                "queue_bytes": self._about.get("queue_bytes"),
                "begun_s": time.time(),
                "picture": picture_of(self.topology),
            }
        )

    async def run(self) -> None:
        """Take samples as long as the lab answers."""
        usual_s = PERIOD_S if self.topology.servers <= FEW_SERVERS else LONG_PERIOD_S
        period_s = self._period_s or usual_s
        log_from, traffic_from, due_s = 0, 0.0, time.monotonic()
        while True:
            asked = {"log_from": log_from, "traffic_from": traffic_from}
            sample = await self._link.ask(ask="sample", **asked)
            log_from, traffic_from = sample["log_to"], sample.get("traffic_to", traffic_from)
            self._take(sample)
            due_s = max(due_s + period_s, time.monotonic())
            await asyncio.sleep(due_s - time.monotonic())

    # -- what a sample says ----------------------------------------------------------------------

    def _take(self, sample: dict[str, Any]) -> None:
        if sample["network"] != self.topology.spec:  # servers have joined or left
            self.topology, self._last = parse(sample["network"]), None
            self._state, self._failures, self._traffic = {}, NONE, None
            self.recording = self._new_recording(sample["at_s"])
            self.tell("recording", self.recording.text())
        for line in sample["log"]:
            self._take_event(json.loads(line))
        self._take_state(sample)
        sent = self._take_traffic(sample.get("traffic"))
        if self._last:
            new = self.rates(self._last, sample) | sent
            self.tell("sample", self.recording.add_sample(new))
        self._last = sample

    def _take_traffic(self, update: dict[str, Any] | None) -> dict[str, Any]:
        """Return what the workload that is under way adds to a sample."""
        if update and "count" in update and self._is_new(update):
            self._traffic = WorkloadTraffic(self.topology, update)
            at_s = max(0.0, self._since(update["began_s"]))
            begun = self.recording.add_traffic({"at_s": at_s, **self._traffic.about})
            self.tell("traffic", begun)
        if not update or not self._traffic:
            return {}
        found, events = self._traffic.take(update)
        if self._traffic.ideals:
            changed = {"at_s": self._since(time.monotonic()), "ideals": self._traffic.ideals}
            self.tell("traffic", self.recording.add_traffic(changed))
        for event in events:
            at_s = event.pop("at_s", time.monotonic())
            self.add_event(event.pop("kind"), at_s, event.pop("what"), **event)
        return found

    def _is_new(self, update: dict[str, Any]) -> bool:
        """Tell whether a workload is not known yet, and not over since long ago."""
        known = self._traffic is not None and self._traffic.began_s == update["began_s"]
        return not known and (update["phase"] != "ended" or update["began_s"] >= self._begun_s)

    def rates(self, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
        """Return what was carried between two samples, in kbit/s; what carried nothing is left out.

        ``sent`` has the number of a cable's direction and its rate in turns: 2 i is cable i from
        its end a, 2 i + 1 from b. So have ``waiting`` what waits in its queue, in bytes, and
        ``dropped`` how many packets a second that queue had no room for, where there are any.
        """
        ms = (after["at_s"] - before["at_s"]) * 1e3
        sent = _turns(
            round(max(0, new - old) * 8 / ms)
            for old, new in zip(before["sent_bytes"], after["sent_bytes"], strict=True)
        )
        dropped = _turns(
            round(max(0, new - old) * 1e3 / ms)
            for old, new in zip(before["dropped"], after["dropped"], strict=True)
        )
        queues = {"waiting": _turns(after["waiting_bytes"]), "dropped": dropped}
        received = sum(
            max(0, new - old)
            for old, new in zip(before["received_bytes"], after["received_bytes"], strict=True)
        )
        at_s = self._since(after["at_s"])
        found = {"at_s": at_s, "sent": sent, "received": round(received * 8 / ms)}
        return found | {name: turns for name, turns in queues.items() if turns}

    def _since(self, at_s: float) -> float:
        return round(at_s - self._begun_s, 4)

    def _take_event(self, line: dict[str, Any]) -> None:
        at_s, kind = line.pop("at_s"), line.pop("event")
        del line["wall_s"]
        server = line.pop("server", None)
        what = line.pop("what", [server] if server else [])
        if kind == KILL:
            self._killed.update(what)
        elif kind == REVIVE:
            self._killed.difference_update(what)
        expected = kind == "forwarder ended" and server in self._killed
        if self._traffic:
            self._traffic.cause({"at_s": at_s, "kind": kind, "what": what})
        if at_s >= self._begun_s and not expected:
            self.add_event(kind, at_s, what, **line)

    def add_event(self, kind: str, at_s: float, what: list[str], **details: Any) -> None:
        """Keep an event and tell it; its moment is by CLOCK_MONOTONIC."""
        event = {"at_s": self._since(at_s), "kind": kind, "what": what, **details}
        self.tell("event", self.recording.add_event(event))

    def _take_state(self, sample: dict[str, Any]) -> None:
        state = {name: sample[name] for name in ("faults", "dead", "shapes")}
        if state == self._state:
            return
        self._state = state
        shown = {"at_s": self._since(sample["at_s"]), **state}
        self.tell("state", self.recording.add_state(shown))
        before, self._failures = self._failures, self._failures_of(state)
        task = asyncio.create_task(self._notice(before, self._failures, sample["at_s"]))
        self._noticing.add(task)
        task.add_done_callback(self._noticing.discard)

    def _failures_of(self, state: dict[str, Any]) -> Failures:
        nodes = {self.topology.server(name) for name in state["dead"]}
        links = set()
        for kind, *what in state["faults"]:
            named = [self.topology.node(name) for name in what]
            if kind in ("cut", "silent cut"):
                links.add(frozenset(named))
            else:
                nodes.update(named)
        return Failures(frozenset(nodes), frozenset(links))

    # -- what servers notice ---------------------------------------------------------------------

    async def _notice(self, before: Failures, after: Failures, seen_s: float) -> None:
        """Ask the servers at what has changed for their news of it, until all have some."""
        began_s = seen_s - 2 * LONG_PERIOD_S  # it happened before it was seen in a sample
        missing = changed_links(self.topology, before, after)
        deadline = time.monotonic() + NOTICE_S
        while missing and time.monotonic() < deadline:
            for server in list(missing):
                try:
                    state = await self._link.ask(ask="state", server=self.topology.name(server))
                except PillarboxError:
                    return
                for news in state.get("news", []):
                    step = Step(news["port"], self.topology.server(news["peer"]))
                    up = missing.get(server, {}).get(step)
                    if up == news["up"] and news["at_s"] >= began_s:
                        del missing[server][step]
                        what = [self.topology.name(server), news["peer"]]
                        self.add_event("noticed", news["at_s"], what, up=up)
                if not missing[server]:
                    del missing[server]
            await asyncio.sleep(LOOK_S)


def _turns(values: Iterable[int]) -> list[int]:
    """Return number and value in turns, of those that are not 0."""
    return [one for pair in enumerate(values) if pair[1] for one in pair]


def changed_links(
    topology: Topology, before: Failures, after: Failures
) -> dict[int, dict[Step, bool]]:
    """Return the links that failed or came back, by the server that would notice: whether it is up.

    >>> import topos
    >>> cut = Failures(links=frozenset([frozenset([3, 16])]))
    >>> changed_links(topos.parse("dcell,4,1"), NONE, cut)
    {3: {Step(port=1, peer=16): False}, 16: {Step(port=1, peer=3): False}}
    """
    old, new = hops_through(topology, before), hops_through(topology, after)
    dead = after.nodes | before.nodes  # one that starts anew hears all its links for the first time
    found = {}
    for server in sorted((old.keys() | new.keys()) - dead):
        was, now = old.get(server, set()), new.get(server, set())
        if was != now:
            found[server] = {step: step in was for step in was ^ now}
    return found
