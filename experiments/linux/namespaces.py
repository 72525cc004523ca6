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

from experiments.linux.netlink import Message, Netlink, delete_group
from experiments.linux.program_places import Places
from hosts.linux.calls import (
    CLONE_NEWNET,
    current_host_name,
    current_namespace,
    enter,
    new_host_name,
    unshare,
)
from topos.base.errors import PillarboxError

# Far above the indexes that the kernel assigns, so that the lab's indexes are always free.
FIRST_INDEX = 1 << 20
# Device group of every link of the fabric: one request deletes the group and no other link.
FIRST_GROUP = 0x50420000

# Forwarders alone forward packets on a server: the kernel neither routes nor runs IPv6. TCP's
# memory limits are fixed, independent of the machine's memory.
HOST_SYSCTLS = {
    "net/ipv6/conf/all/disable_ipv6": "1",  # sets "default" as well
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

    Programs that are started inside have the fabric's host name, unless `take_host_name` gave the
    namespace its own.
    """

    host_name: int | None = None  # its own UTS namespace, as an open file

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

    def take_host_name(self, name: str) -> None:
        """Give the namespace a host name of its own, for programs that are started inside."""
        if self.host_name is None:
            self.host_name = new_host_name(name)

    def send(self, *messages: Message, ignore: Collection[int] = ()) -> None:
        """Send netlink requests to this namespace, immediately or with the open batch."""
        home = fabric()
        if ignore:
            home.flush_batch()
        if home.open_batch is None or ignore:
            self.netlink.send(messages, ignore)
        else:
            self._waiting.extend(messages)
            home.open_batch[self] = None

    def flush(self) -> None:
        """Send the requests that wait for the batch's end."""
        waiting, self._waiting = self._waiting, []
        self.netlink.send(waiting)

    def discard(self) -> None:
        """Drop the requests that wait for the batch's end."""
        self._waiting = []

    def close(self) -> None:
        """Close the namespace, which the kernel removes when no process is left in it."""
        self.netlink.close()
        os.close(self.descriptor)
        if self.host_name is not None:
            os.close(self.host_name)


class Fabric(Namespace):
    """The namespace of the switches, which also numbers the lab's interfaces."""

    def __init__(self, slot: int = 0) -> None:
        self.descriptor, self.host_name = current_namespace(), current_host_name()
        self.netlink = Netlink()
        self._waiting = []
        self.group = FIRST_GROUP + slot
        # namespaces with pending requests, as an ordered set
        self.open_batch: dict[Namespace, None] | None = None
        self._deferred_calls: list[Callable[[], object]] = []
        self._indexes = count(FIRST_INDEX * (slot + 1))
        self.places = Places(self.send, self.afterwards)
        # In a namespace of the lab's own IPv6 is off; in the machine's namespace it is switched off
        # per interface of the lab.
        disabled = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
        self.speaks_ipv6 = disabled.exists() and disabled.read_text().strip() == "0"

    def new_index(self) -> int:
        """Return an interface index that is unique in this lab, in all namespaces."""
        index = next(self._indexes)
        if index % FIRST_INDEX == 0:  # first index of this slot
            atexit.register(self._delete_links, os.getpid())
        return index

    def _delete_links(self, process: int) -> None:
        """Delete the links of a network whose constructor failed, so that it was never stopped."""
        if os.getpid() == process:  # skipped in a forked child
            self.netlink.send([delete_group(self.group)], ignore={errno.ENODEV})

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Collect requests to all namespaces during a block, then send them together."""
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
            self.open_batch = None
            # After an error the objects that deferred calls refer to may be missing; their errors
            # would hide the first error.
            self._run_deferred_calls(*[PillarboxError] if failed else [])

    def flush_batch(self) -> None:
        """Send the open batch's requests now, the fabric's first."""
        if self.open_batch:
            touched = [self, *(namespace for namespace in self.open_batch if namespace != self)]
            for namespace in touched:
                namespace.flush()
            self.open_batch.clear()
            self._run_deferred_calls()

    def afterwards(self, deed: Callable[[], object]) -> None:
        """Call a function after all requests so far were sent."""
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
    """Return this process's fabric: the namespace that was current at the first call."""
    global _fabric  # noqa: PLW0603 - Mininet makes nodes and links without a context to pass
    if _fabric is None:
        _fabric = Fabric()
    return _fabric


def use_slot(slot: int) -> None:
    """Create a fabric with a slot's own interface indexes and device group.

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
