"""Live servers: every routing of every network, on both planes, carries what it should.

One lab for each case, in a sandbox of its own. A new network or routing is tested here from the day
its file is there.
"""

from __future__ import annotations

import hashlib
import os
import random
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pillarbox import topos
from pillarbox.hosts.base.algorithms import SHORTEST, algorithms, route
from pillarbox.hosts.base.declarations import declared
from pillarbox.hosts.base.failures import NONE
from pillarbox.hosts.base.load import router_for
from pillarbox.hosts.base.network import header_of as header_in
from pillarbox.hosts.memory.tryout import network_of, packet_path
from pillarbox.hosts.wire.bcube import BCubeHeader
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP
from pillarbox.hosts.wire.ipv4 import IP_IN_IP, UDP, Ipv4Header
from pillarbox.hosts.wire.marks import serial_of
from pillarbox.topos.base.spec import small
from tests.experiments.labs import EBPF, WAIT_S, lab_of

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

pytestmark = [pytest.mark.root, pytest.mark.without_root]

SPECS = [spec for spec in small() if topos.parse(spec).ports > 1]
# Nobody can say beforehand which of their paths these take: they draw, measure or spray; of paths
# of the same length, DPillarMP takes the one whose probe is answered first.
DRAWN_OR_MEASURED = {"mp-random", "mp-aware", "spray"}
FIRST_ANSWERED = {"mp", "mp-ccw", "mp-any", "mp-both", "mp-far-side"}
ETH_ALL = 3
PAYLOAD_BYTES, SEGMENT_BYTES, TRANSFERS = 200_000, 1448, 3


def planes() -> Iterator[Any]:
    yield pytest.param("python", id="python")
    yield pytest.param("ebpf", id="ebpf", marks=EBPF)


def cases() -> Iterator[Any]:
    """Yield every routing on both planes; without --all each name on eBPF, each header on both."""
    seen = set()
    for spec in SPECS:
        for routing, algorithm in algorithms(topos.parse(spec)).items():
            for plane in planes() if algorithm.router else ():
                name = f"{spec}-{routing}-{plane.id}"
                kind = plane.id, spec, algorithm.router.header_bytes()
                known = plane.id == "python" or (plane.id, routing) in seen
                again = [pytest.mark.long] if known and kind in seen else []
                seen |= {kind, (plane.id, routing)}
                yield pytest.param(
                    spec, routing, *plane.values, id=name, marks=[*plane.marks, *again]
                )


def pairs(lab: Lab) -> list[tuple[int, int]]:
    """Return neighbours, the farthest, and some at random: each server in one pair or more."""
    servers = list(range(lab.topology.servers))
    random.Random(1).shuffle(servers)
    far = (0, lab.topology.servers - 1)
    return [far, far[::-1], *zip(servers, servers[1:] + servers[:1], strict=True)]


@pytest.mark.parametrize(("spec", "routing", "plane"), list(cases()))
def test_every_routing_carries_programs_traffic(
    spec: str, routing: str, plane: str, tmp_path: Path
) -> None:
    # Nothing fails here, and the papers' timers do not take a busy machine for a failure.
    with lab_of(spec, tmp_path, routing=routing, plane=plane, timers="paper") as lab:
        check_pings(lab)
        check_traces(lab)
        check_headers(lab)
        check_udp(lab)
        before = by_routers(lab)
        check_tcp(lab)
        # A small part only: the plane repeats what was decided.
        assert by_routers(lab) - before < TRANSFERS * PAYLOAD_BYTES / SEGMENT_BYTES / 2
        assert lab.status()["drops"] == {}


def check_pings(lab: Lab) -> None:
    pings = {
        (a, b): lab.host(a).popen(["ping", "-c1", f"-W{WAIT_S:.0f}", lab.topology.ip(b)])
        for a, b in pairs(lab)
    }
    failed = [pair for pair, ping in pings.items() if ping.wait(2 * WAIT_S)]
    assert not failed, f"no answer: {failed}"


def check_traces(lab: Lab) -> None:
    """See that live paths are the predicted ones, hop by hop."""
    in_memory = network_of(lab.topology, router_for(lab.topology, SHORTEST), NONE, 0)
    for a, b in pairs(lab):
        found = lab.trace(a, b)
        assert found["delivered"], found
        ways = route(lab.topology, lab.routing, a, b, several=True).paths
        known = [[lab.name(server) for server in way.servers] for way in ways]
        if lab.routing in DRAWN_OR_MEASURED | FIRST_ANSWERED:
            assert found["path"] in known
            if lab.routing in FIRST_ANSWERED:
                assert len(found["path"]) == len(lab.computed(a, b))
        elif lab.routing == SHORTEST:  # of several, the router's order decides
            (way,) = packet_path(in_memory, a, b).paths
            assert found["path"] == [lab.name(server) for server in way.servers]
        else:
            assert found["path"] == lab.computed(a, b)


# -- headers ---------------------------------------------------------------------------------------


def check_headers(lab: Lab) -> None:
    """See the frames of a marked packet at each server's port: the papers' headers, hop by hop."""
    source, destination = 0, lab.topology.servers - 1
    with ExitStack() as stack:
        taps = {
            (server, port): stack.enter_context(tap(lab, server, port))
            for server in range(lab.topology.servers)
            for port, _ in lab.topology.neighbours(server)
        }
        path = [lab.server(name) for name in lab.trace(source, destination)["path"]]
        seen = {place: list(frames(which)) for place, which in taps.items()}
    check = header_of(lab)
    for at, peer in pairwise(path):
        sent = [one for (server, _), found in seen.items() if server == at for one in found]
        to_peer = [one for one in sent if int.from_bytes(one[2:6], "big") == peer]
        assert to_peer, f"{lab.name(at)} sent nothing to {lab.name(peer)}"
        check(lab, to_peer[-1][12:], path, path.index(at))


@contextmanager
def tap(lab: Lab, server: int, port: int) -> Iterator[socket.socket]:
    with lab.host(server).live_namespace():
        which = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_ALL))
    with which:
        which.bind((lab.topology.interface(server, port), ETH_ALL))
        which.setblocking(False)
        yield which


def frames(which: socket.socket) -> Iterator[bytes]:
    """Yield the frames of marked packets, whole."""
    while True:
        try:
            frame = which.recv(1 << 16)
        except BlockingIOError:
            return
        if serial_of(frame) is not None:
            yield frame


Check = Callable[["Lab", bytes, list[int], int], None]


def header_of(lab: Lab) -> Check:
    """Return the check of the header that the network's paper, or its routing, asks for."""
    if lab.routing == SHORTEST:
        return check_dcn
    return {
        "dcell": check_dcn,
        **dict.fromkeys(
            ("bcube", "rail", "mesh"),
            check_bcube if lab.routing in ("bsr", "apr", "spray") else check_dcn,
        ),
        "dpillar": check_tunnel if lab.routing.startswith(("mp", "spray")) else check_ip,
        "ficonn": check_dcn if lab.routing.startswith("tar") else check_ip,
    }.get(lab.topology.kind, check_declared)


def check_declared(lab: Lab, frame: bytes, path: list[int], hop: int) -> None:
    data = frame[2:]
    if frame[:2] == ETH_DCN.to_bytes(2, "big"):
        header = header_in(data)
        assert header
        assert header in declared(lab.topology.kind).headers
        data = header.parse(data)[1]
    check_application_packet(lab, data, path)


def check_dcn(lab: Lab, frame: bytes, path: list[int], hop: int) -> None:
    assert frame[:2] == ETH_DCN.to_bytes(2, "big")
    header, packet = DcnHeader.parse(frame[2:])
    assert header.protocol == Protocol.IPV4
    assert (header.source, header.destination) == (path[0], path[-1])
    assert header.ttl == 64 - hop
    check_application_packet(lab, packet, path)


def check_bcube(lab: Lab, frame: bytes, path: list[int], hop: int) -> None:
    assert frame[:2] == ETH_DCN.to_bytes(2, "big")
    header, packet = BCubeHeader.parse(frame[2:])
    assert (header.source, header.destination) == (path[0], path[-1])
    assert header.next_hop == hop + 1
    digits = list(lab.topology.digits(path[0]))[::-1]
    walked = [path[0]]
    for level, value in header.path:
        digits[level] = value
        walked.append(lab.topology.server_at(digits[::-1]))
    assert walked == path
    check_application_packet(lab, packet, path)


def check_ip(lab: Lab, frame: bytes, path: list[int], hop: int) -> None:
    assert frame[:2] == ETH_IP.to_bytes(2, "big")
    check_application_packet(lab, frame[2:], path)
    assert Ipv4Header.parse(frame[2:])[0].ttl == 64 - hop


def check_tunnel(lab: Lab, frame: bytes, path: list[int], hop: int) -> None:
    assert frame[:2] == ETH_IP.to_bytes(2, "big")
    outer, packet = Ipv4Header.parse(frame[2:])
    if outer.protocol == IP_IN_IP:  # until the last proxy has taken it off
        check_application_packet(lab, packet, path)
    else:
        assert hop > 0
        check_application_packet(lab, frame[2:], path)


def check_application_packet(lab: Lab, packet: bytes, path: list[int]) -> None:
    header, _ = Ipv4Header.parse(packet)
    assert header.protocol == UDP
    ends = header.source, header.destination
    assert ends == (lab.topology.ipv4(path[0]), lab.topology.ipv4(path[-1]))


# -- transfers -------------------------------------------------------------------------------------


def opened(lab: Lab, server: int, kind: int) -> socket.socket:
    """Return a socket on a server, bound to its address."""
    with lab.host(server).live_namespace():
        made = socket.socket(socket.AF_INET, kind)
    made.settimeout(WAIT_S)
    made.bind((lab.topology.ip(server), 0))
    return made


def check_udp(lab: Lab) -> None:
    for a, b in pairs(lab)[:4]:
        with opened(lab, a, socket.SOCK_DGRAM) as client, opened(lab, b, socket.SOCK_DGRAM) as far:
            for size in (1, 1000, 1472):
                sent = random.Random(size).randbytes(size)
                client.sendto(sent, far.getsockname())
                data, sender = far.recvfrom(2048)
                far.sendto(data[::-1], sender)
                assert client.recv(2048) == sent[::-1]


def check_tcp(lab: Lab) -> None:
    for a, b in pairs(lab)[:TRANSFERS]:
        sent = os.urandom(PAYLOAD_BYTES)
        with opened(lab, b, socket.SOCK_STREAM) as listener:
            listener.listen()
            with opened(lab, a, socket.SOCK_STREAM) as client:
                client.connect(listener.getsockname())
                arrived, _ = listener.accept()
                with arrived:
                    sender = threading.Thread(target=send_all, args=(client, sent))
                    sender.start()
                    digest, size = digest_of(arrived)
                    sender.join()
        assert (size, digest) == (len(sent), hashlib.sha256(sent).hexdigest())


def send_all(client: socket.socket, data: bytes) -> None:
    client.sendall(data)
    client.shutdown(socket.SHUT_WR)


def digest_of(arrived: socket.socket) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    arrived.settimeout(WAIT_S)
    while data := arrived.recv(1 << 16):
        digest.update(data)
        size += len(data)
    return digest.hexdigest(), size


def by_routers(lab: Lab) -> int:
    """Return how many applications' packets routers were asked about, where they begin and end."""
    counters = [lab.state(server)["counters"] for server in range(lab.topology.servers)]
    return sum(one.get(what, 0) for one in counters for what in ("sent", "delivered"))


# -- switches only, and what cannot be -------------------------------------------------------------


def test_tree_needs_no_forwarders(tmp_path: Path) -> None:
    with lab_of("tree,4,4", tmp_path) as lab:
        assert lab.forwarders is None
        check_pings(lab)
        check_udp(lab)
        check_tcp(lab)


def test_super_packets_are_as_large_where_servers_relay(tmp_path: Path) -> None:
    # Ports have room for headers that TCP does not know of: eight segments all the same.
    with lab_of("dcell,2,1", tmp_path, rate_mbit=100.0) as lab:
        for host in lab.net.hosts:
            assert host.cmd("cat /proc/sys/net/ipv4/tcp_min_tso_segs").strip() == "8"


def test_what_cannot_run_is_refused_in_a_sentence(tmp_path: Path) -> None:
    from pillarbox.topos.base.errors import PillarboxError

    for settings, reason in (
        ({"routing": "nosuch"}, "has no routing 'nosuch'"),
        ({"plane": "nosuch"}, "there is no plane 'nosuch'"),
        ({"timers": "nosuch"}, "there are no 'nosuch' timers"),
    ):
        with pytest.raises(PillarboxError, match=reason), lab_of("dcell,2,1", tmp_path, **settings):
            pass
    said = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in said.splitlines()] == ["lo"]
