"""Metrics of a running lab, in Prometheus' text format (version 0.0.4)."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from pillarbox.experiments.runs.control.client import ask
from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology

CONTENT = "text/plain; version=0.0.4; charset=utf-8"
PATH = "/metrics"
CLIENT_S = 5.0  # timeout for a client's HTTP request, in seconds
MOST_CLIENTS = 32  # simultaneous HTTP clients; a further client replaces the oldest


class Metric(NamedTuple):
    """A Prometheus metric: its type, its labels, and its description."""

    kind: str
    labels: tuple[str, ...]
    about: str


FAMILIES = {
    "pillarbox_lab_info": Metric(
        "gauge",
        ("network", "routing", "plane", "timers"),
        "Network and settings of the lab as labels; always 1.",
    ),
    "pillarbox_cable_rate_bits_per_second": Metric(
        "gauge",
        ("from", "to"),
        "Rate of each cable per direction, without labels if equal; absent without a limit.",
    ),
    "pillarbox_cable_sent_bytes_total": Metric(
        "counter", ("from", "to"), "Bytes sent from one end of a cable to the other."
    ),
    "pillarbox_cable_waiting_bytes": Metric(
        "gauge", ("from", "to"), "Bytes in the queue of a cable's end; 0 without a limit."
    ),
    "pillarbox_cable_dropped_packets_total": Metric(
        "counter", ("from", "to"), "Packets dropped by the full queue of a cable's end."
    ),
    "pillarbox_server_received_bytes_total": Metric(
        "counter",
        ("server",),
        "Bytes of IP packets that a server's kernel has delivered to its programs.",
    ),
    "pillarbox_server_up": Metric(
        "gauge", ("server",), "1 if the server is alive, 0 if it is dead."
    ),
    "pillarbox_faults": Metric("gauge", ("kind",), "Number of active faults."),
    "pillarbox_links_down": Metric("gauge", (), "Links that a server at one end considers down."),
    "pillarbox_dropped_packets_total": Metric(
        "counter", ("reason",), "Packets dropped by the servers' protocols."
    ),
}


def lab_metrics_text(folder: Path) -> str:
    """Return the metrics of a running lab, read from its control socket."""
    sample, status = ask(folder, ask="sample"), ask(folder, ask="status")
    return metrics_text(parse(sample["network"]), sample, status)


def metrics_text(topology: Topology, sample: dict[str, Any], status: dict[str, Any]) -> str:
    """Return a lab's sample (`Sampler.sample`) and status in Prometheus' text format."""
    values = _metric_rows(topology, sample, status)
    lines = []
    for name, rows in values.items():
        family = FAMILIES[name]
        lines += [f"# HELP {name} {family.about}", f"# TYPE {name} {family.kind}"]
        lines += [f"{name}{_labelled(family.labels, row)} {value:.17g}" for row, value in rows]
    return "\n".join([*lines, ""])


Rows = list[tuple[tuple[str, ...], float]]


def _metric_rows(
    topology: Topology, sample: dict[str, Any], status: dict[str, Any]
) -> dict[str, Rows]:
    name = topology.name
    faults = Counter(kind for kind, *_ in sample["faults"])
    rate_mbit = sample["rate_mbit"]
    dead = set(sample["dead"])
    directions = [(name(a), name(b)) for a, b in _directions(topology)]
    return {
        "pillarbox_lab_info": [
            (tuple(str(status[key]) for key in FAMILIES["pillarbox_lab_info"].labels), 1)
        ],
        "pillarbox_cable_rate_bits_per_second": _rate_rows(topology, rate_mbit),
        "pillarbox_cable_sent_bytes_total": [*zip(directions, sample["sent_bytes"], strict=True)],
        "pillarbox_cable_waiting_bytes": [*zip(directions, sample["waiting_bytes"], strict=True)],
        "pillarbox_cable_dropped_packets_total": [*zip(directions, sample["dropped"], strict=True)],
        "pillarbox_server_received_bytes_total": [
            ((name(server),), received) for server, received in enumerate(sample["received_bytes"])
        ],
        "pillarbox_server_up": [
            ((name(server),), name(server) not in dead) for server in range(topology.servers)
        ],
        "pillarbox_faults": [((kind,), count) for kind, count in sorted(faults.items())],
        "pillarbox_links_down": [((), status["links_down"])],
        "pillarbox_dropped_packets_total": [
            ((reason,), count) for reason, count in sorted(status["drops"].items())
        ],
    }


def _rate_rows(topology: Topology, rate_mbit: float | None) -> Rows:
    """Return the rate of all cables as one row, or of each direction if levels differ."""
    if not rate_mbit:
        return []
    if not topology.factors.rates:
        return [((), rate_mbit * 1e6)]
    rates = [topology.rate_of_level(cable.level) for cable in topology.links() for _ in range(2)]
    ends = ((topology.name(a), topology.name(b)) for a, b in _directions(topology))
    return [(names, rate * rate_mbit * 1e6) for names, rate in zip(ends, rates, strict=True)]


def _directions(topology: Topology) -> Iterator[tuple[int, int]]:
    """Yield sending and receiving node of each cable direction, in the traffic counters' order."""
    for cable in topology.links():
        yield cable.a, cable.b
        yield cable.b, cable.a


def _labelled(labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    labels = labels if values else ()  # a row of all cables together has no labels
    pairs = [f'{label}="{_escaped(value)}"' for label, value in zip(labels, values, strict=True)]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# -- over HTTP -----------------------------------------------------------------------------------


class MetricsServer(ThreadingHTTPServer):
    """HTTP server of a lab's Prometheus metrics: a thread per client, bounded clients, no log."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._clients: dict[Any, None] = {}  # sockets of connected HTTP clients, oldest first

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer an HTTP client; disconnect the oldest client if too many are connected."""
        if len(self._clients) >= MOST_CLIENTS:
            with suppress(OSError, StopIteration):  # the oldest HTTP client has just disconnected
                next(iter(self._clients)).shutdown(socket.SHUT_RDWR)
        self._clients[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close the connection of an HTTP client."""
        self._clients.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print no traceback when an HTTP client disconnects before it has read the answer."""


def server_at(address: str, folder: Path) -> ThreadingHTTPServer:
    """Return an HTTP server, not yet started, of a lab's metrics at a local ``ADDRESS:PORT``."""
    host, _, port = address.rpartition(":")
    try:
        ip, number = ip_address(host.strip("[]")), int(port)
    except ValueError:
        raise PillarboxError(f"{address!r} is not an address: write 127.0.0.1:9200") from None
    require(
        ip.is_loopback and ip.version == 4,
        f"{host} can be reached from outside: listen at 127.0.0.1, and connect by Prometheus' "
        "own proxy or an SSH tunnel",
    )

    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_S

        def do_GET(self) -> None:
            found, content, kind = 200, "", CONTENT
            try:
                if self.path == PATH:
                    content = lab_metrics_text(folder)
                else:
                    found, content = 404, f"metrics are at {PATH}\n"
            except PillarboxError as error:
                found, content = 503, f"{error}\n"
            self.send_response(found)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *_words: object) -> None:
            """Suppress the HTTP server's log of requests."""

    try:
        return MetricsServer((str(ip), number), Handler)
    except OSError as error:
        raise PillarboxError(f"cannot listen at {address}: {error.strerror}") from None
