"""State of a TCP connection in Linux: ``struct tcp_info`` of <linux/tcp.h>.

New kernels only append fields, and return as many as they know; later fields are missing.
"""

from __future__ import annotations

import socket
import struct
from functools import cache

# Fields of `struct tcp_info` in the kernel's order, without the prefix tcpi_: struct code, names.
# Each field's offset is a multiple of its size, so there is no padding between fields.
_GROUPS = (
    ("B", "state ca_state retransmits probes backoff options wscale app_limited"),
    ("I", "rto ato snd_mss rcv_mss unacked sacked lost retrans fackets"),
    ("I", "last_data_sent last_ack_sent last_data_recv last_ack_recv"),
    ("I", "pmtu rcv_ssthresh rtt rttvar snd_ssthresh snd_cwnd advmss reordering"),
    ("I", "rcv_rtt rcv_space total_retrans"),
    ("Q", "pacing_rate max_pacing_rate"),
    ("Q", "bytes_acked bytes_received"),  # TCP_INFO fields since Linux 4.1
    # TCP_INFO fields since Linux 4.6
    ("I", "segs_out segs_in notsent_bytes min_rtt data_segs_in data_segs_out"),
    (
        "Q",
        "delivery_rate busy_time rwnd_limited sndbuf_limited",
    ),  # TCP_INFO fields since Linux 4.10
    ("I", "delivered delivered_ce"),  # TCP_INFO fields since Linux 4.18
    ("Q", "bytes_sent bytes_retrans"),  # TCP_INFO fields since Linux 4.19
    ("I", "dsack_dups reord_seen rcv_ooopack snd_wnd"),  # TCP_INFO fields since Linux 5.4
)
FIELDS = tuple((name, code) for code, names in _GROUPS for name in names.split())
SIZE = struct.calcsize("=" + "".join(code for _, code in FIELDS))


def tcp_info(connection: socket.socket) -> dict[str, int]:
    """Return a TCP connection's TCP_INFO: times in microseconds, windows in segments.

    Raises OSError if the connection is closed.
    """
    return parsed_tcp_info(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SIZE))


def parsed_tcp_info(data: bytes) -> dict[str, int]:
    """Return the values of all ``struct tcp_info`` fields that `data` contains.

    >>> parsed_tcp_info(bytes([1, 0, 0, 0, 0, 0, 0, 0, 64, 13, 3, 0]))["rto"]
    200000
    """
    names, layout = _known_fields(min(len(data), SIZE))
    return dict(zip(names, layout.unpack_from(data), strict=True))


@cache
def _known_fields(size: int) -> tuple[list[str], struct.Struct]:
    """Return names and layout of the ``struct tcp_info`` fields within `size` bytes."""
    names: list[str] = []
    codes = "="
    for name, code in FIELDS:
        if struct.calcsize(codes + code) > size:
            break
        names.append(name)
        codes += code
    return names, struct.Struct(codes)
