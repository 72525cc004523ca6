"""Queues of ports: what there is, how long they are, and what is marked."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation import marked_queues
from pillarbox.experiments.lab.emulation.marked_queues import MarkedQueues
from pillarbox.experiments.lab.linux import cable_programs, queueing, shaping
from pillarbox.experiments.lab.linux.queueing import KINDS, Queue, length_bytes
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, System
from pillarbox.experiments.runs.trials.experiment_run import run
from pillarbox.hosts.linux import bpf as kernel
from pillarbox.hosts.live.devices import PACKET_IGNORE_OUTGOING, SOL_PACKET
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.hosts.wire.header_layout import checksum
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.labs import EBPF, WAIT_S, lab_of, wait_until

ETH_ALL = 3
RATE_MBIT = 20.0
BYTES_S = 2_500_000.0


@pytest.mark.parametrize(
    ("length", "wanted"),
    [
        ("1 packet", 1514),
        ("20 packets", 30280),
        ("64kB", 64000),
        ("1.5 MB", 1_500_000),
        ("999 bytes", 999),
        ("10 ms", 25000),
        ("500us", 1250),
    ],
)
def test_a_length_is_in_packets_bytes_or_time(length: str, wanted: int) -> None:
    assert length_bytes(length, BYTES_S, 1514) == wanted


@pytest.mark.parametrize("length", ["20", "packets", "0 packets", "-1 ms", "5 minutes", "1e3 B"])
def test_what_is_no_length_is_refused(length: str) -> None:
    with pytest.raises(PillarboxError, match="write packets, bytes or time"):
        length_bytes(length, BYTES_S, 1514)


def test_a_queue_that_there_is_not_is_refused() -> None:
    with pytest.raises(PillarboxError, match=r"no queue 'red': there are droptail, codel"):
        shaping.check_queue(Queue("red"))


def test_a_queue_that_the_kernel_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shaping, "kernel_has_queue", lambda kind: kind == "codel")
    shaping.check_queue(Queue("codel"))
    with pytest.raises(PillarboxError, match=r"no fq_codel \(CONFIG_NET_SCH_FQ_CODEL\): choose"):
        shaping.check_queue(Queue("fq_codel"))


def test_codel_is_asked_for_packets_and_marks() -> None:
    *_, waiting, _ = shaping.limited(7, RATE_MBIT, None, queue=Queue("codel", "20 packets"))
    assert b"codel\0" in waiting.body
    assert b"\x08\0\x02\0\x14\0\0\0" in waiting.body  # the limit, attribute 2: 20
    assert b"\x08\0\x04\0\x01\0\0\0" in waiting.body  # ECN, attribute 4


def ip_packet(service: int) -> bytes:
    head = struct.pack("!BBHHHBBH4s4s", 0x45, service, 40, 1, 0, 64, 6, 0, b"\n\0\0\1", b"\n\0\0\2")
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + bytes(20)


def ran(program: int, frame: bytes, wire_length: int = 0) -> bytes:
    """Return what a program made of a frame (BPF_PROG_TEST_RUN), of this length on the wire."""
    context = struct.pack("=160xI28x", wire_length or len(frame))  # struct __sk_buff
    given, found, about = (ctypes.create_string_buffer(data, 256) for data in (frame, b"", context))
    data, to, told = map(ctypes.addressof, (given, found, about))
    attributes = program, 0, len(frame), 256, data, to, 0, 0, len(context), 0, told
    kernel.call_bpf(kernel.PROGRAM_RUN, struct.pack("=IIIIQQIIIIQ", *attributes))
    return found.raw[: len(frame)]


@pytest.mark.root
@pytest.mark.parametrize("header", [0, 20, 36])
@pytest.mark.parametrize(("service", "marked"), [(0x00, 0x00), (0x02, 0x03), (0x29, 0x2B)])
def test_what_speaks_ecn_is_marked_behind_every_header(
    header: int, service: int, marked: int
) -> None:
    table = queueing._queue_end_times_map()
    program = cable_programs.load(
        queueing.ecn_marking_program(int(BYTES_S), 0, 10**9, 14 + header, table)
    )
    before = bytes(12) + b"\x88\xb5" + bytes(header)
    try:
        found = ran(program, before + ip_packet(service))
    finally:
        os.close(program)
    assert found == before + ip_packet(marked)  # and its checksum holds


@pytest.mark.root
@pytest.mark.parametrize(("wire_length", "marked"), [(1000, False), (1001, True)])
def test_a_super_packet_counts_with_the_headers_of_its_segments(
    wire_length: int, marked: bool
) -> None:
    """The shaper counts them too: a queue computed without them falls behind the real one."""
    program = cable_programs.load(
        queueing.ecn_marking_program(
            10_000, 10**8, 10**9, 14, queueing._queue_end_times_map.__wrapped__()
        )
    )
    frame = bytes(12) + b"\x08\0" + ip_packet(2)
    try:
        assert (ran(program, frame, wire_length) != frame) is marked
    finally:
        os.close(program)


@pytest.mark.root
def test_a_short_queue_marks_nothing() -> None:
    program = cable_programs.load(
        queueing.ecn_marking_program(
            1_000_000_000, 10**8, 10**9, 14, queueing._queue_end_times_map()
        )
    )
    frame = bytes(12) + b"\x08\0" + ip_packet(2)
    try:
        assert ran(program, frame) == frame
    finally:
        os.close(program)


@pytest.mark.root
@pytest.mark.parametrize(("waiting_ms", "counts"), [(90, True), (190, False), (400, False)])
def test_a_full_queue_marks_and_does_not_grow(waiting_ms: int, counts: bool) -> None:
    """A packet is marked from 100 ms on, and counts if the queue of 200 ms has room for it."""
    numbers = queueing._queue_end_times_map.__wrapped__()
    table = kernel.Map(numbers, 4, 8, queueing.MOST_PORTS)
    program = cable_programs.load(
        queueing.ecn_marking_program(10_000, 10**8, 2 * 10**8, 14, numbers)
    )
    frame, port = bytes(12) + b"\x08\0" + ip_packet(2), struct.pack("=I", 1)  # loopback
    try:
        end_ns = time.monotonic_ns() + waiting_ms * 10**6
        table[port] = struct.pack("=Q", end_ns)
        marked = ran(program, frame, 1000) != frame
    finally:
        os.close(program)
    (after_ns,) = struct.unpack("=Q", table[port])
    assert marked
    # 1,000 bytes take 100 ms.
    assert after_ns == end_ns + (100 * 10**6 if counts else 0)


@pytest.mark.parametrize(
    ("waiting_bytes", "computed_ns", "after_ns"),
    [
        # A queue of 25,000 bytes lasts 10 ms; up to 1 ms more than computed is tolerated.
        (25_000, 0, 10**9 + 10_000_000),
        (25_000, 10**9 + 8_999_999, 10**9 + 10_000_000),
        (25_000, 10**9 + 9_000_000, 10**9 + 9_000_000),
        (25_000, 2 * 10**9, 2 * 10**9),
        (2_500, 10, 10),  # 1 ms
        (0, 10, 10),
    ],
)
def test_a_computed_queue_is_raised_to_the_real_one(
    monkeypatch: pytest.MonkeyPatch, waiting_bytes: int, computed_ns: int, after_ns: int
) -> None:
    table = {struct.pack("=I", 7): struct.pack("=Q", computed_ns)}
    monkeypatch.setattr(queueing, "_queue_end_times_map", lambda: 0)
    monkeypatch.setattr(kernel, "Map", lambda *_: table)
    queueing.set_marking_rate((1 << 16) + 7, int(BYTES_S))
    raised = queueing.raise_computed_queue((1 << 16) + 7, waiting_bytes, 10**9)
    assert raised == (after_ns != computed_ns)
    assert table == {struct.pack("=I", 7): struct.pack("=Q", after_ns)}
    assert not queueing.raise_computed_queue((1 << 16) + 8, waiting_bytes, 10**9)


def test_a_new_namespace_with_the_number_of_a_removed_one_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Space:
        descriptor = 7

    opened: list[str] = []

    class Kernel:
        def close(self) -> None:
            opened.append("closed")

    def new_kernel() -> Kernel:
        opened.append("opened")
        return Kernel()

    monkeypatch.setattr(marked_queues, "Netlink", new_kernel)
    monkeypatch.setattr(marked_queues, "inside", lambda _: nullcontext())
    monkeypatch.setattr(marked_queues, "queues", lambda _: {})
    there: set[Any] = {Space()}
    marked = MarkedQueues(lambda: there)
    marked.correct()
    there = {Space()}  # removed and added between two corrections: `shrink`, then `grow`
    marked.correct()
    assert opened == ["opened", "closed", "opened"]


@pytest.mark.root
def test_a_lab_corrects_the_queues_that_it_marks_from(tmp_path: Path) -> None:
    settings = {"rate_mbit": RATE_MBIT, "queue": "ecn", "queue_length": "1000 packets"}
    with lab_of("tree,2,1", tmp_path, **settings) as lab, datagrams(lab, 0) as sender:
        table = kernel.Map(queueing._queue_end_times_map(), 4, 8, queueing.MOST_PORTS)
        port = struct.pack("=I", lab.host(0).intfs[0].ifindex % queueing.MOST_PORTS)
        far = lab.topology.ip(1), 9

        lab.fabric._marked_queues.close()  # its thread would take its time
        marked = MarkedQueues(lab.fabric._namespaces)

        def is_raised() -> bool:
            """Fill the port's queue, take its computed length away, and correct it."""
            for _ in range(400):
                sender.sendto(bytes(1400), far)
            table[port] = bytes(8)
            before_ns = time.monotonic_ns()
            marked.correct()
            return bool(struct.unpack("=Q", table[port])[0] > before_ns)

        wait_until(is_raised, "the computed queue stays behind the real one")
        marked.close()


def shown(lab: Any) -> list[dict[str, Any]]:
    with lab.host(0).live_namespace():
        told = subprocess.check_output(
            ["tc", "-j", "qdisc", "show", "dev", lab.topology.interface(0, 0)], timeout=10
        )
    found: list[dict[str, Any]] = json.loads(told)
    return found


@pytest.mark.root
@pytest.mark.parametrize("kind", KINDS)
def test_a_port_has_the_queue_that_was_asked_for_or_says_why_not(kind: str, tmp_path: Path) -> None:
    from pillarbox.experiments.lab.emulation.lab import Lab
    from pillarbox.experiments.lab.emulation.local_fabric import LocalFabric, running

    settings = LabSettings(
        rate_mbit=RATE_MBIT, timers="paper", queue=kind, queue_length="30 packets"
    )
    if kind in ("codel", "fq_codel") and not shaping.kernel_has_queue(kind):
        with pytest.raises(PillarboxError, match=f"this kernel has no {kind}"):
            Lab(topos.parse("tree,2,1"), settings, tmp_path, fabric=LocalFabric())
        return
    with running(topos.parse("tree,2,1"), settings, tmp_path / "lab") as lab:
        (waiting,) = (one for one in shown(lab) if one["kind"] not in ("htb", "clsact"))
    if kind in ("codel", "fq_codel"):
        assert waiting["kind"] == kind and waiting["options"]["limit"] == 30
    else:
        assert waiting["kind"] == "bfifo" and waiting["options"]["limit"] == 30 * 1514


@EBPF
@pytest.mark.root
def test_a_senders_account_ends_at_the_first_switch_and_at_no_other(tmp_path: Path) -> None:
    """There a port sees a frame and its clone; behind a relay, in the kernel, the frame alone."""
    with lab_of("bcube,2,1", tmp_path, plane="ebpf") as lab, ExitStack() as stack:
        client, server = (
            stack.enter_context(datagrams(lab, number)) for number in (0, lab.topology.servers - 1)
        )
        everywhere = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_ALL))
        stack.enter_context(everywhere)
        everywhere.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        everywhere.setblocking(False)
        numbers = count()

        def seen_twice_and_once() -> bool:
            """Send one more datagram: the first go by Python, which has sockets of its own."""
            sent = b"account %6d" % next(numbers)
            client.sendto(sent, server.getsockname())
            assert server.recv(100) == sent
            seen = Counter(port for port, frame in taken(everywhere) if frame.endswith(sent))
            return sorted(seen.values()) == [1, 2]

        wait_until(seen_twice_and_once, "relayed frames are cloned again, or senders' are not")


def datagrams(lab: Any, server: int) -> socket.socket:
    with lab.host(server).live_namespace():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(WAIT_S)
    made.bind((lab.topology.ip(server), 0))
    return made


def taken(everywhere: socket.socket) -> Iterator[tuple[str, bytes]]:
    """Yield the frames that have come, and the ports by which they came."""
    while True:
        try:
            frame, (port, *_) = everywhere.recvfrom(2048)
        except BlockingIOError:
            return
        yield port, frame


@pytest.mark.long  # figures that even a calm machine changes: how many drops differs by run
@pytest.mark.root
@pytest.mark.parametrize(
    # TAR moves flows between paths, so that TCP retransmits reordered packets: TOR does not.
    ("network", "routing"),
    [("tree,4,1", ""), ("bcube,2,1", ""), ("ficonn,4,1", "tor")],
)
def test_ecn_spares_packets_that_droptail_drops(network: str, routing: str, tmp_path: Path) -> None:
    """Several to one: the queue on the way fills, and marks slow senders down in time."""
    kinds = ("droptail", "ecn")
    how = {"timers": "paper", "rate_mbit": RATE_MBIT, "mtu": 1500, "queue_length": "60 packets"}
    experiment = Experiment(
        "queues",
        "",
        tuple(System(network, routing=routing, queue=kind, label=kind, **how) for kind in kinds),
        Workload("several-to-one", duration_s=2.0, tool="generator", timeout_s=30.0),
        repeats=1,
    )
    flows = run(experiment, tmp_path / "run").flows
    again = {kind: int(flows[flows.system == kind].retransmits.sum()) for kind in kinds}
    assert again["droptail"] > 10 * again["ecn"]
