"""A running lab at one moment: what its cables have carried, what has failed, and its log.

All cables have an end in the fabric, so that one request to the kernel counts both directions of
all of them. What programs have received is counted by their servers' kernels, and so is what waits
in the queues of their ports and what those have dropped.
"""

from __future__ import annotations

import struct
import threading
import time
from io import FileIO
from typing import TYPE_CHECKING, Any

from experiments.linux import bpf
from experiments.linux.backlogs import queues
from experiments.linux.namespaces import Namespace, fabric
from experiments.linux.netlink import Netlink

if TYPE_CHECKING:
    from experiments.emulation.lab import Lab

RTM_GETSTATS, STATS_LINK_64 = 94, 1
_ASKED = struct.pack("=BxHII", 0, 0, 0, 1 << (STATS_LINK_64 - 1))
# The interface, then packets and bytes received and sent.
_STATS = struct.Struct("=4xI4x4x2Q2Q")
MOST_LOG_BYTES = 1 << 16  # of the log in one answer; the rest comes with the next


class Sampler:
    """Takes samples of one lab, for any thread."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._lock = threading.Lock()
        self._network = ""
        self._counters: dict[int, FileIO] = {}  # of each server's kernel
        self._taps: list[bpf.Tap] = []  # of each cable of `Topology.links`, from a and from b
        self._ports: list[tuple[Namespace, int]] = []  # that send there: where, and their index

    def sample(self, log_from: int = 0) -> dict[str, Any]:
        """Return the lab's state at this moment.

        Parameters
        ----------
        log_from : int
            Where in the lab's log to go on reading: ``log_to`` of the sample before.

        Returns
        -------
        dict
            ``at_s`` by CLOCK_MONOTONIC; ``sent_bytes`` from a and from b of each cable, in the
            order of `Topology.links`, and so ``waiting_bytes``, in the port's queue now, and
            ``dropped`` packets, by that queue so far, both 0 where there is no rate;
            ``received_bytes`` of IP packets by each server's programs, acknowledgements included;
            ``faults`` and ``dead``; ``shapes``: both ends of cables that are not as usual, and how
            they are, in words and in Mbit/s; the ``log`` since `log_from`.
        """
        lab = self._lab
        with self._lock:
            if self._network != lab.topology.spec:
                self._begin()
            at_s = time.monotonic()
            counted = octets(fabric().netlink)
            sent = [counted.get(tap.ifindex, (0, 0))[tap.hook == bpf.EGRESS] for tap in self._taps]
            received = [self._received(server) for server in range(lab.topology.servers)]
            waiting, dropped = self._queues()
        log, log_to = self._log(log_from)
        return {
            "at_s": at_s,
            "network": self._network,
            "rate_mbit": lab.settings.rate_mbit,
            "sent_bytes": sent,
            "waiting_bytes": waiting,
            "dropped": dropped,
            "received_bytes": received,
            "faults": [[fault.kind, *lab.names_in(fault)] for fault in lab.faults.active],
            "shapes": [
                [*sorted(lab.name(lab.node(end)) for end in ends), str(shape), shape.rate_mbit]
                for ends, shape in list(lab.net.shapes.changed.items())
            ],
            "dead": [lab.name(server) for server in sorted(lab.dead)],
            "log": log,
            "log_to": log_to,
        }

    def close(self) -> None:
        """Close what is open."""
        while self._counters:
            self._counters.popitem()[1].close()

    def _begin(self) -> None:
        self.close()
        topology = self._lab.topology
        ends = {}
        for link in self._lab.net.links:
            for intf, tap in zip((link.intf1, link.intf2), link.taps, strict=True):
                ends[intf.name] = tap, (intf.node.live_namespace(), intf.ifindex)
        in_order = [
            ends[topology.interface(*end)]
            for cable in topology.links()
            for end in ((cable.a, cable.a_port), (cable.b, cable.b_port))
        ]
        self._taps = [tap for tap, _ in in_order]
        self._ports = [port for _, port in in_order]
        self._network = topology.spec

    def _received(self, server: int) -> int:
        """Return what a server's kernel has handed up, in bytes of IP packets.

        A file of /proc/net tells of the namespace in which it was opened.
        """
        if server not in self._counters:
            with self._lab.host(server).live_namespace():
                self._counters[server] = FileIO("/proc/thread-self/net/netstat")
        file = self._counters[server]
        file.seek(0)
        return in_octets(file.read(1 << 16))

    def _queues(self) -> tuple[list[int], list[int]]:
        """Return what waits at each port, in bytes, and how many packets each has dropped."""
        namespaces = {namespace for namespace, _ in self._ports}
        known = {namespace: queues(namespace.netlink) for namespace in namespaces}
        found = [known[namespace].get(index) for namespace, index in self._ports]
        waiting = [queue.waiting_bytes if queue else 0 for queue in found]
        return waiting, [queue.drops if queue else 0 for queue in found]

    def _log(self, start: int) -> tuple[list[str], int]:
        """Return the log's whole lines from there on, and where the next begins."""
        with (self._lab.folder / "events.jsonl").open("rb") as file:
            file.seek(start)
            text = file.read(MOST_LOG_BYTES)
        whole = text[: text.rfind(b"\n") + 1]
        return whole.decode().splitlines(), start + len(whole)


def octets(kernel: Netlink) -> dict[int, tuple[int, int]]:
    """Return the bytes that each interface of a namespace has received and sent, by its index."""
    found = {}
    for payload in kernel.dump(RTM_GETSTATS, _ASKED, "count what cables carry"):
        index, _, _, received, sent = _STATS.unpack_from(payload)
        found[index] = received, sent
    return found


def in_octets(netstat: bytes) -> int:
    """Return the bytes of IP packets that a kernel has received, by its /proc/net/netstat.

    >>> in_octets(b"TcpExt: A\\nTcpExt: 1\\nIpExt: InPkts InOctets OutOctets\\nIpExt: 2 300 4\\n")
    300
    """
    _, names, numbers = netstat.rsplit(b"IpExt:", 2)
    return int(numbers.split()[names.split().index(b"InOctets")])
