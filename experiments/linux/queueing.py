"""What waits at a port, how much of it, and what becomes of the rest: a cable's queue.

``droptail`` drops what finds the queue full. ``codel`` and ``fq_codel`` are the kernel's (RFC 8289,
RFC 8290), where it has them. ``ecn`` is a drop-tail queue that marks packets which find more than a
fifth of it taken (RFC 3168): 20 packets of 100, as DCTCP does at 1 Gbit/s (Alizadeh et al., SIGCOMM
2010, section 3.5).

No program may read how long a queue of the kernel's is. The one that marks keeps a queue of its
own that is drained at the port's rate, and which is only a moment: that at which the port will have
sent all that it was given. It is what HTB makes wait, but for its burst.
"""

from __future__ import annotations

import functools
import re
import struct
from typing import NamedTuple

from experiments.linux import bpf
from experiments.linux.netlink import attribute
from hosts.linux import bpf as kernel
from hosts.linux.instructions import call_helper, instruction, set_register
from topos.base.errors import PillarboxError, require

DROPTAIL, CODEL, FQ_CODEL, ECN = "droptail", "codel", "fq_codel", "ecn"
KINDS = (DROPTAIL, CODEL, FQ_CODEL, ECN)
BY_KERNEL = (CODEL, FQ_CODEL)
MARKED_FROM = 1 / 5  # of the queue
DEFAULT_LENGTH = "100 packets"
BYTES = {"bytes": 1, "B": 1, "kB": 1e3, "MB": 1e6}
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
TCA_CODEL_LIMIT, TCA_CODEL_ECN = 2, 4  # fq_codel's have the same numbers

ETHERNET_BYTES = 14
MAP_CREATE, ARRAY, MOST_PORTS = 0, 2, 1 << 16
MAP_LOOKUP, KTIME_NS, STORE_BYTES, REPLACE_CHECKSUM = 1, 5, 9, 10  # helper functions
LENGTH, IFINDEX = 0, 40  # where in a packet's context (struct __sk_buff)
LATEST_NS = 2**31 - 1  # of a queue: what one instruction can hold

AT_ONCE_S = 0.003  # of its rate, that a port at rest lets pass


class Queue(NamedTuple):
    """The queue of every port.

    `header` is what stands between a frame's head and its IP packet; `at_once_s` how much of its
    rate a port at rest lets pass at once. `in_bursts`: the kernel lets what waits go in bursts.
    """

    kind: str = DROPTAIL
    length: str = ""
    header: int = 0
    at_once_s: float = AT_ONCE_S
    in_bursts: bool = False

    def check(self) -> None:
        """Refuse what there is not."""
        require(
            self.kind in KINDS, f"there is no queue {self.kind!r}: there are {', '.join(KINDS)}"
        )
        length_bytes(self.length or DEFAULT_LENGTH, 1e6, 1)

    def bytes(self, bytes_s: float, frame_bytes: int) -> int:
        """Return how much it holds at that rate."""
        return length_bytes(self.length or DEFAULT_LENGTH, bytes_s, frame_bytes)


def length_bytes(length: str, bytes_s: float, frame_bytes: int) -> int:
    """Return a length in bytes, given in packets of so many bytes, in bytes, or in time.

    >>> length_bytes("20 packets", 1e6, 1514), length_bytes("150 kB", 1e6, 1514)
    (30280, 150000)
    >>> length_bytes("5ms", 1e6, 1514)
    5000
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-zA-Z]+)", length)
    value, unit = (float(found[1]), found[2]) if found else (0.0, "")
    each = {"packets": frame_bytes, "packet": frame_bytes, **BYTES}.get(unit)
    if each is None and unit in SECONDS:
        each = SECONDS[unit] * bytes_s
    if not value or each is None:
        raise PillarboxError(
            f"{length!r} is no length of a queue: write packets, bytes or time, such as "
            "'100 packets', '150 kB' or '10ms'"
        )
    return max(1, int(value * each))


def options(limit_bytes: int, frame_bytes: int) -> bytes:
    """Return what the kernel is told of its own kinds of queues; they mark rather than drop."""
    packets = max(1, limit_bytes // frame_bytes)
    parameters = attribute(TCA_CODEL_LIMIT, struct.pack("=I", packets))
    return parameters + attribute(TCA_CODEL_ECN, struct.pack("=I", 1))


@functools.cache
def marking(bytes_s: int, limit_bytes: int, header: int) -> int:
    """Load the program that marks at ports of that rate, for as long as this process lives."""
    limit_ns = min(limit_bytes * 10**9 // bytes_s, LATEST_NS)
    mark_ns = int(limit_bytes * MARKED_FROM) * 10**9 // bytes_s
    return bpf.load(marks(bytes_s, mark_ns, limit_ns, ETHERNET_BYTES + header, _moments()))


@functools.cache
def _moments() -> int:
    """Make the table of when each port will have sent all; a lab's indexes follow one another."""
    return kernel.call(MAP_CREATE, struct.pack("=IIIII", ARRAY, 4, 8, MOST_PORTS, 0))


def marks(bytes_s: int, mark_ns: int, limit_ns: int, ip_at: int, moments: int) -> bytes:
    """Return the program that marks what would wait longer than `mark_ns` to leave a port.

    What would wait longer than `limit_ns` is going to be dropped, and does not count. To be used as
    a filter of HTB, which calls it before a packet waits, one at a time: it never matches.
    """
    require(bytes_s < 2**31, "packets are marked at rates up to 17 Gbit/s")
    parts: list[bytes | _Out] = [
        instruction(0xBF, 0x16),  # r6 = r1
        instruction(0x61, 0x11, IFINDEX),  # r1 = the port
        instruction(0x57, 1, 0, MOST_PORTS - 1),
        instruction(0x63, 0x1A, -4),  # *(u32 *)(r10 - 4) = r1
        *(instruction(0xBF, 0xA2), instruction(0x07, 2, 0, -4)),  # r2 = r10 - 4
        *(instruction(0x18, 0x11, 0, moments), instruction(0)),  # r1 = the table
        call_helper(MAP_LOOKUP),
        _Out(0x15, 0, 0),  # it is not there
        instruction(0xBF, 0x07),  # r7 = r0
        call_helper(KTIME_NS),
        instruction(0x79, 0x71, 0),  # r1 = when the port will have sent all
        instruction(0x3D, 0x01, 1),  # that is to come; else
        instruction(0xBF, 0x01),  # r1 = r0, which is now
        instruction(0x61, 0x62, LENGTH),  # r2 = the frame's length
        instruction(0x27, 2, 0, 10**9),
        instruction(0x37, 2, 0, bytes_s),  # r2 = how long it takes
        instruction(0x0F, 0x21),  # r1 += r2
        instruction(0xBF, 0x12),  # r2 = r1
        instruction(0x1F, 0x02),  # r2 -= r0: how long until it has left
        _Out(0x25, 2, limit_ns),  # there is no room for it
        instruction(0x7B, 0x17, 0),
        _Out(0xB5, 2, mark_ns),  # that is not long
        instruction(0x28, 0, 0, ip_at),  # r0 = version and type of service
        instruction(0xBF, 0x07),  # r7 = r0
        instruction(0xBF, 0x08),  # r8 = r0
        instruction(0x57, 8, 0, 0xF000),
        _Out(0x55, 8, 0x4000),  # it is not IPv4
        instruction(0xBF, 0x78),  # r8 = r7
        instruction(0x57, 8, 0, 3),
        _Out(0x15, 8, 0),  # its sender does not speak ECN
        _Out(0x15, 8, 3),  # it is marked already
        instruction(0xBF, 0x73),  # r3 = r7, before
        instruction(0x47, 7, 0, 3),  # r7 |= congestion experienced
        instruction(0x73, 0x7A, -8),  # *(u8 *)(r10 - 8) = r7
        instruction(0xBF, 0x74),  # r4 = r7, after
        *(instruction(0xDC, 3, 0, 16), instruction(0xDC, 4, 0, 16)),  # as packets have them
        *(instruction(0xBF, 0x61), set_register(2, ip_at + 10), set_register(5, 2)),
        call_helper(REPLACE_CHECKSUM),
        *(instruction(0xBF, 0x61), set_register(2, ip_at + 1)),
        *(instruction(0xBF, 0xA3), instruction(0x07, 3, 0, -8)),  # r3 = r10 - 8
        *(set_register(4, 1), set_register(5, 0), call_helper(STORE_BYTES)),
    ]
    out = len(parts)
    code = [
        part if isinstance(part, bytes) else instruction(part[0], part[1], out - at - 1, part[2])
        for at, part in enumerate(parts)
    ]
    return b"".join([*code, set_register(0, 0), instruction(0x95)])


class _Out(NamedTuple):
    """A jump to the end: its code, the register that it looks at, and what it compares it with."""

    code: int
    register: int
    constant: int
