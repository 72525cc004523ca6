"""The nursery: a process with all imports done, which forks the forwarders of a lab.

A forked forwarder is ready within milliseconds and shares memory with all others. The nursery is
started before anything else is loaded, receives messages that name the servers to start, and
reports the state of each. It also starts the process that sends heartbeats (`pacer`), and restarts
that process whenever it ends.

Messages are JSON, one per datagram, accompanied by file descriptors of the servers' network
namespaces; a message without servers only prepares shared data for later servers::

    {"servers": [3, 4], "network": "dcell,4,1", "settings": {"routing": "dfr", ...},
     "start_s": 2.0, "waits": false, ...}  ->
    <-  {"server": 3, "pid": 4711, "event": "started"}
    <-  {"server": 3, "pid": 4711, "event": "ready"}
    <-  {"server": 3, "pid": 4711, "event": "ended", "status": -9}
    <-  {"event": "pacer ended", "status": -9}
    <-  {"event": "handover", "pacer": 4710, "programs": ...}
    {"event": "all started"}  ->

With "waits", the last file is the read end of a pipe. These forwarders are forked at the lowest
priority while the lab makes its cables, and open no port before the pipe's other end is closed.

All these processes end with the lab: the kernel kills them when the last writer of a pipe, their
lifeline, has ended. They do not end with the nursery. When the nursery ends, the lab starts another
one, whose first message is the last `handover` with its open files: the sockets by which servers
register with the pacer, and the lab's programs and tables. The lab adds the running forwarders as
"running". The new nursery is not their parent and cannot learn their exit status.

Memory is shared until either process writes to it, and Python writes reference counts even when it
reads objects. Therefore the servers of a message are forked in one loop, with no work in between
that would unshare memory, and the first steps of every server are rehearsed here once.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from pillarbox.hosts.base.load import router_for
from pillarbox.hosts.base.neighbours import peers_of
from pillarbox.hosts.base.network import headers
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.base.timers import Timers, timers_for, where_processes_watch
from pillarbox.hosts.linux import forked_memory
from pillarbox.hosts.linux.calls import die_with_last_writer, enter, readable
from pillarbox.hosts.linux.rights import ruleset_for_reading, take_role
from pillarbox.hosts.live import devices, heartbeat_pacer, liveness
from pillarbox.hosts.live.control import ControlSocket
from pillarbox.hosts.live.forwarder import Forwarder
from pillarbox.hosts.live.lab_programs import FORWARD, LIVENESS, LabPrograms, available
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.spec import parse

LONGEST_MESSAGE = 1 << 16
MOST_FILES = 250  # maximum number of open files in one message to the nursery
# Minimum seconds between two starts of the heartbeat pacer, in case it fails immediately.
LEAST_APART_S = 0.2
SPARED = "-500"  # oom_score_adj: without memory, the kernel kills the programs on servers first
# Number of processors for a lab; on several machines, that of the machine with the fewest.
CPUS = int(os.environ.get("PILLARBOX_PROCESSORS", "0")) or os.cpu_count() or 1
LOWEST_PRIORITY = 19  # nice value of forwarders that prepare while the lab makes cables
MOST_SERVERS = 4096  # maximum number of servers to which a running lab can grow
# Number of calls after which Python has specialised a function, which writes to its memory.
REHEARSALS = 10


class PreparedNetwork(NamedTuple):
    """Data of a network, prepared before forking, which all its servers share in memory."""

    network: Any
    settings: LabSettings
    timers: Timers


class Nursery:
    """Nursery process of a lab: it forks the servers' forwarders and the heartbeat pacer.

    Parameters
    ----------
    channel : socket
        Socket to the lab.
    lifeline : int
        Read end of the pipe whose write end the lab holds.
    """

    def __init__(self, channel: socket.socket, lifeline: int) -> None:
        self._channel, self._lifeline = channel, lifeline
        # Data shared by servers, by network spec.
        self._prepared_networks: dict[str, PreparedNetwork] = {}
        self._programs: LabPrograms | None = None
        self._servers: dict[int, int] = {}  # running servers, by process id of their forwarder
        self._pacer = 0  # process id of the heartbeat pacer, 0 without one
        self._pacer_due_s = math.inf  # time at which the next heartbeat pacer is started
        self._pacer_ends: tuple[socket.socket, socket.socket] | None = None
        self._prepares = False  # True once forwarders were forked that wait for the lab's cables
        self._continues = False  # True if this nursery replaces one that has ended
        self._adopted: dict[int, int] = {}  # processes of the replaced nursery, by pidfd
        self._wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._events = select.poll()
        for each in (channel.fileno(), self._wake):
            self._events.register(each, select.POLLIN)

    def serve(self) -> None:
        """Start forwarders at the lab's request and report their state, until the lab ends."""
        while True:
            wait_s = max(0.0, self._pacer_due_s - time.monotonic())
            wait_ms = None if math.isinf(wait_s) else math.ceil(wait_s * 1000)
            ready = dict(self._events.poll(wait_ms))
            if ready.get(self._channel.fileno(), 0) & select.POLLHUP:
                return  # the lab has ended, and needs no report of forwarders that end with it
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._reap_children()
            adopted = self._adopted.keys() & ready.keys()
            self._processes_ended({self._forget_adopted(each): None for each in adopted})
            if self._channel.fileno() in ready and not self._process_message():
                return
            if time.monotonic() >= self._pacer_due_s:
                self._start_pacer()

    def _process_message(self) -> bool:
        """Process a message from the lab; return False if the channel to the lab is closed."""
        data, files, _, _ = socket.recv_fds(self._channel, LONGEST_MESSAGE, MOST_FILES)
        if not data:
            return False
        request = json.loads(data)
        if request.get("event") == "handover":
            self._take_over(request, files)
            return True
        if request.get("event") == "all started":
            if self._pacer_ends:
                heartbeat_pacer.report_all_started(self._pacer_ends[0])
            return True
        if self._pacer_ends is None:
            self._pacer_ends = heartbeat_pacer.registration_sockets()
            self._start_pacer()
        self._prepare_network_for(request)
        self._start_forwarder(request, files)
        return True

    def _prepare_network_for(self, request: dict[str, Any]) -> None:
        name = request["network"]
        if name in self._prepared_networks:
            return
        prepared = _prepared_network(name, LabSettings(**request["settings"]))
        if not self._prepared_networks and not self._continues:
            with suppress(PillarboxError):  # if eBPF is required, each server reports the error
                self._programs = _load_programs(prepared)
                self._send_kernel_tables()
            self._hand_over()
        self._prepared_networks[name] = prepared
        forked_memory.share_objects_with_children()

    def _start_forwarder(self, request: dict[str, Any], namespaces: list[int]) -> None:
        gate = namespaces.pop() if request["waits"] else None
        if gate is not None and not self._prepares and not readable([gate]):
            # Children inherit the priority; the lab restores it once it has made all cables, unless
            # it has just done so.
            os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
            if readable([gate]):
                os.setpriority(os.PRIO_PROCESS, 0, 0)
        self._prepares |= gate is not None
        started: list[int] = []
        for server in request["servers"]:
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                own = namespaces.pop(len(started))
                for each in namespaces:
                    os.close(each)
                self._run_child(server, own, request, gate)
            started.append(pid)
        for each in (*namespaces, *([] if gate is None else [gate])):
            os.close(each)
        for server, pid in zip(request["servers"], started, strict=True):
            self._servers[pid] = server
            self._send_event(server=server, pid=pid, event="started")

    def _run_child(
        self, server: int, namespace: int, request: dict[str, Any], gate: int | None
    ) -> None:
        """Run one server's forwarder in the forked child process; never return."""
        try:
            die_with_last_writer(self._lifeline)
            assert self._pacer_ends is not None
            registry, arrivals = self._pacer_ends
            arrivals.close()

            def ready() -> None:
                self._send_event(server=server, pid=os.getpid(), event="ready")
                self._channel.close()  # only the nursery keeps it: closing shows its end

            prepared = self._prepared_networks[request["network"]]
            shared = prepared, registry, self._programs
            _run_forwarder(server, namespace, request, *shared, gate, ready)
        finally:
            if sys.exc_info()[0]:
                traceback.print_exc()  # stderr is the log file of the server
            sys.stderr.flush()
            os._exit(1)

    # -- the pacer -------------------------------------------------------------------------------

    def _start_pacer(self) -> None:
        assert self._pacer_ends is not None
        self._pacer = heartbeat_pacer.fork_pacer(self._pacer_ends[1], self._lifeline)
        self._pacer_due_s, self._pacer_began_s = math.inf, time.monotonic()
        if self._programs:
            self._send_kernel_tables()
        self._hand_over()

    def _send_kernel_tables(self) -> None:
        assert self._pacer_ends is not None and self._programs is not None
        running = self._servers.values()
        heartbeat_pacer.send_kernel_tables(self._pacer_ends[0], self._programs.loaded.maps, running)

    # -- ended processes ---------------------------------------------------------------------------

    def _reap_children(self) -> None:
        """Reap all forwarders and pacers that have ended, and report them to the lab."""
        statuses: dict[int, int | None] = {}
        with suppress(ChildProcessError):  # the nursery has no child processes left
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                statuses[ended[0]] = os.waitstatus_to_exitcode(ended[1])
        self._processes_ended(statuses)

    def _processes_ended(self, statuses: Mapping[int, int | None]) -> None:
        """Report to the lab that forwarders or the pacer have ended, with known exit statuses."""
        if self._pacer in statuses:
            self._send_event(event="pacer ended", status=statuses[self._pacer])
            self._pacer_due_s = self._pacer_began_s + LEAST_APART_S
        ended = {pid: self._servers.pop(pid) for pid in statuses if pid in self._servers}
        if self._programs and ended:
            self._programs.forget_servers(ended.values())
        for pid, server in ended.items():
            self._send_event(server=server, pid=pid, event="ended", status=statuses[pid])

    # -- handover from one nursery to the next
    # ------------------------------------------------------

    def _hand_over(self) -> None:
        """Send the lab the state and open files by which the next nursery takes over."""
        assert self._pacer_ends is not None
        programs, files = self._programs.handover() if self._programs else (None, [])
        message = {"event": "handover", "pacer": self._pacer, "programs": programs}
        descriptors = [*(end.fileno() for end in self._pacer_ends), *files]
        socket.send_fds(self._channel, [json.dumps(message).encode()], descriptors)

    def _take_over(self, message: dict[str, Any], files: list[int]) -> None:
        """Adopt forwarders, heartbeat pacer and eBPF maps of the previous nursery process."""
        self._continues = True
        ours, theirs = (socket.socket(fileno=each) for each in files[:2])
        self._pacer_ends, self._pacer_began_s = (ours, theirs), 0.0
        if message["programs"]:
            self._programs = LabPrograms.from_handover(message["programs"], files[2:])
        self._pacer = message["pacer"]
        self._servers = {pid: server for server, pid in message["running"]}
        for process in (self._pacer, *self._servers):
            try:
                descriptor = os.pidfd_open(process)
            except ProcessLookupError:
                self._processes_ended({process: None})
                continue
            self._adopted[descriptor] = process
            self._events.register(descriptor, select.POLLIN)

    def _forget_adopted(self, descriptor: int) -> int:
        self._events.unregister(descriptor)
        os.close(descriptor)
        return self._adopted.pop(descriptor)

    def _send_event(self, **message: Any) -> None:
        self._channel.send(json.dumps(message).encode())


def _prepared_network(name: str, settings: LabSettings) -> PreparedNetwork:
    """Return the data that servers share; a user's routing file is read by each server instead."""
    network = parse(name)
    prepared = PreparedNetwork(network, settings, _largest_network_timers(settings, network))
    headers()
    devices.load_socket_filters()
    _forwarder_file_access(settings.routing)
    if settings.plane == "ebpf":
        import_module("pillarbox.hosts.live.kernel_table")
    if not settings.routing.endswith(".py"):
        router_for(network, settings.routing)
        for server in range(min(REHEARSALS, network.servers)):
            with suppress(Exception):  # each server's forwarder will report the error itself
                _new_router(server, prepared, seed=0)
    return prepared


@cache
def _forwarder_file_access(routing: str) -> int | None:
    """Return the Landlock ruleset of forwarders: read program code and the user's router folder."""
    return ruleset_for_reading([Path(routing).parent] if routing.endswith(".py") else [])


def _load_programs(prepared: PreparedNetwork) -> LabPrograms:
    """Load the eBPF programs for the largest network of the lab, or raise PillarboxError."""
    network, settings, timers = prepared
    source = FORWARD if settings.plane == "ebpf" else LIVENESS
    missing = "" if settings.plane == "ebpf" else available(source)
    require(not missing, missing)
    servers = range(min(network.whole.servers, max(network.servers, MOST_SERVERS)))
    links = max(sum(map(len, peers_of(network.whole, server))) for server in servers)
    loaded = LabPrograms(source, len(servers), links)
    liveness.start_detection(loaded, timers.neighbour_timeout_s * settings.dilation)
    return loaded


def _largest_network_timers(settings: LabSettings, network: Any) -> Timers:
    """Return the protocol timers for the size to which the lab's network can grow."""
    return timers_for(network.whole, settings.timers, CPUS)


def _run_forwarder(
    server: int,
    namespace: int,
    request: dict[str, Any],
    prepared: PreparedNetwork,
    registry: socket.socket,
    programs: LabPrograms | None,
    gate: int | None,
    ready: Callable[[], object],
) -> None:
    """Run the forwarder of one server until its process is ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    place = f"{request['folder']}/{prepared.network.node_name(server)}"
    log = os.open(f"{place}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    enter(namespace)
    os.close(namespace)
    if programs is None and prepared.settings.plane == "ebpf":
        programs = _load_programs(prepared)
    own = programs.view_of(server) if programs else None
    if not own:
        prioritised = heartbeat_pacer.may_prioritise()
        how = prepared.timers, prepared.network.whole, CPUS
        watch = where_processes_watch(*how, prioritised=prioritised)
        prepared = prepared._replace(timers=watch)
    router = _new_router(server, prepared, request["seed"])
    if gate is not None:
        os.read(gate, 1)  # returns when the lab has made all cables, or has ended
        os.close(gate)
        router.neighbours.restart_timeouts(time.monotonic() / prepared.settings.dilation)
    if own or gate is not None:
        # Default nice value: forwarders must not wait for the programs of a trial.
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    start_s = request["start_s"]
    forwarder = Forwarder(prepared.network, router, prepared.settings, registry, own, start_s)
    control = Path(f"{place}.sock")
    ControlSocket(control, forwarder.answer, forwarder.watch, forwarder.unregister)
    take_role("forwarder", rules=_forwarder_file_access(prepared.settings.routing))
    ready()
    forwarder.run()


def _new_router(server: int, prepared: PreparedNetwork, seed: int) -> Router:
    network, settings, timers = prepared
    router = router_for(network, settings.routing)(
        network,
        server,
        timers=timers,
        seed=seed,
        rate_bps=settings.rate_bps,
        now=time.monotonic() / settings.dilation,
        **settings.options,
    )
    if settings.port_addresses:
        router.use_port_addresses()
    return router


def main(channel: int, lifeline: int) -> None:
    """Run the nursery of the lab that holds the other ends of channel and lifeline."""
    die_with_last_writer(lifeline)
    # Ctrl-C is for the lab's prompt, so the nursery ignores it; the lab has blocked it until now.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    with suppress(OSError):  # oom_score_adj is read-only in some containers
        Path("/proc/self/oom_score_adj").write_text(SPARED)
    take_role("nursery")
    with suppress(ConnectionError):  # the lab has ended without reading all messages of the nursery
        Nursery(socket.socket(fileno=channel), lifeline).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
