"""What the kernel says of a Multipath TCP connection, over the loopback of a namespace."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from pillarbox.experiments.lab.linux import mptcp
from pillarbox.experiments.lab.traffic.mptcp_info import (
    MultipathInfo,
    bytes_received,
    is_multipath,
    multipath_info,
)
from pillarbox.hosts.linux.calls import in_new_namespace
from tests.experiments.labs import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(mptcp.missing()), reason=mptcp.missing()),
]
CLIENT, SERVER, SECOND = "10.0.0.1", "10.0.0.2", "172.17.0.1"
VOLUME = 100_000
LISTENERS: list[socket.socket] = []


@contextmanager
def network() -> Iterator[None]:
    """Enter a namespace whose loopback has the addresses, and one endpoint."""
    with in_new_namespace():
        for command in (
            "ip link set lo up",
            *(f"ip addr add {one}/32 dev lo" for one in (CLIENT, SERVER, SECOND)),
            "ip mptcp limits set subflow 2 add_addr_accepted 0",
            f"ip mptcp endpoint add {SECOND} subflow",
        ):
            subprocess.run(command.split(), check=True)
        yield


def connected(listens: int) -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection that asks for Multipath TCP; the listener's protocol."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, listens)
    LISTENERS.append(listener)  # further subflows need it
    listener.bind((SERVER, 0))
    listener.listen()
    sender = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_MPTCP)
    sender.bind((CLIENT, 0))
    sender.connect(listener.getsockname())
    receiver, _ = listener.accept()
    return sender, receiver


def state_of(connection: socket.socket) -> MultipathInfo:
    found = multipath_info(connection)
    assert found is not None
    return found


def test_subflows_have_numbers_addresses_and_bytes() -> None:
    with network():
        sender, receiver = connected(socket.IPPROTO_MPTCP)
        with closing(sender), closing(receiver):
            sender.sendall(bytes(VOLUME))
            left = VOLUME
            while left:
                left -= len(receiver.recv(left))
            wait_until(lambda: len(state_of(sender).subflows) == 2, "no second subflow")
            wait_until(
                lambda: sum(one.tcp["bytes_acked"] for one in state_of(sender).subflows) >= VOLUME,
                "no acknowledgement",
            )
            subflows = state_of(sender).subflows
            assert [socket.inet_ntoa(one.local.to_bytes(4, "big")) for one in subflows] == [
                CLIENT,
                SECOND,
            ]
            remote = int.from_bytes(socket.inet_aton(SERVER), "big")
            assert {one.remote for one in subflows} == {remote}
            assert len({one.number for one in subflows}) == 2
            assert is_multipath(sender)
            assert bytes_received(receiver) == VOLUME


def test_a_fallback_is_seen() -> None:
    with network():
        sender, receiver = connected(socket.IPPROTO_TCP)
        with closing(sender), closing(receiver):
            sender.sendall(bytes(VOLUME))
            assert multipath_info(sender) is None
            assert is_multipath(sender)
            assert not is_multipath(receiver)
            wait_until(lambda: bytes_received(receiver) == VOLUME, "bytes are missing")


def test_a_closed_connection_is_an_error() -> None:
    with network():
        sender, receiver = connected(socket.IPPROTO_MPTCP)
        sender.close()
        receiver.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            multipath_info(sender)
