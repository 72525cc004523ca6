"""Unnamed network namespaces of this process, and batches of netlink requests to them.

A namespace without a name lives as long as a process has it open: when the process dies for any
reason, the kernel removes the namespace and every interface in it. The *fabric* is the namespace in
which the lab was started; it holds the switches and one end of every cable.

Mininet makes its nodes and links one at a time. Within ``with fabric().batch():`` their requests
are collected and then sent together, the fabric's first: cables have to exist before hosts can
bring up their ends.
"""

from __future__ import annotations

import atexit
import errno
import os
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from pillarbox.experiments.lab.linux.link_requests import delete_group
from pillarbox.experiments.lab.linux.program_places import InterfacePrograms
from pillarbox.hosts.linux.calls import (
    CLONE_NEWNET,
    current_host_name,
    current_namespace,
    enter,
    new_host_name,
    unshare,
)
from pillarbox.hosts.linux.netlink import Message, Netlink
from pillarbox.topos.base.errors import PillarboxError

# First interface index of labs, far above those that the kernel assigns itself.
FIRST_INDEX = 1 << 20
# Device group of all interfaces of a lab, which one netlink request deletes.
FIRST_GROUP = 0x50420000

# Forwarders alone forward packets on a server: the kernel neither routes nor runs IPv6. TCP's
# memory limits are fixed, independent of the machine's memory.
HOST_SYSCTLS = {
    "net/ipv6/conf/all/disable_ipv6": "1",  # new interfaces get the same value
    "net/ipv4/ip_forward": "0",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/tcp_rmem": "4096 131072 6291456",
    "net/ipv4/tcp_wmem": "4096 16384 4194304",
    "net/ipv4/tcp_no_metrics_save": "1",
}


def write_sysctl(name: str, value: str) -> None:
    """Set a sysctl of the current namespace; ignore a sysctl that this kernel does not know."""
    try:
        descriptor = os.open(f"/proc/sys/{name}", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)


class Namespace:
    """A network namespace with its netlink socket; ``with namespace:`` runs code inside it.

    Programs that are started inside have the fabric's host name, unless `set_host_name` gave the
    namespace its own.
    """

    host_name: int | None = None  # UTS namespace with the node's host name, as an open file

    def __init__(self) -> None:
        home = fabric()
        unshare(CLONE_NEWNET)
        try:
            self.descriptor = current_namespace()
            self.netlink = Netlink()
            for name, value in HOST_SYSCTLS.items():
                write_sysctl(name, value)
        finally:
            enter(home.descriptor)
        self._waiting: list[Message] = []

    def __enter__(self) -> Namespace:
        enter(self.descriptor)
        if self.host_name is not None:
            enter(self.host_name, any_kind=True)
        return self

    def __exit__(self, *error: object) -> None:
        home = fabric()
        enter(home.descriptor)
        if self.host_name is not None and home.host_name is not None:
            enter(home.host_name, any_kind=True)

    def set_host_name(self, name: str) -> None:
        """Give the namespace a host name of its own, for programs that are started inside."""
        if self.host_name is None:
            self.host_name = new_host_name(name)

    def send(self, *messages: Message, ignore: Collection[int] = ()) -> None:
        """Send netlink requests to this network namespace, immediately or with the open batch."""
        home = fabric()
        if ignore:
            home.flush_batch()
        if home.open_batch is None or ignore:
            self.netlink.send(messages, ignore)
            return
        home.open_batch[self] = None
        if home.final_requests is None:
            self._waiting.extend(messages)
        else:
            home.final_requests.setdefault(self, []).extend(messages)

    def flush(self) -> None:
        """Send the netlink requests of the open batch now."""
        waiting, self._waiting = self._waiting, []
        self.netlink.send(waiting)

    def discard(self) -> None:
        """Drop the netlink requests of the open batch unsent."""
        self._waiting = []

    def close(self) -> None:
        """Close this network namespace; the kernel removes it when no process is left in it."""
        self.netlink.close()
        os.close(self.descriptor)
        if self.host_name is not None:
            os.close(self.host_name)


class Fabric(Namespace):
    """Network namespace of a lab's switches, which also numbers all interfaces of the lab."""

    def __init__(self, slot: int = 0) -> None:
        self.descriptor, self.host_name = current_namespace(), current_host_name()
        self.netlink = Netlink()
        self._waiting = []
        self.group = FIRST_GROUP + slot
        # namespaces with unsent netlink requests, in order
        self.open_batch: dict[Namespace, None] | None = None
        # requests of the open block of `last_in_batch` by namespace, and of the batch's blocks
        self.final_requests: dict[Namespace, list[Message]] | None = None
        self._final_blocks: list[dict[Namespace, list[Message]]] = []
        self._deferred_calls: list[Callable[[], object]] = []
        self._indexes = count(FIRST_INDEX * (slot + 1))
        self._has_links = False  # True from the first interface of a lab until `delete_links`
        self.places = InterfacePrograms(self.send, self.call_after_requests)
        # A lab's own namespace has no IPv6; in the machine's namespace IPv6 is switched off
        # per interface of the lab.
        disabled = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
        self.speaks_ipv6 = disabled.exists() and disabled.read_text().strip() == "0"

    def new_index(self) -> int:
        """Return a network interface index that no other interface of this lab has."""
        index = next(self._indexes)
        if index % FIRST_INDEX == 0:  # the lab's first interface
            atexit.register(self._delete_links_at_exit, os.getpid())
        self._has_links = True
        return index

    def delete_links(self) -> None:
        """Delete all interfaces of a lab's network, with their bridges and BPF programs."""
        self.send(delete_group(self.group), ignore={errno.ENODEV})
        self.places.close()
        self._has_links = False

    def _delete_links_at_exit(self, process: int) -> None:
        """Delete all interfaces of a lab's network at the process's exit, if still present."""
        # A request that finds no interface still waits for the lock of all interfaces, which the
        # kernel holds for seconds while it removes the namespaces of a large lab.
        # In a forked child the process differs: it must not delete them.
        if os.getpid() == process and self._has_links:
            self.netlink.send([delete_group(self.group)], ignore={errno.ENODEV})

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Collect netlink requests to all namespaces during a block, then send them together."""
        if self.open_batch is not None:
            yield
            return
        self.open_batch, failed = {}, True
        try:
            yield
            self.flush_batch()
            failed = False
        finally:
            for namespace in self.open_batch:
                namespace.discard()
            self.open_batch, self._final_blocks = None, []
            # After an error, interfaces that deferred calls refer to may be missing; their errors
            # would hide the first error.
            self._run_deferred_calls(*[PillarboxError] if failed else [])

    @contextmanager
    def last_in_batch(self) -> Iterator[None]:
        """Send the requests of this block after all others of the open batch, the last block first.

        For the queues of ports: the kernel keeps one list of all queues and their classes, the
        newest first, and searches it for each that it removes. Interfaces are removed in the order
        in which they were made; with queues made in the reverse order, each is found at the head.
        """
        self.final_requests = {}
        try:
            yield
            if self.final_requests:
                self._final_blocks.append(self.final_requests)
        finally:
            self.final_requests = None

    def flush_batch(self) -> None:
        """Send the open batch's netlink requests now, those to the switches' namespace first."""
        if self.open_batch:
            touched = [self, *(namespace for namespace in self.open_batch if namespace != self)]
            for namespace in touched:
                namespace.flush()
            blocks, self._final_blocks = self._final_blocks, []
            for block in reversed(blocks):
                for namespace, messages in block.items():
                    namespace.netlink.send(messages)
            self.open_batch.clear()
            self._run_deferred_calls()

    def call_after_requests(self, deed: Callable[[], object]) -> None:
        """Call a function once all netlink requests so far have been sent."""
        self._deferred_calls.append(deed)
        if self.open_batch is None:
            self._run_deferred_calls()

    def _run_deferred_calls(self, *ignored: type[Exception]) -> None:
        calls, self._deferred_calls = self._deferred_calls, []
        for call in calls:
            with suppress(*ignored):
                call()


_fabric: Fabric | None = None


def fabric() -> Fabric:
    """Return the namespace of this process's switches: the current one at the first call."""
    global _fabric  # noqa: PLW0603 - Mininet makes nodes and links without a context to pass
    if _fabric is None:
        _fabric = Fabric()
    return _fabric


def set_lab_slot(slot: int) -> None:
    """Set the interface indexes and device group of this process's lab, by a slot number.

    Labs that share the machine's own namespace need different slots (see `sweep`).
    """
    global _fabric  # noqa: PLW0603
    _fabric = Fabric(slot)


def check_bridges_pass_frames() -> None:
    """Raise PillarboxError if the machine's bridges pass frames through its firewall.

    Entering a sandbox switches the setting off inside; the machine's own setting is never changed.
    """
    for table in ("arptables", "iptables", "ip6tables"):
        path = Path(f"/proc/sys/net/bridge/bridge-nf-call-{table}")
        if path.exists() and path.read_text().strip() != "0":
            raise PillarboxError(
                f"this machine sends what its bridges forward through its firewall ({path.name} "
                "is 1): use the sandbox, which has a setting of its own, or set it to 0"
            )


def interface_index(name: str) -> int:
    """Return the index of an interface in the current namespace, 0 if no such interface exists."""
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return 0
