"""Stock Mininet builds the right graph from topos/custom.py, in a sandbox of its own."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pillarbox import topos

ROOT = Path(topos.__file__).parents[1]
# A pid namespace whose first process dies with the test: nothing of Mininet outlives it.
SANDBOX = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
# Mininet removes files from /tmp when it fails, so it gets its own; the checkout may lie below the
# real one, so it is seen at /mnt.
PREPARE = """
mount -t sysfs sysfs /sys && mount --bind "$1" /mnt && mount -t tmpfs tmpfs /tmp && cd /mnt || exit
shift
exec "$@"
"""


def mn(*arguments: str, commands: str = "") -> subprocess.CompletedProcess[str]:
    """Run stock mn on the custom file as the README does; `commands` are typed at its prompt."""
    program = shutil.which("mn") or "/usr/bin/mn"
    return subprocess.run(
        [
            *(*SANDBOX, "sh", "-c", PREPARE, "sh", str(ROOT)),
            *(program, "--custom", "topos/custom.py", "--controller", "none", *arguments),
        ],
        input=commands,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.root
@pytest.mark.parametrize(
    "spec",
    [
        "dcell,4,1",
        "dpillar,4,2",
        *(
            pytest.param(one, marks=pytest.mark.long)
            for one in ("bcube,2,2", "ficonn,4,1", "tree,4,4")
        ),
    ],
)
def test_stock_mininet_wires_what_the_network_says(spec: str) -> None:
    ran = mn("--topo", spec, "--switch", "lxbr", commands="links\nsh bridge link\nexit\n")
    topology = topos.parse(spec)
    built = set(re.findall(r"(\S+)<->(\S+) \(OK OK\)", ran.stdout))
    expected = {
        (topology.interface(c.a, c.a_port), topology.interface(c.b, c.b_port))
        for c in topology.links()
    }
    assert built == expected, ran.stdout
    bridged = set(re.findall(r"(s\d+-eth\d+)[@:].* master (s\d+) ", ran.stdout))
    assert bridged == {
        (topology.interface(c.b, c.b_port), topology.node_name(c.b))
        for c in topology.links()
        if c.b >= topology.servers
    } | {
        (topology.interface(c.a, c.a_port), topology.node_name(c.a))
        for c in topology.links()
        if c.a >= topology.servers
    }


@pytest.mark.root
def test_servers_have_their_addresses_and_reach_each_other_on_one_switch() -> None:
    typed = "h15 ip -br -color=never addr\nh0 ping -c5 -i0.3 h3\nexit\n"
    ran = mn("--topo", "bcube,4,1", "--switch", "lxbr", commands=typed)
    assert "10.0.0.16/8" in ran.stdout, ran.stdout
    assert re.search("[1-5] received", ran.stdout), ran.stdout


@pytest.mark.root
@pytest.mark.parametrize(
    ("spec", "says"),
    [("ficonn,3,1", "even number"), ("bcube,4", "write bcube,n,k"), ("dpillar,48,5", "Fig. 5")],
)
def test_bad_numbers_end_mn_in_one_sentence(spec: str, says: str) -> None:
    ran = mn("--topo", spec, "--switch", "lxbr", "--test", "none")
    assert ran.returncode == 1
    assert says in ran.stdout
    assert len(ran.stdout.strip().splitlines()) == 1


@pytest.mark.root
def test_fattree_needs_the_spanning_tree_on_plain_bridges() -> None:
    ran = mn("--topo", "fattree,4", "--switch", "lxbr,stp=1", "--test", "none")
    assert "completed in" in ran.stdout
