"""Traffic generator over several machines: leads the processes with the flows' ends (`ends`)."""

from __future__ import annotations

import base64
import time
from bisect import bisect
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.apps.cluster.flow_ends import ELSEWHERE
from pillarbox.experiments.lab.traffic.generator import (
    check_sending,
    interval_length_s,
    tool_manifest_entries,
    total_cost,
)
from pillarbox.experiments.lab.traffic.generator_process import ANSWER_S
from pillarbox.experiments.lab.traffic.generator_worker import ROW, SUBFLOW_ROW
from pillarbox.experiments.lab.traffic.open_loop import TOGETHER
from pillarbox.experiments.models.workloads.flows import (
    COMPLETED,
    Flow,
    FlowResult,
    Interval,
    Progress,
    Sending,
    SubflowInterval,
)
from pillarbox.topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from pillarbox.experiments.apps.cluster.machines import Machines

LOOK_S = 0.2  # interval between requests for flows' progress, in seconds


class Generators:
    """Controls the traffic generators of all machines, for flows between machines.

    Parameters
    ----------
    fabric : Machines
        The machines of the running lab.
    flows : sequence of Flow
        The flows to send, numbered from 0.
    sending : Sending
        Congestion control, interval and timeout of the flows.
    arrive : bool
        Whether each flow has a start time of its own, as arriving flows have.
    """

    name = "generator"

    def __init__(
        self,
        fabric: Machines,
        flows: Sequence[Flow],
        sending: Sending,
        *,
        arrive: bool = False,
    ) -> None:
        require(
            bool(flows), "the trial has no flows to send over the machines: order at least one flow"
        )
        self._fabric, self._flows = fabric, list(flows)
        self._sending, self._arrive = sending, arrive
        self.interval_s = interval_length_s(len(flows), sending.interval_s)
        # numbers of the flows with an end on a machine, by machine
        self._flows_on: dict[int, list[Flow]] = defaultdict(list)
        for flow in flows:
            for machine in self._machines_of(flow):
                self._flows_on[machine].append(flow)
        self._progress = {flow.number: Progress(flow.number, 0, False) for flow in flows}
        self._open = {(m, flow.number) for m, some in self._flows_on.items() for flow in some}
        self._over: dict[int, set[int]] = defaultdict(set)
        self._reasons: dict[int, str] = {}  # reasons why flows failed, by flow number
        self._looked_s, self._give_up_s = 0.0, float("inf")
        self._costs: list[dict[str, Any]] = []
        self._results: list[FlowResult] | None = None

    def _machines_of(self, flow: Flow) -> set[int]:
        return {self._fabric.machine_of(flow.source), self._fabric.machine_of(flow.destination)}

    def prepare(self) -> None:
        """Connect every flow; a flow that cannot connect fails, and the others continue."""
        check_sending(self._sending)
        how = {
            "flows": len(self._flows),
            "arrive": self._arrive,
            "dead": sorted(self._fabric.lab.dead),
            "congestion": self._sending.congestion,
            "most_bps": self._sending.most_bps,
            "multipath": self._sending.multipath,
            "interval_s": self.interval_s,
            "timeout_s": self._sending.timeout_s,
            "together": min(TOGETHER, len(self._flows)) if self._arrive else len(self._flows),
        }
        for machine in self._fabric.lost & self._flows_on.keys():
            self._fail_flows_of(machine)
        listening = self._fabric.ask_machines(
            {
                machine: {"ask": "send", "flows": [astuple(flow) for flow in flows], "how": how}
                for machine, flows in self._flows_on.items()
            }
        )
        ports = {
            server: port for one in listening.values() for server, port in one["ports"].items()
        }
        connected = self._send_step_to_all({"ports": ports})
        clients = {flow: at for one in connected.values() for flow, at in one["clients"].items()}
        self._send_step_to_all({"clients": clients})

    def _send_step_to_all(self, request: dict[str, Any]) -> dict[int, Any]:
        return self._fabric.ask_machines(
            self._same_request_for_all({"ask": "send step", "step": request})
        )

    def _same_request_for_all(self, request: dict[str, Any]) -> dict[int, dict[str, Any]]:
        return dict.fromkeys(self._flows_on, request)

    def start(self, at_s: float) -> None:
        """Start the flows on all machines at the same time, given by CLOCK_MONOTONIC."""
        self._fabric.ask_machines(
            {
                machine: {
                    "ask": "send start",
                    "at_s": self._fabric.clocks.machine_time_s(machine, at_s),
                }
                for machine in self._flows_on
            }
        )
        self._give_up_s = at_s + self._sending.timeout_s + ANSWER_S

    def finish(self) -> None:
        """End all flows with a duration immediately, on all machines."""
        self._fabric.ask_machines(self._same_request_for_all({"ask": "send finish"}), least=0)

    def progress(self) -> Sequence[Progress]:
        """Return the progress of all flows."""
        return list(self._progress.values())

    def ended(self) -> bool:
        """Return True when every flow has ended or failed at both its ends."""
        now = time.monotonic()
        if self._open and now > self._looked_s + LOOK_S:
            self._query_progress()
            self._looked_s = now
        return not self._open or now > self._give_up_s

    def _query_progress(self) -> None:
        for machine in self._fabric.lost & self._flows_on.keys():
            self._fail_flows_of(machine)
        found = self._fabric.ask_machines(
            {
                machine: {"ask": "send look", "over": sorted(self._over.pop(machine, ()))}
                for machine in self._flows_on
            },
            least=0,  # no answer is required: an event soon reports a lost machine
        )
        for machine, seen in found.items():
            require(
                not seen["gone"],
                f"the traffic generator of machine {machine} failed: {seen['gone']}",
            )
            for number, delivered, ended in seen["moved"]:
                self._update(machine, number, delivered, bool(ended))

    def _update(self, machine: int, number: int, delivered: int, ended: bool) -> None:
        flow = self._flows[number]
        if ended:
            self._open.discard((machine, number))
            for other in self._machines_of(flow):
                if (other, number) in self._open:
                    self._over[other].add(number)
        if machine == self._fabric.machine_of(flow.destination):
            self._progress[number] = Progress(number, delivered, ended)

    def _fail_flows_of(self, machine: int) -> None:
        """Mark all flows to or from a lost machine as failed."""
        for flow in self._flows_on.pop(machine):
            self._reasons[flow.number] = f"machine {machine} was lost"
            self._update(machine, flow.number, self._progress[flow.number].delivered_bytes, True)
            self._progress[flow.number] = self._progress[flow.number]._replace(ended=True)

    def results(self) -> list[FlowResult]:
        """Return the result of each flow; a flow that has not ended by now has failed."""
        if self._results is None:
            self._results = self._collected()
        return self._results

    def _collected(self) -> list[FlowResult]:
        results = self._same_request_for_all({"ask": "send results"})
        found = self._fabric.ask_machines(results, least=0)
        self._costs = [one["cost"] for one in found.values()]
        ends: dict[tuple[int, int], list[Any]] = {}
        rows: dict[tuple[int, int], list[Interval]] = defaultdict(list)
        subflows: dict[int, list[SubflowInterval]] = defaultdict(list)
        for machine, one in found.items():
            for number, *fields in one["flows"]:
                ends[machine, number] = fields
            packed = base64.b64decode(one["rows"])
            subflows_at = len(packed) - one["subflow_bytes"]
            for number, *fields in SUBFLOW_ROW.iter_unpack(packed[subflows_at:]):
                subflows[number].append(SubflowInterval(*fields))
            for number, *fields in ROW.iter_unpack(packed[:subflows_at]):
                row = Interval(*fields)
                if machine != self._fabric.machine_of(self._flows[number].source):
                    row = row._replace(retransmits=None, rtt_us=None, cwnd_bytes=None)
                rows[machine, number].append(row)
        ended = [self._result(flow, ends, rows) for flow in self._flows]
        for result in ended:
            result.subflows = subflows[result.flow.number]
        return ended

    def _result(
        self,
        flow: Flow,
        ends: dict[tuple[int, int], list[Any]],
        rows: dict[tuple[int, int], list[Interval]],
    ) -> FlowResult:
        sender, receiver = (
            (self._fabric.machine_of(end), flow.number) for end in (flow.source, flow.destination)
        )
        if flow.number in self._reasons or sender not in ends or receiver not in ends:
            reason = self._reasons.get(
                flow.number, "a traffic generator was stopped before the flow ended"
            )
            return FlowResult(flow, self.name, reason=reason)
        if sender == receiver:
            fields, intervals = ends[sender], rows[sender]
        else:
            fields = combined_outcome(ends[sender], ends[receiver])
            intervals = combined_samples(rows[sender], rows[receiver])
        result = FlowResult(flow, self.name, *fields)
        result.intervals = intervals
        return result

    def versions(self) -> dict[str, Any]:
        """Return the traffic generator's version, settings and, after its end, its CPU time."""
        found = tool_manifest_entries(self.name, self._sending, self.interval_s)
        return {**found, "processes": len(self._flows_on), **total_cost(self._costs)}

    def close(self) -> None:
        """End the traffic generator processes on all machines."""
        for machine in self._flows_on.keys() - self._fabric.lost:
            try:
                self._fabric.ask_machines({machine: {"ask": "send close"}})
            except PillarboxError:  # the machine is being lost, and its processes with it
                continue


def combined_outcome(sent: Sequence[Any], received: Sequence[Any]) -> list[Any]:
    """Return a flow's outcome, combined from the reports of the flow's sender and receiver.

    The receiving end knows the delivered bytes and whether the flow completed. If it did not, the
    sending end may know the reason.

    >>> sent = ["completed", "", 0.1, None, 0, 7, 2, 0.01, False]
    >>> combined_outcome(sent, ["completed", "", None, 1.5, 900, 0, 0, None, False])
    ['completed', '', 0.1, 1.5, 900, 7, 2, 0.01, False]
    >>> broke = ["failed", "its connection broke: Broken pipe", None, None, 5, 0, 0, None, False]
    >>> combined_outcome(["failed", "server 0.0 died", 0.1, None, 0, 1, 1, None, False], broke)
    ['failed', 'server 0.0 died', 0.1, None, 5, 1, 1, None, False]
    """
    status, why, _, end_s, delivered, *_ = received
    _, why_sender, begin_s, _, _, retransmits, tries, connect_s, *state = sent
    own = why if why != ELSEWHERE else ""
    reason = "" if status == COMPLETED else why_sender or own or why
    return [status, reason, begin_s, end_s, delivered, retransmits, tries, connect_s, *state]


def combined_samples(sent: Sequence[Interval], received: Sequence[Interval]) -> list[Interval]:
    """Return a flow's samples: bytes at the receiver, with TCP's state at the sender.

    Both ends cut intervals at the same instants, but a late process cuts later, so each interval
    of the sender belongs to the receiver's interval that began at the nearest time.

    >>> late = [Interval(0.06, 0.1, 500), Interval(0.1, 0.2, 900)]
    >>> sent = [Interval(0.0, 0.1, 0, 1, 80, 9000), Interval(0.1, 0.21, 0, 2, 70, 8000)]
    >>> [row[2:] for row in combined_samples(sent, late)]
    [(500, 1, 80, 9000), (900, 2, 70, 8000)]
    """
    rows = list(received)
    begins = [row.begin_s for row in rows]
    for one in sent if rows else ():
        after = bisect(begins, one.begin_s)
        candidates = range(max(0, after - 1), min(len(rows), after + 1))
        at = min(candidates, key=lambda at: abs(begins[at] - one.begin_s))
        retransmits = (rows[at].retransmits or 0) + (one.retransmits or 0)
        rows[at] = rows[at]._replace(
            retransmits=retransmits, rtt_us=one.rtt_us, cwnd_bytes=one.cwnd_bytes
        )
    return rows
