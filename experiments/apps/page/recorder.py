"""Records a running lab by periodic sampling."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from pillarbox.experiments.apps.page.link import LabConnection
from pillarbox.experiments.apps.page.picture import recording_head
from pillarbox.experiments.apps.page.recording import Recording
from pillarbox.experiments.apps.page.traffic import WorkloadTraffic
from pillarbox.experiments.runs.trials.trial_faults import KILL, REVIVE, hops_interrupted_by
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.fault_kinds import CABLE, fault_kind
from pillarbox.hosts.base.path import Step
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology

FEW_SERVERS = 150  # maximum size of a small network, in servers
PERIOD_S, LONG_PERIOD_S = 0.2, 1.0  # sampling period of small and of large networks, in seconds
NOTICE_S, LOOK_S = 5.0, 0.05  # timeout and interval of polling for fault detection, in seconds


Tell = Callable[[str, str], None]  # callback that sends a message (kind, JSON) to the pages


class Recorder:
    """Records samples, events and states of a lab, and passes each one to the `tell` callback.

    Parameters
    ----------
    link : LabConnection
        Connection to the lab.
    topology : Topology
        The lab's network when the page was opened.
    about : dict
        Status of the lab: routing, plane, timers, rate and queue size.
    period_s : float, optional
        Sampling period in seconds. The default depends on the number of servers.
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
        self._traffic: WorkloadTraffic | None = None  # traffic of the latest workload
        self._failures = NONE
        self._killed: set[str] = set()  # killed servers: the end of their forwarders is expected
        self._detection_tasks: set[asyncio.Task[None]] = set()

    def _new_recording(self, now_s: float) -> Recording:
        names = ("routing", "plane", "timers")
        self._begun_s = now_s
        return Recording(
            {
                **recording_head(self.topology),
                "about": [[name, str(self._about.get(name, ""))] for name in names],
                "rate_mbit": self._about.get("rate_mbit"),
                "queue_bytes": self._about.get("queue_bytes"),
                "begun_s": time.time(),
            }
        )

    async def run(self) -> None:
        """Sample the lab periodically until it ends."""
        usual_s = PERIOD_S if self.topology.servers <= FEW_SERVERS else LONG_PERIOD_S
        period_s = self._period_s or usual_s
        log_from, traffic_from, due_s = 0, 0.0, time.monotonic()
        while True:
            asked = {"log_from": log_from, "traffic_from": traffic_from}
            sample = await self._link.ask(ask="sample", **asked)
            log_from, traffic_from = sample["log_to"], sample.get("traffic_to", traffic_from)
            self._process_sample(sample)
            due_s = max(due_s + period_s, time.monotonic())
            await asyncio.sleep(due_s - time.monotonic())

    # -- processing of a sample --------------------------------------------------------------------

    def _process_sample(self, sample: dict[str, Any]) -> None:
        if sample["network"] != self.topology.spec:  # the network has grown or shrunk
            self.topology, self._last = parse(sample["network"]), None
            self._state, self._failures, self._traffic = {}, NONE, None
            self.recording = self._new_recording(sample["at_s"])
            self.tell("recording", self.recording.text())
        for line in sample["log"]:
            self._process_event(json.loads(line))
        self._process_state(sample)
        sent = self._process_traffic(sample.get("traffic"))
        if self._last:
            new = self.rates(self._last, sample) | sent
            self.tell("sample", self.recording.add_sample(new))
        self._last = sample

    def _process_traffic(self, update: dict[str, Any] | None) -> dict[str, Any]:
        """Record a workload's update and events; return its goodput for the page's sample."""
        if update and "count" in update and self._is_new(update):
            self._traffic = WorkloadTraffic(self.topology, update)
            at_s = max(0.0, self._recording_time_s(update["began_s"]))
            begun = self.recording.add_traffic({"at_s": at_s, **self._traffic.about})
            self.tell("traffic", begun)
        if not update or not self._traffic:
            return {}
        found, events = self._traffic.add_update(update)
        if self._traffic.ideals:
            changed = {
                "at_s": self._recording_time_s(time.monotonic()),
                "ideals": self._traffic.ideals,
            }
            self.tell("traffic", self.recording.add_traffic(changed))
        for event in events:
            at_s = event.pop("at_s", time.monotonic())
            self.add_event(event.pop("kind"), at_s, event.pop("what"), **event)
        return found

    def _is_new(self, update: dict[str, Any]) -> bool:
        """Return True if a workload is new: not recorded yet, and not over before the recording."""
        known = self._traffic is not None and self._traffic.began_s == update["began_s"]
        return not known and (update["phase"] != "ended" or update["began_s"] >= self._begun_s)

    def rates(self, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
        """Return the rates of all busy links in kbit/s, from two samples of byte counters.

        ``sent`` is a flat list of link direction and rate: direction 2 i is cable i from its end a,
        2 i + 1 from its end b. In the same format, ``waiting`` has queue depths in bytes and
        ``dropped`` has queue drops in packets per second; both are absent if all values are 0.
        ``received`` is the total rate that servers received, and ``at_s`` the time of the sample.
        """
        ms = (after["at_s"] - before["at_s"]) * 1e3
        sent = _nonzero_values(
            round(max(0, new - old) * 8 / ms)
            for old, new in zip(before["sent_bytes"], after["sent_bytes"], strict=True)
        )
        dropped = _nonzero_values(
            round(max(0, new - old) * 1e3 / ms)
            for old, new in zip(before["dropped"], after["dropped"], strict=True)
        )
        queues = {"waiting": _nonzero_values(after["waiting_bytes"]), "dropped": dropped}
        received = sum(
            max(0, new - old)
            for old, new in zip(before["received_bytes"], after["received_bytes"], strict=True)
        )
        at_s = self._recording_time_s(after["at_s"])
        found = {"at_s": at_s, "sent": sent, "received": round(received * 8 / ms)}
        return found | {name: turns for name, turns in queues.items() if turns}

    def _recording_time_s(self, at_s: float) -> float:
        return round(at_s - self._begun_s, 4)

    def _process_event(self, line: dict[str, Any]) -> None:
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
            self._traffic.add_cause({"at_s": at_s, "kind": kind, "what": what})
        if at_s >= self._begun_s and not expected:
            self.add_event(kind, at_s, what, **line)

    def add_event(self, kind: str, at_s: float, what: list[str], **details: Any) -> None:
        """Record an event and report it to the pages; `at_s` is its CLOCK_MONOTONIC time."""
        event = {"at_s": self._recording_time_s(at_s), "kind": kind, "what": what, **details}
        self.tell("event", self.recording.add_event(event))

    def _process_state(self, sample: dict[str, Any]) -> None:
        state = {name: sample[name] for name in ("faults", "dead", "shapes")}
        if state == self._state:
            return
        self._state = state
        shown = {"at_s": self._recording_time_s(sample["at_s"]), **state}
        self.tell("state", self.recording.add_state(shown))
        before, self._failures = self._failures, self._failures_of(state)
        task = asyncio.create_task(self._poll_detections(before, self._failures, sample["at_s"]))
        self._detection_tasks.add(task)
        task.add_done_callback(self._detection_tasks.discard)

    def _failures_of(self, state: dict[str, Any]) -> Failures:
        nodes = {self.topology.server(name) for name in state["dead"]}
        links = set()
        for kind, *what in state["faults"]:
            named = [self.topology.node(name) for name in what]
            if fault_kind(kind).target != CABLE:
                nodes.update(named)
            elif fault_kind(kind).breaks:
                links.add(frozenset(named))
        return Failures(frozenset(nodes), frozenset(links))

    # -- fault detection by servers ----------------------------------------------------------------

    async def _poll_detections(self, before: Failures, after: Failures, seen_s: float) -> None:
        """Poll the servers next to changed links, until each has detected the change."""
        began_s = seen_s - 2 * LONG_PERIOD_S  # the failure is older than the sample that shows it
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


def _nonzero_values(values: Iterable[int]) -> list[int]:
    """Return a flat list of the index and the value of each nonzero value."""
    return [one for pair in enumerate(values) if pair[1] for one in pair]


def changed_links(
    topology: Topology, before: Failures, after: Failures
) -> dict[int, dict[Step, bool]]:
    """Return the new state (True: up) of each changed link, by the server that detects the change.

    >>> from pillarbox import topos
    >>> cut = Failures(links=frozenset([frozenset([3, 16])]))
    >>> changed_links(topos.parse("dcell,4,1"), NONE, cut)
    {3: {Step(port=1, peer=16): False}, 16: {Step(port=1, peer=3): False}}
    """
    old, new = hops_interrupted_by(topology, before), hops_interrupted_by(topology, after)
    dead = after.nodes | before.nodes  # nodes without link states in both samples
    found = {}
    for server in sorted((old.keys() | new.keys()) - dead):
        was, now = old.get(server, set()), new.get(server, set())
        if was != now:
            found[server] = {step: step in was for step in was ^ now}
    return found
