"""Where forwarders come from: one process that has everything imported, and forks.

A child is ready in milliseconds and shares its memory with all others. The nursery is started
before anything else is loaded, is told by messages which servers to start, and sends back what
becomes of each. It ends with whoever started it, and all forwarders with it.

Messages are JSON, one to a datagram, with the file descriptors of the servers' network namespaces
beside it; one that names no server has everything prepared for those to come::

    {"servers": [3, 4], "network": "dcell,4,1", "settings": {"routing": "dfr", ...},
     "start_s": 2.0, ...}  ->
    <-  {"server": 3, "pid": 4711, "event": "started"}
    <-  {"server": 3, "pid": 4711, "event": "ready"}
    <-  {"server": 3, "pid": 4711, "event": "ended", "status": -9}

Memory is shared until either side writes to it, and Python writes to whatever it looks at. So the
servers of a message are forked in one go, with nothing done in between that each would keep its own
copy of, and what all do at first has been done here once.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from hosts.base.load import router_for
from hosts.base.neighbours import peers_of
from hosts.base.network import headers
from hosts.base.router import Router
from hosts.base.timers import Timers, timers_for, where_processes_watch
from hosts.linux import sharing
from hosts.linux.calls import die_with_parent, enter
from hosts.linux.rights import rules_for_reading, take_role
from hosts.live import devices, liveness
from hosts.live.bpf import FORWARD, LIVENESS, LabPrograms, available
from hosts.live.control import ControlSocket
from hosts.live.forwarder import Forwarder
from hosts.live.pacer import show_tables
from hosts.live.pacer import start as start_pacer
from hosts.live.settings import MOST_AT_ONCE, LabSettings
from topos.base.errors import PillarboxError, require
from topos.base.spec import parse

LONGEST_MESSAGE = 1 << 16
# Where a lab is over machines that differ, all go by the one with the fewest.
CPUS = int(os.environ.get("PILLARBOX_PROCESSORS", "0")) or os.cpu_count() or 1
MOST_SERVERS = 4096  # that a lab can grow to, where it was smaller at first
# So often Python runs a function before it settles how to, and writes that into the function.
REHEARSALS = 10


class Prepared(NamedTuple):
    """What the servers of a network have in common."""

    network: Any
    settings: LabSettings
    timers: Timers


def serve(channel: socket.socket) -> None:
    """Start forwarders as asked, and tell what becomes of them, until the channel closes."""
    die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the prompt
    pacing, pacer = start_pacer()
    take_role("nursery")
    servers: dict[int, int] = {}  # by process
    wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    known: dict[str, Prepared] = {}
    programs: LabPrograms | None = None
    while True:
        ready, _, _ = select.select([channel.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            if not _report_ended(channel, servers, pacing, programs):
                return
        if channel.fileno() in ready:
            data, namespaces, _, _ = socket.recv_fds(channel, LONGEST_MESSAGE, MOST_AT_ONCE)
            if not data:
                return
            request = json.loads(data)
            name = request["network"]
            if name not in known:
                prepared = _prepare(name, LabSettings(**request["settings"]))
                if not known:
                    with suppress(PillarboxError):  # on the eBPF plane each server tells why
                        programs = _load(prepared)
                        show_tables(pacer, programs.loaded.maps)
                known[name] = prepared
                sharing.keep_shared()
            started: list[int] = []
            for server in request["servers"]:
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    own = namespaces.pop(len(started))
                    for each in namespaces:
                        os.close(each)
                    _become(server, own, request, known[name], channel, pacer, programs)
                started.append(pid)
            for each in namespaces:
                os.close(each)
            for server, pid in zip(request["servers"], started, strict=True):
                servers[pid] = server
                _tell(channel, server=server, pid=pid, event="started")


def _prepare(name: str, settings: LabSettings) -> Prepared:
    """Import and work out what servers share; a file of the user's is read anew for each."""
    network = parse(name)
    prepared = Prepared(network, settings, _timers(settings, network))
    headers()
    devices.prepare()
    _rules_of(settings.routing)
    if settings.plane == "ebpf":
        import_module("hosts.live.kernel_table")
    if not settings.routing.endswith(".py"):
        router_for(network, settings.routing)
        for server in range(min(REHEARSALS, network.servers)):
            with suppress(Exception):  # which each server runs into itself, and tells
                _router(server, prepared, seed=0)
    return prepared


@cache
def _rules_of(routing: str) -> int | None:
    """Return which files forwarders read: program code, and a user's folder that has the router."""
    return rules_for_reading([Path(routing).parent] if routing.endswith(".py") else [])


def _load(prepared: Prepared) -> LabPrograms:
    """Load the programs of all servers that there can come to be, or raise PillarboxError."""
    network, settings, timers = prepared
    source = FORWARD if settings.plane == "ebpf" else LIVENESS
    missing = "" if settings.plane == "ebpf" else available(source)
    require(not missing, missing)
    servers = range(min(network.whole.servers, max(network.servers, MOST_SERVERS)))
    links = max(sum(map(len, peers_of(network.whole, server))) for server in servers)
    loaded = LabPrograms(source, len(servers), links)
    liveness.begin(loaded, timers.neighbour_timeout_s)
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
    server: int,
    namespace: int,
    request: dict[str, Any],
    prepared: Prepared,
    channel: socket.socket,
    pacer: socket.socket,
    programs: LabPrograms | None,
) -> None:
    """Be the forwarder of one server; never return."""
    try:
        die_with_parent(signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        place = f"{request['folder']}/{prepared.network.node_name(server)}"
        log = os.open(f"{place}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        enter(namespace)
        os.close(namespace)
        if programs is None and prepared.settings.plane == "ebpf":
            programs = _load(prepared)
        own = programs.of(server) if programs else None
        if own:
            # The kernel sends and this decides: it must not wait for a trial's programs.
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        else:
            watch = where_processes_watch(prepared.timers, prepared.network.whole, CPUS)
            prepared = prepared._replace(timers=watch)
        router = _router(server, prepared, request["seed"])
        start_s = request["start_s"]
        forwarder = Forwarder(prepared.network, router, prepared.settings, pacer, own, start_s)
        control = Path(f"{place}.sock")
        ControlSocket(control, forwarder.answer, forwarder.watch, forwarder.forget)
        take_role("forwarder", rules=_rules_of(prepared.settings.routing))
        _tell(channel, server=server, pid=os.getpid(), event="ready")
        forwarder.run()
    finally:
        if sys.exc_info()[0]:
            traceback.print_exc()  # into the server's log
        sys.stderr.flush()
        os._exit(1)


def _router(server: int, prepared: Prepared, seed: int) -> Router:
    network, settings, timers = prepared
    return router_for(network, settings.routing)(
        network,
        server,
        timers=timers,
        seed=seed,
        rate_bps=settings.rate_bps,
        now=time.monotonic(),
        **settings.options,
    )


if __name__ == "__main__":
    with suppress(ConnectionError):  # the lab left without reading all that it was told
        serve(socket.socket(fileno=int(sys.argv[1])))
