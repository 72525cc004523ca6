"""What the kernel leaves to Python, frame by frame, and how a table is told and asked."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from pillarbox.hosts.linux import bpf as kernel
from pillarbox.hosts.live import lab_programs
from pillarbox.hosts.live.kernel_table import KernelTable
from pillarbox.hosts.live.table import DeliverDecision, PushDecision, RelayDecision
from pillarbox.hosts.wire.bcube import BCubeHeader, Hop
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP
from pillarbox.hosts.wire.ipv4 import ICMP, IP_IN_IP, UDP, Ipv4Header
from pillarbox.hosts.wire.relay_keys import ByDestination, ByTunnel
from pillarbox.topos.base.errors import PillarboxError
from tests.benches._three_servers import (
    RELAY,
    THERE,
    A,
    B,
    ThreeServers,
    bcube_end_lookup_key,
    bcube_hop_lookup_key,
    dcn_lookup_key,
    encapsulations,
    ipv4,
    mac,
    proxy_header_change,
)
from tests.hosts.live.cables import captured, inject, listening

pytestmark = pytest.mark.root


def wait_for(condition: Callable[[], object], what: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
        time.sleep(0.002)


def to_relay(data: bytes, ethertype: int = ETH_DCN) -> bytes:
    return mac(RELAY, 0) + mac(A, 0) + ethertype.to_bytes(2, "big") + data


def inner(protocol: int = UDP, ttl: int = 64, options: bytes = b"") -> bytes:
    header = Ipv4Header(ipv4(A), ipv4(B), protocol, ttl=ttl, options=options)
    return header.pack(bytes.fromhex("9c40 1389 0010 0000") + b"hello!!!")


DCN = DcnHeader(A, B, Protocol.IPV4)
PATH = (Hop(1, 2), Hop(0, 2))
BCUBE = BCubeHeader(A, B, Protocol.IPV4, PATH, next_hop=1)
# The one whose checksum is zero: of its two zeros, the other is not what hosts/wire writes. What
# is written into a field of zeros is the checksum of all else; as a field, it makes the sum whole.
(REST,) = struct.unpack_from(">H", DCN._replace(identification=0).pack(inner()), 10)
ZERO_SUM = DCN._replace(identification=REST).pack(inner())
assert ZERO_SUM[10:12] == bytes(2)
LEFT_TO_PYTHON = {
    "DCN, other zero": (ZERO_SUM[:10] + b"\xff\xff" + ZERO_SUM[12:], "slow not plain data"),
    "DCN, last hop": (DCN._replace(ttl=1).pack(inner()), "slow ttl or retries used up"),
    "DCN, TTL 0": (DCN._replace(ttl=0).pack(inner()), "slow ttl or retries used up"),
    "DCN, control": (
        DCN._replace(protocol=Protocol.LINK_STATE).pack(bytes(40)),
        "slow control",
    ),
    "DCN, marked": (DCN.pack(inner(253)), "slow control"),
    "DCN, unknown": (DCN._replace(destination=9).pack(inner()), "slow undecided"),
    "DCN, over a proxy": (DCN._replace(proxy=0).pack(inner()), "slow undecided"),
    "DCN, broken": (DCN.pack(inner())[:19] + b"\7" + inner(), "slow not plain data"),
    "DCN, cut off": (DCN.pack(inner())[:-1], "slow not plain data"),
    "DCN, runt": (DCN.pack(b"")[:8], "slow not plain data"),
    "BCube, marked": (BCUBE.pack(inner(253)), "slow control"),
    "BCube, unknown hop": (
        BCUBE._replace(path=(PATH[0], Hop(3, 9))).pack(inner()),
        "slow undecided",
    ),
    "BCube, at its end": (BCUBE._replace(next_hop=2).pack(inner()), "slow undecided"),
    "BCube, broken": (BCUBE.pack(inner())[:30] + bytes(9), "slow not plain data"),
    "IP, last hop": (inner(ttl=1), "slow ttl or retries used up"),
    "IP, marked": (inner(253), "slow control"),
    "IP, control": (inner(Protocol.PROBE), "slow control"),
    "IP, options": (inner(options=b"\1\1\1\0"), "slow not plain data"),
    "IP, runt": (inner()[:12], "slow not plain data"),
    "tunnel, last hop": (
        Ipv4Header(11, 12, IP_IN_IP, ttl=1).pack(inner()),
        "slow ttl or retries used up",
    ),
    "tunnel, control": (Ipv4Header(11, 12, IP_IN_IP).pack(inner(Protocol.PROBE)), "slow control"),
    "tunnel, unknown": (Ipv4Header(11, 13, IP_IN_IP).pack(inner()), "slow undecided"),
    "tunnel, fragment": (
        Ipv4Header(11, 12, IP_IN_IP, flags=1).pack(inner()),
        "slow not plain data",
    ),
}


@pytest.fixture(scope="module")
def decided() -> Iterator[tuple[ThreeServers, KernelTable]]:
    """A relay that knows all ways, plain IP by destination."""
    with ThreeServers() as lab:
        table = lab.add_table(RELAY)
        for name in ("plain IP", "DCN", "BCube", "IP in IP"):
            for key, action in encapsulations()[name].relays.items():
                table.install_relay(key, action)
        yield lab, table


@pytest.mark.parametrize("case", LEFT_TO_PYTHON)
def test_python_gets_what_is_not_plain_decided_data(decided, case):
    lab, table = decided
    table.install_relay(dcn_lookup_key(B, None, 0), RelayDecision(1, mac(B, 0)))
    data, reason = LEFT_TO_PYTHON[case]
    ethertype = ETH_IP if case.startswith(("IP", "tunnel")) else ETH_DCN
    before = table.counters()
    with listening(lab, RELAY, 0, ethertype) as listener:
        inject(lab, to_relay(data, ethertype))
        assert listener.recv(4096) == to_relay(data, ethertype)
    after = table.counters()
    assert {name for name in after if after[name] != before[name]} == {reason}


def test_a_reroute_needs_a_retry(decided):
    lab, table = decided
    table.install_relay(
        dcn_lookup_key(B, None, 0),
        RelayDecision(1, mac(B, 0), proxy_header_change(B, 5, rerouted=True)),
    )
    with listening(lab, RELAY, 0, ETH_DCN) as listener, captured(lab, B, 0, least=1) as sent:
        for retry in (1, 2):
            inject(lab, to_relay(DCN._replace(retry=retry).pack(inner())))
        assert DcnHeader.parse(listener.recv(4096)[14:])[0].retry == 1
    headers = [DcnHeader.parse(frame[14:])[0] for frame in sent]
    assert headers == [DCN._replace(retry=1, ttl=63, proxy=5)]


def test_frames_for_others_are_dropped_and_broadcasts_reach_python(decided):
    lab, table = decided
    table.install_relay(dcn_lookup_key(B, None, 0), RelayDecision(1, mac(B, 0)))
    before = table.counters()["drop for another mac"]
    frame = to_relay(DCN.pack(inner()))
    beat = to_relay(DCN._replace(protocol=Protocol.HEARTBEAT).pack(bytes(4)))
    with listening(lab, RELAY, 0, ETH_DCN) as listener:
        inject(lab, mac(77, 0) + frame[6:])
        inject(lab, b"\xff" * 6 + beat[6:])
        assert listener.recv(4096)[:6] == b"\xff" * 6
    # Two processors may have changed the order of the two.
    wait_for(lambda: table.counters()["drop for another mac"] > before, "dropping")
    assert table.counters()["drop for another mac"] == before + 1


def test_frames_of_vlans_are_none_of_ours(decided):
    lab, table = decided
    before = table.counters()
    frame = to_relay(DCN.pack(inner()))
    with captured(lab, B, 0) as sent, listening(lab, RELAY, 0, ETH_DCN) as listener:
        inject(lab, frame[:12] + bytes.fromhex("8100 0005") + frame[12:])
        assert listener.recv(4096)[-20:] == frame[-20:]
    assert not sent
    assert table.counters() == before


def test_who_floods_uses_up_a_budget_of_its_own():
    unknown = to_relay(DCN._replace(destination=9).pack(inner()))
    other = unknown[:6] + mac(B, 0) + unknown[12:]
    message = to_relay(LEFT_TO_PYTHON["DCN, control"][0])
    with ThreeServers() as lab:
        table = lab.add_table(RELAY)

        def flood(frame: bytes, lost_as: str) -> None:
            def lost() -> int:
                inject(lab, frame, times=2000)
                return table.counters()[lost_as]

            wait_for(lost, "the end of a budget")

        def left(frame: bytes) -> bool:
            before = sum(table.counters().values())
            with listening(lab, RELAY, 0, ETH_DCN) as listener:
                listener.settimeout(0.1)
                inject(lab, frame)
                wait_for(lambda: sum(table.counters().values()) > before, "counting")
                with suppress(TimeoutError):
                    return listener.recv(4096) == frame
            return False

        flood(unknown, "drop over budget")
        assert left(other), "another neighbour has its own"
        assert left(message), "messages have theirs"
        flood(message, "drop messages over budget")
        table.install_relay(dcn_lookup_key(9, None, 0), RelayDecision(1, mac(B, 0)))
        with captured(lab, B, 0, least=1) as sent:
            inject(lab, unknown)
        assert sent, "what is decided asks nobody"


def test_ip_that_is_left_to_python_is_not_taken_by_the_servers_own_stack():
    with ThreeServers() as lab:
        lab.add_applications(RELAY)
        table = lab.add_table(RELAY)
        packet = Ipv4Header(ipv4(A), ipv4(RELAY), ICMP).pack(
            bytes.fromhex("0800 f7ff 0000 0000")  # an echo request
        )
        with captured(lab, A, 0) as answered, listening(lab, RELAY, 0, ETH_IP) as listener:
            for _ in range(2):  # an answer to the first would be sent before the second arrives
                inject(lab, to_relay(packet, ETH_IP))
                listener.recv(4096)
        assert not answered
        assert table.counters()["slow undecided"] == 2


def test_every_key_is_told_as_it_was_installed():
    frames = {
        dcn_lookup_key(B, None, 0): to_relay(DCN.pack(inner())),
        dcn_lookup_key(B, 0, 0): to_relay(DCN._replace(proxy=0).pack(inner())),
        bcube_hop_lookup_key(PATH[1]): to_relay(BCUBE.pack(inner())),
        bcube_end_lookup_key(B): to_relay(BCUBE._replace(next_hop=2).pack(inner())),
        ByDestination(ipv4(B), 0): to_relay(inner(), ETH_IP),
        ByTunnel(1, 12, ipv4(B)): to_relay(Ipv4Header(11, 12, IP_IN_IP).pack(inner()), ETH_IP),
    }
    with ThreeServers() as lab:
        table = lab.add_table(RELAY)
        for key in frames:
            table.install_relay(
                key,
                DeliverDecision()
                if key == bcube_end_lookup_key(B)
                else RelayDecision(1, mac(B, 0)),
            )
        table.used_since_last()
        for frame in frames.values():
            inject(lab, frame)
        found: dict[object, int] = {}

        def all_used() -> bool:
            found.update(
                {key: used.packets for key, used in table.used_since_last().relays.items()}
            )
            return len(found) == len(frames)

        wait_for(all_used, "use of every key")
        assert found == dict.fromkeys(frames, 1)


def test_a_full_table_forgets_what_is_old_and_takes_what_is_new():
    with ThreeServers() as lab:
        table = lab.add_table(RELAY)
        for destination in range(3000):
            table.install_relay(dcn_lookup_key(destination, None, 0), RelayDecision(1, mac(B, 0)))
        with captured(lab, B, 0, least=1) as sent:
            inject(lab, to_relay(DCN._replace(destination=2999).pack(inner())))
        assert len(sent) == 1


def test_closed_tables_leave_the_ports_as_they_were():
    with ThreeServers() as lab:
        for _ in range(2):
            table = lab.add_table(RELAY)
            table.install_relay(dcn_lookup_key(B, None, 0), RelayDecision(1, mac(B, 0)))
            with captured(lab, B, 0, least=1) as sent:
                inject(lab, to_relay(DCN.pack(inner())))
                wait_for(lambda now=table: now.counters()["done relayed"], "relaying")
                table.close()  # called in another namespace than that of the ports
                inject(lab, to_relay(DCN.pack(inner())))
                with listening(lab, RELAY, 0, ETH_DCN) as listener:
                    inject(lab, to_relay(DCN.pack(inner())))
                    assert listener.recv(4096)
            assert len(sent) == 1


def test_mistakes_are_told_in_one_sentence(decided):
    _, table = decided
    with pytest.raises(PillarboxError, match="no port 2"):
        table.install_relay(dcn_lookup_key(1, None, 2), DeliverDecision())
    with pytest.raises(PillarboxError, match="no port 7"):
        table.install_relay(bcube_hop_lookup_key(Hop.of(1)), RelayDecision(7, mac(B, 0)))
    with pytest.raises(PillarboxError, match="a prepended header has one of"):
        table.install_flow(THERE, PushDecision(0, mac(B, 0), b"x"))
    with pytest.raises(PillarboxError, match="1 to 4096 decisions, not 5000"):
        KernelTable({}, 1, entries=5000)


def test_a_missing_interface_is_told(decided):
    lab, _ = decided
    with lab.servers[A].entered():
        loaded = lab_programs.SingleServerPrograms(lab_programs.FORWARD)
        try:
            with pytest.raises(kernel.BpfError, match="cannot be attached to interface 4000: "):
                loaded.attach("port_in", 4000, egress=False)
        finally:
            loaded.close()
