"""`up --mptcp` and `exec --mptcp`, from another terminal and at the prompt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pillarbox.experiments.lab.linux import mptcp
from tests.experiments.runs.control.test_commands import own_run, pillarbox, up

LACK = mptcp.missing() or mptcp.lack_for_programs()
pytestmark = [pytest.mark.root, pytest.mark.skipif(bool(LACK), reason=LACK)]
__all__ = ["own_run"]  # a fixture

PROTOCOL = "import socket; print('protocol', socket.socket().getsockopt(1, socket.SO_PROTOCOL))"


def test_programs_use_multipath_tcp_if_they_are_asked_to(own_run: Callable[[], None]) -> None:
    own_run()
    program = ("0.0", "python3", "-c", PROTOCOL)
    with up("bcube,2,1", "--quiet", "--mptcp", "--rate-mbit", "10"):
        assert pillarbox("exec", *program).stdout == "protocol 6\n"
        assert pillarbox("exec", "--mptcp", *program).stdout == "protocol 262\n"
        as_nobody = pillarbox("exec", "--mptcp", "--user", "nobody", *program)
        assert as_nobody.stdout == "protocol 262\n", as_nobody.stderr
        status = pillarbox("status").stdout
        assert "Multipath TCP" in status


def test_a_lab_of_tcp_refuses(own_run: Callable[[], None]) -> None:
    own_run()
    with up("bcube,2,1", "--quiet"):
        refused = pillarbox("exec", "--mptcp", "0.0", "true")
    assert refused.returncode
    assert refused.stderr == "pillarbox: start the lab with `up --mptcp`\n"


def test_the_prompt_runs_such_programs(tmp_path: Path) -> None:
    script = tmp_path / "lines"
    script.write_text(f'exec --mptcp 0.0 python3 -c "{PROTOCOL}"\n0.0 python3 -c "{PROTOCOL}"\n')
    done = pillarbox("up", "bcube,2,1", "--quiet", "--mptcp", "--exec", str(script))
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("protocol")] == [
        "protocol 262",
        "protocol 6",
    ]


def test_networks_with_one_port_refuse() -> None:
    refused = pillarbox("up", "tree,2,2", "--mptcp", "--hold")
    assert refused.returncode
    assert "have one: use transport tcp" in refused.stderr
