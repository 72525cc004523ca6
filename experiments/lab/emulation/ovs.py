"""Switches on Open vSwitch, with an OpenFlow controller that installs their tables.

Each lab has its own processes: a database and a switch daemon, which communicate over sockets in
the lab's folder, and the controller (`controller`), which listens on the loopback of the lab's
sandbox. They always end with the lab. A switch is an OVS bridge; its OpenFlow port p + 1 is port p.

The kernel forwards packets if it has OVS's module. Otherwise the daemon forwards them (the
"userspace datapath"): correct, but slower. With it, servers' ports must not offload operations
that the daemon does not support: it accepts TCP's super-packets if built so, and nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pillarbox.experiments.base.interpreter import module_command
from pillarbox.experiments.lab.emulation.defaults import chosen_plane
from pillarbox.experiments.lab.emulation.kits import installed_kit, missing_kit
from pillarbox.experiments.lab.emulation.routers import LOOPBACK, Switches, SwitchNode
from pillarbox.experiments.lab.linux import link_requests, offloads, sandbox
from pillarbox.experiments.lab.linux.namespaces import fabric, interface_index
from pillarbox.hosts.base.file_ownership import is_machine_root
from pillarbox.hosts.linux import netlink
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.calls import duplicate_from_process, readable
from pillarbox.hosts.linux.netlink import Message
from pillarbox.topos.base.errors import NotPermittedError, PillarboxError, require
from pillarbox.topos.base.topology import Topology

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
CONTROLLER_PORT = 6653
VLAN, CHASSIS, MOST_VLANS = "vlan", "chassis", 4094
KINDS = ("learning", "static", VLAN)
USERSPACE, KERNEL = "netdev", "system"  # Open vSwitch's names of its userspace and kernel datapath
STOP_S, READY_S = 5.0, 60.0
LONGEST_SOCKET_PATH = 107
# Log message of a userspace datapath that accepts TCP's super-packets, as in builds of OVS with
# DPDK. UDP's super-packets are never accepted.
TAKES_SUPER_PACKETS = "TCP Segmentation Offloading support enabled"
UDP_SEGMENTS = ("tx-udp-segmentation",)
# Ethernet frame of the type for local experiments (IEEE 802), 60 bytes
UNUSED_FRAME = bytes.fromhex("02000000000002000000000188b5").ljust(60, b"\0")
SEND_BUFFER_BYTES = 1 << 30  # a limit, which the queues of all cables stay below
ALL_OFFLOADS = ("tx-checksum-ip-generic", "tx-checksum-sctp", *UDP_SEGMENTS)


class OvsSwitch(SwitchNode):
    """Mininet switch without a bridge: its ports are interfaces that Open vSwitch uses."""

    def __init__(self, name: str, *args: Any, **params: Any) -> None:
        super().__init__(name, *args, **params | {"inNamespace": False})


class OpenVSwitch(Switches):
    """Switches on Open vSwitch; `folder` is the lab's folder, for the database, sockets and logs.

    The switches report the state of their ports directly to the controller. `kit` is the framework
    of the controller, "" for the first that is installed.
    """

    name = "ovs"
    node = OvsSwitch
    protocols = "OpenFlow13"  # versions that the switches speak

    def __init__(
        self, topology: Topology, routing: str, seed: int, folder: Path, kit: str = ""
    ) -> None:
        check_installed(kit)
        super().__init__(topology, routing, seed)
        self.kit = installed_kit(kit)
        self.folder = folder
        self.datapath = datapath()
        self._database = folder / "ovsdb.sock"
        self._control = str(folder / "vswitchd.ctl")
        require(
            len(str(self._database)) <= LONGEST_SOCKET_PATH,
            f"the folder {folder} has too long a name for sockets: choose a shorter one",
        )
        # Open vSwitch's daemons and the controller, by log name
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def controller(self) -> dict[str, Any]:
        """Return the controller's application: fields of `controller_process.ControllerOrder`."""
        network = {"spec": self.topology.spec, "routing": self.routing, "seed": self.seed}
        return {"module": "pillarbox.experiments.lab.emulation.controller", "network": network}

    def bridges(self) -> dict[str, list[tuple[str, int]]]:
        """Return the ports of each bridge: interface names and OpenFlow port numbers."""
        network = self.topology
        return {
            network.node_name(node): [
                (network.interface(node, port), port + 1) for port, _ in network.neighbours(node)
            ]
            for node in range(network.servers, network.nodes)
        }

    def servers_plane(self, asked: str) -> str:
        """Return the forwarding plane of servers on Open vSwitch, chosen from the request."""
        if self.datapath == KERNEL:
            return chosen_plane(asked)
        require(
            asked != "ebpf",
            "without the kernel's module Open vSwitch loses TCP of the eBPF plane: load it "
            "(modprobe openvswitch), or take --plane python",
        )
        return chosen_plane("python")

    def start(self, net: Any) -> None:
        """Start the daemons and the controller, and wait until every switch has its table."""
        try:
            super().start(net)
            fabric().send(link_requests.change(LOOPBACK, up=True, deed="set the loopback up"))
            controller = self._start_controller()
            self._start_daemons()
            self._make_bridges()
            if self.datapath == USERSPACE:
                self._disable_offloads(net)
                self._enlarge_send_buffer()
            self.wait_ready(controller)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the OpenFlow controller and Open vSwitch's daemons."""
        running, self._running = list(self._running.values()), {}
        if self.datapath == KERNEL and running:
            # A terminated daemon would leave its switches in the kernel.
            with suppress(PillarboxError):  # the daemon may not have started
                self.run_tool("ovs-appctl", "-t", self._control, "exit", "--cleanup")
        for process in reversed(running):
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start_controller(self) -> subprocess.Popen[bytes]:
        order = {"kit": self.kit, "port": CONTROLLER_PORT, **self.controller()}
        words = "pillarbox.experiments.lab.emulation.controller_process", json.dumps(order)
        return self._start(module_command(*words), "controller", subprocess.PIPE)

    def _start_daemons(self) -> None:
        database = self.folder / "ovs.db"
        database.unlink(missing_ok=True)
        self.run_tool("ovsdb-tool", "create", str(database), str(SCHEMA))
        remote = f"--remote=punix:{self._database}"
        own = f"--unixctl={self.folder}/ovsdb.ctl"
        self._start(["ovsdb-server", str(database), remote, own], "ovsdb")
        deadline = time.monotonic() + READY_S
        while not self._database.exists():
            self.check_running()
            require(time.monotonic() < deadline, "Open vSwitch's database server does not start")
            time.sleep(0.01)
        # The socket of Open vSwitch's database exists before the database listens.
        self.vsctl("--retry", f"--timeout={READY_S:.0f}", "--no-wait", "init")
        # TCP super-packets in the userspace datapath: 8 times the throughput, if built with DPDK
        option = "other_config:userspace-tso-enable=true"
        self.vsctl("--no-wait", "set", "Open_vSwitch", ".", option)
        own = f"--unixctl={self._control}"
        # Without its kernel module, Open vSwitch's daemon must not search for the kernel datapath.
        system = ["--disable-system"] if self.datapath == USERSPACE else []
        # Higher priority than all programs of the lab: a delayed switch loses heartbeats.
        first = ["nice", "-n", "-15"] if self.datapath == USERSPACE else []
        daemon = ["ovs-vswitchd", f"unix:{self._database}", own, *system]
        self._start([*first, *daemon], "vswitchd")

    def _make_bridges(self) -> None:
        # Without this type of QoS, Open vSwitch deletes the shapers of the cables at its ports.
        words = ["--", "--id=@shapers", "create", "qos", "type=linux-noop"]
        for number, (name, ports) in enumerate(self.bridges().items(), 1):
            words += ["--", "add-br", name, "--", "set", "bridge", name]
            words += [f"datapath_type={self.datapath}", "fail_mode=secure"]
            words += [f"protocols={self.protocols}", f"other-config:datapath-id={number:016x}"]
            words += ["--", "set-controller", name, f"tcp:127.0.0.1:{CONTROLLER_PORT}"]
            words += ["--", "set", "controller", name, "connection_mode=out-of-band"]
            words += ["max_backoff=1000"]
            for interface, port in ports:
                words += ["--", "add-port", name, interface]
                words += ["--", "set", "interface", interface, f"ofport_request={port}"]
                words += ["--", "set", "port", interface, "qos=@shapers"]
        self.vsctl(f"--timeout={READY_S:.0f}", *words)

    def wait_ready(self, controller: subprocess.Popen[bytes]) -> None:
        """Wait until the controller reports that all switches have their tables."""
        assert controller.stdout is not None
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            said = readable([controller.stdout], 0.1)
            if said and controller.stdout.readline() == b"ready\n":
                return
            self.check_running()
        raise PillarboxError(
            f"the OpenFlow switches did not get their forwarding tables in {READY_S:.0f} s: see "
            f"{self.folder}/controller.log and vswitchd.log"
        )

    def _disable_offloads(self, net: Any) -> None:
        """Disable offloads that OVS's userspace datapath lacks; put its interfaces in a group."""
        said = (self.folder / "vswitchd.log").read_text()
        offloads = UDP_SEGMENTS if TAKES_SUPER_PACKETS in said else ALL_OFFLOADS
        for host in net.hosts:
            for port in range(self.topology.ports):
                switch_off(host, host.intfs[port].name, offloads)
        # OVS's bridge interfaces outlive the daemon; the lab's end deletes their device group.
        home = fabric()
        for name in ("ovs-netdev", *self.bridges()):
            body = netlink.interface(interface_index(name))
            body += netlink.number(nl.IFLA_GROUP, home.group)
            home.send(Message(nl.RTM_NEWLINK, 0, body, f"group {name} with the lab"))

    def _enlarge_send_buffer(self) -> None:
        """Let frames wait in the queues of all cables.

        OVS's userspace datapath sends all frames by one socket. Frames in the cables' queues count
        as this socket's, and beyond 208 KiB in all OVS would drop frames, however short the queues.
        """
        network = self.topology
        to_servers = {
            network.interface(plug.node, plug.port)
            for server in range(network.servers)
            for _, plug in network.neighbours(server)
        }
        name, port = next(
            (name, port)
            for name, ports in self.bridges().items()
            for interface, port in ports
            if interface in to_servers
        )
        # The socket is made for the first frame: one of no protocol, which the server ignores.
        frame = f"in_port=controller packet={UNUSED_FRAME.hex()} actions=output:{port}"
        target = f"unix:{self.folder}/{name}.mgmt"
        self.run_tool("ovs-ofctl", "-O", "OpenFlow13", "packet-out", target, frame)
        daemon = self._running["vswitchd"].pid
        # Without permission or pidfd_getfd (Linux 5.6), queues stay short.
        with suppress(OSError):
            _set_send_buffers(daemon, SEND_BUFFER_BYTES)

    # -- processes -------------------------------------------------------------------------------

    def _start(self, words: list[str], name: str, out: int | None = None) -> Any:
        """Start a daemon or the controller until the lab ends; its messages go to its own log."""
        with (self.folder / f"{name}.log").open("wb") as log:
            started = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out or log,
                stderr=log,
                cwd="/",
                env=self._environment(),
            )
        self._running[name] = started
        return started

    def check_running(self) -> None:
        """Raise PillarboxError if the controller or one of Open vSwitch's daemons has ended."""
        for name, process in self._running.items():
            ended = process.poll() is not None
            log = self.folder / f"{name}.log"
            require(not ended, f"the {name} has ended: {last_line(log)} (see {log})")

    def vsctl(self, *words: str) -> str:
        """Run ovs-vsctl on the lab's database and return its output."""
        return self.run_tool("ovs-vsctl", f"--db=unix:{self._database}", *words)

    def run_tool(self, *words: str) -> str:
        """Run one of Open vSwitch's tools and return its output, or raise PillarboxError."""
        ran = subprocess.run(
            words, capture_output=True, text=True, check=False, env=self._environment()
        )
        require(ran.returncode == 0, f"{words[0]} failed: {ran.stderr.strip()}")
        return ran.stdout

    def _environment(self) -> dict[str, str]:
        folder = str(self.folder)
        return {**os.environ, "OVS_RUNDIR": folder, "OVS_LOGDIR": folder, "OVS_DBDIR": folder}


class OvsMiniSwitches(OpenVSwitch):
    """The switches of a network whose servers relay, of one of the kinds of `mini_switches`."""

    def __init__(self, topology: Topology, kind: str, folder: Path, kit: str = "") -> None:
        super().__init__(topology, "", 0, folder, kit)
        require(kind in KINDS, f"switches are {kind!r}: they can be bridges, {', '.join(KINDS)}")
        self.kind = kind
        most = MOST_VLANS if kind == VLAN else topology.switches
        require(
            topology.switches <= most,
            f"{topology.spec} has {topology.switches} switches, and there are {most} VLANs",
        )

    def controller(self) -> dict[str, Any]:
        """Return the controller's application: fields of `controller_process.ControllerOrder`."""
        network = {"spec": self.topology.spec, "kind": self.kind}
        return {"module": "pillarbox.experiments.lab.emulation.mini_switches", "network": network}

    def bridges(self) -> dict[str, list[tuple[str, int]]]:
        """Return the ports of each bridge; with VLANs, of the single bridge."""
        each = super().bridges()
        if self.kind != VLAN:
            return each
        return {
            CHASSIS: [
                (interface, large_switch_port(self.topology, switch, port - 1))
                for switch, ports in enumerate(each.values())
                for interface, port in ports
            ]
        }

    def admit(self, net: Any, server: int) -> None:
        """Do nothing when a server starts: its forwarder sets the addresses of its ports."""


def large_switch_port(topology: Topology, switch: int, port: int) -> int:
    """Return the number of a mini-switch's port on the common large switch."""
    return switch * topology.switch_ports + port + 1


def check_installed(kit: str = "") -> None:
    """Raise PillarboxError if this machine cannot run Open vSwitch, or the controller's kit."""
    require(
        sandbox.inside(),
        "the controller of Open vSwitch listens in the sandbox only: leave out --no-sandbox",
    )
    require(is_machine_root(), "Open vSwitch needs root: use sudo", NotPermittedError)
    missing = missing_ovs_parts(kit)
    require(not missing, f"switches cannot be on Open vSwitch: {missing}")


def missing_ovs_parts(kit: str = "") -> str:
    """Return the missing parts of Open vSwitch and the command that installs them, or ""."""
    programs = ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-dpctl")
    absent = [program for program in programs if not shutil.which(program)]
    if absent or not SCHEMA.exists():
        return f"there is no {' '.join(absent) or SCHEMA}: sudo ./pillarbox setup openflow"
    return missing_kit(kit)


def _set_send_buffers(process: int, size: int) -> None:
    """Set the size in bytes of the send buffer of each packet socket of a process."""
    pidfd = os.pidfd_open(process)
    try:
        for file in Path(f"/proc/{process}/fd").iterdir():
            if str(file.readlink()).startswith("socket:"):
                descriptor = duplicate_from_process(pidfd, int(file.name))
                with socket.socket(fileno=descriptor) as shared:
                    if shared.family == socket.AF_PACKET:
                        shared.setsockopt(socket.SOL_SOCKET, nl.SO_SNDBUFFORCE, size)
    finally:
        os.close(pidfd)


def last_line(log: Path) -> str:
    """Return the last line of a log file, "no message" if it is empty."""
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no message")


def datapath() -> str:
    """Return OVS's name of the datapath: ``system`` if the kernel has the module."""
    asked = subprocess.run(["ovs-dpctl", "dump-dps"], capture_output=True, check=False)
    return USERSPACE if asked.returncode else KERNEL


def switch_off(host: Any, name: str, features: Sequence[str]) -> None:
    """Disable hardware offloads of a host's port, by ethtool's names."""
    with host.live_namespace():
        offloads.switch_off(name, features)
