"""Mininet's own examples, from Debian's package, on hosts, switches and links of a lab.

Debian's package has no `mininet.test` (test_nets, test_hifi): only the examples are installed.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pillarbox.experiments.base.interpreter import code_command

EXAMPLES = Path("/usr/share/doc/mininet/examples")
WAIT_S = 300
# What an example has printed when it has worked.
WORKING = {
    "multilink": r"\*\*\* Done",
    "multiping": r"\d+ packets transmitted, [1-9]\d* received",
    "multipoll": r"64 bytes from",
    "popen": r"64 bytes from",
    "popenpoll": r"64 bytes from",
    "simpleperf": r"Results: .*bits/sec",
}
LEFT_OUT = {
    "baresshd": "starts sshd in the machine's own network",
    "bind": "waits at a prompt",
    "cluster": "needs other computers; a lab has `--cluster`",
    "clusterSanity": "needs other computers",
    "clustercli": "needs other computers",
    "clusterdemo": "needs other computers",
    "clusterperf": "needs other computers",
    "consoles": "needs a desktop",
    "controllers": "needs OpenFlow controllers; switches of a lab are bridges",
    "controllers2": "needs OpenFlow controllers",
    "controlnet": "needs OpenFlow controllers",
    "cpu": "makes CPULimitedHost, a class of its own",
    "emptynet": "waits at a prompt",
    "hwintf": "needs a network card to take over",
    "intfoptions": "makes TCIntf, a class of its own",
    "limit": "makes CPULimitedHost, a class of its own",
    "linearbandwidth": "compares the datapaths of Open vSwitch",
    "linuxrouter": "makes a stock Node with a namespace; a lab refuses it in a sentence",
    "miniedit": "needs a desktop",
    "mobility": "moves ports of Open vSwitch",
    "multitest": "waits at a prompt",
    "nat": "uses addNAT; a lab has `--gateway`",
    "natnet": "uses NAT nodes; a lab has `--gateway`",
    "numberedports": "asks Open vSwitch for its numbers of ports",
    "scratchnet": "calls the tools of Open vSwitch",
    "scratchnetuser": "calls the tools of Open vSwitch",
    "sshd": "starts sshd in the machine's own network",
    "tree1024": "takes 1024 hosts and half an hour of pings",
    "treeping64": "pings all pairs of 64 hosts in turn, in several data paths: minutes",
    "vlanhost": "needs the package vlan",
}
RUN = """
import runpy, sys
from pillarbox.experiments.lab.linux import sandbox
sandbox.enter()
from mininet import net
from pillarbox.experiments.lab.emulation.cable_links import LabLink
from pillarbox.experiments.lab.emulation.nodes import LabHost, LabSwitch

usual = net.Mininet.__init__

def made(self, *words, **options):
    classes = {"host": LabHost, "switch": LabSwitch, "link": LabLink, "controller": None}
    usual(self, *words, **{**options, **classes, "waitConnected": False})

net.Mininet.__init__ = made
net.Mininet.addController = lambda *_, **__: None
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def installed() -> set[str]:
    if not EXAMPLES.is_dir():
        pytest.skip(f"Debian's package mininet has left no {EXAMPLES}: documentation is excluded")
    return {file.stem for file in EXAMPLES.glob("*.py")} - {"__init__"}


def test_every_example_is_run_or_left_out_for_a_reason() -> None:
    assert not WORKING.keys() & LEFT_OUT.keys()
    assert installed() <= WORKING.keys() | LEFT_OUT.keys()


@pytest.mark.root
@pytest.mark.long
@pytest.mark.parametrize("name", sorted(WORKING))
def test_example(name: str) -> None:
    if name not in installed():
        pytest.skip(f"this Mininet has no example {name}")
    done = subprocess.run(
        code_command(RUN, EXAMPLES / f"{name}.py"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert re.search(WORKING[name], done.stdout), done.stdout[-2000:]
