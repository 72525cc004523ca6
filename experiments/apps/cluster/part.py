"""One machine's part of a lab: a process in a sandbox of its own, in the machine's namespace.

    python -m pillarbox.experiments.apps.cluster.part

The order is a line of JSON on standard input. The part prints events in lines of JSON: when it is
up, and when a forwarder ends. Requests come through its own control socket
(`pillarbox.experiments.runs.control.service`). The part ends when its standard input is closed, for
whatever reason the parent process ended; its namespaces, bridges, cables and forwarders are removed
with it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pillarbox.experiments.apps.cluster import remote_programs
from pillarbox.experiments.apps.cluster.clock import ClockServer
from pillarbox.experiments.apps.cluster.distributed_capture import capture_on_machine
from pillarbox.experiments.apps.cluster.part_trial import PartTrial
from pillarbox.experiments.apps.cluster.placement import place
from pillarbox.experiments.base.processes import own_mib
from pillarbox.experiments.lab.emulation import active_faults
from pillarbox.experiments.lab.emulation.cable_shapes import CableShape
from pillarbox.experiments.lab.emulation.lab import Lab
from pillarbox.experiments.lab.emulation.local_fabric import LocalFabric
from pillarbox.experiments.lab.emulation.packet_tracing import TRACE_PORT, TRACE_S
from pillarbox.experiments.lab.emulation.underlay import Underlay
from pillarbox.experiments.lab.emulation.vxlan_cables import PartNet
from pillarbox.experiments.lab.linux import mptcp, sandbox
from pillarbox.experiments.lab.observe.switch_tracing import SwitchTracer
from pillarbox.experiments.runs.control.service import Service
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.linux.calls import readable
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.hosts.wire.marks import serial_of
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.spec import parse

# abstract Unix socket that only one lab's part can hold on a machine
ONLY_PART = "\0pillarbox-part"
LONGEST_MARK = 64  # maximum payload of a marked packet, in bytes
LONGEST_REQUEST = 1 << 26  # maximum length of a request to a part, in bytes

Tell = Callable[[dict[str, Any]], None]


class PartFabric(LocalFabric):
    """The part of a lab on one machine; it acts on requests of the lab's process.

    Parameters
    ----------
    machine_of : sequence of int
        Machine of each node.
    underlay : Underlay
        This machine's side of the cables to other machines.
    crossing : str
        How super-packets cross between machines: see `PartNet`.
    tell : callable
        Called with each event that the part reports unasked.
    answering : ClockServer
        Answers the lab's clock requests.
    """

    net: PartNet

    def __init__(
        self,
        machine_of: Sequence[int],
        underlay: Underlay,
        *,
        crossing: str,
        tell: Tell,
        answering: ClockServer,
    ) -> None:
        self._machine_of, self._underlay = machine_of, underlay
        self._crossing, self._report, self._answering = crossing, tell, answering
        self._frame_programs = active_faults.FramePrograms()
        self._listeners: dict[int, Any] = {}
        self._follower: SwitchTracer | None = None

    def attach(self, lab: Lab) -> None:
        """Set the lab of this machine's nodes, and make the nodes and cables."""
        self._underlay.check_mtu(lab.settings.mtu)
        if lab.settings.multipath:
            mptcp.lack_for_programs()  # compiles the library that `exec --mptcp` names by its path
        super().attach(lab)
        self._cables = self.net.cables()
        self._trial = PartTrial(lab, self._underlay)

    def new_net(self) -> PartNet:
        """Return the nodes and cables on this machine, not yet started."""
        places, how = (self.lab.topology, self._machine_of, self._underlay), self.cable_parameters()
        return PartNet(*places, crossing=self._crossing, **how)

    def reach(self, server: int) -> list[str]:
        """Return the command that runs a program on a server of another machine."""
        elsewhere = self._machine_of[server] != self._underlay.machine
        name = self.lab.name(server)
        return remote_programs.command_for(self.lab.folder, name) if elsewhere else []

    def on_forwarder_event(self, server: int | None, event: str, details: dict[str, Any]) -> None:
        """Report the end of a forwarder to the lab's process."""
        if server is not None and event == "ended":
            if details.get("was_ready"):
                self.lab.dead.add(server)
            why = self.forwarders.last_words(server) if self.forwarders else ""
            report = {"event": event, "server": server, "why": why, "at_s": time.monotonic()}
            self._report({**report, **details})

    def on_servers_ready(self) -> None:
        """Do nothing: the request "all started" reports it, after the start of all machines."""

    # -- requests ----------------------------------------------------------------------------------

    def requests(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """Return the functions that handle requests of the lab's process to this machine's part."""
        return {
            "all started": lambda _: super(PartFabric, self).on_servers_ready(),
            "forwarder": lambda asked: self._ask(**asked),
            "log": lambda asked: self._log_of(asked["server"], asked["longest"]),
            "inform": lambda asked: self._report_failures(asked["nodes"], asked["links"]),
            "follow": lambda asked: self._switches_passed(asked["serial"], keep=asked["keep"]),
            "switch": at_requested_time(
                lambda asked: self._switch(asked["cables"], up=asked["up"])
            ),
            "frames": at_requested_time(
                lambda asked: self._change_frames(asked["cables"], asked["effects"])
            ),
            "shape": at_requested_time(lambda asked: self._shape(asked["cables"], asked["shape"])),
            "kill": at_requested_time(lambda asked: self.lab.kill(asked["server"])),
            "revive": at_requested_time(lambda asked: self.lab.revive(asked["server"])),
            remote_programs.ACROSS: lambda asked: self._report(
                {**asked, "event": remote_programs.ACROSS}
            ),
            "across ended": remote_programs.tell_end,
            "moved": lambda asked: self.net.move(asked["machine"], asked["address"]),
            "capture": lambda asked: capture_on_machine(self.lab, asked),
            "memory": lambda _: self._memory(),
            "tallies": lambda _: self.net.packing and self.net.packing.packet_tallies(),
            "sent": lambda _: self.bytes_sent(),
            "count": lambda asked: self._byte_counts(asked["at_s"]),
            "clock": lambda _: self._answering.port,
            "queue": lambda _: self.net.queue_bytes,
            "echo": lambda asked: self._echo(**asked),
            "trace listen": lambda asked: self._open_listener(asked["server"]),
            "trace send": lambda asked: self.tracer.send(*asked["packet"]),
            "trace arrived": lambda asked: self._wait_for_arrival(asked["server"], asked["serial"]),
            **self._trial.requests(),
        }

    def _echo(
        self,
        ask: str,
        server: int,
        destinations: list[int],
        wait_s: float,
        ports: list[int | None],
    ) -> list[float | None]:
        out_by, in_by = ports
        found = self.echoes(server, destinations, wait_s, (out_by, in_by))
        return [found[one] for one in destinations]

    def _open_listener(self, server: int) -> None:
        """Open a UDP socket at a server for marked packets, so that it sends no ICMP errors."""
        if server not in self._listeners:
            self._listeners[server] = self.tracer.listener(server)

    def _memory(self) -> list[tuple[int, float]]:
        """Return process ID and private memory in MiB of each forwarder on this machine."""
        pids = self.forwarders.pids.values() if self.forwarders else ()
        return [(pid, own_mib(pid)) for pid in pids if pid]

    def _byte_counts(self, at_s: float) -> list[list[list[int]]]:
        """Return the byte counts of cables and servers at a time of this machine's clock."""
        time.sleep(max(0.0, at_s - time.monotonic()))
        counts = self.counters()
        directions = [[number, *counted] for number, counted in counts.directions.items()]
        return [directions, [[server, octets] for server, octets in counts.received.items()]]

    def _wait_for_arrival(self, server: int, serial: int) -> bool:
        """Return True if a marked packet arrives at a server within TRACE_S."""
        listening, deadline = self._listeners[server], time.monotonic() + TRACE_S
        while readable([listening], deadline - time.monotonic()):
            if serial_of(listening.recv(LONGEST_MARK)) == serial:
                return True
        return False

    def _switches_passed(self, serial: int, *, keep: bool) -> list[tuple[int, str]]:
        """Return the switches that a marked packet passed, with its time to live at each.

        Switches are observed from the first request on, until a request without `keep`.
        """
        self._follower = self._follower or SwitchTracer(self.net, TRACE_PORT)
        found = self._follower.heard(serial)
        if not keep:
            self._follower.close()
            self._follower = None
        return found

    def _report_failures(self, nodes: list[int], links: list[list[int]]) -> None:
        """Report failures of nodes and links on all machines to this machine's routing switches."""
        failed = Failures(frozenset(nodes), frozenset(map(frozenset, links)))
        self.set_failures(failed)

    def end_trial(self) -> None:
        """End a trial's traffic generator and measurements on this machine."""
        self._trial.close()

    def _ask(self, ask: str, server: int, what: str, **details: str) -> Any:
        assert self.forwarders
        return self.forwarders.ask(server, what, **details)

    def _shape(self, cables: Sequence[int], shape: Sequence[Any]) -> None:
        wanted, shapes, topology = CableShape(*shape), self.net.shapes, self.lab.topology
        links = list(topology.links())
        for number in cables:
            a, b = map(topology.node_name, (links[number].a, links[number].b))
            shapes.shape([self._cables[number]], wanted)
            shapes.note(a, b, wanted)

    def _log_of(self, server: int, longest: int) -> str:
        assert self.forwarders
        return self.forwarders.last_lines(server, longest)

    def _switch(self, cables: Sequence[int], *, up: bool) -> None:
        active_faults.set_interfaces(
            [index for each in cables for index in self._cables[each].cuts], up=up
        )

    def _change_frames(self, cables: Sequence[int], effects: Sequence[Sequence[Any]]) -> None:
        """Set the effects of faults on the frames of this machine's halves of cables."""
        wanted = [active_faults.FrameEffect(name, tuple(amounts)) for name, amounts in effects]
        taps = (tap for each in cables for tap in self._cables[each].own_taps)
        self._frame_programs.set_effects(dict.fromkeys(taps, wanted))


def at_requested_time(
    action: Callable[[dict[str, Any]], object],
) -> Callable[[dict[str, Any]], float]:
    """Return a request handler that acts at time ``at_s`` and returns its delay in seconds."""

    def run_action(asked: dict[str, Any]) -> float:
        wait_s = asked["at_s"] - time.monotonic()
        time.sleep(max(0.0, wait_s))
        action(asked)
        return max(0.0, -wait_s)

    return run_action


def main() -> None:
    """Run this machine's part of a lab until standard input is closed."""
    # unbuffered: reads only the order, and leaves other input unread
    with open(0, "rb", buffering=0, closefd=False) as orders:
        order = json.loads(orders.readline())
    # Sockets in the machine's own network have to be opened before entering the sandbox.
    with _lock_of_machine(order["underlay"][order["machine"]]):
        underlay = Underlay(order["underlay"], order["machine"])
        answering = ClockServer(order["underlay"][order["machine"]], tuple(order["clock"]))
        sandbox.enter(nested=True)
        underlay.guard()
        sys.exit(_run(order, underlay, answering))


def _lock_of_machine(address: str) -> socket.socket:
    """Return a socket that only one lab can hold on a machine: tunnels of two labs conflict."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(ONLY_PART)
    except OSError:
        why = f"{address} has a part of another lab, which leaves no room: end that lab first"
        _report({"event": "failed", "why": why})
        sys.exit(1)
    return held


def _run(order: dict[str, Any], underlay: Underlay, answering: ClockServer) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the lab's prompt handles Ctrl-C
    topology = parse(order["network"])
    placed = place(topology, len(order["underlay"]), order["weights"])
    folder, settings = Path(order["folder"]), dict(order["settings"])
    folder.mkdir(mode=0o700, exist_ok=True)
    if order["router"] is not None:
        settings["routing"] = str(folder / Path(settings["routing"]).name)
        Path(settings["routing"]).write_text(order["router"])
    try:
        fabric = PartFabric(
            placed.machine_of.tolist(),
            underlay,
            crossing=order["crossing"],
            tell=_report,
            answering=answering,
        )
        lab = Lab(topology, LabSettings(**settings), folder, order["seed"], fabric=fabric)
        lab.start()
        answering.begin()
        service = Service(lab, fabric.requests(), longest=LONGEST_REQUEST)
    except PillarboxError as error:
        _report({"event": "failed", "why": str(error)})
        return 1
    try:
        _report({"event": "up", "servers": len(lab.here())})
        while os.read(0, 1 << 12):
            continue
        service.close()
    finally:
        fabric.end_trial()
        lab.stop()
        underlay.unguard()
        if order["remove"]:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def _report(what: dict[str, Any]) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    main()
