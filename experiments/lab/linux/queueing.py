"""Queue of a cable's port: its kind, its length, and when it drops or marks packets.

``droptail`` drops packets that arrive at a full queue. ``codel`` and ``fq_codel`` are the kernel's
(RFC 8289, RFC 8290), if the kernel has them. ``ecn`` is a drop-tail queue that marks packets which
arrive when more than a fifth of it is used (RFC 3168): 20 packets of 100, as DCTCP does at 1 Gbit/s
(Alizadeh et al., SIGCOMM 2010, section 3.5).

A BPF program cannot read the length of a kernel queue. So the marking program models a queue that
is drained at the port's rate. The state of the model is one timestamp: when the port will have sent
all packets so far. The model equals HTB's queue, except for HTB's burst, and except after the port
sent late: `raise_computed_queue` corrects that (`emulation.marked_queues`).
"""

from __future__ import annotations

import functools
import re
import struct
from typing import NamedTuple

from pillarbox.experiments.lab.linux import cable_programs
from pillarbox.experiments.models.port_bursts import AT_ONCE_S
from pillarbox.hosts.linux import bpf as kernel
from pillarbox.hosts.linux import instructions as ebpf
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.instructions import R0, R1, R2, R3, R4, R5, R6, R7, R8, R10
from pillarbox.hosts.linux.netlink import attribute
from pillarbox.topos.base.errors import PillarboxError, UnknownNameError, require

DROPTAIL, CODEL, FQ_CODEL, ECN = "droptail", "codel", "fq_codel", "ecn"
KINDS = (DROPTAIL, CODEL, FQ_CODEL, ECN)
BY_KERNEL = (CODEL, FQ_CODEL)
MARKED_FROM = 1 / 5  # fraction of a queue's length from which packets get an ECN mark
DEFAULT_LENGTH = "100 packets"
BYTES = {"bytes": 1, "B": 1, "kB": 1e3, "MB": 1e6}
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}

ETHERNET_BYTES = 14
MAP_CREATE, ARRAY, MOST_PORTS = 0, 2, 1 << 16
MAP_LOOKUP, KTIME_NS, STORE_BYTES, REPLACE_CHECKSUM = 1, 5, 9, 10  # BPF helper functions
# Offsets in a packet's context (struct __sk_buff). A super-packet's length on the wire counts the
# headers of all its segments, as the shaper does: otherwise the computed queue falls behind.
WIRE_LENGTH, IFINDEX = 160, 40
# difference of the real from the computed queueing delay that is corrected: a reading takes time
TOLERATED_NS = 1_000_000
LATEST_NS = 2**31 - 1  # maximum queueing delay in ns: a BPF constant has 32 bits


class Queue(NamedTuple):
    """Queue settings of every port: queueing discipline, length and burst.

    `header` is the number of bytes between the Ethernet header and the IP packet, `at_once_s` the
    burst of a port after idle time, in seconds of its rate, and `in_bursts` whether the kernel
    sends queued packets in bursts. `single_packets` is whether TCP sends packets of one segment.
    """

    kind: str = DROPTAIL
    length: str = ""
    header: int = 0
    at_once_s: float = AT_ONCE_S
    in_bursts: bool = False
    single_packets: bool = False

    def check(self) -> None:
        """Raise PillarboxError if the kind or length of the queue is invalid."""
        require(
            self.kind in KINDS,
            f"there is no queue {self.kind!r}: there are {', '.join(KINDS)}",
            UnknownNameError,
        )
        length_bytes(self.length or DEFAULT_LENGTH, 1e6, 1)

    def bytes(self, bytes_s: float, frame_bytes: int) -> int:
        """Return a port queue's capacity in bytes, at a rate in bytes per second."""
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
    parameters = attribute(nl.TCA_CODEL_LIMIT, struct.pack("=I", packets))
    return parameters + attribute(nl.TCA_CODEL_ECN, struct.pack("=I", 1))


@functools.cache
def load_ecn_marking_program(bytes_s: int, limit_bytes: int, header: int) -> int:
    """Load the BPF program that sets ECN marks at ports of a rate; return its descriptor."""
    limit_ns = min(limit_bytes * 10**9 // bytes_s, LATEST_NS)
    mark_ns = int(limit_bytes * MARKED_FROM) * 10**9 // bytes_s
    return cable_programs.load(
        ecn_marking_program(
            bytes_s, mark_ns, limit_ns, ETHERNET_BYTES + header, _queue_end_times_map()
        )
    )


@functools.cache
def _queue_end_times_map() -> int:
    """Create the BPF map with the time at which each port's queue will be empty."""
    return kernel.call_bpf(MAP_CREATE, struct.pack("=IIIII", ARRAY, 4, 8, MOST_PORTS, 0))


_marking_rates: dict[int, int] = {}  # bytes per second of ports that mark, by interface index


def set_marking_rate(index: int, bytes_s: int) -> None:
    """Store the rate of a port that marks packets, for `raise_computed_queue`."""
    _marking_rates[index] = bytes_s


def raise_computed_queue(index: int, waiting_bytes: int, now_ns: int) -> bool:
    """Raise a port's computed queue to its real length; return True if it was too short."""
    bytes_s = _marking_rates.get(index)
    if bytes_s is None or not waiting_bytes:
        return False
    table = kernel.Map(_queue_end_times_map(), 4, 8, MOST_PORTS)
    key = struct.pack("=I", index & MOST_PORTS - 1)
    (computed_ns,) = struct.unpack("=Q", table[key])
    end_ns = now_ns + waiting_bytes * 10**9 // bytes_s
    if end_ns <= max(computed_ns, now_ns) + TOLERATED_NS:
        return False
    table[key] = struct.pack("=Q", end_ns)
    return True


def ecn_marking_program(
    bytes_s: int, mark_ns: int, limit_ns: int, ip_at: int, moments: int
) -> bytes:
    """Return the BPF program that sets ECN marks if the queueing delay exceeds `mark_ns`.

    Packets whose delay would exceed `limit_ns` do not count, since the queue drops them. The
    program is an HTB filter, which HTB calls for one packet at a time before queueing; it never
    matches.
    """
    require(bytes_s < 2**31, "packets are marked at rates up to 17 Gbit/s")
    slot, byte = -4, -8  # offsets on the stack: the map's key, and the byte to write
    parts: list[bytes | _JumpToEnd] = [
        ebpf.copy(R6, R1),
        ebpf.load(ebpf.WORD, R1, R1, IFINDEX),
        ebpf.calculate(ebpf.AND, R1, MOST_PORTS - 1),
        ebpf.store(ebpf.WORD, R10, slot, R1),
        *(ebpf.copy(R2, R10), ebpf.calculate(ebpf.ADD, R2, slot)),
        ebpf.set_map(R1, moments),
        ebpf.call_helper(MAP_LOOKUP),
        _JumpToEnd(ebpf.EQUAL, R0, 0),  # the port has no entry in the map of timestamps
        ebpf.copy(R7, R0),
        ebpf.call_helper(KTIME_NS),
        ebpf.load(ebpf.DOUBLE, R1, R7),  # time when the port will have sent all packets so far
        ebpf.skip_if_register(ebpf.AT_LEAST, R1, R0, 1),  # the queue is not empty: keep that time
        ebpf.copy(R1, R0),  # the queue is empty: start from the current time
        ebpf.load(ebpf.WORD, R2, R6, WIRE_LENGTH),
        ebpf.calculate(ebpf.MULTIPLY, R2, 10**9),
        ebpf.calculate(ebpf.DIVIDE, R2, bytes_s),  # transmission time of this packet in ns
        ebpf.calculate_with(ebpf.ADD, R1, R2),
        ebpf.copy(R2, R1),
        ebpf.calculate_with(ebpf.SUBTRACT, R2, R0),  # time until this packet has left
        # A packet that the computed queue has no room for does not count, but is marked: the real
        # queue, which is shorter by HTB's burst, may take the packet.
        ebpf.skip_if(ebpf.ABOVE, R2, limit_ns, 1),
        ebpf.store(ebpf.DOUBLE, R7, 0, R1),
        _JumpToEnd(ebpf.AT_MOST, R2, mark_ns),  # the queueing delay is too short for a mark
        ebpf.load_packet(ebpf.HALF, ip_at),  # IP version and type of service
        *(ebpf.copy(R7, R0), ebpf.copy(R8, R0)),
        ebpf.calculate(ebpf.AND, R8, 0xF000),
        _JumpToEnd(ebpf.DIFFERENT, R8, 0x4000),  # the packet is not IPv4
        ebpf.copy(R8, R7),
        ebpf.calculate(ebpf.AND, R8, 3),
        _JumpToEnd(ebpf.EQUAL, R8, 0),  # the packet's transport is not ECN-capable
        _JumpToEnd(ebpf.EQUAL, R8, 3),  # the packet has an ECN mark already
        ebpf.copy(R3, R7),  # type of service before the mark
        ebpf.calculate(ebpf.OR, R7, 3),  # congestion experienced (CE)
        ebpf.store(ebpf.BYTE, R10, byte, R7),
        ebpf.copy(R4, R7),  # type of service with the mark
        *(ebpf.to_network_order(R3, 16), ebpf.to_network_order(R4, 16)),
        *(ebpf.copy(R1, R6), ebpf.set_register(R2, ip_at + 10), ebpf.set_register(R5, 2)),
        ebpf.call_helper(REPLACE_CHECKSUM),
        *(ebpf.copy(R1, R6), ebpf.set_register(R2, ip_at + 1)),
        *(ebpf.copy(R3, R10), ebpf.calculate(ebpf.ADD, R3, byte)),
        *(ebpf.set_register(R4, 1), ebpf.set_register(R5, 0), ebpf.call_helper(STORE_BYTES)),
    ]
    sizes = [ebpf.length(part) if isinstance(part, bytes) else 1 for part in parts]
    code = [
        part if isinstance(part, bytes) else ebpf.skip_if(*part, sum(sizes[at + 1 :]))
        for at, part in enumerate(parts)
    ]
    return b"".join([*code, ebpf.set_register(R0, 0), ebpf.EXIT])


class _JumpToEnd(NamedTuple):
    """A BPF jump to the program's end: condition, register and constant to compare."""

    condition: int
    register: int
    constant: int
