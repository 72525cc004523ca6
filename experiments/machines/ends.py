"""The process that has one machine's ends of all flows: the generator's, in steps.

A flow's two ends may be on two machines, and neither process can see the other. So they connect in
steps, each a line of JSON in and one out, led by `sending.Generators`:

    {... Task}          ->  open listeners                      <-  {"ports": {server: port}}
    {"ports": ...}      ->  connect to all machines' listeners  <-  {"clients": {flow: [ip, port]}}
    {"clients": ...}    ->  know whose connections have come    <-  {"connected": number}
    {"at_s": ...}       ->  begin at that moment of this machine's clock
    {"over": [flow]}    ->  at any time: these have ended at their other ends
    {"finish": true}    ->  likewise: flows that have a duration end now

and then what became of the flows, as of one process. The receiving end says when a flow has ended,
and breaks the connection: that is how its sender knows. What each end counted is made one by
`sending.joined`.
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

from experiments.traffic.flows import NICE
from experiments.traffic.generator_sockets import Connection, Connector
from experiments.traffic.generator_worker import Deaths, Loop, Task, planned, say
from experiments.traffic.open_loop_worker import Arriving, be_on_time
from hosts.linux.rights import take_role

ELSEWHERE = "its other end broke off"
DONE = (ConnectionResetError, BrokenPipeError)  # what a sender sees when its receiver has ended


class Lines:
    """Reads lines of JSON from standard input; nothing of it waits in a buffer unseen."""

    def __init__(self) -> None:
        self._kept = b""

    def next(self) -> dict[str, Any]:
        """Return the next one; end the process where there is none."""
        while b"\n" not in self._kept:
            more = os.read(0, 1 << 16)
            if not more:
                os._exit(1)
            self._kept += more
        line, _, self._kept = self._kept.partition(b"\n")
        return dict(json.loads(line))


if TYPE_CHECKING:
    _Base = Loop
else:
    _Base = object


class _Ends(_Base):
    """What is different of a loop where a flow's other end may be on another machine."""

    lines: Lines
    here: set[int]

    def listen_to_lead(self, lines: Lines, here: set[int]) -> None:
        """Take in what is said while flows are sent."""
        self.lines, self.here = lines, here
        self._by_number = {one.flow.number: one for one in self.connections}
        self._deeds[0] = self._hear, self.connections[0]
        self._ready.register(0, select.EPOLLIN)

    def _hear(self, _: Connection) -> None:
        said = self.lines.next()
        if "finish" in said:
            self.finish()
        for number in said.get("over", ()):
            one = self._by_number[number]
            if not one.ended:
                self._end(one, "" if self._sends_away(one) else ELSEWHERE)

    def _sends_away(self, one: Connection) -> bool:
        return one.flow.destination not in self.here

    def _send(self, one: Connection) -> None:
        try:
            super()._send(one)
        except DONE:
            if not self._sends_away(one):
                raise
            self._end(one)

    def _time_is_over(self, one: Connection) -> None:
        if not self._sends_away(one):
            super()._time_is_over(one)
        elif not one.ended:  # the receiver's clock says when it is; until then nothing more is sent
            assert one.sender is not None
            one.end_s = self._now
            self._ready.modify(one.sender, 0)

    def _why_late(self, one: Connection) -> str:
        return "" if self._sends_away(one) else super()._why_late(one)


class Greedy(_Ends, Loop):
    """Sends and receives flows that take all they can get."""


class OnTime(_Ends, Arriving):
    """Sends and receives flows that arrive."""


def main() -> None:
    """Do one task, in steps; it ends with its input.

    Not with its parent, which for the kernel is the thread that started it: one of a request.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the lab's own process
    os.nice(max(0, NICE - os.nice(0)))
    lines = Lines()
    order = lines.next()
    task: Task = order["task"]
    here = {int(server) for server in task["namespaces"]}
    connections, connector = planned(task)
    say({"ports": connector.listen(connections)})
    connect(connections, connector, task, here, lines)
    path, known_bytes = task["events"]
    deaths = Deaths(path, known_bytes, task["names"])
    if order["arrive"]:
        be_on_time()
    kind = OnTime if order["arrive"] else Greedy
    loop: Greedy | OnTime = kind(connections, task, deaths)
    loop.listen_to_lead(lines, here)
    take_role("generator", [Path(path).parent])
    gc.freeze()
    gc.disable()  # nothing here refers to itself
    say({"connected": sum(not one.ended for one in connections)})
    cost = loop.run(lines.next()["at_s"])
    flows = [[one.flow.number, *loop.outcome(one)] for one in connections]
    say({"flows": flows, "cost": cost, "rows": len(loop.rows)})
    sys.stdout.buffer.write(loop.rows)


def connect(
    connections: Sequence[Connection],
    connector: Connector,
    task: Task,
    here: set[int],
    lines: Lines,
) -> None:
    """Connect all flows from here, and take those that come here."""
    ports = {int(server): port for server, port in lines.next()["ports"].items()}
    connector.connect(list(connections), task["together"], ports)
    away = {one.flow.number: one for one in connections if one.flow.destination not in here}
    clients = {
        number: one.sender.getsockname() for number, one in away.items() if one.sender is not None
    }
    say({"clients": clients})
    come = {int(flow): tuple(client) for flow, client in lines.next()["clients"].items()}
    awaited = {}
    for one in connections:
        if one.flow.source in here or one.ended:
            continue
        if one.flow.number in come:
            awaited[one.flow.destination, come[one.flow.number]] = one
        else:
            one.fail(ELSEWHERE)
    connector.take(awaited)
    connector.close()


if __name__ == "__main__":
    main()
    sys.stdout.buffer.flush()
    os._exit(0)  # thousands of sockets are closed by the kernel, at once
