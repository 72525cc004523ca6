"""Kernel counters of a running network: traffic of its cables and servers.

All cables have an end in the fabric, so that one request to the kernel reads the counters of both
directions of all cables. The servers' kernels count the bytes received by programs, the bytes
waiting in the queues of ports, and the packets dropped by these queues.
"""

from __future__ import annotations

import struct
import threading
import time
from io import FileIO
from typing import TYPE_CHECKING, NamedTuple

from pillarbox.experiments.lab.linux import cable_programs
from pillarbox.experiments.lab.linux.namespaces import Namespace, fabric
from pillarbox.experiments.lab.linux.queue_counters import queues
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.netlink import Netlink

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab_network import LabNet
    from pillarbox.topos.base.topology import Topology

_ASKED = struct.pack("=BxHII", 0, 0, 0, 1 << (nl.IFLA_STATS_LINK_64 - 1))
# Kernel's link message: interface index, packets received and sent, bytes received and sent.
_STATS = struct.Struct("=4xI4x4x2Q2Q")


class MeterReading(NamedTuple):
    """Counters of cables and servers at one point in time."""

    at_s: float  # time of the reading by CLOCK_MONOTONIC, in seconds
    topology: Topology  # topology of the network at that time
    # Bytes sent, bytes waiting in the port's queue, and packets dropped by the queue (the last two
    # are 0 without a rate limit): 2 i is cable i of `Topology.links` from end a, 2 i + 1 from b.
    directions: dict[int, tuple[int, int, int]]
    received: dict[int, int]  # bytes of IP packets, by server


class Meter:
    """Reads byte counters of the cables and servers that are on this machine."""

    def __init__(self, net: LabNet) -> None:
        self._net = net
        self._lock = threading.Lock()
        self._topology: Topology | None = None
        self._files: dict[int, FileIO] = {}  # open /proc/net/netstat of each server's namespace
        # Interface that counts a direction of a cable, and the sender's namespace and port.
        self._ends: dict[int, tuple[cable_programs.CableTap, Namespace, int]] = {}

    def read(self) -> MeterReading:
        """Return the current counters of cables and servers; thread-safe."""
        topology = self._net.topology
        assert topology
        with self._lock:
            if self._topology is not topology:
                self._begin(topology)
            at_s = time.monotonic()
            counted = bytes_by_interface(fabric().netlink)
            here = (one for one in range(topology.servers) if topology.node_name(one) in self._net)
            received = {server: self._received(server, topology) for server in here}
            known = {at: queues(at.netlink) for at in {at for _, at, _ in self._ends.values()}}
        directions = {}
        for direction, (tap, at, port) in self._ends.items():
            sent = counted.get(tap.ifindex, (0, 0))[tap.hook == nl.CLSACT_EGRESS]
            queue = known[at].get(port)
            directions[direction] = sent, *((queue.waiting_bytes, queue.drops) if queue else (0, 0))
        return MeterReading(at_s, topology, directions, received)

    def close(self) -> None:
        """Close the open counter files of the servers' kernels."""
        while self._files:
            self._files.popitem()[1].close()

    def _begin(self, topology: Topology) -> None:
        self.close()
        ends = {}
        for link in self._net.links:
            for intf, tap in zip((link.intf1, link.intf2), link.taps, strict=True):
                ends[intf.name] = tap, intf.node.live_namespace(), intf.ifindex
        senders = (
            topology.interface(*end)
            for cable in topology.links()
            for end in ((cable.a, cable.a_port), (cable.b, cable.b_port))
        )
        self._ends = {number: ends[name] for number, name in enumerate(senders) if name in ends}
        self._topology = topology

    def _received(self, server: int, topology: Topology) -> int:
        """Return the bytes of IP packets that a server has received, from its netstat file.

        A file of /proc/net reports on the namespace in which it was opened.
        """
        if server not in self._files:
            with self._net[topology.node_name(server)].live_namespace():
                self._files[server] = FileIO("/proc/thread-self/net/netstat")
        file = self._files[server]
        file.seek(0)
        return received_ip_bytes(file.read(1 << 16))


def bytes_by_interface(kernel: Netlink) -> dict[int, tuple[int, int]]:
    """Return the bytes received and sent by each interface of a namespace, by interface index."""
    found = {}
    for payload in kernel.dump(nl.RTM_GETSTATS, _ASKED, "count what cables carry"):
        index, _, _, received, sent = _STATS.unpack_from(payload)
        found[index] = received, sent
    return found


def received_ip_bytes(netstat: bytes) -> int:
    """Return the bytes of IP packets received by a kernel, parsed from /proc/net/netstat.

    >>> counters = b"IpExt: InPkts InOctets OutOctets\\nIpExt: 2 300 4\\n"
    >>> received_ip_bytes(b"TcpExt: A\\nTcpExt: 1\\n" + counters)
    300
    """
    _, names, numbers = netstat.rsplit(b"IpExt:", 2)
    return int(numbers.split()[names.split().index(b"InOctets")])
