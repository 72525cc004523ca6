"""Queue of a cable's port: its kind, its length, and when it drops or marks packets.

``droptail`` drops packets that arrive at a full queue. ``codel`` and ``fq_codel`` are the kernel's
(RFC 8289, RFC 8290), if the kernel has them. ``ecn`` is a drop-tail queue that marks packets which
arrive when more than a fifth of it is used (RFC 3168): 20 packets of 100, as DCTCP does at 1 Gbit/s
(Alizadeh et al., SIGCOMM 2010, section 3.5).

A BPF program cannot read the length of a kernel queue. So the marking program models a queue that
is drained at the port's rate. The state of the model is one timestamp: when the port will have sent
all packets so far. The model equals HTB's queue, except for HTB's burst.
"""

from __future__ import annotations

import functools
import re
import struct
from typing import NamedTuple

from experiments.linux import cable_programs
from experiments.linux.netlink import attribute
from hosts.linux import bpf as kernel
from hosts.linux.instructions import call_helper, instruction, set_register
from topos.base.errors import PillarboxError, require

DROPTAIL, CODEL, FQ_CODEL, ECN = "droptail", "codel", "fq_codel", "ecn"
KINDS = (DROPTAIL, CODEL, FQ_CODEL, ECN)
BY_KERNEL = (CODEL, FQ_CODEL)
MARKED_FROM = 1 / 5  # fraction of the queue's length
DEFAULT_LENGTH = "100 packets"
BYTES = {"bytes": 1, "B": 1, "kB": 1e3, "MB": 1e6}
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
TCA_CODEL_LIMIT, TCA_CODEL_ECN = 2, 4  # fq_codel's attributes have the same numbers

ETHERNET_BYTES = 14
MAP_CREATE, ARRAY, MOST_PORTS = 0, 2, 1 << 16
MAP_LOOKUP, KTIME_NS, STORE_BYTES, REPLACE_CHECKSUM = 1, 5, 9, 10  # BPF helper functions
LENGTH, IFINDEX = 0, 40  # offsets in a packet's context (struct __sk_buff)
LATEST_NS = 2**31 - 1  # maximum delay of a queue: the range of an instruction's constant

AT_ONCE_S = 0.003  # burst of a port after idle time, as seconds of its rate


class Queue(NamedTuple):
    """Queue settings of every port.

    `header` is the number of bytes between the Ethernet header and the IP packet, `at_once_s` the
    burst of a port after idle time, in seconds of its rate, and `in_bursts` whether the kernel
    sends queued packets in bursts.
    """

    kind: str = DROPTAIL
    length: str = ""
    header: int = 0
    at_once_s: float = AT_ONCE_S
    in_bursts: bool = False

    def check(self) -> None:
        """Raise PillarboxError if the kind or length of the queue is invalid."""
        require(
            self.kind in KINDS, f"there is no queue {self.kind!r}: there are {', '.join(KINDS)}"
        )
        length_bytes(self.length or DEFAULT_LENGTH, 1e6, 1)

    def bytes(self, bytes_s: float, frame_bytes: int) -> int:
        """Return the queue's capacity in bytes at a rate."""
        return length_bytes(self.length or DEFAULT_LENGTH, bytes_s, frame_bytes)


def length_bytes(length: str, bytes_s: float, frame_bytes: int) -> int:
    """Return a queue length in bytes, from a length in packets, bytes or time.

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
    """Return netlink options for a codel or fq_codel queue, which marks instead of dropping."""
    packets = max(1, limit_bytes // frame_bytes)
    parameters = attribute(TCA_CODEL_LIMIT, struct.pack("=I", packets))
    return parameters + attribute(TCA_CODEL_ECN, struct.pack("=I", 1))


@functools.cache
def marking(bytes_s: int, limit_bytes: int, header: int) -> int:
    """Load the marking program for ports of a rate; it stays loaded for the process's lifetime."""
    limit_ns = min(limit_bytes * 10**9 // bytes_s, LATEST_NS)
    mark_ns = int(limit_bytes * MARKED_FROM) * 10**9 // bytes_s
    return cable_programs.load(
        marks(bytes_s, mark_ns, limit_ns, ETHERNET_BYTES + header, _moments())
    )


@functools.cache
def _moments() -> int:
    """Create the BPF map of timestamps, indexed by a lab's consecutive interface indexes."""
    return kernel.call(MAP_CREATE, struct.pack("=IIIII", ARRAY, 4, 8, MOST_PORTS, 0))


def marks(bytes_s: int, mark_ns: int, limit_ns: int, ip_at: int, moments: int) -> bytes:
    """Return the BPF program that marks packets whose queueing delay exceeds `mark_ns`.

    Packets whose delay would exceed `limit_ns` are dropped by the queue and do not count. The
    program is an HTB filter, which HTB calls for one packet at a time before queueing; it never
    matches.
    """
    require(bytes_s < 2**31, "packets are marked at rates up to 17 Gbit/s")
    parts: list[bytes | _JumpToEnd] = [
        instruction(0xBF, 0x16),  # r6 = r1
        instruction(0x61, 0x11, IFINDEX),  # r1 = index of the port
        instruction(0x57, 1, 0, MOST_PORTS - 1),
        instruction(0x63, 0x1A, -4),  # *(u32 *)(r10 - 4) = r1
        *(instruction(0xBF, 0xA2), instruction(0x07, 2, 0, -4)),  # r2 = r10 - 4
        *(instruction(0x18, 0x11, 0, moments), instruction(0)),  # r1 = the map
        call_helper(MAP_LOOKUP),
        _JumpToEnd(0x15, 0, 0),  # no entry in the map
        instruction(0xBF, 0x07),  # r7 = r0
        call_helper(KTIME_NS),
        instruction(0x79, 0x71, 0),  # r1 = time when the port will have sent all packets so far
        instruction(0x3D, 0x01, 1),  # skip the next instruction if that time is in the future
        instruction(0xBF, 0x01),  # r1 = r0, the current time
        instruction(0x61, 0x62, LENGTH),  # r2 = frame length
        instruction(0x27, 2, 0, 10**9),
        instruction(0x37, 2, 0, bytes_s),  # r2 = transmission time in ns
        instruction(0x0F, 0x21),  # r1 += r2
        instruction(0xBF, 0x12),  # r2 = r1
        instruction(0x1F, 0x02),  # r2 -= r0: time until this packet has left
        _JumpToEnd(0x25, 2, limit_ns),  # the queue is full
        instruction(0x7B, 0x17, 0),
        _JumpToEnd(0xB5, 2, mark_ns),  # the delay is short
        instruction(0x28, 0, 0, ip_at),  # r0 = IP version and type of service
        instruction(0xBF, 0x07),  # r7 = r0
        instruction(0xBF, 0x08),  # r8 = r0
        instruction(0x57, 8, 0, 0xF000),
        _JumpToEnd(0x55, 8, 0x4000),  # jump if the packet is not IPv4
        instruction(0xBF, 0x78),  # r8 = r7
        instruction(0x57, 8, 0, 3),
        _JumpToEnd(0x15, 8, 0),  # jump if the transport is not ECN-capable
        _JumpToEnd(0x15, 8, 3),  # marked already
        instruction(0xBF, 0x73),  # r3 = r7, the old value
        instruction(0x47, 7, 0, 3),  # r7 |= congestion experienced (CE)
        instruction(0x73, 0x7A, -8),  # *(u8 *)(r10 - 8) = r7
        instruction(0xBF, 0x74),  # r4 = r7, the new value
        *(
            instruction(0xDC, 3, 0, 16),
            instruction(0xDC, 4, 0, 16),
        ),  # convert both to network byte order
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


class _JumpToEnd(NamedTuple):
    """A jump to the program's end: opcode, register and the constant to compare with."""

    code: int
    register: int
    constant: int
