"""State of a TCP connection in Linux: ``struct tcp_info`` of <linux/tcp.h>.

New kernels only append fields, and return as many as they know; later fields are missing.
"""

from __future__ import annotations

import socket
import struct
from functools import cache

# Fields in the kernel's order, without the prefix tcpi_. The offset of each is a multiple of its
# size, so there is no padding between fields.
_GROUPS = (
    ("B", "state ca_state retransmits probes backoff options wscale app_limited"),
    ("I", "rto ato snd_mss rcv_mss unacked sacked lost retrans fackets"),
    ("I", "last_data_sent last_ack_sent last_data_recv last_ack_recv"),
    ("I", "pmtu rcv_ssthresh rtt rttvar snd_ssthresh snd_cwnd advmss reordering"),
    ("I", "rcv_rtt rcv_space total_retrans"),
    ("Q", "pacing_rate max_pacing_rate"),
    ("Q", "bytes_acked bytes_received"),  # fields since Linux 4.1
    # fields since Linux 4.6
    ("I", "segs_out segs_in notsent_bytes min_rtt data_segs_in data_segs_out"),
    ("Q", "delivery_rate busy_time rwnd_limited sndbuf_limited"),  # fields since Linux 4.10
    ("I", "delivered delivered_ce"),  # fields since Linux 4.18
    ("Q", "bytes_sent bytes_retrans"),  # fields since Linux 4.19
    ("I", "dsack_dups reord_seen rcv_ooopack snd_wnd"),  # fields since Linux 5.4
)
FIELDS = tuple((name, code) for code, names in _GROUPS for name in names.split())
SIZE = struct.calcsize("=" + "".join(code for _, code in FIELDS))


def tcp_info(connection: socket.socket) -> dict[str, int]:
    """Return a connection's state in the kernel: times in microseconds, windows in segments.

    Raises OSError if the connection is closed.
    """
    return parsed(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SIZE))


def parsed(data: bytes) -> dict[str, int]:
    """Return the fields of ``struct tcp_info`` that are complete in these bytes.

    >>> parsed(bytes([1, 0, 0, 0, 0, 0, 0, 0, 64, 13, 3, 0]))["rto"]
    200000
    """
    names, layout = _known_fields(min(len(data), SIZE))
    return dict(zip(names, layout.unpack_from(data), strict=True))


@cache
def _known_fields(size: int) -> tuple[list[str], struct.Struct]:
    """Return the names and the layout of the fields within `size` bytes."""
    names: list[str] = []
    codes = "="
    for name, code in FIELDS:
        if struct.calcsize(codes + code) > size:
            break
        names.append(name)
        codes += code
    return names, struct.Struct(codes)
