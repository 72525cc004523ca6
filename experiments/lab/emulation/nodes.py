"""Mininet's hosts, switches and interfaces, without Mininet's processes.

Stock Mininet starts a shell for every node and a tool for every setting. Here a host is an open
namespace, a switch is a kernel bridge, and a setting is a netlink message; a shell starts when it
is first used. The classes work in any Mininet network::

    Mininet(topo=..., host=LabHost, switch=LabSwitch, link=LabLink, controller=None)

with the methods of Mininet's own classes: cmd, popen, pexec, sendCmd, adding links, and so on.
"""

from __future__ import annotations

import errno
import os
import pty
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mininet.link import Intf
from mininet.node import Host, Node
from mininet.nodelib import LinuxBridge

from pillarbox.experiments.lab.linux import cable_programs, cgroups, link_requests, shaping
from pillarbox.experiments.lab.linux.namespaces import (
    Namespace,
    check_bridges_pass_frames,
    fabric,
    interface_index,
    write_sysctl,
)
from pillarbox.experiments.models import port_bursts
from pillarbox.hosts.linux import netlink
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.topos.base.errors import PillarboxError, UnknownNameError, require

# maximum number of MAC addresses in a bridge's BPF program, which tests them in turn
MOST_STRAIGHT_ON = 64
PROMPT = chr(127)  # prompt of Mininet's shells, the end mark of a command's output
# Mininet's attributes of a node that exist only after its shell has started.
SHELL_ATTRIBUTES = {"shell", "pid", "stdin", "stdout", "pollOut"}
# A node's shell gets a private mount namespace, with the /sys of its network namespace.
OWN_SYS = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
OWN_SYS += ['mount -t sysfs sysfs /sys && exec "$@"', "sh"]


class LabNode(Node):
    """The base class of hosts and switches: a namespace, and a shell on demand."""

    namespace: Namespace | None = None

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802
        """Create a node's network namespace; its Mininet shell starts at the first use."""
        self.namespace = Namespace() if self.inNamespace else fabric()
        self.popens: list[subprocess.Popen[bytes]] = []
        self._shell_options = "-cd" if mnopts is None else mnopts
        for name in SHELL_ATTRIBUTES:
            # `__getattr__` then starts the shell when Mininet first uses it
            del self.__dict__[name]

    def __getattr__(self, name: str) -> Any:
        if name not in SHELL_ATTRIBUTES:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        self._start_shell()
        return self.__dict__[name]

    @property
    def has_shell(self) -> bool:
        """True if the node's shell has started."""
        return self.__dict__.get("shell") is not None

    def _start_shell(self) -> None:
        namespace = self.live_namespace()
        fabric().flush_batch()
        command = ["env", f"PS1={PROMPT}", "bash", "--norc", "--noediting", "-is"]
        own_mounts = OWN_SYS if self.inNamespace or self.privateDirs else []
        command = ["mnexec", self._shell_options, *own_mounts, *command]
        if self.inNamespace:
            command = cgroups.programs().command(command)
        self.master, self.slave = pty.openpty()
        with namespace:
            self.shell = self._popen(
                [*command, f"mininet:{self.name}"],
                stdin=self.slave,
                stdout=self.slave,
                stderr=self.slave,
                close_fds=False,
            )
        self.stdin = self.stdout = os.fdopen(self.master)
        self.pid = self.shell.pid
        self.pollOut = select.poll()
        self.pollOut.register(self.stdout)
        self.outToNode[self.stdout.fileno()] = self.inToNode[self.stdin.fileno()] = self
        self.execed, self.lastCmd, self.lastPid, self.readbuf = False, None, None, ""
        self.waiting = True
        self.waitOutput()  # wait for the shell's first prompt
        self.cmd("unset HISTFILE; stty -echo; set +m")

    def popen(self, *args: Any, **kwargs: Any) -> Any:
        """Start a program in the node's namespace, in a new session."""
        if self.privateDirs or "mncmd" in kwargs:
            # Mininet runs the program in the shell's mount namespace
            return super().popen(*args, **kwargs)
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | kwargs
        in_shell = options.pop("shell", False)
        if len(args) == 1 and isinstance(args[0], str):
            command = [args[0]] if in_shell else args[0].split()
        else:
            command = list(args[0]) if len(args) == 1 else [str(word) for word in args]
        if in_shell:
            command = [os.environ.get("SHELL", "/bin/sh"), "-c", " ".join(command)]
        if self.inNamespace:
            command = cgroups.programs().command(command, session=True)
        namespace = self.live_namespace()
        fabric().flush_batch()
        with namespace:
            started = self._popen(command, start_new_session=True, **options)
        self.popens.append(started)
        return started

    def program(
        self, command: Sequence[str], by: Sequence[str] = (), **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a program on the node, as `subprocess.Popen` does; `by` is a command prefix."""
        if self.inNamespace:
            command = cgroups.programs().command(command)
        with self.live_namespace():
            return subprocess.Popen([*by, *command], **options)

    def config(
        self,
        mac: str | None = None,
        ip: str | None = None,
        defaultRoute: str | None = None,  # noqa: N803
        lo: str = "up",
        **_params: object,
    ) -> dict[str, Any]:
        """Set a node's IP and MAC addresses and default route, and its loopback up or down."""
        results: dict[str, Any] = {}
        self.setParam(results, "setMAC", mac=mac)
        self.setParam(results, "setIP", ip=ip)
        self.setParam(results, "setDefaultRoute", defaultRoute=defaultRoute)
        if self.inNamespace:
            self.send(link_requests.change(1, up=lo == "up", deed=f"set {self.name}'s loopback up"))
        return results

    def live_namespace(self) -> Namespace:
        """Return the node's namespace; raise PillarboxError if the node was stopped."""
        if self.namespace is None:
            raise PillarboxError(
                f"node {self.name} was stopped and cannot start again: create a new network"
            )
        return self.namespace

    def send(self, *messages: netlink.Message) -> None:
        """Send netlink requests in the node's namespace."""
        self.live_namespace().send(*messages)

    def setARP(self, ip: str, mac: str) -> str:  # noqa: N802
        """Add a permanent ARP entry to the node's kernel."""
        return error_of_requests(
            self, link_requests.add_neighbour(self.defaultIntf().ifindex, ip, mac)
        )

    def end_programs(self) -> None:
        """End the shell with its jobs, and all programs started by `popen`."""
        for started in self.popens:
            if started.poll() is None:
                _kill_group(started.pid, signal.SIGKILL)
        if self.has_shell and self.shell.poll() is None:
            _kill_group(self.shell.pid, signal.SIGHUP)

    def terminate(self) -> None:
        """End all programs and release the namespace."""
        if self.namespace is None:
            return
        self.end_programs()
        self.cleanup()
        for started in self.popens:
            started.wait()
        if self.inNamespace:
            self.namespace.close()
        self.namespace = None

    def cleanup(self) -> None:
        """Close the pseudo-terminal of a node's shell; the node has no shell afterwards."""
        if self.has_shell:
            descriptor = self.stdin.fileno()
            self.outToNode.pop(descriptor, None)
            self.inToNode.pop(descriptor, None)
            super().cleanup()
        self.shell = self.pid = None

    def __repr__(self) -> str:
        interfaces = ",".join(f"{intf.name}:{intf.IP()}" for intf in self.intfList())
        pid = self.__dict__.get("pid")
        return f"<{type(self).__name__} {self.name}: {interfaces} pid={pid}> "


def _kill_group(process: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process, number)


class LabHost(LabNode, Host):
    """Mininet host of a lab's server, in a separate network namespace."""

    def set_super_packet_size(
        self, index: int, rate_mbit: float | None, mtu: int, *, single: bool
    ) -> None:
        """Set the size of TCP's super-packets on an interface: by its rate, or one segment."""
        size = port_bursts.super_packet_bytes(rate_mbit, mtu)
        self.send(shaping.bound_super_packets(index, size, 1 if single else None))
        with self.live_namespace():
            segments = 1 if single else port_bursts.super_packet_segments(rate_mbit, mtu)
            write_sysctl("net/ipv4/tcp_min_tso_segs", str(segments))


class LabSwitch(LabNode, LinuxBridge):
    """A switch: a bridge in the fabric, which forwards as soon as it is started."""

    def __init__(
        self,
        name: str,
        stp: bool = False,
        prio: int | None = None,
        dpid: str | None = None,
        opts: str = "",
        listenPort: int | None = None,  # noqa: N803
        **params: Any,
    ) -> None:
        require(
            not params.pop("inNamespace", False),
            f"the switch {name} cannot have a separate namespace: a lab's switches share one",
        )
        # Mininet's own constructor would start a shell to configure the loopback interface.
        Node.__init__(self, name, inNamespace=False, **params)
        self.stp, self.opts, self.listenPort = stp, opts, listenPort
        self.dpid = self.defaultDpid(dpid)
        self.prio = LinuxBridge.nextPrio if prio is None else int(prio)
        LinuxBridge.nextPrio += prio is None
        self._entries: dict[str, int] = {}
        self.controlIntf = LabIntf("lo", self, port=0)
        priority = self.prio if stp else None
        self.bridge = fabric().new_index()
        self.send(link_requests.bridge(name, self.bridge, group=fabric().group, priority=priority))
        if fabric().speaks_ipv6:
            self.send(link_requests.change(self.bridge, no_ipv6_address=True))

    @classmethod
    def setup(cls) -> None:
        """Raise an error if the machine's firewall would filter frames between ports of bridges."""
        check_bridges_pass_frames()

    def start(self, _controllers: object) -> None:
        """Start the switch: add ports of other links, and set the bridge up."""
        # A LabLink has created its port in the bridge; ports of Mininet's own links are added here.
        others = [i for i in self.intfList() if not isinstance(i, LabIntf) and self.name in i.name]
        for intf in others:
            port = interface_index_in(self, intf.name)
            self.send(
                link_requests.change(port, up=True, bridge=self.bridge, deed=f"plug in {intf}")
            )
        self.send(link_requests.change(self.bridge, up=True, deed=f"start the switch {self.name}"))

    def install_entries(self, ports: Mapping[str, int]) -> None:
        """Install a bridge's forwarding entries: the port of each MAC address.

        The bridge gets an entry for each address. If eBPF programs can be attached to the ports
        directly, frames to these addresses bypass the bridge; the bridge receives all others.
        """
        home = fabric()
        for mac, port in ports.items() - self._entries.items():
            home.send(link_requests.add_fdb_entry(port, mac))
        if ports == self._entries or len(ports) > MOST_STRAIGHT_ON or home.places.by_filters:
            return
        self._entries = dict(ports)
        taps = [cable_programs.CableTap(port, nl.CLSACT_INGRESS) for port in set(ports.values())]
        deed = f"bypass the bridge {self.name}"
        home.places.run(cable_programs.straight_on(ports), taps, cable_programs.STRAIGHT_ON, deed)

    def delIntf(self, intf: Any) -> None:  # noqa: N802
        """Remove a port of a bridge; frames then pass through the bridge, not past it by BPF."""
        super().delIntf(intf)
        self.disable_bridge_bypass()

    def disable_bridge_bypass(self) -> None:
        """Send all frames through the bridge, not past it by BPF programs."""
        deed = f"end the bypass of {self.name}"
        for port in set(self._entries.values()):
            tap = cable_programs.CableTap(port, nl.CLSACT_INGRESS)
            fabric().places.detach(tap, cable_programs.STRAIGHT_ON, deed)
        self._entries = {}

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803
        """Remove the bridge, and its ports with their cables."""
        if deleteIntfs:
            self.deleteIntfs()
        if self.bridge:
            fabric().send(link_requests.delete(self.bridge), ignore={errno.ENODEV})
            self.bridge = 0


class LabIntf(Intf):
    """Mininet interface at one end of a lab's cable."""

    ip: str | None
    prefixLen: int | str | None  # noqa: N815 - Mininet's name
    link: Any
    mac: str | None

    def __init__(
        self,
        name: str,
        node: Any = None,
        port: int | None = None,
        link: Any = None,
        mac: str | None = None,
        **params: Any,
    ) -> None:
        self.ifindex = (
            link.index_of(node, name) if link is not None else interface_index_in(node, name)
        )
        super().__init__(name, node, port, link, mac, **params)

    def config(
        self,
        mac: str | None = None,
        ip: str | None = None,
        ifconfig: str | None = None,
        up: bool | None = True,
        bw: float | None = None,
        delay: str | float | None = None,
        jitter: str | float | None = None,
        loss: float | None = None,
        max_queue_size: int | None = None,
        **others: Any,
    ) -> dict[str, Any]:
        """Set an interface's address, state and rate; delay and loss apply to the whole cable."""
        results: dict[str, Any] = super().config(mac=mac, ip=ip, ifconfig=ifconfig, up=up)
        refuse_options(others)
        if self.link is not None:
            with fabric().last_in_batch():
                self.link.shape(self, bw, delay, jitter, loss, max_queue_size)
        return results

    def ifconfig(self, *args: Any) -> str:
        """Run Mininet's ifconfig command; known commands are netlink requests instead."""
        words = " ".join(str(arg) for arg in args).split()
        if words in (["up"], ["down"]):
            return self._change(up=words == ["up"])
        if words[:2] == ["hw", "ether"] and len(words) == 3:
            return self._change(mac=words[2])
        if words and "/" in words[0] and words[1:] in ([], ["up"]):
            return self._add_address(*words[0].split("/"))
        return str(Intf.ifconfig(self, *args))

    def _change(self, **what: Any) -> str:
        return error_of_requests(
            self.node, link_requests.change(self.ifindex, **what, deed=f"set {self.name}")
        )

    def _add_address(self, ip: str, prefix_length: str) -> str:
        up = link_requests.change(self.ifindex, up=True)
        return error_of_requests(
            self.node, link_requests.add_address(self.ifindex, ip, int(prefix_length)), up
        )

    def setIP(self, ipstr: str, prefixLen: int | str | None = None) -> str:  # noqa: N802, N803
        """Replace the IPv4 address of the interface."""
        ip, _, length = ipstr.partition("/")
        length = length or str(prefixLen or "")
        require(bool(length), f"the address {ip} of {self.name} needs a prefix length: {ip}/8")
        before_ip, before_length = self.ip, self.prefixLen
        self.ip, self.prefixLen = ip, length
        said = ""
        if before_ip and before_length and (before_ip, before_length) != (ip, length):
            old = link_requests.delete_address(self.ifindex, before_ip, int(before_length))
            said = error_of_requests(self.node, old)
        return said + self._add_address(ip, length)

    def setMAC(self, macstr: str) -> str:  # noqa: N802
        """Set the MAC address of the interface."""
        if macstr == self.mac:
            return ""
        self.mac = macstr
        return self._change(mac=macstr)

    def isUp(self, setUp: bool = False) -> bool:  # noqa: N802
        """Return True if the interface is up; with `setUp`, set it up first."""
        if setUp:
            return not self.ifconfig("up")
        found = self._kernel_interface()
        return found is not None and found.up

    def has_carrier(self) -> bool:
        """Return True if the cable has a carrier: this end and the other end are up."""
        found = self._kernel_interface()
        return found is not None and found.up and found.carrier

    def status(self) -> str:
        """Return ``OK`` if the kernel has the interface, else ``MISSING``, as Mininet does."""
        return "OK" if self._kernel_interface() else "MISSING"

    def _kernel_interface(self) -> netlink.Interface | None:
        fabric().flush_batch()
        links = self.node.live_namespace().netlink.links()
        return next((link for link in links if link.name == self.name), None)

    def delete(self) -> None:
        """Delete the interface at one end of a cable, and with it the whole cable."""
        if self.ifindex and self.node.namespace is not None:
            gone = link_requests.delete(self.ifindex, f"delete {self.name}")
            self.node.live_namespace().send(gone, ignore={errno.ENODEV})
        self.node.delIntf(self)
        self.link = None


class ApplicationIntf(LabIntf):
    """The interface ``dcn0`` of a server's programs; the forwarder makes the device.

    Until then, the interface only stores the server's address. Port -1 makes it the host's default
    interface.
    """

    NAME = "dcn0"

    def __init__(self, node: Any) -> None:
        super().__init__(self.NAME, node, port=-1, moveIntfFn=lambda *_: None, up=None)

    def _device_exists(self) -> bool:
        self.ifindex = interface_index_in(self.node, self.name)
        return self.ifindex != 0

    def setIP(self, ipstr: str, prefixLen: int | str | None = None) -> str:  # noqa: N802, N803
        """Store the IP address of dcn0, and set it if the forwarder has created dcn0."""
        if self._device_exists():
            return super().setIP(ipstr, prefixLen)
        ip, _, length = ipstr.partition("/")
        self.ip, self.prefixLen = ip, length or prefixLen
        return ""

    def setMAC(self, macstr: str) -> str:  # noqa: N802
        """Do nothing: interface dcn0 carries IP packets and has no MAC address."""
        return ""

    def ifconfig(self, *args: Any) -> str:
        """Run Mininet's ifconfig command for dcn0, if the forwarder has created dcn0."""
        if self._device_exists():
            return super().ifconfig(*args)
        return f"{self.node}: {self.name} exists only while a forwarder runs\n"


def refuse_options(options: Mapping[str, Any]) -> None:
    """Raise PillarboxError for link options that have no effect here.

    ``use_htb`` is accepted: HTB always enforces the rate of a link.
    """
    unknown = [name for name, value in options.items() if value and name != "use_htb"]
    names = ", ".join(sorted(unknown))
    require(
        not names,
        f"there is no link option {names}: there are bw, delay, jitter, loss, max_queue_size, mtu",
        UnknownNameError,
    )


def interface_index_in(node: Any, name: str) -> int:
    """Return the index of an interface in a node's namespace, 0 if it does not exist."""
    if node.namespace is None:
        return 0
    with node.namespace:
        return interface_index(name)


def sent_bytes_and_frames(node: Any) -> dict[str, tuple[int, int]]:
    """Return the bytes and the frames sent by each port of a node, by interface name."""
    with node.live_namespace():
        lines = Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]
    sent = {}
    for line in lines:
        name, _, numbers = line.partition(":")
        if name.strip().startswith(f"{node.name}-"):
            counters = numbers.split()
            sent[name.strip()] = int(counters[8]), int(counters[9])
    return sent


def error_of_requests(node: Any, *messages: netlink.Message) -> str:
    """Send netlink requests in a node's namespace; return the error text, as Mininet's tools do."""
    try:
        node.live_namespace().send(*messages)
    except netlink.NetlinkError as error:
        return f"{error}\n"
    return ""
