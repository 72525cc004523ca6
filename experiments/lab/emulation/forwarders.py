"""The forwarders of a lab: start by the nursery, supervision, end and restart.

The nursery (`pillarbox.hosts.live.nursery`) is a separate process that has loaded only the modules
of servers. This module is its client, and the client of the servers' control sockets.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from pillarbox.experiments.base.interpreter import module_command
from pillarbox.experiments.lab.linux.kernel_settings import KernelSettings
from pillarbox.hosts.live.control import ask_forwarder
from pillarbox.hosts.live.settings import MOST_AT_ONCE, LabSettings
from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.topology import Topology

LONGEST_MESSAGE = 1 << 16
LONGEST_LINE = 4096  # bytes read from the end of a forwarder's log to find its last line
# Time limits for starting all forwarders, and for each forwarder of many, in seconds.
START_S, START_EACH_S = 60.0, 0.1
END_S = 5.0
ENDED_S = 60.0  # upper bound for the kernel to end all killed forwarders, in seconds
MOST_FILES = 250  # maximum number of file descriptors that one Unix socket message carries
MOST_RESTARTS = 5  # maximum restarts of the nursery, the process that starts forwarders
NURSERY_ENDED = (
    "the process that starts forwarders has ended and cannot be started again, so no server can be "
    "revived: end this lab and start it again"
)


class Forwarders:
    """The forwarders of a network, one for each server, in the servers' namespaces.

    Parameters
    ----------
    topology : Topology
        The network.
    settings : LabSettings
        Settings of each forwarder, with the routing and the plane already chosen.
    seed : int
        Seed of the routers' random choices.
    folder : Path
        Folder of logs and control sockets, accessible only to root.
    namespace_of : callable of int to int
        Function that returns a server's network namespace as an open file.
    on_event : callable
        Callback with (server, event, details) for events of a forwarder, and with
        (None, event, details) when the nursery or the pacer has ended ("nursery ended", "pacer
        ended") or the nursery cannot be restarted ("nursery lost"). It is called from a separate
        thread.
    """

    def __init__(
        self,
        topology: Topology,
        settings: LabSettings,
        seed: int,
        folder: Path,
        namespace_of: Callable[[int], int],
        on_event: Callable[[int | None, str, dict[str, Any]], None],
    ) -> None:
        self.topology, self.settings, self.seed, self.folder = topology, settings, seed, folder
        self._namespace_of, self._on_event = namespace_of, on_event
        # set before the process that starts forwarders reads the settings
        self._kernel = KernelSettings()
        self.pids: dict[int, int] = {}
        self._ready: set[int] = set()
        # time limits in s of forwarders that are starting, by server
        self._asked: dict[int, float] = {}
        # state and files that a restarted nursery continues with
        self._handover: tuple[dict[str, Any], list[int]] | None = None
        self._restarts = 0
        self._all_started = False  # True once all servers of the network have started
        self._lost = False  # the process that starts forwarders has ended for good
        self._closing = False
        self._ending: list[int] = []  # process descriptors of killed forwarders
        # The pipes at which forked forwarders wait for `start`, by their servers.
        self._gates: dict[tuple[int, ...], tuple[int, int]] = {}
        # True until the priority of forwarders that prepare, and of the nursery, is restored.
        self._are_at_lowest_priority = False
        self._news = threading.Condition()
        # The kernel ends nursery, pacer and forwarders when this process no longer holds it.
        self._lifeline, self._lifeline_end = os.pipe()
        self._begin_nursery()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        # The nursery loads the forwarder's code while the lab makes its cables.
        self._request([], 0.0)

    def _begin_nursery(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        passed = [theirs.fileno(), self._lifeline]
        # Ctrl-C is for the lab. It is blocked in the new process until the nursery ignores it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            with theirs:
                self._nursery = subprocess.Popen(
                    module_command("pillarbox.hosts.live.nursery", *passed),
                    pass_fds=passed,
                    stdin=subprocess.DEVNULL,
                    cwd="/",
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    @property
    def nursery(self) -> int:
        """Process id of the nursery, which starts forwarders."""
        return self._nursery.pid

    @property
    def pacer(self) -> int:
        """Process id of the pacer, which sends heartbeats; 0 if unknown."""
        return self._handover[0]["pacer"] if self._handover else 0

    def fork(self, servers: list[int]) -> None:
        """Fork the forwarders of a starting lab; they use idle processors, and wait for `start`.

        What a forwarder does without its ports takes as long as all else. Without the right to
        restore priorities, nothing is done before `start`.
        """
        if not may_raise_priority():
            return
        self._are_at_lowest_priority = True
        for batch in _batches(servers):
            self._gates[tuple(batch)] = gate, _ = os.pipe()
            self._request(batch, start_limit_s(len(servers)), gate)

    def start(self, servers: list[int]) -> None:
        """Start the forwarders of the given servers and wait until all are ready.

        At most `MOST_AT_ONCE` start simultaneously. With a thousand simultaneous starts, the CPU
        was overloaded, heartbeats were late, and running servers declared each other dead.
        """
        limit_s = start_limit_s(len(servers))
        end_s = time.monotonic() + limit_s
        # Silent neighbours are excused for this time. At the lab's start they have not started yet;
        # later they may be dead.
        start_s = START_EACH_S * len(servers) if self._all_started else limit_s
        asked: list[int] = []
        for batch in _batches(servers):
            if tuple(batch) in self._gates:
                self._open_gate(tuple(batch))
            else:
                self._request(batch, start_s)
            asked += batch
            self._wait(asked, MOST_AT_ONCE, end_s)
        self._wait(servers, 0, end_s)
        with self._news:
            failed = [server for server in servers if self.pids.get(server) == 0]
            missing = len(set(servers) - self._ready)
        require(not self._lost, NURSERY_ENDED)
        if failed:
            name, why = self.topology.address(failed[0]), self.last_words(failed[0])
            raise PillarboxError(f"the forwarder of server {name} ended during its start: {why}")
        require(
            not missing,
            f"{missing} forwarders were not ready in {limit_s:.0f} s: the machine is too slow for "
            "this network; choose a smaller one",
        )

    def end_start(self) -> None:
        """Report that all servers of the network have started, those of other machines included.

        From now on the heartbeat pacer waits for no server, and no silent neighbour is excused.
        """
        self._all_started = True
        with self._news, suppress(BrokenPipeError, ConnectionResetError):
            self._channel.send(json.dumps({"event": "all started"}).encode())

    def _open_gate(self, batch: tuple[int, ...]) -> None:
        """Let forked forwarders start; with the first ones, restore the priority of all."""
        with self._news:
            for end in self._gates.pop(batch):
                os.close(end)
            if self._are_at_lowest_priority:
                self._are_at_lowest_priority = False
                for process in (self.nursery, *filter(None, self.pids.values())):
                    with suppress(ProcessLookupError):
                        os.setpriority(os.PRIO_PROCESS, process, 0)

    def _request(self, servers: list[int], start_s: float, gate: int | None = None) -> None:
        """Ask the nursery to start the forwarders of servers, or with an empty list to prepare.

        The time limit `start_s` applies to all forwarders that start together. Before they open
        ports, they wait until the other end of the pipe `gate` is closed.
        """
        with self._news:
            require(not self._lost, NURSERY_ENDED)
            for server in servers:
                self.pids.pop(server, None)
                self._ready.discard(server)
                self._asked[server] = start_s
            self._send(servers, start_s, gate)

    def _send(self, servers: list[int], start_s: float, gate: int | None = None) -> None:
        request = {
            "servers": servers,
            "network": self.topology.spec,
            "folder": str(self.folder),
            "seed": self.seed,
            "start_s": start_s,
            "settings": self.settings.plain(),
            "waits": gate is not None,
        }
        files = [self._namespace_of(server) for server in servers]
        files += [] if gate is None else [gate]
        # the nursery has ended: the restarted nursery gets the start request
        with suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._channel, [json.dumps(request).encode()], files)

    def _wait(self, servers: list[int], most: int, end_s: float) -> None:
        """Wait until all forwarders except at most `most` are ready, or until one has failed."""
        with self._news:
            self._news.wait_for(
                lambda: self._are_ready_or_failed(servers, most), end_s - time.monotonic()
            )

    def _are_ready_or_failed(self, servers: list[int], most: int) -> bool:
        failed = any(self.pids.get(server) == 0 for server in servers)
        return self._lost or failed or len(set(servers) - self._ready) <= most

    def kill(self, server: int) -> None:
        """Kill a server's forwarder, as a power failure would."""
        with self._news:
            pid = self.pids.get(server)
            require(bool(pid), f"server {self.topology.address(server)} is dead already")
            assert pid
            os.kill(pid, signal.SIGKILL)
            self._news.wait_for(lambda: not self.pids.get(server), END_S)

    def alive(self, server: int) -> bool:
        """Return True if a server's forwarder is running."""
        return bool(self.pids.get(server))

    def ask(self, server: int, what: str, **details: str) -> Any:
        """Return the answer of a server's forwarder to ``state`` or another query, None if dead."""
        if not self.alive(server):
            return None
        try:
            return ask_forwarder(self.control(server), {"ask": what, **details})
        except OSError:
            return None

    def resize(self, topology: Topology, servers: list[int]) -> None:
        """Set the new size of the network in running forwarders, and in those started later."""
        self.topology = topology
        for server in servers:
            answer = self.ask(server, "resize", network=topology.spec)
            require(
                answer == {"network": topology.spec},
                f"server {topology.address(server)} did not accept the new size of the network, "
                f"{topology.spec}: its log is {self.log(server)}",
            )

    def kill_all(self) -> None:
        """Kill all forwarders of the lab, and the nursery that starts them; then call `close`."""
        with self._news:
            self._closing = True
            for pid in filter(None, self.pids.values()):
                with suppress(ProcessLookupError):
                    self._ending.append(os.pidfd_open(pid))
            self._channel.shutdown(socket.SHUT_RDWR)  # closing its control channel ends the nursery
        os.close(self._lifeline_end)  # closing this pipe ends pacer and forwarders
        while self._gates:
            for end in self._gates.popitem()[1]:
                os.close(end)
        self._watcher.join()
        self._channel.close()
        os.close(self._lifeline)
        self._store_handover(None)

    def close(self) -> None:
        """Wait until the kernel has ended all killed forwarders, then restore its settings.

        A process ends after its application interface, each under the lock of all interfaces: 1 ms
        with the settings of a lab, and 17 ms (a grace period) if they were restored before.
        """
        ends = select.poll()
        for each in self._ending:
            ends.register(each, select.POLLIN)
        deadline, waiting = time.monotonic() + ENDED_S, set(self._ending)
        while waiting and (left_s := deadline - time.monotonic()) > 0:
            for each, _ in ends.poll(left_s * 1000):
                ends.unregister(each)
                waiting.discard(each)
        for each in self._ending:
            os.close(each)
        self._ending = []
        try:
            self._nursery.wait(END_S)
        except subprocess.TimeoutExpired:
            self._nursery.kill()
            self._nursery.wait()
        self._kernel.end()

    def log(self, server: int) -> Path:
        """Return the path of a forwarder's log."""
        return self.folder / f"{self.topology.node_name(server)}.log"

    def control(self, server: int) -> Path:
        """Return the path of a forwarder's control socket."""
        return self.folder / f"{self.topology.node_name(server)}.sock"

    def last_lines(self, server: int, longest: int) -> str:
        """Return the last lines of a forwarder's log, at most `longest` bytes."""
        log = self.log(server)
        if not log.exists():
            return ""
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - longest))
            return file.read(longest).decode(errors="replace").strip()

    def last_words(self, server: int) -> str:
        """Return the last line of a forwarder's log."""
        lines = self.last_lines(server, LONGEST_LINE).splitlines()
        return lines[-1] if lines else "it left no message"

    # -- news ------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Read messages about forwarders from the nursery, and restart the nursery if it ends."""
        while True:
            while message := self._receive_message():
                data, files = message
                with self._news:
                    self._process_message(json.loads(data), files)
                    self._news.notify_all()
            with self._news:
                again = not self._closing and self._restart_nursery()
                self._lost = not again
                self._news.notify_all()
            if self._closing:
                return
            self._on_event(None, "nursery ended" if again else "nursery lost", {})
            if not again:
                return

    def _receive_message(self) -> tuple[bytes, list[int]] | None:
        flags = socket.MSG_CMSG_CLOEXEC
        try:
            data, files, _, _ = socket.recv_fds(self._channel, LONGEST_MESSAGE, MOST_FILES, flags)
        except ConnectionResetError:  # the nursery has ended with requests unread
            return None
        return (data, files) if data else None

    def _restart_nursery(self) -> bool:
        """Restart the process that starts forwarders with its former state; False if it cannot."""
        self._nursery.wait()
        self._restarts += 1
        if self._handover is None or self._restarts > MOST_RESTARTS:
            return False
        self._channel.close()
        self._begin_nursery()
        message, files = self._handover
        running = [[server, pid] for server, pid in self.pids.items() if pid]
        with suppress(BrokenPipeError, ConnectionResetError):
            handed = json.dumps({**message, "running": running}).encode()
            socket.send_fds(self._channel, [handed], files)
        asked = [server for server in self._asked if not self.pids.get(server)]
        self._send([], 0.0)  # the new nursery loads the forwarder's code before a server is revived
        gates = {server: gate for batch, (gate, _) in self._gates.items() for server in batch}
        for server in asked:
            self._send([server], self._asked[server], gates.get(server))
        return True

    def _store_handover(self, handover: tuple[dict[str, Any], list[int]] | None) -> None:
        for each in self._handover[1] if self._handover else ():
            os.close(each)
        self._handover = handover

    def _process_message(self, news: dict[str, Any], files: list[int]) -> None:
        event = news.pop("event")
        if event == "handover":
            self._store_handover((news | {"event": event}, files))
            return
        server, pid = news.pop("server", None), news.get("pid", 0)
        if event == "started":
            # the forwarder's own message may have recorded it earlier
            self.pids.setdefault(server, pid)
        elif event == "ready":
            self.pids[server] = pid
            self._ready.add(server)
            self._asked.pop(server, None)
        elif event == "ended" and self.pids.get(server) == pid:
            self.pids[server] = 0
            news["was_ready"] = server in self._ready
            self._ready.discard(server)
            self._asked.pop(server, None)
        self._on_event(server, event, news)


@cache
def may_raise_priority() -> bool:
    """Return True if this process may raise the priority of its processes; its own is kept."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice - 1)
    except PermissionError:
        return False
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    return True


def _batches(servers: list[int]) -> Iterator[list[int]]:
    """Yield the servers whose forwarders start together."""
    for at in range(0, len(servers), MOST_AT_ONCE):
        yield servers[at : at + MOST_AT_ONCE]


def start_limit_s(servers: int) -> float:
    """Return the time limit for starting the forwarders of a number of servers, in seconds.

    >>> start_limit_s(420), start_limit_s(2000)
    (60.0, 200.0)
    """
    return max(START_S, START_EACH_S * servers)
