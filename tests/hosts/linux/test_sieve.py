"""What a socket keeps: the same by either kind of program, which many sockets can share."""

from __future__ import annotations

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.hosts.linux import sieve
from pillarbox.hosts.linux.calls import attach_filter
from pillarbox.hosts.linux.sieve import ByteTest, attach_byte_filter, classic_filter, shared_filter

LONGEST = 20
tests = st.builds(
    ByteTest,
    st.integers(0, LONGEST),
    st.integers(0, 3),
    mask=st.sampled_from((0x03, 0xFF)),
    equal=st.booleans(),
)
frames = st.binary(min_size=1, max_size=LONGEST).map(lambda frame: bytes(b & 7 for b in frame))


def passes(frame: bytes, wanted: tuple[ByteTest, ...]) -> bool:
    return all(
        at < len(frame) and (frame[at] & mask == value) == equal
        for at, value, mask, equal in wanted
    )


@pytest.mark.parametrize(
    "kind", ["classic_filter", pytest.param("shared_filter", marks=pytest.mark.root)]
)
@given(st.lists(tests, max_size=4).map(tuple), st.lists(frames, max_size=10))
def test_a_socket_keeps_what_passes_all_tests(
    kind: str, wanted: tuple[ByteTest, ...], sent: list[bytes]
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    with ours, theirs:
        if kind == "classic_filter":
            attach_filter(theirs, classic_filter(wanted))
        else:
            program = shared_filter.__wrapped__(wanted)
            assert program is not None
            theirs.setsockopt(socket.SOL_SOCKET, sieve.SO_ATTACH_BPF, program)
            os.close(program)
        for frame in sent:
            ours.send(frame)
        kept = [theirs.recv(LONGEST) for frame in sent if passes(frame, wanted)]
        assert kept == [frame for frame in sent if passes(frame, wanted)]
        with pytest.raises(BlockingIOError):
            theirs.recv(LONGEST)


def test_where_the_kernel_takes_no_program_a_socket_has_one_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(sieve, "load_program", refuse)
    wanted = (ByteTest(0, 0xA7),)  # as no other test has
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    with ours, theirs:
        attach_byte_filter(theirs, *wanted)
        ours.send(b"\x00")
        ours.send(b"\xa7")
        assert theirs.recv(LONGEST) == b"\xa7"
