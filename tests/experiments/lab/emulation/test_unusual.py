"""Packets that go astray on purpose: to everybody, to groups, or with too few hops to go."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.experiments.labs import PLANES, WAIT_S, lab_of, wait_until

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

pytestmark = pytest.mark.root

EAR_PORT, CLOSED_PORT, DATAGRAMS = 5999, 33434, 20
EVERYBODY = ("255.255.255.255", "10.255.255.255")
GROUP = "224.0.0.251"
HAVE_BROADCASTS = ["dcell,4,1", "bcube,4,1"]
# In what the kernel tells of an error (struct sock_extended_err): ICMP's type, and who says so.
IP_RECVERR, TYPE_AT, OFFENDER_AT = 11, 5, 20
TIME_EXCEEDED, UNREACHABLE = 11, 3


@contextmanager
def datagrams(lab: Lab, server: int, port: int = 0) -> Iterator[socket.socket]:
    """Give a socket on a server; to send from, or bound to a port for whatever comes."""
    with lab.host(server).live_namespace():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with made:
        made.settimeout(WAIT_S)
        made.bind(("", port) if port else (lab.topology.ip(server), 0))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        yield made


@pytest.mark.few
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("spec", HAVE_BROADCASTS)
def test_every_broadcast_reaches_every_server_once(spec: str, plane: str, tmp_path: Path) -> None:
    with lab_of(spec, tmp_path, plane=plane) as lab, ExitStack() as stack:
        others = range(1, lab.topology.servers)
        ears = [stack.enter_context(datagrams(lab, server, EAR_PORT)) for server in others]
        mouth = stack.enter_context(datagrams(lab, 0))
        sent = [(number, address) for number in range(DATAGRAMS) for address in EVERYBODY]
        for number, address in sent:
            mouth.sendto(bytes([number]), (address, EAR_PORT))
        expected = sorted(number for number, _ in sent)
        for server, ear in zip(others, ears, strict=True):
            heard = [ear.recv(2)[0] for _ in sent]
            assert sorted(heard) == expected, lab.topology.address(server)
        assert select.select(ears, [], [], 0)[0] == []


# DPillar and FiConn have none; nor has anybody groups.
@pytest.mark.few
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("spec", ["dpillar,4,2", "bcube,4,1", "ficonn,4,1", "dcell,4,1"])
def test_what_is_for_many_is_refused_and_counted(spec: str, plane: str, tmp_path: Path) -> None:
    addresses = [GROUP] if spec in HAVE_BROADCASTS else [*EVERYBODY, GROUP]
    with lab_of(spec, tmp_path, plane=plane) as lab, ExitStack() as stack:
        others = range(1, lab.topology.servers)
        ears = [stack.enter_context(datagrams(lab, server, EAR_PORT)) for server in others]
        mouth = stack.enter_context(datagrams(lab, 0))
        for number in range(DATAGRAMS):
            for address in addresses:
                mouth.sendto(bytes([number]), (address, EAR_PORT))
        reason, many = "destination is no server of this network", DATAGRAMS * len(addresses)
        wait_until(lambda: lab.state(0)["drops"].get(reason) == many, "they were not counted")
        assert select.select(ears, [], [], 0)[0] == []


def traced(lab: Lab, source: int, destination: int) -> list[int]:
    """Return who says that a flow's packets ended there, when its path has settled."""
    with datagrams(lab, source) as probe:
        probe.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
        probe.connect((lab.topology.ip(destination), CLOSED_PORT))
        before, found = [], ends(lab, probe, destination)
        while found != before:
            before, found = found, ends(lab, probe, destination)
    return found


def ends(lab: Lab, probe: socket.socket, destination: int) -> list[int]:
    """Return where a packet with one hop to go ends, with two, and so on."""
    found: list[int] = []
    while destination not in found:
        probe.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, len(found) + 1)
        probe.send(b"")
        assert select.select([probe], [], [], WAIT_S)[0], f"no answer after {found}"
        _, ((_, _, error),), _, _ = probe.recvmsg(1, 512, socket.MSG_ERRQUEUE)
        offender = int.from_bytes(error[OFFENDER_AT : OFFENDER_AT + 4], "big")
        found.append(lab.topology.server_of_ipv4(offender))
        assert error[TYPE_AT] == (UNREACHABLE if found[-1] == destination else TIME_EXCEEDED)
    return found


@pytest.mark.few
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize(
    ("spec", "routing"),
    [("ficonn,4,1", "tar"), ("ficonn,4,1", "tor"), ("dpillar,4,3", "mp"), ("dpillar,4,3", "sp-cw")],
)
def test_relays_are_seen_where_packets_are_ip(
    spec: str, routing: str, plane: str, tmp_path: Path
) -> None:
    with lab_of(spec, tmp_path, routing=routing, plane=plane) as lab:
        topology = lab.topology
        source, destination = 1, topology.servers - 1
        found = [source, *traced(lab, source, destination)]
        assert len(set(found)) == len(found) > 3
        for hop, peer in pairwise(found):
            neighbours = (topology.peers(hop, port) for port in range(topology.ports))
            assert any(peer in those for those in neighbours), found


@pytest.mark.few
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("spec", ["dcell,4,1", "bcube,4,1"])
def test_a_path_under_a_header_is_one_hop(spec: str, plane: str, tmp_path: Path) -> None:
    with lab_of(spec, tmp_path, plane=plane) as lab:
        destination = lab.topology.servers - 1
        assert traced(lab, 1, destination) == [destination]
