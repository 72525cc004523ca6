"""Programs that stand at an interface by themselves: whose they are, and who replaces whom."""

from __future__ import annotations

import os

import pytest

from pillarbox.hosts.linux import bpf, tcx
from pillarbox.hosts.linux.calls import in_new_namespace
from pillarbox.hosts.linux.instructions import EXIT, set_register

LOOPBACK = 1
GO_ON = set_register(0, -1) + EXIT

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() == 0 and not tcx.is_supported(), reason="Linux 6.6 has places of their own"
    ),
]


def test_what_a_dead_process_left_is_replaced_and_nobody_elses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(bpf, "NAME", b"theirs")
        foreign = bpf.load_program(GO_ON)
    with in_new_namespace():
        tcx.attach(foreign, LOOPBACK, egress=False)
        (theirs,) = tcx.attached_program_ids(LOOPBACK, egress=False)
        left = bpf.load_program(GO_ON)
        tcx.replace_dead_programs(left, LOOPBACK, egress=False)
        os.close(left)  # it stays where it stands
        before = tcx.attached_program_ids(LOOPBACK, egress=False)
        assert len(before) == 2
        mine = bpf.load_program(GO_ON)
        tcx.replace_dead_programs(mine, LOOPBACK, egress=False)
        after = tcx.attached_program_ids(LOOPBACK, egress=False)
        assert after[0] == theirs and len(after) == 2 and after[1] not in before
        assert tcx.attached_program_ids(LOOPBACK, egress=True) == []
        tcx.detach(mine, LOOPBACK, egress=False)
        assert tcx.attached_program_ids(LOOPBACK, egress=False) == [theirs]


def test_an_interface_that_is_not_there_is_refused() -> None:
    made = bpf.load_program(GO_ON)
    with in_new_namespace(), pytest.raises(OSError, match="No such device"):
        tcx.replace_dead_programs(made, 4000, egress=False)
