"""Labs as objects: networks that run in separate processes, queried over control sockets."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pillarbox.experiments.apps.api.answers import (
    Change,
    Iperf,
    Link,
    NetworkSize,
    PacketPath,
    Ping,
)
from pillarbox.experiments.apps.api.graphs import graph_file_text
from pillarbox.experiments.apps.api.servers import Capture, Server
from pillarbox.experiments.apps.api.traffic import Traffic
from pillarbox.experiments.base.interpreter import module_command
from pillarbox.experiments.lab.emulation.lab_registry import LABS
from pillarbox.experiments.runs.control.client import ask
from pillarbox.experiments.runs.control.detached import READY
from pillarbox.topos.base.errors import LabEndedError, PillarboxError, require
from pillarbox.topos.base.levels import network_with_rates
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    import networkx
    import pandas as pd

END_S = 30.0  # time limit for a lab's process to end, in seconds


class Lab:
    """A running lab (emulated network), in a separate process.

    Parameters
    ----------
    network : str or networkx.Graph
        Specification of the network, such as ``dcell,4,1``, or a graph: nodes with the attribute
        `kind` = ``"switch"`` are switches, all others servers.
    routing : str
        Name of a routing, or FILE.py with a router (default: the network's usual routing).
    plane : str
        Forwarding plane: ``"ebpf"``, ``"python"``, ``"ovs"`` (default: the best available).
    timers : str
        Protocol timers: ``"fast"``, or ``"paper"`` for the values of the papers.
    rate_mbit : float
        Rate of every cable in Mbit/s; 0 means no limit.
    rates_mbit : sequence of float
        Rate of each level of cables in Mbit/s, level 0 first, in place of `rate_mbit`.
    switches : str
        Type of the switches: ``"bridges"``, or an application of an OpenFlow controller
        for Open vSwitch.
    kit : str
        Framework of the OpenFlow controller: ``"os-ken"``, ``"ryu"``.
    controller : sequence of str
        Your applications of os-ken or Ryu (files, or modules of the kit) that control all
        switches.
    delay : str, optional
        Delay of every cable, such as ``"5ms"``.
    loss : float, optional
        Packet loss of every cable, in percent.
    mtu : int
        Size of the largest packet, in bytes.
    tcp : str
        TCP congestion control of the servers' programs: one of the kernel's, ``"dctcp"``,
        ``"delay"``, ``"scalable"``, or a file NAME.bpf.c.
    port_addresses : bool
        True for an IP address per port of a server, such as ``0.0%1``: packets of two addresses
        keep to their ports.
    mptcp : bool
        Multipath TCP: each port of a server has an address, and a connection a subflow by
        each port of its client.
    subflows : int, optional
        Subflows of a Multipath TCP connection; by default one by each port.
    queue : str
        Queueing discipline of every port.
    queue_length : str
        Queue limit of every port: ``"100 packets"``, ``"150 kB"``, ``"10ms"``.
    gateways : sequence of str
        Servers with an uplink.
    machines : int, optional
        Number of emulated machines, each a network namespace of this computer.
    cluster : str, optional
        Name of a running cluster whose computers hold the network.
    weights : sequence of int
        Relative speeds of the machines; equal by default.
    seed : int
        Seed of the routers' random choices.

    Examples
    --------
    >>> import pillarbox
    >>> with pillarbox.lab("dcell,4,1", rate_mbit=100) as lab:            # doctest: +SKIP
    ...     print(lab["0.0"].run("ping -c 1 4.3").stdout)
    """

    def __init__(
        self,
        network: str | networkx.Graph,
        *,
        routing: str = "",
        plane: Literal["auto", "ebpf", "python", "ovs"] = "auto",
        timers: Literal["fast", "paper"] = "fast",
        rate_mbit: float = 100.0,
        rates_mbit: Sequence[float] = (),
        switches: Literal["bridges", "learning", "static", "vlan"] = "bridges",
        kit: Literal["", "os-ken", "ryu"] = "",
        controller: Sequence[str] = (),
        delay: str | None = None,
        loss: float | None = None,
        mtu: int = 1500,
        tcp: str = "",
        port_addresses: bool = False,
        mptcp: bool = False,
        subflows: int | None = None,
        queue: Literal["droptail", "codel", "fq_codel", "ecn"] = "droptail",
        queue_length: str = "",
        gateways: Sequence[str] = (),
        machines: int | None = None,
        cluster: str | None = None,
        weights: Sequence[int] = (),
        seed: int = 0,
    ) -> None:
        if not isinstance(network, str):
            self._graph = _saved_graph(network)  # exists as long as this object
            network = f"{self._graph.name}/graph.json"
        if rates_mbit:
            network, rate_mbit = network_with_rates(network, rates_mbit)
        options = {
            "routing": routing,
            "plane": plane,
            "timers": timers,
            "rate_mbit": rate_mbit,
            "switches": switches,
            "kit": kit,
            "delay": delay,
            "loss": loss,
            "mtu": mtu,
            "tcp": tcp,
            "subflows": subflows,
            "queue": queue,
            "queue_length": queue_length,
            "machines": machines,
            "cluster": cluster,
            "weights": ",".join(map(str, weights)),
            "seed": seed,
        }
        given = {name: value for name, value in options.items() if value not in (None, "")}
        words = [f"{_command_line_option(name)}={value}" for name, value in given.items()]
        words += ["--port-addresses"] if port_addresses else []
        words += ["--mptcp"] if mptcp else []
        words += [f"--gateway={server}" for server in gateways]
        words += [f"--controller={file}" for file in controller]
        with tempfile.TemporaryFile() as errors:
            self._process = subprocess.Popen(
                module_command("pillarbox", "up", network, "--hold", *words),
                stdin=subprocess.PIPE,  # the lab's process ends when this pipe is closed
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C reaches only the calling process
            )
            try:
                said = self._wait_until_ready()
            except BaseException:
                self.close()
                raise
            errors.seek(0)
            why = errors.read().decode().strip().removeprefix("pillarbox: ")
        number = re.match(r"lab (\d+)", said)
        if number is None:
            self.close()
            raise PillarboxError(
                _error_with_parameter_names(why, options) or f"the lab has ended: {said}"
            )
        self.number = int(number[1])
        self.network = network

    def _wait_until_ready(self) -> str:
        assert self._process.stdout
        text = b""
        while not text.endswith(READY):
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            if not more:
                break
            text += more
        return text.removesuffix(READY).decode()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<lab {self.number}: {self.network}>"

    def close(self) -> None:
        """End the lab and wait until its processes have exited; repeated calls have no effect."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel then kills all processes in the lab's sandbox
            self._process.wait()
        self._process.stdout.close()

    def ask(self, verb: str, *words: str) -> dict[str, Any]:
        """Run a command of the lab's prompt, such as ``ping``; return the answer as data."""
        require(
            self._process.poll() is None, "this lab has ended: start another Lab", LabEndedError
        )
        answer: dict[str, Any] = ask(LABS / str(self.number), ask=verb, words=list(words))
        return answer

    # -- servers ---------------------------------------------------------------------------------

    def __getitem__(self, address: str) -> Server:
        """Return the server with an address or host name: ``lab["0.0"]``, ``lab["h0"]``."""
        topology = self._topology()
        server = topology.node(address)
        require(server < topology.servers, f"{address} is a switch: name a server")
        return Server(self.number, topology.address(server), topology.ip(server))

    def __iter__(self) -> Iterator[Server]:
        """Yield all servers of the network."""
        topology = self._topology()
        for server in range(topology.servers):
            yield Server(self.number, topology.address(server), topology.ip(server))

    def __len__(self) -> int:
        """Return the number of servers in the network."""
        return self._topology().servers

    def _topology(self) -> Topology:
        return parse(self.ask("about")["network"])

    # -- faults ----------------------------------------------------------------------------------

    def fault(self, text: str) -> Change:
        """Inject a fault into the lab, written as ``cut 0.3-4.0 silent`` or ``kill 1.3``."""
        return self._run_fault_command(*text.split())

    def cut(self, a: str, b: str, *, silent: bool = False, one_way: bool = False) -> Change:
        """Cut the cable between two nodes.

        With `silent` or `one_way` the ports keep their carrier: all frames are lost, or only those
        from `a` to `b`.
        """
        require(not (silent and one_way), "a cut is silent or one_way, not both")
        options = ["silent"] * silent + ["one-way"] * one_way
        return self._run_fault_command("cut", f"{a}-{b}", *options)

    def flap(self, a: str, b: str, seconds: float) -> Change:
        """Let the carrier of a cable go and come back: some seconds without it, as many with it."""
        return self._run_fault_command("flap", f"{a}-{b}", f"{seconds:g}")

    def corrupt(self, a: str, b: str, rate: float) -> Change:
        """Let bits of a cable's frames flip, at a rate per bit; ports discard damaged frames."""
        return self._run_fault_command("corrupt", f"{a}-{b}", f"{rate:g}")

    def duplicate(self, a: str, b: str, percent: float) -> Change:
        """Deliver some frames of a cable twice."""
        return self._run_fault_command("duplicate", f"{a}-{b}", f"{percent:g}")

    def reorder(self, a: str, b: str, percent: float, jitter_ms: float | None = None) -> Change:
        """Deliver some frames of a cable `jitter_ms` late, after frames that were sent later."""
        jitter = [] if jitter_ms is None else ["jitter", f"{jitter_ms:g}"]
        return self._run_fault_command("reorder", f"{a}-{b}", f"{percent:g}", *jitter)

    def heal(self, *what: str) -> Change:
        """Repair a cable, named by its ends, or a switch; without arguments, repair all faults."""
        return self._run_fault_command("heal", "-".join(what) or "all")

    def stop(self, switch: str) -> Change:
        """Power off a switch of the lab."""
        return self._run_fault_command("stop", switch)

    def rack(self, switch: str) -> Change:
        """Power off a switch and all servers attached to it."""
        return self._run_fault_command("rack", switch)

    def kill(self, server: str) -> Change:
        """Kill a server and all its programs."""
        return self._run_fault_command("kill", server)

    def revive(self, server: str) -> Change:
        """Start a dead server again, without its former programs."""
        return self._run_fault_command("revive", server)

    def cable(
        self,
        a: str,
        b: str,
        *,
        rate_mbit: float | None = None,
        delay: str | None = None,
        loss: float | None = None,
    ) -> Mapping[str, Any]:
        """Change the rate, delay or loss (in percent) of a cable; without values, reset all."""
        values = {"rate_mbit": rate_mbit, "delay": delay, "loss": loss}
        given = (f"{name}={value}" for name, value in values.items() if value is not None)
        found = self.ask("cable", f"{a}-{b}", *given)
        del found["said"]
        return found

    def _run_fault_command(self, verb: str, *words: str) -> Change:
        found = self.ask(verb, *words)
        return Change(found["did"], found.get("noticed_ms", {}), found.get("not_noticed", []))

    # -- growing and shrinking -------------------------------------------------------------------

    def grow(self, servers: int | None = None) -> NetworkSize:
        """Add servers to a partial network (default: the smallest number that can join)."""
        return self._resize("grow", servers)

    def shrink(self, servers: int | None = None) -> NetworkSize:
        """Remove the servers that joined the partial network last."""
        return self._resize("shrink", servers)

    def _resize(self, verb: str, servers: int | None) -> NetworkSize:
        require(
            servers is None or servers > 0, f"the number of servers must be above 0, not {servers}"
        )
        found = self.ask(verb, *([] if servers is None else [str(servers)]))
        self.network = found["network"]
        return NetworkSize(self.network, found["servers"], found["switches"])

    # -- queries and measurements ----------------------------------------------------------------

    def status(self, server: str | None = None) -> Mapping[str, Any]:
        """Return the state of the lab, or the state of one server."""
        found = self.ask("status", *([server] if server else []))
        del found["said"]
        return found

    def path(self, source: str, destination: str) -> PacketPath:
        """Return the current path of a packet between two servers."""
        found = self.ask("path", source, destination)
        ended = found["delivered"], found["dropped"], found["lost_to"]
        return PacketPath(found["path"], *ended, found["computed"])

    def why(self, source: str, destination: str) -> list[str]:
        """Return sentences that explain why packets between two servers arrive or are lost."""
        sentences: list[str] = self.ask("why", source, destination)["because"]
        return sentences

    def load(self) -> list[Link]:
        """Return the load of every link during the next second, busiest first."""
        rows = self.ask("load")["links"]
        return [
            Link(*(row[key] for key in ("from", "to", "port", "mbit", "share"))) for row in rows
        ]

    def capture(
        self,
        file: str | Path = "lab.pcapng",
        ports: Sequence[str] = (),
        *,
        seconds: float | None = None,
        frames: int | None = None,
        snap_bytes: int = 65535,
        heartbeats: bool = True,
        overwrite: bool = False,
    ) -> Capture:
        """Start to capture frames into a file for Wireshark.

        Parameters
        ----------
        file : str or Path
            File to write.
        ports : sequence of str
            Servers (``"0.3"``) or their ports (``"0.3:1"``); all ports by default.
        seconds, frames
            Limits at which the capture ends, in seconds and in frames, for `Capture.wait`.
        snap_bytes : int
            Number of bytes kept of each frame.
        heartbeats : bool
            Include heartbeats and link states, which servers send continuously.
        overwrite : bool
            Replace a file that exists.

        Examples
        --------
        >>> with lab.capture("ping.pcapng", ["0.0"]) as capture:          # doctest: +SKIP
        ...     lab.ping("0.0", "4.3")
        >>> capture.wait().frames                                         # doctest: +SKIP
        """
        require(
            overwrite or not Path(file).exists(),
            f"{file} exists: name another file, or set overwrite=True",
        )
        words = [f"--lab={self.number}", f"--out={file}", f"--bytes={snap_bytes}"]
        words += [] if seconds is None else [f"--seconds={seconds}"]
        words += [] if frames is None else [f"--frames={frames}"]
        words += ["--no-heartbeats"] * (not heartbeats) + ["--force"] * overwrite
        return Capture([*words, *ports])

    def ping(self, source: str, destination: str) -> Ping:
        """Send an ICMP echo to a server; return its round-trip time."""
        found = self.ask("ping", source, destination)
        return Ping(found["source"], found["destination"], found["ms"])

    def iperf(self, source: str, destination: str, seconds: float = 2.0) -> Iperf:
        """Measure the throughput of one TCP connection between two servers."""
        found = self.ask("iperf", source, destination, f"{seconds:g}")
        return Iperf(*(found[name] for name in Iperf._fields))

    def run(self, traffic: Traffic) -> pd.DataFrame:
        """Send the flows of a traffic between the lab's servers; return a table, one row per flow.

        The ``attrs`` of the table describe the trial: ``valid`` and ``verdict``, ``goodput_bps``,
        ``ideal_bps``.
        """
        import pandas as pd

        from pillarbox.experiments.runs.trials import records

        found = self.ask("run", *traffic.words)
        rows = pd.DataFrame(found.pop("rows"))
        rows = records.full_names(rows, "flows", self._topology().kind)
        del found["said"]
        rows.insert(0, "valid", found["valid"])
        rows.attrs = found
        return rows


def _saved_graph(network: networkx.Graph) -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder with a graph in the file graph.json, which all users can read."""
    text = graph_file_text(network)
    folder = tempfile.TemporaryDirectory(prefix="pillarbox-")
    path = Path(folder.name)
    (path / "graph.json").write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return folder


def _command_line_option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _error_with_parameter_names(why: str, options: Mapping[str, object]) -> str:
    """Return the error message of the command line, rewritten with keyword parameter names.

    >>> _error_with_parameter_names("Invalid value for '--mtu': 3. (see up --help)", {"mtu": 3})
    'Invalid value for mtu: 3.'
    """
    names = {_command_line_option(name): name for name in options} | {"--gateway": "gateways"}
    why = re.sub(r"'?(--[a-z-]+)'?", lambda found: names.get(found[1], found[0]), why)
    return re.sub(r" \(see [a-z ]+ --help\)", "", why)
