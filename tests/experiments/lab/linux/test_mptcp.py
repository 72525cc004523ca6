"""Multipath TCP of servers: endpoints and limits in a namespace, and programs' sockets by eBPF."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.linux import mptcp
from pillarbox.hosts.linux.calls import in_new_namespace
from pillarbox.topos.base.errors import UnsupportedError

CUBE = topos.parse("bcube,4,2")
PROTOCOLS = """
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    with socket.socket(socket.AF_INET, kind) as one:
        print(one.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL))
"""


def printed(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return done.stdout


def test_every_further_port_with_a_cable_has_a_subflow() -> None:
    assert mptcp.subflow_ports(CUBE, 0, None) == [1, 2]
    assert mptcp.subflow_ports(CUBE, 0, 1) == []
    ficonn = topos.parse("ficonn,4,1")
    cabled = [len(list(ficonn.neighbours(server))) for server in range(ficonn.servers)]
    assert {1, 2} <= set(cabled)  # backup ports of some servers are free
    for server, ports in enumerate(cabled):
        assert len(mptcp.subflow_ports(ficonn, server, None)) == ports - 1


@pytest.mark.root
def test_more_ports_than_the_kernel_has_subflows() -> None:
    mesh = topos.parse("mesh,12")
    assert mptcp.subflow_ports(mesh, 0, None) == [*range(1, 9)]
    with in_new_namespace():
        mptcp.set_up(mesh, 0, None)
        assert len(printed("ip", "mptcp", "endpoint", "show").splitlines()) == 8


@pytest.mark.root
def test_endpoints_are_the_addresses_of_further_ports() -> None:
    with in_new_namespace():
        for _ in range(2):  # a resized network sets all servers up again
            mptcp.set_up(CUBE, 5, None)
        endpoints = printed("ip", "mptcp", "endpoint", "show").splitlines()
        assert printed("ip", "mptcp", "limits", "show").split()[-2:] == ["subflows", "4"]
        for name, value in mptcp.SYSCTLS.items():
            path = Path("/proc/sys", name)
            assert not path.exists() or path.read_text().strip() == value
    found = [re.match(r"(\S+) id (\d) subflow", line) for line in endpoints]
    assert [one and one.groups() for one in found] == [
        ("172.17.0.6", "1"),
        ("172.18.0.6", "2"),
    ]


def test_tcp_sockets_of_a_program_and_its_children_become_multipath() -> None:
    if mptcp.lack_for_programs() or mptcp.missing():
        pytest.skip(mptcp.lack_for_programs() or mptcp.missing())
    program = [sys.executable, "-c", PROTOCOLS]
    in_a_child = ["sh", "-c", '"$@"', "sh", *program]
    tcp, multipath = ["6", "17"], ["262", "17"]
    assert printed(*program).split() == tcp
    assert printed(*mptcp.with_multipath(in_a_child)).split() == multipath
    line = mptcp.line_with_multipath(f"{sys.executable} -c '{PROTOCOLS}'")
    assert printed("bash", "-c", line).split() == multipath


@pytest.mark.parametrize("name", ["my labs", "a:b"])
def test_a_folder_that_ld_preload_would_divide_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mptcp, "BUILD", tmp_path / name)
    assert "in another folder" in mptcp.lack_for_programs()
    assert not (tmp_path / name).exists()


def test_a_lack_of_the_compiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mptcp, "BUILD", tmp_path)
    monkeypatch.setattr(mptcp, "COMPILER", ("nosuch-compiler",))
    assert "install clang" in mptcp.lack_for_programs()
    monkeypatch.setattr(mptcp, "COMPILER", ("false",))
    assert "mptcp_sockets.c does not compile" in mptcp.lack_for_programs()


def test_a_kernel_without_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mptcp, "ENABLED", tmp_path / "enabled")
    assert "CONFIG_MPTCP" in mptcp.missing()
    with pytest.raises(UnsupportedError, match="use transport tcp"):
        mptcp.check_supported()
