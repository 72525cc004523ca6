"""Host names of servers: what a program that announces its own name says, and the machine's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation.server_names import hosts_lines
from tests.experiments.labs import wait_until
from tests.experiments.runs.control.test_commands import Terminal, own_run, pillarbox, processes, up

__all__ = ["own_run"]  # a fixture
SPECS = ("dcell,4,1", "bcube,4,1", "dpillar,4,2", "ficonn,4,1", "tree,4,4")
ANNOUNCED = "import socket as s; n = s.gethostname(); print(n, s.gethostbyname(n), s.getfqdn())"


@pytest.mark.parametrize("spec", SPECS)
def test_names_are_legal_and_none_is_an_address(spec: str) -> None:
    topology = topos.parse(spec)
    seen: set[str] = set()
    for server, line in enumerate(hosts_lines(topology)):
        ip, canonical, host_name, dotted, short = line.split()
        assert ip == topology.ip(server)
        assert topology.node(host_name) == topology.node(dotted) == server
        for name in (canonical, host_name, short):
            labels = name.split(".")
            assert all(label.replace("-", "").isalnum() for label in labels), name
            assert labels[-1][0].isalpha(), f"{name}: a URI refuses it, inet_aton may take it"
            with pytest.raises(OSError, match="illegal IP address"):
                socket.inet_aton(name)
        new = {canonical, host_name, dotted, short}
        assert not new & seen
        seen |= new


@pytest.mark.root
def test_programs_announce_their_servers_name_wherever_they_are_started(
    own_run: Callable[[], None], tmp_path: Path
) -> None:
    own_run()
    program = tmp_path / "announced.py"
    program.write_text(ANNOUNCED)
    machine, before = socket.gethostname(), processes()
    with up("dcell,2,1", "--plane", "python") as terminal:
        terminal.type(f"1.1 python3 {program}\n")
        terminal.shows("h3 10.0.0.4 1-1.dcell")
        terminal.shows("pillarbox> ")
        done = pillarbox("exec", "2.1", "python3", str(program))
        assert done.stdout == "h5 10.0.0.6 2-1.dcell\n", done.stderr
        done = pillarbox("exec", "--user", "nobody", "2.1", "python3", "-c", ANNOUNCED)
        assert done.stdout == "h5 10.0.0.6 2-1.dcell\n", done.stderr
        for name in ("h5", "2-1.dcell", "2.1.dcell", "s2-1"):
            assert pillarbox("exec", "0.0", "getent", "hosts", name).stdout.split()[0] == "10.0.0.6"
        unnamed = pillarbox("exec", "--raw", "0.0", "getent", "ahostsv4", "2.1").stdout
        assert unnamed.split()[0] == "2.0.0.1", "inet_aton reads it before /etc/hosts is asked"
        # Root of a server, or of a switch, changes that name alone.
        assert pillarbox("exec", "0.0", "hostname", "mine").returncode == 0
        assert pillarbox("exec", "0.0", "hostname").stdout == "mine\n"
        terminal.type("s0 hostname ours\n")
        terminal.shows("pillarbox> ")
        assert pillarbox("exec", "0.1", "hostname").stdout == "h1\n"
        pillarbox("kill", "0.1")
        pillarbox("revive", "0.1")
        assert pillarbox("exec", "0.1", "hostname").stdout == "h1\n"
        assert socket.gethostname() == machine
        os.kill(terminal.process, signal.SIGKILL)
        wait_until(lambda: processes() <= before, "a process is left")
    assert socket.gethostname() == machine


@pytest.mark.root
def test_a_shells_prompt_is_the_servers_address(own_run: Callable[[], None]) -> None:
    own_run()
    with up("dcell,2,1", "--plane", "python") as terminal:
        terminal.type("1.0\n")
        terminal.shows("1.0 dcell # ")
        terminal.type("exit\n")
        terminal.shows("pillarbox> ")
        shell = Terminal("exec", "0.1", ready="0.1 dcell # ")
        shell.type("exit\n")
        assert shell.ended() == 0


@pytest.mark.root
def test_nodes_of_a_mininet_network_keep_the_name_of_the_machine() -> None:
    """Nothing could resolve another name there."""
    from pillarbox.experiments.lab.emulation.lab_network import LabNet

    with LabNet(topos.parse("tree,2,2")) as net:
        found = net["h0"].popen(["hostname"], stdout=subprocess.PIPE).communicate()[0]
    assert found.decode().strip() == socket.gethostname()
