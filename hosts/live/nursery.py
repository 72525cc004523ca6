"""Where forwarders come from: one process that has everything imported, and forks.

A child is ready in milliseconds and shares its memory with all others. The nursery is started
before anything else is loaded, is told by messages which servers to start, and sends back what
becomes of each. It ends with whoever started it, and all forwarders with it.

Messages are JSON, one to a datagram, with the file descriptor of the server's network namespace
beside it::

    {"server": 3, "network": "dcell,4,1", "settings": {"routing": "dfr", ...}, ...}  ->
    <-  {"server": 3, "pid": 4711, "event": "started"}
    <-  {"server": 3, "pid": 4711, "event": "ready"}
    <-  {"server": 3, "pid": 4711, "event": "ended", "status": -9}
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from hosts.base.load import router_for
from hosts.base.neighbours import peers_of
from hosts.base.network import headers
from hosts.base.timers import Timers, timers_for, where_processes_watch
from hosts.linux.calls import die_with_parent, enter
from hosts.live import liveness
from hosts.live.bpf import FORWARD, LIVENESS, LabPrograms, Programs, available
from hosts.live.control import ControlSocket
from hosts.live.forwarder import Forwarder
from hosts.live.pacer import start as start_pacer
from hosts.live.settings import LabSettings
from topos.base.errors import PillarboxError, require
from topos.base.spec import parse

LONGEST_MESSAGE = 1 << 16
CPUS = os.cpu_count() or 1
MOST_SERVERS = 4096  # that a lab can grow to, where it was smaller at first


def serve(channel: socket.socket) -> None:
    """Start forwarders as asked, and tell what becomes of them, until the channel closes."""
    die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the prompt
    pacing, pacer = start_pacer()
    servers: dict[int, int] = {}  # by process
    wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    networks: dict[str, Any] = {}
    programs: LabPrograms | None = None
    gc.collect()
    gc.freeze()  # what is here is shared: a collection in a child must not touch it
    while True:
        ready, _, _ = select.select([channel.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            if not _report_ended(channel, servers, pacing, programs):
                return
        if channel.fileno() in ready:
            data, descriptors, _, _ = socket.recv_fds(channel, LONGEST_MESSAGE, 1)
            if not data:
                return
            request = json.loads(data)
            name = request["network"]
            settings = LabSettings(**request["settings"])
            if not networks:
                with suppress(PillarboxError):  # on the eBPF plane each server tells why
                    programs = _load(settings, parse(name))
            network = networks.get(name) or networks.setdefault(name, parse(name))
            _import_for(settings, network)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                _become(request, settings, network, descriptors[0], channel, pacer, programs)
            os.close(descriptors[0])
            servers[pid] = request["server"]
            _tell(channel, server=request["server"], pid=pid, event="started")


def _import_for(settings: LabSettings, network: Any) -> None:
    """Import what such servers share; a file of the user's is read anew for each."""
    if not settings.routing.endswith(".py"):
        router_for(network, settings.routing)
    headers()
    if settings.plane == "ebpf":
        import_module("hosts.live.kernel_table")


def _load(settings: LabSettings, network: Any) -> LabPrograms:
    """Load the programs of all servers that there can come to be, or raise PillarboxError."""
    source = FORWARD if settings.plane == "ebpf" else LIVENESS
    missing = "" if settings.plane == "ebpf" else available(source)
    require(not missing, missing)
    servers = range(min(network.whole.servers, max(network.servers, MOST_SERVERS)))
    links = max(sum(map(len, peers_of(network.whole, server))) for server in servers)
    loaded = LabPrograms(source, len(servers), links)
    liveness.begin(loaded, _timers(settings, network).neighbour_timeout_s)
    return loaded


def _timers(settings: LabSettings, network: Any) -> Timers:
    """Return the timers of all servers, those too that join the network later."""
    return timers_for(network.whole, settings.timers, CPUS)


def _report_ended(
    channel: socket.socket, servers: dict[int, int], pacing: int, programs: LabPrograms | None
) -> bool:
    """Tell who has ended; False if it was the process without which nobody is heard."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == pacing:
            return False
        if pid == 0:
            return True
        code = os.waitstatus_to_exitcode(status)
        server = servers.pop(pid)
        if programs:
            programs.forget(server)
        _tell(channel, server=server, pid=pid, event="ended", status=code)


def _tell(channel: socket.socket, **message: Any) -> None:
    channel.send(json.dumps(message).encode())


def _become(
    request: dict[str, Any],
    settings: LabSettings,
    network: Any,
    namespace_fd: int,
    channel: socket.socket,
    pacer: socket.socket,
    programs: LabPrograms | None,
) -> None:
    """Be the forwarder of one server; never return."""
    try:
        die_with_parent(signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        enter(namespace_fd)
        if programs is None and settings.plane == "ebpf":
            programs = _load(settings, network)
        own = programs.of(request["server"]) if programs else None
        if own:
            # The kernel sends and this decides: it must not wait for a trial's programs.
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        forwarder = _forwarder(request, settings, network, pacer, own)
        _tell(channel, server=request["server"], pid=os.getpid(), event="ready")
        forwarder.run()
    finally:
        if sys.exc_info()[0]:
            traceback.print_exc()  # into the server's log
        sys.stderr.flush()
        os._exit(1)


def _forwarder(
    request: dict[str, Any],
    settings: LabSettings,
    network: Any,
    pacer: socket.socket,
    programs: Programs | None,
) -> Forwarder:
    timers = _timers(settings, network)
    if not programs:
        timers = where_processes_watch(timers, network.whole, CPUS)
    router = router_for(network, settings.routing)(
        network,
        request["server"],
        timers=timers,
        seed=request["seed"],
        rate_bps=settings.rate_bps,
        now=time.monotonic(),
        **settings.options,
    )
    forwarder = Forwarder(network, router, settings, pacer, programs)
    ControlSocket(Path(request["control"]), forwarder.answer, forwarder.watch, forwarder.forget)
    return forwarder


if __name__ == "__main__":
    with suppress(ConnectionError):  # the lab left without reading all that it was told
        serve(socket.socket(fileno=int(sys.argv[1])))
