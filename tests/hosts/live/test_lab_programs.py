"""The kernel forwards what Python decided: three servers in a row, real TCP, frames as captured."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from pillarbox.hosts.linux.calls import die_with_parent
from pillarbox.hosts.live import lab_programs
from pillarbox.hosts.live.table import DeliverDecision, PushDecision, RelayDecision
from pillarbox.hosts.wire.bcube import BCubeHeader
from pillarbox.hosts.wire.dcn import DcnHeader
from pillarbox.hosts.wire.frame import ETH_IP
from pillarbox.hosts.wire.header import ByHeader
from pillarbox.hosts.wire.header_layout import checksum
from pillarbox.hosts.wire.ipv4 import ICMP, TCP, UDP, FlowKey, Ipv4Header
from pillarbox.hosts.wire.relay_keys import ByDestination, ByFlow, ByTunnel
from pillarbox.topos.base.addressing import dotted_quad
from tests.benches._three_servers import (
    RELAY,
    THERE,
    A,
    B,
    ThreeServers,
    bcube_end_lookup_key,
    dcn_lookup_key,
    encapsulations,
    forwarding,
    install_encapsulation,
    ipv4,
    mac,
)
from tests.hosts.live.cables import captured, listening

pytestmark = pytest.mark.root

ECHO_ID = 4711
ECHO = FlowKey(ipv4(A), ipv4(B), ICMP, ECHO_ID, ECHO_ID)
FLOWS = (THERE, ECHO)
ENCAPSULATIONS = encapsulations(FLOWS)
ETH_P_ALL = 3
WAIT_S = 20.0  # a guard; SILENT_S is how long an answer that must not come is waited for
SILENT_S = 0.1
RESEND_S = 2.0  # the kernel may drop a ping because of what other tests send at the same time


def wait_for(condition: Callable[[], object], what: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
        time.sleep(0.002)


def answers(lab: ThreeServers, seconds: float = WAIT_S) -> bool:
    """Ping B from A, again each RESEND_S seconds; tell whether it answers."""
    body = struct.pack(">HHQ", ECHO_ID, 1, random.getrandbits(64))
    sum_ = checksum(b"\x08\0\0\0" + body)
    with lab.servers[A].entered():
        ping = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    with ping:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            ping.sendto(struct.pack(">BBH", 8, 0, sum_) + body, (dotted_quad(ipv4(B)), 0))
            while select.select([ping], [], [], min(left, RESEND_S))[0]:
                reply = ping.recv(2048)
                if reply[20] == 0 and reply[24:] == body:
                    return True
    return False


def exchanged(lab: ThreeServers, size: int) -> tuple[bytes, bytes]:
    """Send so many random bytes over TCP; return the digest of what was sent and of what came.

    At the end the connection is over at B as well: its last packet has arrived.
    """
    data = random.Random(size).randbytes(size)
    client, server = lab.connect()
    received = hashlib.sha256()
    with client, server:
        sender = threading.Thread(target=lambda: (client.sendall(data), client.shutdown(1)))
        sender.start()
        while chunk := server.recv(1 << 20):
            received.update(chunk)
        sender.join()
    with lab.servers[B].entered():
        sockets = Path("/proc/thread-self/net/tcp")
        wait_for(lambda: len(sockets.read_text().splitlines()) == 1, "the end of a connection")
    return hashlib.sha256(data).digest(), received.digest()


# -- forwarding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENCAPSULATIONS)
def test_ping_and_tcp_arrive_whole_and_no_packet_needs_python(name):
    with forwarding(ENCAPSULATIONS[name], FLOWS) as (lab, tables):
        assert answers(lab)
        sent, received = exchanged(lab, 4 << 20)
        assert sent == received
        for table in tables:
            counted = {what for what, number in table.counters().items() if number}
            assert {what.split()[0] for what in counted} == {"done"}, counted


def number(found: tuple[object, bytes, bytes]) -> int:
    """Return by what a packet is known again: two processors may have changed the order."""
    return Ipv4Header.parse(found[1])[0].identification


def parsed(key: object, data: bytes) -> tuple[object, bytes]:
    """Return a frame's header, which must be one that has such a key, and the packet behind it."""
    if isinstance(key, ByHeader):
        return key.form.header.parse(data)
    header, packet = Ipv4Header.parse(data)
    return (header, packet) if isinstance(key, ByTunnel) else (None, data)


@pytest.mark.parametrize("name", ENCAPSULATIONS)
def test_headers_on_the_wire_are_those_of_the_papers(name):
    encapsulation = ENCAPSULATIONS[name]
    header_out, key = encapsulation.there
    with forwarding(encapsulation, FLOWS) as (lab, _), captured(lab, B, 0) as last:
        with captured(lab, RELAY, 0) as first:
            sent, received = exchanged(lab, 2 << 20)
        assert sent == received
    before = [frame for frame in first if frame[12:14] != b"\x08\x06"]
    after = [frame for frame in last if frame[12:14] != b"\x08\x06"]
    assert len(before) == len(after) > 20
    assert max(map(len, after)) > 10_000, "no super-packet was seen"
    # What the source put in front, by the class of its own header; then what the last server sees.
    kinds = {
        0x15: dcn_lookup_key(0, None, 0),
        0x16: dcn_lookup_key(0, 0, 0),
        0x29: bcube_end_lookup_key(0),
        0x45: ByTunnel(0, 0, 0),
    }
    source_key = kinds[header_out[0]] if header_out else key
    sources = sorted(((*parsed(source_key, frame[14:]), frame) for frame in before), key=number)
    lasts = sorted(((*parsed(key, frame[14:]), frame) for frame in after), key=number)
    for (header, packet, frame), (at_last, packet_at_last, came) in zip(
        sources, lasts, strict=True
    ):
        assert frame[:12] == mac(RELAY, 0) + mac(A, 0)
        assert came[:12] == mac(B, 0) + mac(RELAY, 1)
        if header is not None:
            wanted = type(header).parse(header_out)[0]
            assert header._replace(identification=wanted.identification) == wanted._replace(
                **({"flags": header.flags} if isinstance(header, Ipv4Header) else {})
            )
        ip, _ = Ipv4Header.parse(packet)
        ip_at_last, _ = Ipv4Header.parse(packet_at_last)
        assert (ip.source, ip.destination, ip.protocol) == (ipv4(A), ipv4(B), TCP)
        in_the_open = isinstance(key, ByDestination | ByFlow)
        assert ip_at_last == (ip._replace(ttl=ip.ttl - 1) if in_the_open else ip)
        if isinstance(header, DcnHeader) and isinstance(at_last, DcnHeader):
            relay = encapsulation.relays[dcn_lookup_key(B, header.proxy, 0)]
            assert isinstance(relay, RelayDecision)
            assert isinstance(key, ByHeader)
            proxy = (*key.values, None)[1]
            retry = header.retry - len(relay.change.counts)
            assert at_last == header._replace(ttl=63, proxy=proxy, retry=retry)
        elif isinstance(header, BCubeHeader):
            assert at_last == header.advanced()
        elif isinstance(header, Ipv4Header) and at_last is not None:
            assert at_last == header._replace(ttl=63)
    if header_out:
        assert len({header.identification for header, *_ in sources}) == len(before)


DATAGRAMS = FlowKey(ipv4(A), ipv4(B), UDP, 40000, 5002)
PIECES = DATAGRAMS._replace(source_port=0, destination_port=0)  # fragments other than the first


@contextmanager
def datagrams(lab: ThreeServers, segment: int = 0) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Give sender and receiver of that flow; the sender's datagrams may be super-packets."""
    with lab.servers[A].entered():
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with lab.servers[B].entered():
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender, receiver:
        sender.bind((dotted_quad(DATAGRAMS.source), DATAGRAMS.source_port))
        sender.setsockopt(socket.IPPROTO_UDP, 103, segment)  # UDP_SEGMENT
        receiver.bind((dotted_quad(DATAGRAMS.destination), DATAGRAMS.destination_port))
        receiver.settimeout(WAIT_S)
        sender.connect(receiver.getsockname())
        yield sender, receiver


@pytest.mark.parametrize("name", ["plain IP by flow", "DCN", "BCube", "IP in IP, unwrapped"])
def test_fragments_have_flows_without_ports(name):
    flows = (DATAGRAMS, PIECES)
    data = random.Random(1).randbytes(14_000)
    with forwarding(encapsulations(flows)[name], flows) as (lab, tables):
        with datagrams(lab) as (sender, receiver):
            sender.send(data)
            assert receiver.recv(1 << 16) == data
        used = tables[A].used_since_last().flows
        assert {flow: use.packets for flow, use in used.items()} == {DATAGRAMS: 1, PIECES: 9}


@pytest.mark.parametrize("name", ["plain IP", "DCN", "IP in IP"])
def test_super_packets_other_than_tcp_are_cut_before_they_get_a_header(name):
    data = random.Random(1).randbytes(14_000)
    with forwarding(ENCAPSULATIONS[name], (DATAGRAMS,)) as (lab, tables):
        with datagrams(lab, 1400) as (sender, receiver):
            try:
                sender.send(data)
            except OSError as error:
                if error.errno != errno.EIO:  # older kernels want a device that does checksums
                    raise
                pytest.skip("this kernel makes no super-packets of UDP for a TUN")
            if name == "plain IP":
                assert b"".join(receiver.recv(1 << 16) for _ in range(10)) == data
                return
        packets = [Ipv4Header.parse(lab.tuns[A].receive())[1] for _ in range(10)]
        assert b"".join(packet[8:] for packet in packets) == data
        assert tables[A].counters()["slow super packet other than tcp"] == 1


@pytest.mark.parametrize(("tos", "df"), [(0, True), (0x28, False)])
def test_a_tunnel_has_the_type_of_service_and_df_of_what_is_in_it(tos, df):
    with (
        forwarding(ENCAPSULATIONS["IP in IP"], (DATAGRAMS,)) as (lab, _),
        datagrams(lab) as (sender, receiver),
        captured(lab, B, 0) as frames,
    ):
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        sender.setsockopt(socket.IPPROTO_IP, 10, 2 * df)  # IP_MTU_DISCOVER
        sender.send(b"hello")
        assert receiver.recv(100) == b"hello"
    outer, packet = Ipv4Header.parse(frames[0][14:])
    inside, _ = Ipv4Header.parse(packet)
    assert (outer.tos, outer.flags) == (inside.tos, inside.flags) == (tos, 2 * df)


def test_a_new_action_takes_effect_at_once():
    with forwarding(ENCAPSULATIONS["DCN"], FLOWS) as (lab, tables):
        assert answers(lab)
        tables[RELAY].install_relay(
            dcn_lookup_key(B, None, 0), RelayDecision(1, mac(A, 0))
        )  # a wrong address
        assert not answers(lab, SILENT_S)
        wait_for(lambda: tables[B].counters()["drop for another mac"], "its arrival")
        tables[RELAY].install_relay(dcn_lookup_key(B, None, 0), RelayDecision(1, mac(B, 0)))
        assert answers(lab)


# -- what is left to Python -----------------------------------------------------------------------


def test_applications_packets_without_decision_reach_python_and_come_back_with_one():
    encapsulation = ENCAPSULATIONS["DCN"]
    with ThreeServers() as lab:
        for server in (A, B):
            lab.add_applications(server)
        tun = lab.tuns[A]
        tables = [lab.add_table(server) for server in (A, RELAY, B)]
        assert not answers(lab, SILENT_S)
        header, _ = Ipv4Header.parse(tun.receive())
        assert (header.destination, header.protocol) == (ipv4(B), ICMP)
        install_encapsulation(tables, encapsulation, FLOWS)
        assert answers(lab)
        assert tun.receive() is None
        tables[A].flush()
        assert not answers(lab, SILENT_S)
        assert tun.receive() is not None
        assert tables[A].counters()["slow outdated"] == 1
        tables[A].install_flow(ECHO, PushDecision(0, mac(RELAY, 0), encapsulation.there[0]))
        tables[A].install_relay(encapsulation.back[1], DeliverDecision())
        assert answers(lab)


def test_decisions_on_own_packets_are_taken_back_alone():
    with forwarding(ENCAPSULATIONS["DCN"], FLOWS) as (lab, tables):
        assert answers(lab)
        tables[RELAY].flush(relays=False)
        assert answers(lab), "a relay has none"
        tables[A].flush(relays=False)
        assert not answers(lab, SILENT_S)
        tables[A].install_flow(ECHO, PushDecision(0, mac(RELAY, 0), ENCAPSULATIONS["DCN"].there[0]))
        assert answers(lab), "what came in was delivered all the time"


def test_decisions_on_one_flow_are_taken_back_alone():
    other = ECHO._replace(source_port=1, destination_port=1)
    with forwarding(ENCAPSULATIONS["plain IP by flow"], FLOWS) as (lab, tables):
        assert answers(lab)
        for table in tables:
            table.forget_flow(THERE)
            table.forget_flow(other)  # nothing was decided on it
        assert answers(lab), "another flow's decisions stay"
        assert not any(table.counters()["slow undecided"] for table in tables)
        for server, flow, undecided in ((RELAY, ECHO, 1), (A, ECHO, 1), (A, ECHO.reversed(), 2)):
            tables[server].forget_flow(flow)
            assert not answers(lab, SILENT_S)
            assert tables[server].counters()["slow undecided"] == undecided
            install_encapsulation(tables, ENCAPSULATIONS["plain IP by flow"], FLOWS)
            assert answers(lab)
            tables[A].used_since_last()
        # Forgotten and installed again, it is counted from the beginning.
        tables[A].forget_flow(ECHO)
        install_encapsulation(tables, ENCAPSULATIONS["plain IP by flow"], FLOWS)
        assert answers(lab)
        assert tables[A].used_since_last().flows[ECHO].packets == 1


# -- what is told ---------------------------------------------------------------------------------


def test_used_since_last_tells_what_is_alive():
    with forwarding(ENCAPSULATIONS["IP in IP"], FLOWS) as (lab, tables):
        assert tables[A].used_since_last() == ({}, {})
        assert answers(lab)
        used = tables[A].used_since_last()
        assert set(used.flows) == {ECHO}
        assert set(used.relays) == {ByTunnel(0, 10, ipv4(A))}
        assert used.flows[ECHO] == (1, 36)
        assert tables[A].used_since_last() == ({}, {})
        assert answers(lab)
        # Deciding anew loses nothing of what was counted before.
        install_encapsulation(tables, ENCAPSULATIONS["IP in IP"], FLOWS)
        assert answers(lab)
        assert tables[A].used_since_last().flows[ECHO].packets == 2
        exchanged(lab, 1 << 20)
        assert tables[A].used_since_last().flows[THERE].bytes > 1 << 20
        relays = tables[RELAY].used_since_last().relays
        assert relays[ByTunnel(1, 12, ipv4(B))].packets > (1 << 20) // 1448


# -- limits and ends ------------------------------------------------------------------------------


def test_a_server_whose_process_was_killed_does_not_forward():
    encapsulation = ENCAPSULATIONS["plain IP"]
    with ThreeServers() as lab:
        for server in (A, B):
            lab.add_applications(server)
        ready, told = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                die_with_parent(signal.SIGKILL)
                relay = lab.add_table(RELAY)
                for key, action in encapsulation.relays.items():
                    relay.install_relay(key, action)
                os.write(told, b"!")
                signal.pause()
            finally:
                os._exit(1)
        try:
            assert select.select([ready], [], [], WAIT_S)[0]
            ends = {server: lab.add_table(server) for server in (A, B)}
            ends[A].install_flow(ECHO, PushDecision(0, mac(RELAY, 0)))
            ends[B].install_flow(ECHO.reversed(), PushDecision(0, mac(RELAY, 1)))
            ends[B].install_relay(ByDestination(ipv4(B), 0), DeliverDecision())
            ends[A].install_relay(ByDestination(ipv4(A), 0), DeliverDecision())
            assert answers(lab)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(ready)
            os.close(told)
        wait_for(lambda: not answers(lab, SILENT_S), "the end of forwarding")
        with listening(lab, RELAY, 0, ETH_IP) as stack:  # its own IP stack gets nothing either
            assert not answers(lab, SILENT_S)
            assert not select.select([stack], [], [], 0)[0]
        revived = lab.add_table(RELAY)
        for key, action in encapsulation.relays.items():
            revived.install_relay(key, action)
        assert answers(lab)


# -- loading --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _text_is_read_anew():
    lab_programs.object_file.cache_clear()
    yield
    lab_programs.object_file.cache_clear()


def test_ebpf_is_available_here():
    assert lab_programs.available() == ""


@pytest.mark.parametrize(
    "source",
    [lab_programs.FORWARD, lab_programs.LIVENESS, lab_programs.TUNNELS],
    ids=lambda path: path.name,
)
def test_the_compiler_has_nothing_to_say(tmp_path, source):
    lab_programs.compile_into(tmp_path / "made.o", source, "-Wall", "-Wextra", "-Werror")


def test_why_it_is_not_available_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(lab_programs, "BUILD", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert lab_programs.available() == "forward.bpf.c is not compiled: install clang and libbpf-dev"
    lab_programs.object_file().write_bytes(b"no object")
    told = lab_programs.available()
    assert told.startswith(f"{lab_programs.object_file().name} cannot be read: ")
    assert "\n" not in told


def test_builds_at_the_same_time_do_not_disturb_each_other(monkeypatch, tmp_path):
    monkeypatch.setattr(lab_programs, "BUILD", tmp_path)
    both_have_compiled = threading.Barrier(2)

    def compile_slowly(made: Path, source: Path) -> None:
        made.write_bytes(source.name.encode())
        both_have_compiled.wait()

    monkeypatch.setattr(lab_programs, "compile_into", compile_slowly)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lab_programs.build, [lab_programs.FORWARD] * 2))
    assert [path.read_bytes() for path in found] == [b"forward.bpf.c"] * 2
    assert list(tmp_path.iterdir()) == found[:1]


def test_who_is_not_root_is_told_so():
    child = os.fork()  # an ordinary user's process cannot become root again
    if child == 0:
        os.setuid(65534)
        os._exit(not lab_programs.available().endswith("Operation not permitted; run it as root"))
    assert os.waitpid(child, 0)[1] == 0


def test_the_verifiers_complaint_is_in_the_sentence(monkeypatch, tmp_path):
    source = tmp_path / "forward.bpf.c"
    source.write_text(
        '#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\nSEC("tc") int wrong(struct '
        "__sk_buff *skb) { return *(int *)(long)skb->data; }\n"
        'char LICENSE[] SEC("license") = "GPL";'
    )
    monkeypatch.setattr(lab_programs, "BUILD", tmp_path / "built")
    name = lab_programs.object_file(source).name
    with pytest.raises(lab_programs.BpfError) as told:
        lab_programs.BpfObject(lab_programs.build(source))
    assert str(told.value).startswith(f"the kernel refused {name}: Permission denied: ")
    assert str(told.value).endswith("R1 offset is outside of the packet")
    source.write_text("nonsense")
    lab_programs.object_file.cache_clear()
    with pytest.raises(lab_programs.BpfError, match=r"^forward\.bpf\.c does not compile: "):
        lab_programs.build(source)
