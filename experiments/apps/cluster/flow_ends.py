"""Process with one machine's ends of all flows: the traffic generator, run in steps.

A flow's two ends may be on two machines, and neither process sees the other. So the processes
connect in steps, each a line of JSON in and a line out, led by `sending.Generators`:

    {... Task}          ->  open listeners                      <-  {"ports": {server: port}}
    {"ports": ...}      ->  connect to all machines' listeners  <-  {"clients": {flow: [ip, port]}}
    {"clients": ...}    ->  match accepted connections to flows <-  {"connected": number}
    {"at_s": ...}       ->  begin at an instant of this machine's clock
    {"over": [flow]}    ->  at any time: these flows have ended at their other ends
    {"finish": true}    ->  at any time: flows with a duration end now

The process then prints the flows' outcomes, as the generator of a single machine does. The
receiving end decides when a flow has ended and resets the connection, which informs its sender.
`distributed_sending.combined_outcome` combines the counters of both ends.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.lab.traffic.generator_sockets import FlowConnection, FlowConnector
from pillarbox.experiments.lab.traffic.generator_worker import (
    FlowEventLoop,
    GeneratorTask,
    ServerDeathReader,
    unconnected_flows,
    write_message,
)
from pillarbox.experiments.lab.traffic.open_loop_worker import OpenLoopSender, prioritize_process
from pillarbox.experiments.models.workloads.flows import NICE
from pillarbox.hosts.linux.rights import take_role

ELSEWHERE = "its other end broke off"
# socket errors at a sender whose receiver has ended the flow
DONE = (ConnectionResetError, BrokenPipeError)


class JsonLineReader:
    """Reads lines of JSON from standard input, unbuffered so that epoll sees unread input."""

    def __init__(self) -> None:
        self._buffer = b""

    def next(self) -> dict[str, Any]:
        """Return the next JSON message from standard input; exit the process at end of file."""
        while b"\n" not in self._buffer:
            more = os.read(0, 1 << 16)
            if not more:
                os._exit(1)
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        return dict(json.loads(line))


if TYPE_CHECKING:
    _Base = FlowEventLoop
else:
    _Base = object


class _RemoteEnds(_Base):
    """Mixin for a traffic generator with flows whose other end may be on another machine."""

    lines: JsonLineReader
    here: set[int]

    def listen_to_lead(self, lines: JsonLineReader, here: set[int]) -> None:
        """Handle messages from the lab's process, such as `finish`, while flows are sent."""
        self.lines, self.here = lines, here
        self._by_number = {one.flow.number: one for one in self.connections}
        self._deeds[0] = self._handle_message, self.connections[0]
        self._ready.register(0, select.EPOLLIN)

    def _handle_message(self, _: FlowConnection) -> None:
        said = self.lines.next()
        if "finish" in said:
            self.finish()
        for number in said.get("over", ()):
            one = self._by_number[number]
            if not one.ended:
                self._end(one, "" if self._sends_to_other_machine(one) else ELSEWHERE)

    def _sends_to_other_machine(self, one: FlowConnection) -> bool:
        return one.flow.destination not in self.here

    def _send(self, one: FlowConnection) -> None:
        try:
            super()._send(one)
        except DONE:
            if not self._sends_to_other_machine(one):
                raise
            self._end(one)

    def _time_is_over(self, one: FlowConnection) -> None:
        if not self._sends_to_other_machine(one):
            super()._time_is_over(one)
        # the receiver ends the flow by its clock; the sender stops sending
        elif not one.ended:
            assert one.sender is not None
            one.end_s = self._now
            self._ready.modify(one.sender, 0)

    def _timeout_reason(self, one: FlowConnection) -> str:
        return "" if self._sends_to_other_machine(one) else super()._timeout_reason(one)


class GreedyFlowGenerator(_RemoteEnds, FlowEventLoop):
    """Traffic generator of one machine for flows that send as fast as they can."""


class ArrivingFlowGenerator(_RemoteEnds, OpenLoopSender):
    """Traffic generator of one machine for flows that arrive over time."""


def main() -> None:
    """Run a traffic generator on one machine, in steps read from standard input.

    The kernel's parent-death signal does not fit: the parent is a request's thread, which ends
    early.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the lab's own process only
    os.nice(max(0, NICE - os.nice(0)))
    lines = JsonLineReader()
    order = lines.next()
    task: GeneratorTask = order["task"]
    here = {int(server) for server in task["namespaces"]}
    connections, connector = unconnected_flows(task)
    write_message({"ports": connector.listen(connections)})
    connect(connections, connector, task, here, lines)
    path, known_bytes = task["events"]
    deaths = ServerDeathReader(path, known_bytes, task["names"])
    if order["arrive"]:
        prioritize_process()
    kind = ArrivingFlowGenerator if order["arrive"] else GreedyFlowGenerator
    loop: GreedyFlowGenerator | ArrivingFlowGenerator = kind(connections, task, deaths)
    loop.listen_to_lead(lines, here)
    take_role("generator", [Path(path).parent])
    gc.freeze()
    gc.disable()  # no pauses: the loop creates no reference cycles
    write_message({"connected": sum(not one.ended for one in connections)})
    cost = loop.run(lines.next()["at_s"])
    flows = [[one.flow.number, *loop.flow_result_fields(one)] for one in connections]
    write_message({"flows": flows, "cost": cost, "subflow_bytes": len(loop.subflow_rows)})
    sys.stdout.buffer.write(loop.rows + loop.subflow_rows)


def connect(
    connections: Sequence[FlowConnection],
    connector: FlowConnector,
    task: GeneratorTask,
    here: set[int],
    lines: JsonLineReader,
) -> None:
    """Connect all flows from this machine, and accept the flows to this machine."""
    ports = {int(server): port for server, port in lines.next()["ports"].items()}
    connector.connect(list(connections), task["together"], ports)
    away = {one.flow.number: one for one in connections if one.flow.destination not in here}
    clients = {
        number: one.sender.getsockname() for number, one in away.items() if one.sender is not None
    }
    write_message({"clients": clients})
    come = {int(flow): tuple(client) for flow, client in lines.next()["clients"].items()}
    awaited = {}
    for one in connections:
        if one.flow.source in here or one.ended:
            continue
        if one.flow.number in come:
            awaited[one.flow.destination, come[one.flow.number]] = one
        else:
            one.fail(ELSEWHERE)
    connector.accept_remote(awaited)
    connector.close()


if __name__ == "__main__":
    main()
    sys.stdout.buffer.flush()
    os._exit(0)  # the kernel closes thousands of sockets faster than Python
