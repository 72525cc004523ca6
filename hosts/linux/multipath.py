"""State of Multipath TCP connections: the socket option MPTCP_FULL_INFO (Linux 6.5).

The option's argument holds pointers to arrays that the kernel fills, so that `socket.getsockopt`
cannot read it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import NamedTuple

SOL_MPTCP, MPTCP_FULL_INFO = 284, 4
MOST_SUBFLOWS = 9  # a connection's first subflow, and the kernel's limit of further ones
SUBFLOW_BYTES = 264  # size of struct mptcp_subflow_info
CONNECTION_BYTES = 256  # room for struct mptcp_info, which newer kernels extend
# Beginning of struct mptcp_full_info: sizes of the two structures of a subflow in the kernel and
# here, number of subflows, room for subflows, and the addresses of both arrays.
_FULL_INFO = struct.Struct("=IIIIIIQQ")

_libc = ctypes.CDLL(None, use_errno=True)


class FullInfo(NamedTuple):
    """The kernel's structures of a connection, and of each subflow."""

    connection: bytes  # struct mptcp_info
    subflows: list[bytes]  # struct mptcp_subflow_info
    states: list[bytes]  # struct tcp_info, as far as the kernel knows its fields


def full_info(descriptor: int, state_bytes: int) -> FullInfo | None:
    """Return the state of a connection; None if it is TCP, or has fallen back to TCP.

    `state_bytes` is the size of struct tcp_info that the caller reads. Raises OSError if the
    connection is closed.
    """
    described = ctypes.create_string_buffer(SUBFLOW_BYTES * MOST_SUBFLOWS)
    states = ctypes.create_string_buffer(state_bytes * MOST_SUBFLOWS)
    asked = _FULL_INFO.pack(
        *(0, state_bytes, 0, SUBFLOW_BYTES, 0, MOST_SUBFLOWS),
        *(ctypes.addressof(described), ctypes.addressof(states)),
    )
    answer = ctypes.create_string_buffer(asked, _FULL_INFO.size + CONNECTION_BYTES)
    size = ctypes.c_uint(len(answer))
    if _libc.getsockopt(descriptor, SOL_MPTCP, MPTCP_FULL_INFO, answer, ctypes.byref(size)):
        number = ctypes.get_errno()
        if number in (errno.EOPNOTSUPP, errno.ENOPROTOOPT):
            return None
        raise OSError(number, os.strerror(number))
    known_bytes, _, _, _, count, _, _, _ = _FULL_INFO.unpack_from(answer)
    places = range(min(count, MOST_SUBFLOWS))
    return FullInfo(
        answer.raw[_FULL_INFO.size :],
        [described.raw[SUBFLOW_BYTES * at : SUBFLOW_BYTES * (at + 1)] for at in places],
        [
            states.raw[state_bytes * at : state_bytes * at + min(known_bytes, state_bytes)]
            for at in places
        ],
    )
