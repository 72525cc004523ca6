"""Congestion controls in eBPF: what is shipped loads, what is wrong is told, nothing stays."""

from __future__ import annotations

import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from pillarbox.experiments.cli.main import cli
from pillarbox.experiments.lab.linux import congestion
from pillarbox.experiments.lab.linux.congestion import (
    control_in_use,
    in_kernel,
    registered,
    shipped,
)
from pillarbox.experiments.lab.traffic.tcp_info import tcp_info
from pillarbox.experiments.runs.trials import control_trials
from pillarbox.hosts.linux.calls import in_new_namespace
from pillarbox.topos.base.errors import PillarboxError

pytestmark = pytest.mark.in_turn  # the kernel's names of controls are the whole machine's

MOST_LINES = 80
WHOLE = """#include "control.h"
SEC("struct_ops/ssthresh") __u32 BPF_PROG(after_loss, struct sock *sk)
{
    return %s;
}
SEC("struct_ops/cong_avoid") void BPF_PROG(grow, struct sock *sk, __u32 ack, __u32 acked)
{
    tcp_reno_cong_avoid(sk, ack, acked);
}
SEC("struct_ops/undo_cwnd") __u32 BPF_PROG(undo, struct sock *sk)
{
    return tcp_reno_undo_cwnd(sk);
}
CONTROL(%s, .ssthresh = FN(after_loss), .cong_avoid = FN(grow), .undo_cwnd = FN(undo));
"""


@pytest.fixture(scope="module", autouse=True)
def has_struct_ops() -> None:
    """Skip the tests of registration where the kernel has no such controls."""
    if not Path("/sys/kernel/btf/vmlinux").exists():
        pytest.skip("this kernel has no BTF")


def written(folder: Path, text: str, name: str = "mine") -> Path:
    file = folder / f"{name}{congestion.SUFFIX}"
    file.write_text(text)
    return file


@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_shipped_control_is_short(name: str) -> None:
    assert len(shipped()[name].read_text().splitlines()) <= MOST_LINES


@pytest.mark.root
@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_shipped_control_carries_data_and_goes(name: str) -> None:
    with in_new_namespace(), control_in_use(name) as known, closing(socket.socket()) as server:
        server.bind(("127.0.0.1", 0))
        assert known in in_kernel()
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, known.encode())
    assert known not in in_kernel()


# 0x81104110 is a result of ssthresh that the kernel has lost: an address, larger than INFINITE.
WITH_THRESHOLD = """
SEC("struct_ops/init") void BPF_PROG(lose, struct sock *sk)
{
    TCP(sk)->snd_ssthresh = %s;
}
CONTROL(mine, .init = FN(lose), """


def threshold_of_a_connection(control: Path) -> int:
    """Return the slow-start threshold of a connection of the control, after some data."""
    with (
        in_new_namespace(),
        closing(registered(control)) as known,
        closing(socket.socket()) as listener,
        closing(socket.socket()) as sender,
    ):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, known.name.encode())
        sender.connect(listener.getsockname())
        receiver, _ = listener.accept()
        with closing(receiver):
            for _ in range(3):
                sender.sendall(b"a request")
                receiver.sendall(receiver.recv(100))
                sender.recv(100)
        return tcp_info(sender)["snd_ssthresh"]


@pytest.mark.root
@pytest.mark.parametrize(
    ("threshold", "after"),
    [("0x81104110", 2), ("INFINITE + 1", 2), ("INFINITE", 0x7FFFFFFF), ("7", 7)],
)
def test_a_lost_threshold_is_repaired(tmp_path: Path, threshold: str, after: int) -> None:
    text = (WHOLE % ("2", "mine")).replace("CONTROL(mine, ", WITH_THRESHOLD % threshold)
    assert threshold_of_a_connection(written(tmp_path, text)) == after


@pytest.mark.root
def test_two_labs_use_a_control_of_the_same_name(tmp_path: Path) -> None:
    one = written(tmp_path, WHOLE % ("2", "mine"))
    with closing(registered(one)) as first, closing(registered(one)) as second:
        assert {first.name, second.name} <= {*in_kernel()}
        assert first.name != second.name


@pytest.mark.root
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("int x = ;", r"mine\.bpf\.c does not compile: .*mine\.bpf\.c:1:9: error"),
        ('#include "control.h"', r"mine\.bpf\.c declares 0 controls: write one CONTROL"),
        (WHOLE % ("2", "other"), r"declares CONTROL\(other, \.\.\.\): write CONTROL\(mine"),
        (WHOLE % ("({ for (;;) bpf_ktime_get_ns(); 2; })", "mine"), r"bpf\.c, line \d: .*loop"),
        (WHOLE % ("TCP(sk)->srtt_us = 1", "mine"), r"mine\.bpf\.c, line 4: .*no write support"),
        (
            (WHOLE % ("2", "mine")).replace(".undo_cwnd = FN(undo)", ""),
            r"CONTROL does not name the function undo",
        ),
        (
            '#include "control.h"\nCONTROL(mine);',
            r"mine\.bpf\.c: .*: a control needs ssthresh, cong_avoid and undo_cwnd",
        ),
        (
            (WHOLE % ("2", "mine")).split('SEC("struct_ops/cong')[0]
            + "CONTROL(mine, .ssthresh = FN(after_loss));",
            r"refuses the members of mine\.bpf\.c: .*needs ssthresh, cong_avoid and undo_cwnd",
        ),
    ],
)
def test_a_wrong_control_is_told_in_a_sentence(tmp_path: Path, text: str, told: str) -> None:
    before = {*in_kernel()}
    with pytest.raises(PillarboxError, match=told):
        registered(written(tmp_path, text))
    new = {*in_kernel()} - before  # the list is the machine's: other labs' controls come and go
    assert not [name for name in new if name.startswith(("mine", "other"))]


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("nosuch", "there is no TCP congestion control 'nosuch': there are .*dctcp"),
        ("none.bpf.c", r"there is no file none\.bpf\.c"),
    ],
)
def test_an_unknown_control_is_told(word: str, told: str) -> None:
    with pytest.raises(PillarboxError, match=told):
        congestion.source_of(word)


@pytest.mark.parametrize(
    ("word", "allowed"), [("reno", "reno bbr"), ("cubic", "reno cubic"), ("dctcp", "reno")]
)
def test_a_default_is_one_that_the_kernel_allows_or_a_lab_loads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, word: str, allowed: str
) -> None:
    for name, text in (("ALLOWED", allowed), ("AVAILABLE", "reno cubic bbr")):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(congestion, name, tmp_path / name)
    congestion.check_default(word)
    (tmp_path / "ALLOWED").write_text("reno")
    if word == "cubic":
        told = "servers have reno as their default control, not cubic: .*='reno cubic'"
        with pytest.raises(PillarboxError, match=told):
            congestion.check_default(word)
    else:
        congestion.check_default(word)


@pytest.mark.root
def test_a_trial_takes_a_control_that_is_no_default(tmp_path: Path) -> None:
    from pillarbox import topos
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.hosts.live.settings import LabSettings

    allowed = congestion.ALLOWED.read_text().split()
    known = [name for name in in_kernel() if name not in allowed]
    if not known:
        pytest.skip("this kernel allows all of its controls as defaults")
    settings = LabSettings(rate_mbit=None, timers="paper", tcp=known[0])
    with running(topos.parse("tree,2,1"), settings, tmp_path / "lab") as lab:
        assert lab.tcp == known[0]


@pytest.mark.parametrize("name", ["Mine", "a" * 13, "x-y", "9x", ""])
def test_a_name_that_the_kernel_has_no_room_for(tmp_path: Path, name: str) -> None:
    with pytest.raises(PillarboxError, match="a control's name is its file's"):
        congestion.source_of(str(written(tmp_path, "", name)))


@pytest.mark.root
def test_a_lab_has_it_as_the_default_of_its_servers_alone(tmp_path: Path) -> None:
    from pillarbox import topos
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.hosts.live.settings import LabSettings

    default = Path("/proc/sys", congestion.DEFAULT)
    before = default.read_text()
    settings = LabSettings(rate_mbit=None, timers="paper", tcp="scalable")
    with running(topos.parse("tree,2,1"), settings, tmp_path / "lab") as lab:
        assert lab.status()["tcp"] == lab.tcp
        for server in range(2):
            with lab.host(server).live_namespace():
                assert default.read_text().split() == [lab.tcp]
        assert default.read_text() == before
    assert lab.tcp not in in_kernel()


@pytest.mark.root
def test_cc_refuses_a_wrong_control_before_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unexpected(*_: object) -> None:
        raise AssertionError("a control was measured")

    monkeypatch.setattr(control_trials, "control_results", unexpected)
    file = written(tmp_path, WHOLE % ("2", "other"))
    with pytest.raises(PillarboxError, match=r"write CONTROL\(mine"):
        CliRunner().invoke(cli, ["cc", str(file)], catch_exceptions=False)
    file = written(tmp_path, "int x = ;")
    with pytest.raises(PillarboxError, match=r"error: expected expression$"):
        CliRunner().invoke(cli, ["cc", str(file)], catch_exceptions=False)
    with pytest.raises(AssertionError, match="was measured"):
        CliRunner().invoke(cli, ["cc", "reno"], catch_exceptions=False)
