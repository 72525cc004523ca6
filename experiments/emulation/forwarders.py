"""The forwarders of a lab: started by the nursery, watched, ended and started again.

The nursery (`hosts.live.nursery`) is a process of its own that has nothing loaded but what servers
need. This is its other end, and the servers' control sockets.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hosts.live.control import ask
from topos.base.errors import TopologyError
from topos.base.topology import Topology

ROOT = Path(__file__).resolve().parents[2]
LONGEST_MESSAGE = 1 << 16
START_S = 60.0  # all forwarders are there by then, or something is wrong
END_S = 5.0


@dataclass(frozen=True)
class Routing:
    """How all servers of a lab route."""

    name: str
    plane: str = "auto"
    timers: str = "fast"
    rate_bps: float = 1e9  # of a port, as far as routers have to know
    mtu: int = 1500
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)  # of the router


class Forwarders:
    """One forwarder for each server, in the namespaces given.

    Parameters
    ----------
    topology : Topology
        The network.
    routing : Routing
        What each forwarder is told.
    folder : Path
        Where logs and control sockets are; nobody else may look into it.
    namespace_of : callable of int to int
        A server's network namespace, as an open file.
    told : callable
        Called with (server, event, details) when something happened to a forwarder.
    """

    def __init__(
        self,
        topology: Topology,
        routing: Routing,
        folder: Path,
        namespace_of: Callable[[int], int],
        told: Callable[[int, str, dict[str, Any]], None],
    ) -> None:
        self.topology, self.routing, self.folder = topology, routing, folder
        self._namespace_of, self._told = namespace_of, told
        self.pids: dict[int, int] = {}
        self._ready: set[int] = set()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._nursery = subprocess.Popen(
                [sys.executable, "-m", "hosts.live.nursery", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
            )

    def start(self, servers: list[int]) -> None:
        """Start these servers' forwarders and wait until each is ready."""
        for server in servers:
            self.pids.pop(server, None)
            request = {
                "server": server,
                "network": self.topology.spec,
                "log": str(self.log(server)),
                "control": str(self.control(server)),
                **{
                    "routing" if key == "name" else key: v
                    for key, v in asdict(self.routing).items()
                },
            }
            descriptor = self._namespace_of(server)
            socket.send_fds(self._channel, [json.dumps(request).encode()], [descriptor])
            self._read(0.0)  # so that the nursery never waits for room to answer
        deadline = time.monotonic() + START_S
        while not self._ready.issuperset(servers):
            ended = [server for server in servers if self.pids.get(server) == 0]
            if ended:
                raise TopologyError(self._why(ended[0]))
            if time.monotonic() > deadline:
                missing = len(set(servers) - self._ready)
                raise TopologyError(
                    f"{missing} forwarders were not ready in {START_S:.0f} s: the machine is too "
                    "slow for this network; choose a smaller one"
                )
            self._read(0.1)

    def read_news(self) -> None:
        """Take in what became of forwarders since."""
        self._read(0.0)

    def kill(self, server: int) -> None:
        """End a forwarder as a power failure would."""
        self._read(0.0)
        pid = self.pids.get(server)
        if not pid:
            raise TopologyError(f"server {self.topology.address(server)} is dead already")
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + END_S
        while self.pids.get(server) and time.monotonic() < deadline:
            self._read(0.1)

    def alive(self, server: int) -> bool:
        """Tell whether a server's forwarder runs."""
        return bool(self.pids.get(server))

    def ask(self, server: int, what: str) -> Any:
        """Ask a forwarder for its ``state`` or its ``trace``; None if it is dead."""
        if not self.alive(server):
            return None
        try:
            return ask(self.control(server), {"ask": what})
        except OSError:
            return None

    def close(self) -> None:
        """End all forwarders."""
        self._channel.close()  # the nursery ends, and they with it
        try:
            self._nursery.wait(END_S)
        except subprocess.TimeoutExpired:
            self._nursery.kill()
            self._nursery.wait()

    def log(self, server: int) -> Path:
        """Return where a forwarder writes what it has to say."""
        return self.folder / f"{self.topology.node_name(server)}.log"

    def control(self, server: int) -> Path:
        """Return a forwarder's control socket."""
        return self.folder / f"{self.topology.node_name(server)}.sock"

    def _read(self, wait_s: float) -> None:
        while select.select([self._channel], [], [], wait_s)[0]:
            message = self._channel.recv(LONGEST_MESSAGE)
            if not message:
                raise TopologyError("the process that starts forwarders has ended: start again")
            self._take(json.loads(message))
            wait_s = 0.0

    def _take(self, news: dict[str, Any]) -> None:
        server, event, pid = news.pop("server"), news.pop("event"), news["pid"]
        if event == "started":
            self.pids.setdefault(server, pid)  # its own first words can be faster than this
        elif event == "ready":
            self.pids[server] = pid
            self._ready.add(server)
        elif event == "ended" and self.pids.get(server) in (pid, None):
            self.pids[server] = 0
            self._ready.discard(server)
        self._told(server, event, news)

    def _why(self, server: int) -> str:
        lines = (
            self.log(server).read_text().strip().splitlines() if self.log(server).exists() else []
        )
        said = lines[-1] if lines else "it left no message"
        return f"the forwarder of server {self.topology.address(server)} ended at once: {said}"
