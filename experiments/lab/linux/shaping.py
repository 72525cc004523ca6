"""Rate, queue, delay and loss of a cable, as a switch's port has them.

The rate is limited by the kernel's HTB at both ends, with a drop-tail queue. TBF is unsuitable: it
segments the super-packets of modern TCP and drops those with headers it does not know. The queue
holds 100 packets, counted in bytes: a super-packet of 64 KB is one packet to Linux, and a hundred
of them at 10 Mbit/s would be five seconds of traffic. The size of a super-packet is bounded to
about 1 ms of the rate, or two segments; from 150 Mbit/s on, where that is large, the queue holds
eight super-packets. The burst of a port after idle time is two super-packets, or 3 ms of the rate,
plus the packet that exceeds it (`port_bursts.burst_bytes`). Queued packets are sent in bursts of
half of that where the kernel supports it (`HYSTERESIS`; ADR 16): a timer for each frame costs more
than all other work on the frame. This is also how late a timer may fire on a busy machine before
the port's rate suffers.

Servers' control messages (heartbeats, probes, failure notifications) have priority, like network
control in switches with priorities (IEEE 802.1p): at 10 Mbit/s a full queue is 120 ms of traffic,
on a cable that stands for one of 1 Gbit/s, where it is 1 ms. After a full queue they would come too
late, and routing would report failures in a busy network. A queue with a delay by netem has no
priority band. Heartbeats are not even counted (`PAST_SHAPERS`): they take some kbit/s of a cable,
and are the only traffic of an idle network.

Delay and jitter are netem's if the kernel has it, else the process of `delays`. Loss is a BPF
program (see `cable_programs`), which every kernel supports.
"""

from __future__ import annotations

import functools
import struct
from pathlib import Path
from typing import NamedTuple

from pillarbox.experiments.lab.linux import cable_programs, classic_filters, queueing
from pillarbox.experiments.lab.linux.namespaces import Namespace
from pillarbox.experiments.lab.linux.queueing import Queue
from pillarbox.experiments.models.port_bursts import (
    AT_ONCE_S,
    MOST_SUPER_PACKET,
    super_packet_bytes,
)
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.bpf import may_load_programs
from pillarbox.hosts.linux.netlink import (
    Message,
    NetlinkError,
    attribute,
    interface,
    number,
    tc_header,
    text,
)
from pillarbox.hosts.live.devices import PAST_SHAPERS
from pillarbox.topos.base.errors import NotPermittedError, PillarboxError, UnsupportedError, require

# sysfs file of HTB's hysteresis, a setting of the whole machine: packets leave in bursts
HYSTERESIS = Path("/sys/module/sch_htb/parameters/htb_hysteresis")
ROOT = 0xFFFFFFFF
# handles of queueing disciplines, in tc's notation 5: and 10:
HTB_HANDLE, DATA_HANDLE = PAST_SHAPERS, 0x10 << 16
# HTB handle at ports with netem, where heartbeats are delayed like data
DELAYED_HANDLE = 0x6 << 16
HTB_CLASS, CONTROL_CLASS, DATA_CLASS = HTB_HANDLE | 1, HTB_HANDLE | 2, HTB_HANDLE | 3
# fraction of a port's rate guaranteed to control messages; data may use the unused part
CONTROL_SHARE = 0.1
LINKLAYER_ETHERNET = 1
QUEUE_PACKETS = 100
ETHERNET_BYTES = 14
FRAME_BYTES = 1500 + ETHERNET_BYTES
HEADER_ROOM = 64  # bytes of a port's MTU for the headers below IP, where servers relay
LEAST_SUPER_PACKETS = 8  # minimum capacity of a port's queue, in super-packets of TCP
MOST_RATE_MBIT = 1e6
UNLIMITED_MBIT = 10_000.0  # rate assumed for netem's queue on a link without a rate
MOST_HEADERS = 512  # bytes of TCP's super-packets reserved for headers
DROPTAIL = Queue()
UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class LinkDelay(NamedTuple):
    """Delay of a cable and its jitter in seconds; frames are never reordered."""

    delay_s: float
    jitter_s: float = 0.0


def seconds(value: str | float, what: str) -> float:
    """Return a time in seconds, from Mininet's notation: ``5ms``, ``100us``, ``1s``.

    >>> seconds("5ms", "delay")
    0.005
    """
    digits = str(value).rstrip("msu")
    unit = str(value)[len(digits) :]
    try:
        return float(digits) * UNITS_S[unit]
    except (ValueError, KeyError):
        raise PillarboxError(
            f"{value!r} is no {what} of a link: write a number and its unit, such as 5ms or 100us"
        ) from None


def scaled_delay(delay: str | None, factor: float) -> str | None:
    """Return a link's delay times a factor, in the same notation.

    >>> scaled_delay("0.5ms", 3), scaled_delay("1s", 1), scaled_delay(None, 3)
    ('1.5ms', '1s', None)
    """
    if delay is None or factor == 1:
        return delay
    digits = delay.rstrip("msu")
    seconds(delay, "delay")
    return f"{float(digits) * factor:g}{delay[len(digits) :]}"


def checked_delay(delay: str | float | None, jitter: str | float | None) -> LinkDelay | None:
    """Return the delay of a link, None if delay and jitter are absent."""
    if not delay and not jitter:
        return None
    both = LinkDelay(seconds(delay, "delay") if delay else 0.0, seconds(jitter or "0s", "jitter"))
    require(
        0 <= both.jitter_s <= both.delay_s <= 60,
        f"a link's delay is at most 60s and its jitter no more than its delay, not {delay} and "
        f"{jitter}",
    )
    return both


def check_rate(rate_mbit: float | None) -> None:
    """Raise PillarboxError if a cable's rate is out of range; None means no limit."""
    require(
        rate_mbit is None or 0 < rate_mbit <= MOST_RATE_MBIT,
        f"a cable's rate is above 0 and at most {MOST_RATE_MBIT:g} Mbit/s, not {rate_mbit}",
    )


def check_loss(percent: float | None) -> None:
    """Raise PillarboxError if a cable's loss is out of range, in percent."""
    require(
        percent is None or 0 <= percent <= 100,
        f"a cable loses 0 to 100 percent of its frames, not {percent}",
    )


def catch_up_s(value: str) -> float:
    """Parse the burst of a port after idle time, as in ``3ms``; return it in seconds.

    >>> catch_up_s("3ms")
    0.003
    """
    found = seconds(value, "time that a port may catch up")
    require(0 <= found <= 1, f"the catch-up time of a port is 0ms to 1s, not {value}")
    return found


def in_bursts() -> bool:
    """Return True if the kernel sends queued packets in bursts (HTB's hysteresis is on)."""
    try:
        return HYSTERESIS.read_text().strip() != "0"
    except OSError:
        return False


def port_mtu(mtu: int, relays: bool) -> int:
    """Return the MTU of cable ports from TCP's MTU; relaying servers add headers below IP.

    >>> port_mtu(1500, relays=True), port_mtu(1500, relays=False)
    (1564, 1500)
    """
    return mtu + (HEADER_ROOM if relays else 0)


def bound_super_packets(index: int, size: int, packets: int | None = None) -> Message:
    """Return the request that bounds TCP's super-packets at an interface, in bytes and packets.

    The interface is that by which programs send. A port after it would have to segment larger
    super-packets, and cannot if they have a header that Linux does not know.
    """
    most = min(size + MOST_HEADERS, MOST_SUPER_PACKET)
    body = interface(index) + number(nl.IFLA_GSO_MAX_SIZE, most)
    if packets is not None:
        body += number(nl.IFLA_GSO_MAX_SEGS, packets)
    return Message(nl.RTM_NEWLINK, 0, body, f"bound the packets of interface {index}")


def limited(
    index: int,
    rate_mbit: float | None,
    delay: LinkDelay | None,
    queue_packets: int | None = None,
    frame_bytes: int = FRAME_BYTES,
    queue: Queue = DROPTAIL,
) -> list[Message]:
    """Return the requests that give an interface a rate, a queue and netem's delay.

    The queue holds `queue_packets` packets of `frame_bytes`, or its own length if set.

    The rate counts Ethernet frames with their 14-byte headers: TCP's goodput over packets of 1500
    bytes is 95.6 % of it.
    """
    packets = QUEUE_PACKETS if queue_packets is None else int(queue_packets)
    require(packets >= 1, f"a link's queue holds at least one packet, not {queue_packets}")
    if rate_mbit is None:
        return [_delayed(index, ROOT, delay, packets, UNLIMITED_MBIT)] if delay else []
    check_rate(rate_mbit)
    deed = f"limit interface {index} to {rate_mbit:g} Mbit/s"
    bytes_s = int(rate_mbit * 125_000)
    size = super_packet_bytes(rate_mbit, frame_bytes - ETHERNET_BYTES)
    usual = HTB_CLASS if delay else DATA_CLASS  # HTB class of packets that match no filter
    root = DELAYED_HANDLE if delay else HTB_HANDLE
    # options of the HTB request: version, and divisor from rate to quantum
    opening = struct.pack("=IIIII", 3, 10, usual & 0xFFFF, 0, 0)
    rate = [
        _qdisc_request(
            nl.RTM_NEWQDISC, index, root, ROOT, "htb", attribute(nl.TCA_HTB_INIT, opening), deed
        ),
        _htb_class_request(index, root | 1, root, (bytes_s, bytes_s), size, deed, queue),
    ]
    if delay:
        require(
            queue._replace(header=0, at_once_s=AT_ONCE_S, in_bursts=False, single_packets=False)
            == DROPTAIL,
            "a queue with a delay of netem's is droptail, of 100 packets",
        )
        return [*rate, _delayed(index, root | 1, delay, packets, rate_mbit)]
    control_bytes_s = int(bytes_s * CONTROL_SHARE)
    limit = queue_bytes(rate_mbit, packets, frame_bytes, queue)
    control, data = (control_bytes_s, bytes_s), (bytes_s - control_bytes_s, bytes_s)
    return [
        *rate,
        _htb_class_request(index, CONTROL_CLASS, HTB_CLASS, control, size, deed, queue),
        _htb_class_request(index, DATA_CLASS, HTB_CLASS, data, size, deed, queue, priority=1),
        _data_queue(index, queue, limit, frame_bytes, deed),
        cable_programs.queue_filter_request(
            index, HTB_HANDLE, CONTROL_CLASS, _control_filter(), deed
        ),
        *_marking_filter(index, queue, bytes_s, limit, deed),
    ]


def queue_bytes(rate_mbit: float, packets: int, frame_bytes: int, queue: Queue = DROPTAIL) -> int:
    """Return a port queue's capacity in bytes, from its limit in packets or its length.

    >>> queue_bytes(10, 100, 1514), queue_bytes(1000, 100, 1514)
    (151400, 524288)
    """
    size = super_packet_bytes(rate_mbit, frame_bytes - ETHERNET_BYTES)
    if queue.length:
        return max(queue.bytes(int(rate_mbit * 125_000), frame_bytes), size)
    return max(packets * frame_bytes, LEAST_SUPER_PACKETS * size)


def _data_queue(index: int, queue: Queue, limit: int, frame_bytes: int, deed: str) -> Message:
    """Return the request for the queueing discipline that holds data packets."""
    kind, parameters = "bfifo", struct.pack("=I", limit)
    if queue.kind in queueing.BY_KERNEL:
        kind, parameters = queue.kind, queueing.options(limit, frame_bytes)
    return _qdisc_request(nl.RTM_NEWQDISC, index, DATA_HANDLE, DATA_CLASS, kind, parameters, deed)


def _marking_filter(index: int, queue: Queue, bytes_s: int, limit: int, deed: str) -> list[Message]:
    """Return the request for the BPF program that sets ECN marks, if the queue needs it."""
    if queue.kind != queueing.ECN:
        return []
    program = queueing.load_ecn_marking_program(bytes_s, limit, queue.header)
    queueing.set_marking_rate(index, bytes_s)
    return [
        cable_programs.queue_filter_request(
            *(index, HTB_HANDLE, DATA_CLASS, number(nl.TCA_BPF_FD, program)),
            *(deed, cable_programs.MARKING),
        )
    ]


def token_bucket_requests(index: int, bytes_s: int, catch_up_bytes: int) -> list[Message]:
    """Return the requests that limit an interface's sending rate by a token bucket.

    After a delay the interface may catch up with a burst of `catch_up_bytes`. It uses TBF, which
    has HTB's timer and no hysteresis.
    """
    # rate and (zero) no peak rate of the token bucket
    limits = _tc_rate_struct(bytes_s) + _tc_rate_struct(0)
    limits += struct.pack("=III", 0xFFFFFFFF, _scheduler_ticks(catch_up_bytes / bytes_s), 0)
    options = attribute(nl.TCA_TBF_PARMS, limits)
    options += attribute(nl.TCA_TBF_BURST, struct.pack("=I", catch_up_bytes))
    return [
        _qdisc_request(
            nl.RTM_NEWQDISC, index, HTB_HANDLE, ROOT, "tbf", options, f"pace interface {index}"
        )
    ]


def unlimited(index: int) -> list[Message]:
    """Return the netlink request that removes an interface's rate limit and delay."""
    deed = f"take the limits of interface {index} away"
    return [Message(nl.RTM_DELQDISC, 0, tc_header(index, 0, ROOT), deed)]


@functools.cache
def kernel_has_netem() -> bool:
    """Return True if the kernel has netem."""
    return _kernel_takes(limited(1, None, LinkDelay(1e-3)))


@functools.cache
def kernel_has_queue(kind: str) -> bool:
    """Return True if the kernel has a kind of queueing discipline."""
    return _kernel_takes(limited(1, 1.0, None, queue=Queue(kind)))


def load_htb() -> None:
    """Load HTB if it is a kernel module, since its settings exist only then."""
    if not HYSTERESIS.exists():
        _kernel_takes(limited(1, 1.0, None))


def _kernel_takes(requests: list[Message]) -> bool:
    """Return True if the kernel accepts netlink requests in a temporary network namespace."""
    namespace = Namespace()
    try:
        namespace.netlink.send(requests)
    except NetlinkError:
        return False
    finally:
        namespace.close()
    return True


def check_queue(queue: Queue) -> None:
    """Raise PillarboxError if the queue is invalid or unsupported by this kernel."""
    queue.check()
    require(
        queue.kind != queueing.ECN or may_load_programs(),
        "the queue ecn marks packets in eBPF, which needs root: use sudo",
        NotPermittedError,
    )
    require(
        queue.kind not in queueing.BY_KERNEL or kernel_has_queue(queue.kind),
        f"this kernel has no {queue.kind} (CONFIG_NET_SCH_{queue.kind.upper()}): choose the queue "
        "droptail, or ecn, which marks packets by a program",
        UnsupportedError,
    )


def _delayed(index: int, parent: int, delay: LinkDelay, packets: int, rate_mbit: float) -> Message:
    """Return the request for netem, whose queue holds frames in transit and waiting frames."""
    in_transit = int((delay.delay_s + delay.jitter_s) * rate_mbit * 125_000 / 1500)
    ticks, jitter_ticks = _scheduler_ticks(delay.delay_s), _scheduler_ticks(delay.jitter_s)
    data = struct.pack("=IIIIII", ticks, packets + in_transit, 0, 0, 0, jitter_ticks)
    deed = f"delay what interface {index} sends by {delay.delay_s * 1e3:g} ms"
    return _qdisc_request(nl.RTM_NEWQDISC, index, DATA_HANDLE, parent, "netem", data, deed)


def _htb_class_request(
    index: int,
    handle: int,
    parent: int,
    rates_bytes_s: tuple[int, int],
    size: int,
    deed: str,
    queue: Queue,
    *,
    priority: int = 0,
) -> Message:
    """Return the request for an HTB class with a guaranteed rate and a maximum by borrowing.

    The quantum is a super-packet of `size` bytes. A class after idle time may send its burst; with
    hysteresis it continues until it owes as much.
    """
    rate, most = rates_bytes_s
    burst_s = queue.at_once_s / 2 if queue.in_bursts else queue.at_once_s
    bursts = (_scheduler_ticks(max(size / each, burst_s)) for each in rates_bytes_s)
    limits = _tc_rate_struct(rate) + _tc_rate_struct(most)
    limits += struct.pack("=IIIII", *bursts, size, 0, priority)
    options = attribute(nl.TCA_HTB_PARMS, limits)
    options += attribute(nl.TCA_HTB_RATE64, struct.pack("=Q", rate))
    options += attribute(nl.TCA_HTB_CEIL64, struct.pack("=Q", most))
    return _qdisc_request(nl.RTM_NEWTCLASS, index, handle, parent, "htb", options, deed)


@functools.cache
def _control_filter() -> bytes:
    """Return the netlink attributes of the filter that matches control messages.

    It is an eBPF program, loaded once for all ports, or without the right to load it a classic one.
    """
    if not may_load_programs():
        return classic_filters.control_messages()
    program = cable_programs.load(cable_programs.control_message_filter())
    return number(nl.TCA_BPF_FD, program)


def _qdisc_request(
    request: int, index: int, handle: int, parent: int, kind: str, options: bytes, deed: str
) -> Message:
    body = (
        tc_header(index, handle, parent)
        + text(nl.TCA_KIND, kind)
        + attribute(nl.TCA_OPTIONS, options)
    )
    return Message(request, nl.NLM_F_CREATE | nl.NLM_F_EXCL, body, deed)


def _tc_rate_struct(bytes_s: int) -> bytes:
    """Return tc's struct with a rate (tc_ratespec); it holds at most 32 bits of the rate."""
    return struct.pack("=BBHhHI", 0, LINKLAYER_ETHERNET, 0, -1, 0, min(bytes_s, 0xFFFFFFFF))


def _scheduler_ticks(duration_s: float) -> int:
    return round(duration_s * _ticks_per_s())


@functools.cache
def _ticks_per_s() -> float:
    """Return the tick rate of the kernel's packet scheduler, in ticks per second."""
    words = Path("/proc/net/psched").read_text().split()
    tick_ns, unit_ns = int(words[0], 16), int(words[1], 16)
    return 1e6 * tick_ns / unit_ns
