"""What the process that delays cables does when the kernel takes no frame."""

from __future__ import annotations

import errno
import socket
from unittest.mock import Mock

import pytest

from experiments.lab.linux.delays import DelayedDirection


def direction(error: int) -> tuple[DelayedDirection, Mock]:
    """Return one with two frames, of which the kernel takes only the second."""
    target = Mock(spec=socket.socket)
    target.send.side_effect = [OSError(error, "refused"), 4]
    made = DelayedDirection(Mock(spec=socket.socket), target)
    made.take(b"lost", 0.0)
    made.take(b"sent", 0.0)
    return made, target


@pytest.mark.parametrize("error", [errno.ENOBUFS, errno.ENOMEM, errno.EAGAIN, errno.ENETDOWN])
def test_a_frame_that_finds_no_room_is_lost_and_the_next_is_sent(error: int) -> None:
    made, target = direction(error)
    assert made.release(1.0) == float("inf")
    assert [call.args for call in target.send.call_args_list] == [(b"lost",), (b"sent",)]
    assert made.held_bytes == 0


def test_what_else_goes_wrong_is_told() -> None:
    made, _ = direction(errno.EPERM)
    with pytest.raises(OSError, match="refused"):
        made.release(1.0)
