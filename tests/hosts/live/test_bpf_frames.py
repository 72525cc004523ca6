"""Frame by frame, the kernel's program against hosts/wire: it does what Python would, or nothing.

The program is run by the kernel on single frames, without a network; then the same frames are put
on a real cable.
"""

from __future__ import annotations

import ctypes
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from pillarbox.hosts.linux import bpf
from pillarbox.hosts.live.kernel_table import KernelTable
from pillarbox.hosts.live.python_table import PythonTable
from pillarbox.hosts.live.table import Action, DeliverDecision, RelayDecision, UnwrapDecision
from pillarbox.hosts.wire.bcube import BCubeHeader, Hop, advance
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP
from pillarbox.hosts.wire.header_layout import WireError, checksum
from pillarbox.hosts.wire.ipv4 import (
    ICMP,
    IP_IN_IP,
    NIC_BIT,
    TCP,
    UDP,
    Ipv4Header,
    decrement_ttl,
    flow_key,
)
from pillarbox.hosts.wire.relay_keys import ByDestination, ByFlow, ByTunnel, RelayKey
from tests.benches._three_servers import (
    RELAY,
    A,
    B,
    ThreeServers,
    bcube_end_lookup_key,
    bcube_hop_lookup_key,
    dcn_lookup_key,
    encapsulations,
    forwarding,
    ipv4,
    mac,
    proxy_header_change,
)

pytestmark = pytest.mark.root

TRIED = 20_000
ON_THE_CABLE, TIMES_EACH = 20_000, 5
TOGETHER, WAIT_S = 50, 20.0
PROG_TEST_RUN = 10
LEAST_TRIED = 34  # the kernel runs programs on no shorter frame; a cable carries them
REDIRECT, GO_ON = 7, -1
FRONT = mac(RELAY, 0) + mac(A, 0)
TTLS = (0, 1, 2, 3, 64, 64, 255)
TO_B = mac(B, 0) + mac(RELAY, 1)
HOP = Hop(1, 2)
TUNNEL = ByTunnel(1, 12, ipv4(B))
EXIT = ByTunnel(1, 14, ipv4(B))
AT_HOME = ByTunnel(1, 16, ipv4(B))
RELAYS: dict[RelayKey, Action] = {
    dcn_lookup_key(B, None, 0): RelayDecision(1, mac(B, 0)),
    dcn_lookup_key(3, None, 0): RelayDecision(
        1, mac(B, 0), proxy_header_change(3, 9, rerouted=True)
    ),
    dcn_lookup_key(B, 7, 0): RelayDecision(1, mac(B, 0)),
    dcn_lookup_key(3, 7, 0): RelayDecision(1, mac(B, 0), proxy_header_change(3, 0)),
    dcn_lookup_key(4, 7, 0): RelayDecision(1, mac(B, 0), proxy_header_change(4, None)),
    dcn_lookup_key(RELAY, None, 0): DeliverDecision(),
    dcn_lookup_key(RELAY, 7, 0): DeliverDecision(),
    bcube_hop_lookup_key(HOP): RelayDecision(1, mac(B, 0)),
    bcube_end_lookup_key(RELAY): DeliverDecision(),
    ByDestination(ipv4(B), 0): RelayDecision(1, mac(B, 0)),
    ByDestination(ipv4(RELAY), 0): DeliverDecision(),
    TUNNEL: RelayDecision(1, mac(B, 0)),
    EXIT: UnwrapDecision(1, mac(B, 0)),
    AT_HOME: DeliverDecision(),
}


class SingleRun:
    """Runs `port_in` on one frame after another, as if they came by a port."""

    def __init__(self, program: int, ifindex: int) -> None:
        self._in, self._out = ctypes.create_string_buffer(4096), ctypes.create_string_buffer(4096)
        self._context = ctypes.create_string_buffer(192)  # struct __sk_buff
        struct.pack_into("=I", self._context, 40, ifindex)
        self._program = program

    def __call__(self, frame: bytes) -> tuple[int, bytes]:
        self._in.raw = frame
        buffers = ctypes.addressof(self._in), ctypes.addressof(self._out)
        fields = self._program, 0, len(frame), len(self._out), *buffers, 1, 0, len(self._context), 0
        attributes = struct.pack("=4IQQ4IQ", *fields, ctypes.addressof(self._context))
        held = ctypes.create_string_buffer(attributes, bpf.ATTRIBUTES)
        bpf.call_bpf(PROG_TEST_RUN, held)
        verdict, _, size = struct.unpack_from("=iII", held, 4)
        return verdict, self._out.raw[:size]


# -- what a router does with a frame, by hosts/wire ------------------------------------------------


def is_data(protocol: int, packet: bytes) -> bool:
    return protocol == 4 and len(packet) >= 20 and not is_control(packet[9])


def is_control(protocol: int) -> bool:
    return protocol == 253 or protocol >> 4 == 0xE


def dcn_result(data: bytes) -> bytes | None:
    header, packet = DcnHeader.parse(data)
    action = RELAYS.get(dcn_lookup_key(header.destination, header.proxy, 0))
    if action is None or not is_data(header.protocol, packet):
        return None
    padding = data[(20 if header.proxy is None else 24) + len(packet) :]
    if isinstance(action, DeliverDecision):
        return FRONT + ETH_IP.to_bytes(2, "big") + packet + padding
    assert isinstance(action, RelayDecision)
    rerouted = "retry" in action.change.counts
    retry = header.retry - rerouted
    if header.ttl <= 1 or (rerouted and retry < 1):
        return None
    becomes = action.change.becomes
    proxy = (*becomes.values, None)[1] if becomes else header.proxy
    sent = header._replace(ttl=header.ttl - 1, retry=retry, proxy=proxy).pack(packet)
    return TO_B + ETH_DCN.to_bytes(2, "big") + sent + padding


def bcube_result(data: bytes) -> bytes | None:
    header, packet = BCubeHeader.parse(data)
    at_end = header.next_hop == len(header.path)
    key = (
        bcube_end_lookup_key(header.destination)
        if at_end
        else bcube_hop_lookup_key(header.path[header.next_hop])
    )
    if key not in RELAYS or not is_data(header.protocol, packet):
        return None
    if at_end:
        return FRONT + ETH_IP.to_bytes(2, "big") + data[36:]
    return TO_B + ETH_DCN.to_bytes(2, "big") + advance(data)


def ip_result(data: bytes, by_flow: bool) -> bytes | None:
    header, _ = Ipv4Header.parse(data)
    ip = ETH_IP.to_bytes(2, "big")
    if header.options or is_control(header.protocol):
        return None
    if header.protocol == IP_IN_IP:
        return tunnel_result(data)
    key = ByFlow(flow_key(data), 0) if by_flow else ByDestination(header.destination, 0)
    action = (FLOW_RELAYS if by_flow else RELAYS).get(key)
    if isinstance(action, DeliverDecision):
        return FRONT + ip + data
    return TO_B + ip + decrement_ttl(data) if action and header.ttl > 1 else None


def tunnel_result(data: bytes) -> bytes | None:
    outer, body = Ipv4Header.parse(data)
    if outer.fragment or outer.flags & 1:
        return None
    header, _ = Ipv4Header.parse(body)
    if header.options or is_control(header.protocol):
        return None
    ip = ETH_IP.to_bytes(2, "big")
    key = ByTunnel(outer.source & NIC_BIT, outer.destination, header.destination)
    action = RELAYS.get(key)
    if isinstance(action, DeliverDecision):
        return FRONT + ip + data[20:]
    if action is None or outer.ttl <= 1:
        return None
    if isinstance(action, UnwrapDecision):
        return TO_B + ip + decrement_ttl(data[20:]) if header.ttl > 1 else None
    return TO_B + ip + decrement_ttl(data)


def expected(frame: bytes, *, by_flow: bool = False) -> bytes | None:
    """Return what leaves for the frame, None if it is left to Python."""
    ethertype, data = int.from_bytes(frame[12:14], "big"), frame[14:]
    try:
        if ethertype == ETH_IP:
            return ip_result(data, by_flow)
        if ethertype == ETH_DCN:
            return bcube_result(data) if data[:1] == b"\x29" else dcn_result(data)
    except WireError:
        pass
    return None


def is_ours(frame: bytes) -> bool:
    return int.from_bytes(frame[12:14], "big") in (ETH_IP, ETH_DCN)


# -- frames ---------------------------------------------------------------------------------------


def packet(drawn: random.Random) -> bytes:
    protocol = drawn.choice((TCP, TCP, UDP, UDP, ICMP, ICMP, 50, 253, 0xE2))
    header = Ipv4Header(ipv4(A), ipv4(drawn.choice((B, B, RELAY, 3))), protocol)
    header = header._replace(
        ttl=drawn.choice(TTLS),
        fragment=drawn.choice((0, 0, 0, 5)),
        flags=drawn.choice((0, 2, 2, 1)),
        options=drawn.choice((b"",) * 9 + (bytes(4),)),
    )
    ports = drawn.choice((bytes.fromhex("9c40 1389"), b"\x08\0\0\0", b"\x03\0\0\0"))
    return header.pack(
        ports + bytes.fromhex("1267 0000") + drawn.randbytes(drawn.choice((0, 9, 40)))
    )


def valid(drawn: random.Random) -> bytes:
    """Return what follows two MAC addresses: all headers there are, in all their states."""
    inside = packet(drawn)
    ttl = drawn.choice(TTLS)
    protocol = drawn.choice((Protocol.IPV4,) * 8 + (Protocol.PROBE, 0))
    kind = drawn.randrange(4)
    to = drawn.choice((RELAY, B, 3, 4, 5))
    if kind == 0:
        proxy = drawn.choice((None, 7, 7, 8))
        header = DcnHeader(A, to, protocol, drawn.getrandbits(32), drawn.randrange(6), ttl, proxy)
        return b"\x88\xb5" + header.pack(inside)
    if kind == 1:
        path = tuple(drawn.choice((HOP, Hop(3, 63), Hop(0, 0))) for _ in range(drawn.randrange(9)))
        taken = drawn.randint(0, len(path))
        return b"\x88\xb5" + BCubeHeader(A, to, protocol, path, taken, 1, ttl).pack(inside)
    if kind == 2:
        outer = Ipv4Header(11, drawn.choice((12, 14, 16, 18)), IP_IN_IP, ttl)
        outer = outer._replace(flags=drawn.choice((0, 2, 2, 2, 1)))
        return b"\x08\x00" + outer.pack(inside)
    return b"\x08\x00" + inside


def mutated(drawn: random.Random, data: bytes) -> bytes:
    """Return it with bytes changed, cut off or added, mostly with its first checksum set right."""
    changed = bytearray(data)
    for _ in range(drawn.randrange(4)):
        at = drawn.randrange(len(changed)) if drawn.random() < 0.3 else drawn.randrange(2, 40)
        if at < len(changed):
            changed[at] = drawn.choice((0, 1, 0xFF, changed[at] ^ 1 << drawn.randrange(8)))
    if drawn.random() < 0.2:
        del changed[drawn.randrange(2, len(changed)) :]
    if drawn.random() < 0.2:
        changed += drawn.randbytes(drawn.randrange(20))
    if drawn.random() < 0.7 and len(changed) >= 22:
        words = changed[2] & 0xF
        at = slice(12, 14)
        changed[at] = bytes(2)
        changed[at] = checksum(bytes(changed[2 : 2 + 4 * words])).to_bytes(2, "big")
    return bytes(changed)


def frames(seed: int, number: int) -> Iterator[bytes]:
    drawn = random.Random(seed)
    for _ in range(number):
        data = valid(drawn)
        if drawn.random() < 0.6:
            data = mutated(drawn, data)
        elif drawn.random() < 0.1:
            data = data[:2] + drawn.randbytes(drawn.randrange(100))
        yield FRONT + data


def flow_relays() -> dict[RelayKey, Action]:
    """Return decisions for the flows that frames have."""
    found: dict[RelayKey, Action] = {}
    for frame in frames(1, 300):
        try:
            header, _ = Ipv4Header.parse(frame[14:])
            if is_ours(frame) and header.protocol != IP_IN_IP:
                found[ByFlow(flow_key(frame[14:]), 0)] = RelayDecision(1, mac(B, 0))
        except WireError:
            continue
    return found


FLOW_RELAYS = flow_relays()


# -- tests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_flow", [False, True])
def test_kernel_and_python_agree_on_every_frame(by_flow):
    with ThreeServers() as lab:
        table = lab.add_table(RELAY, by_flow=by_flow)
        for key, action in {**RELAYS, **(FLOW_RELAYS if by_flow else {})}.items():
            table.install_relay(key, action)
        with lab.servers[RELAY].entered():
            run = SingleRun(table.programs.programs["port_in"], socket.if_nametoindex("eth0"))
        seen: Counter[str] = Counter()
        tried = [frame for frame in frames(2 + by_flow, TRIED) if len(frame) >= LEAST_TRIED]
        budgets = table.programs.maps["budgets"]
        with lab.servers[RELAY].entered():
            for frame in tried:
                spent = [key for key, _ in budgets.items()]  # no frame is to be one too many
                for key in spent:
                    budgets.discard(key)
                verdict, data = run(frame)
                wanted = expected(frame, by_flow=by_flow)
                if wanted is None:
                    assert (verdict, data) == (GO_ON, frame), frame.hex()
                else:
                    assert (verdict, data) == (REDIRECT, wanted), frame.hex()
                seen["left" if wanted is None else wanted[12:14].hex()] += 1
        assert min(seen.values()) > TRIED // 40, seen
        assert sum(table.counters().values()) == sum(map(is_ours, tried))


class Outlet:
    """A port, or the applications' interface, that keeps what leaves."""

    def __init__(self, front: bytes, address: bytes = b"") -> None:
        self.front, self.mac, self.left = front, address, []

    def put(self, data: bytes) -> None:
        self.left.append(self.front + data)


@pytest.mark.parametrize("by_flow", [False, True])
def test_what_a_forwarder_repeats_is_what_the_router_does(by_flow):
    near, far = Outlet(b"", mac(RELAY, 0)), Outlet(b"", mac(RELAY, 1))
    applications = Outlet(FRONT + ETH_IP.to_bytes(2, "big"))
    table = PythonTable({0: near, 1: far}, applications, pytest.fail, by_flow=by_flow)
    for key, action in {**RELAYS, **(FLOW_RELAYS if by_flow else {})}.items():
        table.install_relay(key, action)
    seen: Counter[str] = Counter()
    for frame in frames(4 + by_flow, TRIED):
        wanted = expected(frame, by_flow=by_flow)
        repeated = table.handle_by_decision(0, frame)
        left = [*far.left, *applications.left]
        far.left.clear()
        applications.left.clear()
        assert len(left) == repeated, frame.hex()
        if repeated:
            assert wanted is not None and left[0] == without_padding(frame, wanted), frame.hex()
        seen[f"{'repeated' if repeated else 'left'} {wanted is not None} {frame[12:14].hex()}"] += 1
    assert min(seen[f"repeated True {kind}"] for kind in ("0800", "88b5")) > TRIED // 40, seen
    assert sum(table.counters().values()) == sum(n for key, n in seen.items() if key[0] == "r")
    assert not near.left


def without_padding(frame: bytes, wanted: bytes) -> bytes:
    """Return what leaves for a frame without what stands behind its packet, if that is IP."""
    ip, length = ETH_IP.to_bytes(2, "big"), int.from_bytes(frame[16:18], "big")
    if wanted[12:14] != ip:
        return wanted
    return wanted[: 14 + length - (len(frame) - len(wanted) if frame[12:14] == ip else 0)]


def test_hostile_frames_on_a_real_cable_do_no_harm():
    encapsulation = encapsulations()["DCN"]
    with forwarding(encapsulation) as (lab, tables):
        for key, action in RELAYS.items():
            if action != DeliverDecision():  # the relay has no applications here
                tables[RELAY].install_relay(key, action)
                tables[B].install_relay(key, DeliverDecision())
        with lab.servers[A].entered():
            hostile = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            hostile.bind(("eth0", ETH_DCN))
        ours = 0
        with hostile:
            for number, frame in enumerate(frames(9, ON_THE_CABLE)):
                for _ in range(TIMES_EACH):
                    hostile.send(frame)
                ours += TIMES_EACH * is_ours(frame)
                if number % TOGETHER == 0:  # else a busy kernel's own queue of frames overflows
                    wait_for(tables[RELAY], ours)
        counted = wait_for(tables[RELAY], ours)
        assert sum(counted.values()) == ours
        assert counted["done relayed"] > 1000 and counted["done unwrapped"] > 100
        dropped = {name for name, number in counted.items() if number and name.startswith("drop")}
        assert dropped <= {"drop over budget", "drop messages over budget"}  # of Python's time
        # No less than was sent on; what B's own stack answers is counted too.
        wait_for(tables[B], counted["done relayed"] + counted["done unwrapped"])
        client, server = lab.connect()
        with client, server:
            client.sendall(b"hello")
            assert server.recv(5) == b"hello"


def wait_for(table: KernelTable, least: int) -> dict[str, int]:
    """Wait until a kernel has counted so many frames; return its counters."""
    deadline = time.monotonic() + WAIT_S
    while sum((counted := table.counters()).values()) < least:
        assert time.monotonic() < deadline, f"{least} frames, and these were seen: {counted}"
        time.sleep(0.001)
    return counted
