"""The control socket of a lab: requests from other processes while the prompt is in use.

A request is one line of JSON, and so is the answer, as for servers
(`pillarbox.hosts.live.control`). Each verb of the prompt is available with the same arguments:
``{"ask": "cut", "words": ["0.3-4.0", "silent"]}``. Only ``enter`` also passes open files: the
namespaces in which a program on a server runs.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from pillarbox.experiments.lab.emulation import server_names
from pillarbox.experiments.lab.emulation.external_network import OUTSIDE
from pillarbox.experiments.lab.emulation.lab import Lab
from pillarbox.experiments.lab.emulation.sampling import LabSampler
from pillarbox.experiments.lab.emulation.user_controller import CONTROLLER
from pillarbox.experiments.lab.linux import cgroups
from pillarbox.experiments.runs.control import queries
from pillarbox.experiments.runs.control.client import NAME, NAMESPACES, PROTOCOL
from pillarbox.experiments.runs.control.verbs import VERBS, answer
from pillarbox.hosts.linux.calls import current_host_name
from pillarbox.hosts.live.devices import APPLICATION_INTERFACE
from pillarbox.topos.base.addressing import End
from pillarbox.topos.base.errors import PillarboxError, error_kind, require

CLIENT_S = 5.0  # timeout for a client's request, and for it to read the answer, in seconds
MOST_CLIENTS = 32
LONGEST_REQUEST = 1 << 16

Further: TypeAlias = "Callable[[dict[str, Any]], Any]"


class Service:
    """Answers requests at a lab's control socket, in threads, until it is closed.

    Parameters
    ----------
    lab : Lab
        Lab that answers.
    further : mapping of str to callable, optional
        Additional requests by name; each function receives the whole request.
    longest : int
        Maximum size of a request, in bytes.
    """

    def __init__(
        self,
        lab: Lab,
        further: Mapping[str, Further] | None = None,
        longest: int = LONGEST_REQUEST,
    ) -> None:
        self._lab, self._sampler, self._further = lab, LabSampler(lab), further or {}
        self._longest = longest
        self._places = threading.BoundedSemaphore(MOST_CLIENTS)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = lab.folder / NAME
        path.unlink(missing_ok=True)
        self._socket.bind(str(path))
        path.chmod(0o600)
        self._socket.listen(MOST_CLIENTS)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the lab's control socket and stop its threads."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(CLIENT_S)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:  # the control socket is closed
                return
            self._places.acquire()
            threading.Thread(target=self._handle_client, args=[client], daemon=True).start()

    def _handle_client(self, client: socket.socket) -> None:
        try:
            with client:
                client.settimeout(CLIENT_S)
                with suppress(OSError):  # the client has disconnected
                    self._answer(client)
        finally:
            self._places.release()

    def _answer(self, client: socket.socket) -> None:
        with client.makefile("rb") as lines:
            line = lines.readline(self._longest)
        files: list[int] = []
        try:
            answer = self._reply(_request(line), files)
        except (PillarboxError, OSError) as error:
            answer = {"error": str(error), "kind": error_kind(error)}
        try:
            reply = json.dumps(answer).encode() + b"\n"
            sent = socket.send_fds(client, [reply[:1024]], files)
            client.sendall(reply[sent:])
        finally:
            for descriptor in files[1:]:
                os.close(descriptor)

    def _reply(self, asked: dict[str, Any], files: list[int]) -> Any:
        lab, what = self._lab, asked["ask"]
        if what in self._further:
            return self._further[what](asked)
        if what == "protocol":
            return {"protocol": PROTOCOL, "verbs": list(VERBS)}
        if what == "state":
            return lab.state(self._server(asked, "server"))
        if what == "log":
            return queries.log(lab, self._server(asked, "server"))
        if what == "trace":
            ends = self._server(asked, "source"), self._server(asked, "destination")
            return queries.path(lab, *ends)
        if what == "sample":
            log_from = asked.get("log_from", 0)
            require(
                isinstance(log_from, int) and log_from >= 0,
                f"invalid position in the log: {log_from!r}",
            )
            since_s = asked.get("traffic_from", 0)
            require(isinstance(since_s, int | float), f"invalid time: {since_s!r}")
            from pillarbox.experiments.runs.control.active_workload import last_workload_progress

            now_s = time.monotonic()
            sample = self._sampler.sample(log_from)
            return {**sample, "traffic": last_workload_progress(lab, since_s), "traffic_to": now_s}
        if what == "enter" and asked.get("server") == OUTSIDE and lab.gateways:
            return {**self._enter_node(OUTSIDE, files), "prompt": rf"{OUTSIDE} \$ "}
        if what == "enter" and asked.get("server") == CONTROLLER and lab.settings.controller:
            # The controller is in the namespace of the switches, which all of them share.
            switch = lab.topology.node_name(lab.topology.servers)
            return {**self._enter_node(switch, files), "prompt": rf"{CONTROLLER} \$ "}
        if what == "enter":
            return self._enter(self._server(asked, "server"), files)
        if what == "about":
            return self._about()
        if what == "hosts":
            return {"hosts": self._hosts()}
        if what == "down":
            os.kill(os.getpid(), signal.SIGTERM)
            return {}
        words = asked.get("words", [])
        require(
            isinstance(words, list) and all(isinstance(word, str) for word in words),
            f'"words" are a list of text, not {words!r}',
        )
        data, said = answer(lab, str(what), words)
        return {**data, "said": said}

    def _about(self) -> dict[str, Any]:
        """Return the description of the lab, without queries to its servers."""
        lab = self._lab
        return {
            "network": lab.topology.spec,
            "servers": lab.topology.servers,
            "routing": lab.routing,
            "plane": lab.plane,
            "transport": lab.settings.transport,
            "dead": len(lab.dead),
            "faults": len(lab.faults.active),
        }

    def _hosts(self) -> list[dict[str, Any]]:
        """Return the live servers, with their names and addresses for other programs."""
        topology, with_ports = self._lab.topology, self._lab.settings.port_addresses
        ports = range(topology.ports) if with_ports else ()

        def port_ips(server: int) -> dict[str, list[str]]:
            ips = [topology.end_ip(End(server, port)) for port in ports]
            return {"port_ips": ips} if ips else {}

        living = (one for one in range(topology.servers) if one not in self._lab.dead)
        return [
            {
                "server": topology.address(one),
                "name": topology.node_name(one),
                "ip": topology.ip(one),
                "interface": (
                    APPLICATION_INTERFACE if self._lab.relays else topology.interface(one, 0)
                ),
                **port_ips(one),
            }
            for one in living
        ]

    def _enter(self, server: int, files: list[int]) -> dict[str, Any]:
        queries.require_alive(self._lab, server)
        topology, reach = self._lab.topology, self._lab.fabric.reach(server)
        about = {**self._names(), "prompt": server_names.shell_prompt(topology, server)}
        if reach:
            return {**about, "reach": reach}
        return {**self._enter_node(topology.node_name(server), files), **about}

    def _enter_node(self, name: str, files: list[int]) -> dict[str, Any]:
        """Add the namespaces of a node of this computer to the files that an answer carries."""
        namespace = self._lab.net[name].live_namespace()
        files.append(int(namespace.descriptor))
        with namespace:
            files.append(current_host_name())
        files.extend(
            os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in (*NAMESPACES, "user")
        )
        return {**self._names(), "group": cgroups.programs().procs_files}

    def _names(self) -> dict[str, Any]:
        """Return the network and setting by which a client replaces names by addresses."""
        lab = self._lab
        return {"network": lab.topology.spec, "port_addresses": lab.settings.port_addresses}

    def _server(self, asked: dict[str, Any], key: str) -> int:
        address = asked.get(key)
        require(
            isinstance(address, str),
            f'{asked["ask"]!r} takes a server\'s address as "{key}", such as "0.0"; '
            + (f"{json.dumps(address)} is not one" if key in asked else "it is missing"),
        )
        return self._lab.server(str(address))


def _request(line: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(line)
    # the request is no JSON, or has too deeply nested brackets
    except (ValueError, RecursionError):
        asked = None
    known = isinstance(asked, dict) and isinstance(asked.get("ask"), str)
    require(known, "write the request as one line of JSON")
    return dict(asked)
