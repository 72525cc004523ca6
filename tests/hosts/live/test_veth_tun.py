"""A server's application interface without a TUN device: packets both ways, and its end."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket

import pytest

from pillarbox import topos
from pillarbox.hosts.live.devices import APPLICATION_INTERFACE, Tun, configure_application_interface
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.hosts.live.veth_tun import VethTun
from pillarbox.hosts.wire.ipv4 import Ipv4Header
from tests.experiments.labs import WAIT_S, wait_until

pytestmark = pytest.mark.root

NETWORK, OWN, OTHER = topos.parse("dcell,2,1"), 0, 3
PORT = 4000


def interface() -> VethTun:
    made = VethTun()
    configure_application_interface(NETWORK, OWN, LabSettings())
    return made


def next_packet(tun: Tun) -> bytes:
    assert select.select([tun.fd], [], [], WAIT_S)[0]
    packet = tun.receive()
    assert packet is not None
    return packet


def checksum(data: bytes) -> int:
    total = sum(
        int.from_bytes(data[at : at + 2].ljust(2, b"\0"), "big") for at in range(0, len(data), 2)
    )
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def test_programs_packets_are_complete() -> None:
    """As of a TUN interface: with finished checksums."""
    tun = interface()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as program:
        program.sendto(b"datagram", (NETWORK.ip(OTHER), PORT))
        packet = next_packet(tun)
    header, _ = Ipv4Header.parse(packet)
    assert NETWORK.ipv4(OTHER) == header.destination
    pseudo = packet[12:20] + b"\0\x11" + packet[24:26]
    assert checksum(packet[:20]) == checksum(pseudo + packet[20:]) == 0xFFFF


def test_packets_reach_programs() -> None:
    tun = interface()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as program:
        program.bind((NETWORK.ip(OWN), PORT))
        program.settimeout(WAIT_S)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.sendto(b"datagram", (NETWORK.ip(OTHER), PORT))
        packet = bytearray(next_packet(tun))
        # Exchanged addresses leave the checksums right.
        packet[12:16], packet[16:20] = packet[16:20], packet[12:16]
        assert tun.send(bytes(packet)) == ""
        assert program.recv(100) == b"datagram"


@pytest.mark.parametrize("packet", [b"", b"\x60" + bytes(39), b"\0" * 40])
def test_what_is_no_ipv4_packet_is_refused(packet: bytes) -> None:
    tun = interface()
    assert tun.send(packet) == "application interface refused the packet"
    full = OSError(errno.ENOBUFS, "")
    assert tun.drop_reason(full) == "application interface is full"


def test_it_ends_with_its_process_and_is_made_again() -> None:
    ready, tells = os.pipe()
    child = os.fork()
    if child == 0:
        _held = interface()  # it ends with its last reference as well
        os.write(tells, b"1")
        signal.pause()
    os.read(ready, 1)
    assert socket.if_nametoindex(APPLICATION_INTERFACE)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_until(lambda: APPLICATION_INTERFACE not in names(), "the interface stays")
    _first = interface()
    _second = interface()  # in place of one that is still there
    assert APPLICATION_INTERFACE in names()


def names() -> set[str]:
    return {name for _, name in socket.if_nameindex()}
