"""State of a Multipath TCP connection: its subflows, and the bytes received in order."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

from pillarbox.experiments.lab.traffic.tcp_info import SIZE as TCP_INFO_BYTES
from pillarbox.experiments.lab.traffic.tcp_info import parsed_tcp_info, tcp_info
from pillarbox.hosts.linux.multipath import full_info

# struct mptcp_subflow_info: number, then two sockaddr_storage, local and remote
_SUBFLOW = struct.Struct("=I4x128s128s")
_RECEIVED_AT = 64  # offset of mptcpi_bytes_received in struct mptcp_info
_IPV4_AT = 4  # offset of the address in struct sockaddr_in


class Subflow(NamedTuple):
    """State of a subflow: its number in the connection, its addresses, and TCP's state."""

    number: int
    local: int  # IPv4 address as a number
    remote: int
    tcp: dict[str, int]  # result of `tcp_info.tcp_info` for the subflow


class MultipathInfo(NamedTuple):
    """State of a Multipath TCP connection: its subflows, and the bytes received in order."""

    subflows: list[Subflow]
    bytes_received: int


def multipath_info(connection: socket.socket) -> MultipathInfo | None:
    """Return the state of a Multipath TCP connection; None if it has fallen back to TCP.

    Raises OSError if the connection is closed.
    """
    found = full_info(connection.fileno(), TCP_INFO_BYTES)
    if found is None:
        return None
    subflows = []
    for described, state in zip(found.subflows, found.states, strict=True):
        number, *ends = _SUBFLOW.unpack(described)
        local, remote = (int.from_bytes(end[_IPV4_AT : _IPV4_AT + 4], "big") for end in ends)
        subflows.append(Subflow(number, local, remote, parsed_tcp_info(state)))
    (received,) = struct.unpack_from("=Q", found.connection, _RECEIVED_AT)
    return MultipathInfo(subflows, received)


def is_multipath(connection: socket.socket) -> bool:
    """Return True if a socket was opened for Multipath TCP, whether or not it fell back to TCP."""
    protocol = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL)
    return protocol == socket.IPPROTO_MPTCP


def bytes_received(connection: socket.socket) -> int:
    """Return the bytes that a TCP or Multipath TCP connection has received in order."""
    found = multipath_info(connection) if is_multipath(connection) else None
    if found is None:
        return tcp_info(connection).get("bytes_received", 0)
    return found.bytes_received
