"""Programs that stand at an interface by themselves: whose they are, and who replaces whom."""

from __future__ import annotations

import os

import pytest

from hosts.linux import bpf, tcx
from hosts.linux.calls import nowhere
from hosts.linux.instructions import EXIT, set_register

LOOPBACK = 1
GO_ON = set_register(0, -1) + EXIT

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() == 0 and not tcx.is_known(), reason="Linux 6.6 has places of their own"
    ),
]


def test_what_a_dead_process_left_is_replaced_and_nobody_elses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(bpf, "NAME", b"theirs")
        foreign = bpf.load(GO_ON)
    with nowhere():
        tcx.attach(foreign, LOOPBACK, egress=False)
        (theirs,) = tcx.standing(LOOPBACK, egress=False)
        left = bpf.load(GO_ON)
        tcx.attach_anew(left, LOOPBACK, egress=False)
        os.close(left)  # it stays where it stands
        before = tcx.standing(LOOPBACK, egress=False)
        assert len(before) == 2
        mine = bpf.load(GO_ON)
        tcx.attach_anew(mine, LOOPBACK, egress=False)
        after = tcx.standing(LOOPBACK, egress=False)
        assert after[0] == theirs and len(after) == 2 and after[1] not in before
        assert tcx.standing(LOOPBACK, egress=True) == []
        tcx.detach(mine, LOOPBACK, egress=False)
        assert tcx.standing(LOOPBACK, egress=False) == [theirs]


def test_an_interface_that_is_not_there_is_refused() -> None:
    made = bpf.load(GO_ON)
    with nowhere(), pytest.raises(OSError, match="No such device"):
        tcx.attach_anew(made, 4000, egress=False)
