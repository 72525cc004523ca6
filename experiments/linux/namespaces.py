"""Network namespaces held by nothing but this process, and batches of requests to them.

A namespace without a name lives as long as a process has it open: when the process dies, however it
dies, the kernel removes it and every interface in it. The *fabric* is the namespace the lab was
started in; it holds the switches and one end of every cable.

Mininet makes its nodes and links one at a time. Within ``with fabric().batch():`` their requests
are kept and then made together, the fabric's first: cables have to be there before hosts can bring
their ends up.
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
from experiments.linux.places import Places
from hosts.linux.calls import (
    CLONE_NEWNET,
    current_host_name,
    current_namespace,
    enter,
    new_host_name,
    unshare,
)
from topos.base.errors import PillarboxError

# Far above the indexes that the kernel gives by itself, so that ours are always free.
FIRST_INDEX = 1 << 20
# Every link of the fabric carries it: one request deletes them all, and no other links.
FIRST_GROUP = 0x50420000

# A server forwards by its forwarder alone: the kernel neither routes nor speaks IPv6. TCP's memory
# is pinned, whatever the machine's is.
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
    """Set a sysctl of the current namespace; one this kernel does not know is none to set."""
    try:
        descriptor = os.open(f"/proc/sys/{name}", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)


class Namespace:
    """A network namespace and the requests to it; ``with namespace:`` runs code inside it.

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
        """Give programs that are started inside a host name of their own, unless they have one."""
        if self.host_name is None:
            self.host_name = new_host_name(name)

    def send(self, *messages: Message, ignore: Collection[int] = ()) -> None:
        """Make these requests, now or with the batch that is open."""
        home = fabric()
        if ignore:
            home.flush_batch()
        if home.open_batch is None or ignore:
            self.netlink.send(messages, ignore)
        else:
            self._waiting.extend(messages)
            home.open_batch[self] = None

    def flush(self) -> None:
        """Make the requests that wait."""
        waiting, self._waiting = self._waiting, []
        self.netlink.send(waiting)

    def discard(self) -> None:
        """Forget the requests that wait."""
        self._waiting = []

    def close(self) -> None:
        """Let go of the namespace: it vanishes when no process is left in it."""
        self.netlink.close()
        os.close(self.descriptor)
        if self.host_name is not None:
            os.close(self.host_name)


class Fabric(Namespace):
    """The namespace of the switches; it also numbers the lab's interfaces."""

    def __init__(self, slot: int = 0) -> None:
        self.descriptor, self.host_name = current_namespace(), current_host_name()
        self.netlink = Netlink()
        self._waiting = []
        self.group = FIRST_GROUP + slot
        self.open_batch: dict[Namespace, None] | None = None  # an ordered set
        self._deeds: list[Callable[[], object]] = []
        self._indexes = count(FIRST_INDEX * (slot + 1))
        self.places = Places(self.send, self.afterwards)
        # In a namespace of the lab's own nothing speaks IPv6; where it is the machine's, each
        # interface of the lab has a setting of its own.
        disabled = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
        self.speaks_ipv6 = disabled.exists() and disabled.read_text().strip() == "0"

    def new_index(self) -> int:
        """Return an interface index that no other interface of this lab has, in any namespace."""
        index = next(self._indexes)
        if index % FIRST_INDEX == 0:  # the first
            atexit.register(self._delete_links, os.getpid())
        return index

    def _delete_links(self, process: int) -> None:
        """Delete what a network left that failed in its constructor, and was never stopped."""
        if os.getpid() == process:  # not of one that was forked
            self.netlink.send([delete_group(self.group)], ignore={errno.ENODEV})

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Keep all requests to all namespaces until the end, then make them together."""
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
            # What deeds are about may be missing after an error, which says more than theirs.
            self._do_deeds(*[PillarboxError] if failed else [])

    def flush_batch(self) -> None:
        """Make now what an open batch holds, the fabric's requests first."""
        if self.open_batch:
            touched = [self, *(namespace for namespace in self.open_batch if namespace != self)]
            for namespace in touched:
                namespace.flush()
            self.open_batch.clear()
            self._do_deeds()

    def afterwards(self, deed: Callable[[], object]) -> None:
        """Call `deed` once the requests so far were made."""
        self._deeds.append(deed)
        if self.open_batch is None:
            self._do_deeds()

    def _do_deeds(self, *ignored: type[Exception]) -> None:
        deeds, self._deeds = self._deeds, []
        for deed in deeds:
            with suppress(*ignored):
                deed()


_fabric: Fabric | None = None


def fabric() -> Fabric:
    """Return this process's fabric: the namespace in which it was first asked for."""
    global _fabric  # noqa: PLW0603 - Mininet makes nodes and links without a context to pass
    if _fabric is None:
        _fabric = Fabric()
    return _fabric


def use_slot(slot: int) -> None:
    """Make a fabric whose indexes and device group are those of this lab alone.

    Labs that share the machine's own namespace need different slots (see `sweep`).
    """
    global _fabric  # noqa: PLW0603
    _fabric = Fabric(slot)


def check_bridges_pass_frames() -> None:
    """See to it that no firewall stands between the ports of a bridge.

    In a sandbox the setting is the lab's own and is set; a machine's own is left alone.
    """
    for table in ("arptables", "iptables", "ip6tables"):
        path = Path(f"/proc/sys/net/bridge/bridge-nf-call-{table}")
        if path.exists() and path.read_text().strip() != "0":
            raise PillarboxError(
                f"this machine sends what its bridges forward through its firewall ({path.name} "
                "is 1): use the sandbox, which has a setting of its own, or set it to 0"
            )


def interface_index(name: str) -> int:
    """Return the index of an interface of the current namespace, 0 where there is none."""
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return 0
