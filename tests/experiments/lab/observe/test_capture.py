"""Captures: the file, the packets in it, and both from a lab that really runs."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.lab.observe.packet_paths import (
    COMPUTED,
    DIFFERS,
    LOST,
    PARALLEL,
    PARTLY,
    PathRow,
    packet_sightings,
    path_lines,
    paths_with_verdicts,
)
from pillarbox.experiments.lab.observe.pcapng import CapturedFrame, Interface, Reader, Writer
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.failures import NONE, parse_failures
from pillarbox.hosts.base.ports import arrival_port
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN
from pillarbox.hosts.wire.ipv4 import decrement_ttl
from pillarbox.hosts.wire.marks import udp_packet
from pillarbox.topos.base.errors import PillarboxError

frames_of_captures = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2**63 - 1), st.binary(max_size=90), st.booleans())
)


@given(frames_of_captures, st.text(max_size=40))
def test_what_is_written_is_read(frames: list[Any], comment: str) -> None:
    file = io.BytesIO()
    writer = Writer(file, [Interface(f"port {i}", 65535) for i in range(3)], comment)
    for number, at_ns, data, outgoing in frames:
        writer.write(number, at_ns, data, outgoing=outgoing, length=len(data) + 5)
    reader = Reader(io.BytesIO(file.getvalue()))
    assert reader.comment == comment
    assert list(reader) == [
        CapturedFrame(f"port {number}", at_ns, data, len(data) + 5, outgoing)
        for number, at_ns, data, outgoing in frames
    ]


@given(frames_of_captures.filter(bool), st.data())
def test_a_capture_that_was_cut_off_is_read_as_far_as_it_goes(frames: list[Any], data: Any) -> None:
    file = io.BytesIO()
    writer = Writer(file, [Interface(f"port {i}", 65535) for i in range(3)])
    begin = file.tell()
    for number, at_ns, octets, outgoing in frames:
        writer.write(number, at_ns, octets, outgoing=outgoing)
    whole = file.getvalue()
    cut = data.draw(st.integers(begin, len(whole)))
    read = [one.data for one in Reader(io.BytesIO(whole[:cut]))]
    assert read == [octets for _, _, octets, _ in frames][: len(read)]


def test_other_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PillarboxError, match="no pcapng file"):
        Reader(io.BytesIO(b"no capture at all"))


# -- packets -------------------------------------------------------------------------------------

BCUBE = topos.parse("bcube,4,1")


def frame(
    server: int, peer: int, packet: bytes, at_ns: int, *, outgoing: bool = True
) -> CapturedFrame:
    """Return a frame of a hop, with a DCN header as DCell's have it: any header will do."""
    port = next(p for p in range(2) if peer in BCUBE.peers(server, p))
    step = next(s for s in route(BCUBE, "bcube", server, peer).paths[0].steps if s.port == port)
    ends = (BCUBE.mac_number(peer, arrival_port(BCUBE, server, step)),)
    ends += (BCUBE.mac_number(server, port),)
    macs = b"".join(end.to_bytes(6, "big") for end in ends)
    data = DcnHeader(0, 7, Protocol.IPV4).pack(packet)
    whole = macs + ETH_DCN.to_bytes(2, "big") + data
    return CapturedFrame("port", at_ns, whole, len(whole), outgoing)


def way(*addresses: str, serial: int = 1, both: bool = True) -> list[CapturedFrame]:
    servers = [BCUBE.server(address) for address in addresses]
    packet = udp_packet(BCUBE, servers[0], BCUBE.server("1.3"), serial=serial)
    found = []
    for i, (server, peer) in enumerate(pairwise(servers)):
        found.append(frame(server, peer, packet, 100 * i))
        if both:
            # Its receipt may bear a later moment than the next sending.
            found.append(frame(server, peer, packet, 100 * i + 150, outgoing=False))
        packet = decrement_ttl(packet)
    return found


def verdicts(
    frames: list[CapturedFrame], routing: str = "bsr", *fail: str
) -> list[tuple[str, int]]:
    found, _ = packet_sightings(BCUBE, frames)
    rows = paths_with_verdicts(BCUBE, found, routing, parse_failures(BCUBE, fail))
    return [(row.verdict, row.packets) for row in rows]


@pytest.mark.parametrize("both", [True, False])
def test_paths_are_put_together_and_judged(both: bool) -> None:
    assert verdicts(way("0.0", "1.0", "1.3", both=both)) == [(COMPUTED, 1)]
    assert verdicts(way("0.0", "0.3", "1.3", both=both)) == [(PARALLEL, 1)]
    assert verdicts(way("0.0", "0.1", "1.1", "1.3", both=both)) == [(DIFFERS, 1)]
    assert verdicts(way("0.0", "1.0", both=both)) == [(LOST, 1)]
    assert verdicts(way("0.0", "1.0", "1.3", both=both)[1 + both :]) == [(PARTLY, 1)]
    assert verdicts(way("0.0", "0.3", "1.3", both=both), "bsr", "kill 1.0") == [(COMPUTED, 1)]


@pytest.mark.parametrize(
    ("servers", "verdict"), [(("0.0", "1.0", "1.3"), COMPUTED), (("0.0", "0.3", "1.3"), DIFFERS)]
)
def test_packets_of_ports_are_compared_with_their_pinned_path(
    servers: tuple[str, ...], verdict: str
) -> None:
    numbers = [BCUBE.server(address) for address in servers]
    packet = udp_packet(BCUBE, numbers[0], numbers[-1], ports=(1, None))
    frames = [frame(*hop, packet, at_ns) for at_ns, hop in enumerate(pairwise(numbers))]
    found, _ = packet_sightings(BCUBE, frames)
    [row] = paths_with_verdicts(BCUBE, found, "bsr", NONE)
    assert (row.verdict, row.ports) == (verdict, (1, None))
    [line] = path_lines(BCUBE, [row])
    assert "0.0%1 -> 1.3" in line


def test_a_loop_is_seen_as_one() -> None:
    round_trip = ["0.0", "1.0", "0.0", "1.0", "1.3"]
    found, _ = packet_sightings(BCUBE, way(*round_trip))
    assert [BCUBE.address(server) for server in found[0].servers] == round_trip


def test_packets_of_the_same_way_are_counted_together() -> None:
    frames = [one for serial in range(9) for one in way("0.0", "1.0", "1.3", serial=serial)]
    found, others = packet_sightings(BCUBE, frames)
    ends = BCUBE.server("0.0"), BCUBE.server("1.3")
    servers = tuple(map(BCUBE.server, ("0.0", "1.0", "1.3")))
    assert paths_with_verdicts(BCUBE, found, "bsr", NONE) == [PathRow(*ends, servers, COMPUTED, 9)]
    assert not others
    assert paths_with_verdicts(BCUBE, found, "my_router.py", NONE)[0].verdict == ""


def test_what_is_no_packet_of_applications_is_counted_by_kind() -> None:
    strange = [
        CapturedFrame("port", 0, bytes(12) + bytes.fromhex("86dd") + bytes(40), 54, True),
        CapturedFrame("port", 0, bytes(12) + bytes.fromhex("88b5") + bytes(40), 54, True),
    ]
    found, others = packet_sightings(BCUBE, strange)
    assert not found
    assert others == {"ethertype 0x86dd": 1, "refused: bad version": 1}


# -- live ----------------------------------------------------------------------------------------

WAIT_S = 20


@pytest.mark.root
def test_what_came_before_the_end_is_in_the_file() -> None:
    from pillarbox.experiments.lab.observe.port_capture import CapturePort, capture

    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    number, file = 600, io.BytesIO()
    with (
        Path("/proc/self/ns/net").open() as namespace,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to_itself,
    ):
        to_itself.bind(("127.0.0.1", 0))

        def send() -> None:
            for one in range(number):
                to_itself.sendto(one.to_bytes(2, "big"), to_itself.getsockname())

        tapped = [CapturePort("loopback", "lo", namespace.fileno())]
        counts = capture(tapped, file, begun=send, stopped=lambda: True)
    assert counts == (2 * number, 0)
    file.seek(0)
    came = [int.from_bytes(one.data[-2:], "big") for one in Reader(file) if not one.outgoing]
    assert came == list(range(number))


@pytest.mark.root
@pytest.mark.parametrize(
    ("spec", "routing"),
    [("bcube,2,1", "bsr"), ("dcell,2,1", "dfr"), ("dpillar,4,2", "sp-cw"), ("ficonn,4,1", "tar")],
)
def test_pings_are_followed_hop_by_hop_on_every_port(
    spec: str, routing: str, tmp_path: Path
) -> None:
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.experiments.lab.observe.port_capture import CapturePort, capture
    from pillarbox.hosts.live.settings import LabSettings

    topology = topos.parse(spec)
    last = topology.servers - 1
    # The papers' timers do not take a busy machine for a failure.
    settings = LabSettings(routing=routing, rate_mbit=None, timers="paper")
    with running(topology, settings, tmp_path / "lab") as lab:
        lab.wait_converged()
        ports = [
            CapturePort(topology.address(s), topology.interface(s, p), lab.namespace_of(s))
            for s in range(topology.servers)
            for p, _ in topology.neighbours(s)
        ]
        file = io.BytesIO()
        begun, stopped = threading.Event(), threading.Event()
        counts: list[Any] = []
        sniffing = threading.Thread(
            target=lambda: counts.append(
                capture(ports, file, begun=begun.set, stopped=stopped.is_set, regular=False)
            )
        )
        sniffing.start()
        assert begun.wait(WAIT_S)
        said = lab.host(0).cmd(f"ping -c 8 -i 0.02 -W {WAIT_S} {topology.ip(last)}")
        assert " 0% packet loss" in said
        stopped.set()
        sniffing.join(WAIT_S)
    (count,) = counts
    assert count.written and not count.missed
    file.seek(0)
    found, others = packet_sightings(topology, Reader(file))
    rows = paths_with_verdicts(topology, found, routing, NONE)
    assert sum(row.packets for row in rows) == 16
    assert {row.verdict for row in rows} <= {COMPUTED, PARALLEL}
    assert {(row.source, row.destination) for row in rows} == {(0, last), (last, 0)}
    assert not others.keys() & {"heart beat"}


def test_follow_tells_what_a_capture_lacks(tmp_path: Path) -> None:
    capture = tmp_path / "some.pcapng"
    with capture.open("wb") as file:
        writer = Writer(file, [Interface("port", 65535)])
        for one in way("0.0", "0.1", "1.1", "1.3"):
            writer.write(0, one.at_ns, one.data, outgoing=one.outgoing)
    command = [sys.executable, "-m", "pillarbox", "follow", str(capture)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "does not name its network" in done.stderr
    done = subprocess.run(
        [*command, "--network", "bcube,4,1", "--routing", "bsr"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "0.0 0.1 1.1 1.3" in done.stdout and DIFFERS in done.stdout
