"""Filters of cables in classic BPF: the kernel runs them, at a socket that needs no root."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.experiments.lab.linux import cable_programs, classic_filters
from pillarbox.experiments.lab.linux.classic_filters import ACT_SHOT
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.calls import attach_filter
from pillarbox.hosts.linux.netlink import attributes
from pillarbox.hosts.wire.dcn import FIRST_MESSAGE, MESSAGE_MASK
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP
from pillarbox.hosts.wire.ipv4 import IP_IN_IP

LONG = 100  # bytes of a datagram, more than any verdict
DATAGRAMS = 400


def passed_bytes(options: bytes, frames: list[bytes]) -> list[int]:
    """Return how many bytes of each frame a filter lets through: its result, as a length."""
    program = dict(attributes(options, 0))[nl.TCA_BPF_OPS]
    sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with sender, receiver:
        receiver.setblocking(False)
        attach_filter(receiver, program)
        found = []
        for frame in frames:
            try:
                sender.send(frame)
                found.append(len(receiver.recv(LONG)))
            except (BlockingIOError, PermissionError):  # the filter returned 0
                found.append(0)
        return found


NUMBERS = st.sampled_from([0, 1, 4, 6, IP_IN_IP, FIRST_MESSAGE - 1, FIRST_MESSAGE, 0xEF, 0xF0])
FRAMES = st.builds(
    lambda ethertype, dcn, outer, inner, size: bytes(
        bytearray(12)
        + struct.pack("!H", ethertype)
        + bytes([0, dcn])
        + bytes(7)
        + bytes([outer])
        + bytes(19)
        + bytes([inner])
        + bytes(30)
    )[:size],
    st.sampled_from([ETH_DCN, ETH_IP, 0x0806]),
    *(NUMBERS, NUMBERS, NUMBERS),
    st.sampled_from([14, 16, 24, 60]),
)


def is_control_message(frame: bytes) -> bool:
    (ethertype,) = struct.unpack_from("!H", frame, 12)
    at = {ETH_DCN: 15, ETH_IP: 23}.get(ethertype)
    if ethertype == ETH_IP and len(frame) > 23 and frame[23] == IP_IN_IP:
        at = 43
    if at is None or len(frame) <= at:
        return False
    return frame[at] & MESSAGE_MASK == FIRST_MESSAGE


@given(FRAMES)
def test_control_messages_are_recognized_behind_every_header(frame: bytes) -> None:
    (passed,) = passed_bytes(classic_filters.control_messages(), [frame])
    assert passed == (len(frame) if is_control_message(frame) else 0)


def test_a_cut_drops_all() -> None:
    assert passed_bytes(cable_programs.drop().classic, [bytes(LONG)]) == [ACT_SHOT]


@pytest.mark.parametrize(
    ("probability", "least", "most"), [(0, 0, 0), (0.5, 120, 280), (1, 400, 400)]
)
def test_a_loss_drops_its_share(probability: float, least: int, most: int) -> None:
    options = cable_programs.drop_randomly(probability).classic
    verdicts = passed_bytes(options, [bytes(LONG)] * DATAGRAMS)
    assert set(verdicts) <= {ACT_SHOT, LONG}
    assert least <= verdicts.count(ACT_SHOT) <= most
