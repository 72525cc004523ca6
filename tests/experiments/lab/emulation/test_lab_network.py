"""What Mininet promises holds for networks made in batches, and what it gets wrong does not."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.base.interpreter import code_command
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.labs import WAIT_S

pytestmark = pytest.mark.root


def lab(spec: str | None = None, **options: Any) -> Any:
    """Return a network that is made but not started."""
    from mininet.log import setLogLevel

    from pillarbox.experiments.lab.emulation.lab_network import LabNet

    setLogLevel("critical")
    return LabNet(topos.parse(spec) if spec else None, **options)


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def reached(host: Any, other: Any, count: int = 1) -> bool:
    return " 0% packet loss" in host.cmd(f"ping -c{count} -i0.1 -W10 {other.IP()}")


@pytest.mark.parametrize("spec", ["bcube,4,1", "dcell,4,1", "ficonn,4,1", "dpillar,4,2"])
def test_every_cable_is_where_the_topology_says(spec: str) -> None:
    topology = topos.parse(spec)
    with lab(spec) as net:
        found = {frozenset((link.intf1.name, link.intf2.name)) for link in net.links}
        assert found == {
            frozenset((topology.interface(c.a, c.a_port), topology.interface(c.b, c.b_port)))
            for c in topology.links()
        }
        for server in range(topology.servers):
            host = net[topology.node_name(server)]
            seen = {link.name: link for link in host.namespace.netlink.links()}
            expected = {
                topology.interface(server, port): topology.mac(server, port)
                for port, _ in topology.neighbours(server)
            }
            assert {n: link.mac for n, link in seen.items() if n != "lo"} == expected
            assert all(link.up and link.carrier for link in seen.values())
            assert {link.mtu for link in seen.values() if link.name != "lo"} == {1564}


@pytest.mark.parametrize("spec", ["bcube,2,2", "dcell,4,1", "tree,4,4"])
def test_bridges_know_every_server_by_the_right_port(spec: str) -> None:
    topology = topos.parse(spec)
    with lab(spec):
        lines = output("bridge", "fdb", "show").splitlines()
        found = {
            (match[2], match[1])
            for line in lines
            if (match := re.match(r"(\S+) dev (\S+) master \S+ static", line))
        }
    expected = set()
    for server in range(topology.servers):
        for port in range(topology.ports):
            far = topology.server_plug(server, port)
            if far.node >= topology.servers:
                mac = topology.mac(server, port)
                expected.add((topology.interface(far.node, far.port), mac))
    if spec == "tree,4,4":
        # Beyond the leaf: the other leaves' uplinks (port 4), and the root's port to the leaf.
        for server in range(16):
            leaf, mac = server // 4, topology.mac(server, 0)
            expected |= {(f"s{other}-eth4", mac) for other in range(4) if other != leaf}
            expected.add((f"s4-eth{leaf}", mac))
    assert found == expected


def test_no_two_interfaces_have_the_same_index() -> None:
    from pillarbox.experiments.lab.linux.namespaces import fabric

    with lab("dcell,4,1") as net:
        namespaces = [fabric(), *(host.namespace for host in net.hosts)]
        links = [link for n in namespaces for link in n.netlink.links() if link.name != "lo"]
        counts = Counter(link.ifindex for link in links)
        assert len(links) == 2 * 20 + 4 * 10 + 5  # veths to switches, two a direct cable, bridges
        assert set(counts.values()) == {1}


def test_all_pairs_reach_one_another_over_the_tree() -> None:
    with lab("tree,4,4") as net:
        assert net.pingAll() == 0
        assert net["h5"].defaultIntf().name == "h5-eth0"


def test_dcn0_stands_for_the_server_until_a_forwarder_makes_it() -> None:
    with lab("bcube,2,1") as net:
        host = net["h3"]
        assert host.IP() == "10.0.0.4"
        assert host.defaultIntf().name == "dcn0"
        assert "dcn0" not in host.cmd("ls /sys/class/net")
        assert "dcn0 exists only" in host.defaultIntf().ifconfig("up")
        host.cmd("ip tuntap add dcn0 mode tun")
        host.defaultIntf().setIP("10.0.0.9/8")
        assert "10.0.0.9/8" in host.cmd("ip -color=never -4 addr show dev dcn0")


def test_the_ways_to_run_programs() -> None:
    with lab("tree,2,1") as net:
        h0, h1 = net["h0"], net["h1"]
        assert not h0.has_shell
        assert h0.popen(f"ping -c1 -W10 {h1.IP()}").wait() == 0
        said = h0.popen("echo $((1+1))", shell=True)  # noqa: S604 - what is tested
        assert said.communicate()[0].strip() == b"2"
        assert h0.popen(["echo", "a  b"]).communicate()[0] == b"a  b\n"
        assert h0.pexec("false")[2] == 1
        assert not h0.has_shell
        assert h0.cmd("echo hi").strip() == "hi"
        assert h0.cmd("ls /sys/class/net").split() == ["h0-eth0", "lo"]
        h0.sendCmd("sleep 0.1; echo done")
        assert h0.waitOutput().strip() == "done"
        assert "s0-eth1" in net["s0"].cmd("brctl show")
        assert h0.pid == h0.shell.pid


def test_settings_of_interfaces() -> None:
    with lab("tree,3,1") as net:
        h0, h1 = net["h0"], net["h1"]
        intf = h0.defaultIntf()
        assert intf.isUp() and intf.has_carrier() and intf.status() == "OK"
        assert net.links[0].status() == "(OK OK)"
        assert intf.updateIP() == h0.IP() and intf.updateMAC() == h0.MAC()
        assert h0.setIP("10.0.0.77", 8) == ""
        assert output_in(h0, "ip", "-4", "-br", "addr", "show", "h0-eth0").split()[2:] == [
            "10.0.0.77/8"
        ]
        assert h0.setMAC("02:00:00:00:00:77") == ""
        assert "02:00:00:00:00:77" in h0.cmd("ip link")
        assert "not" in h0.setMAC("01:00:00:00:00:00").lower()  # a group's: refused, and told
        assert reached(h0, h1)
        h0.setDefaultRoute(f"via {h1.IP()}")
        assert f"default via {h1.IP()}" in h0.cmd("ip -color=never route")
        net.staticArp()
        assert h0.cmd("ip neigh show nud permanent").count("lladdr") == 2


def output_in(host: Any, *command: str) -> str:
    said = host.popen(list(command)).communicate()[0]
    return str(said.decode())


def test_links_go_down_and_up_and_come_and_go() -> None:
    with lab("tree,2,1") as net:
        h0, h1 = net["h0"], net["h1"]
        net.configLinkStatus("h0", "s0", "down")
        assert not reached(h0, h1)
        net.configLinkStatus("h0", "s0", "up")
        assert reached(h0, h1)
        late = net.addHost("late", ip="10.0.0.200/8")
        link = net.addLink(late, net["s0"])
        late.configDefault()
        assert reached(late, h1) and reached(h1, late)
        port = link.intf2.name
        assert port in output("ip", "link")
        net.delLink(link)
        assert late.intfNames() == [] and "late-eth0" not in late.cmd("ip link")
        assert port not in output("ip", "link")
        direct = net.addLink(h0, h1)  # a patch panel
        h0.intf("h0-eth1").setIP("10.9.0.1/24")
        h1.intf("h1-eth1").setIP("10.9.0.2/24")
        assert " 0% packet loss" in h0.cmd("ping -c1 -W10 10.9.0.2")
        net.delLink(direct)
        assert "h1-eth1" not in output("ip", "link")
        net.delHost(late)
        assert "late" not in net


def test_private_directories(tmp_path: Path) -> None:
    with lab("tree,2,1") as net:
        host = net.addHost("hp", privateDirs=[str(tmp_path)])
        host.cmd(f"touch {tmp_path}/of-hp")
        assert host.popen(f"ls {tmp_path}").communicate()[0] == b"of-hp\n"
        assert list(tmp_path.iterdir()) == []


def test_the_prompt(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from mininet.cli import CLI
    from mininet.log import lg, setLogLevel

    script = tmp_path / "commands"
    script.write_text(
        "nodes\nnet\nlinks\nh0 ping -c1 -W1 h1\nlink h0 s0 down\nlink h0 s0 up\nintfs\n"
        "pingpair\npy h0.IP()\nsh echo outside\n"
    )
    with lab("tree,2,1") as net:
        setLogLevel("output")
        lg.handlers[0].setStream(sys.stderr)  # it has that of when it was imported
        with Path("/dev/null").open() as nothing:
            CLI(net, script=str(script), stdin=nothing)
    said = capfd.readouterr()
    said = said.out + said.err
    assert "h0 h1 s0 s1" in said
    assert "h0-eth0<->s0-eth0 (OK OK)" in said
    assert "Results: 0% dropped (2/2 received)" in said
    assert "10.0.0.1" in said and "outside" in said


def test_stock_mininet_with_these_classes() -> None:
    from mininet.log import setLogLevel
    from mininet.net import Mininet
    from mininet.topolib import TreeTopo

    from pillarbox.experiments.lab.emulation.cable_links import LabLink
    from pillarbox.experiments.lab.emulation.nodes import LabHost, LabSwitch

    setLogLevel("critical")
    net = Mininet(TreeTopo(2, 2), host=LabHost, switch=LabSwitch, link=LabLink, controller=None)
    net.start()
    assert net.pingAll() == 0
    net.stop()
    assert re.findall(r"(?:s|h)\d", output("ip", "-br", "link")) == []


def test_mn_with_these_classes(tmp_path: Path) -> None:
    custom = tmp_path / "lab.py"
    root = Path(topos.__file__).parents[1]
    custom.write_text(
        f"import sys\nsys.path.insert(0, {str(root / 'src')!r})\n"
        "from pillarbox.experiments.lab.emulation.nodes import LabHost, LabSwitch\n"
        "hosts, switches = {'lab': LabHost}, {'lab': LabSwitch}\n"
    )
    command = ["mn", "--custom", f"{root}/topos/custom.py,{custom}", "--topo", "tree,2,2"]
    command += ["--host", "lab", "--switch", "lab", "--controller", "none", "--test", "pingall"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert "Results: 0% dropped (12/12 received)" in ran.stderr, ran.stderr


def test_stopping_ends_every_program_and_leaves_nothing() -> None:
    net = lab("dcell,2,1")
    net.start()
    net["h0"].popen("sleep 1000")
    net["h1"].cmd("sleep 1000 &")
    net["h2"].cmd("setsid sleep 1000 < /dev/null > /dev/null 2>&1 &")
    deadline = time.monotonic() + 20
    while output("ps", "ax").count("sleep 1000") < 3:  # a shell goes on before it is one
        assert time.monotonic() < deadline
    net.stop()
    assert "sleep 1000" not in output("ps", "ax", "-o", "stat,args").replace("Z ", "")
    assert [line.split()[0] for line in output("ip", "-br", "link").splitlines()] == ["lo"]
    again = lab("dcell,2,1")  # the names are free again
    again.start()
    again.stop()
    again.stop()
    with pytest.raises(PillarboxError, match="h0 was stopped"):
        again["h0"].popen("true")


def test_servers_neither_route_nor_speak_ipv6() -> None:
    with lab("dcell,2,1") as net:
        for name in ("net.ipv4.ip_forward", "net.ipv4.conf.all.rp_filter"):
            assert net["h0"].cmd(f"sysctl -n {name}").strip() == "0"
        assert net["h0"].cmd("ip -6 addr").strip() == ""
        assert output("ip", "-6", "addr").strip() == ""


@pytest.mark.parametrize(("rate_mbit", "segments"), [(100, 8), (10, 2), (None, 2)])
def test_tcp_makes_super_packets_as_large_as_the_rate_allows(
    rate_mbit: float | None, segments: int
) -> None:
    with lab("tree,2,1", rate_mbit=rate_mbit) as net:
        least = net["h0"].cmd("cat /proc/sys/net/ipv4/tcp_min_tso_segs")
        most = re.search(r"gso_max_size (\d+)", net["h0"].cmd("ip -d link show h0-eth0"))
    assert int(least) == segments
    assert most
    assert int(most[1]) >= segments * 1500


def test_use_htb_is_accepted_since_every_rate_is_htb() -> None:
    with lab("tree,2,1") as net:
        net.addLink("h0", "h1", bw=10, use_htb=True)
        assert "htb" in net["h0"].cmd("tc qdisc show dev h0-eth1")


def test_what_cannot_be_had_is_refused_in_one_sentence() -> None:
    with lab("tree,2,1") as net:
        h0 = net["h0"]
        with pytest.raises(PillarboxError, match="File exists: another lab"):
            net.addLink(h0, net["s0"], intfName2="s0-eth0")
        with pytest.raises(PillarboxError, match=r"no link option use_hfsc: there are bw, delay"):
            net.addLink("h0", "h1", use_hfsc=True)
        assert "h1-eth1" not in output("ip", "link")
        with pytest.raises(PillarboxError, match="cannot have a separate namespace"):
            net.addSwitch("s9", inNamespace=True)
    subprocess.run(["ip", "link", "add", "s1-eth0", "type", "bridge"], check=True)
    with pytest.raises(PillarboxError, match="make the cable s0-eth2 - s1-eth0: File exists"):
        lab("tree,2,1")
    left = [line.split()[0] for line in output("ip", "-br", "link").splitlines()]
    assert left == ["lo", "s1-eth0"]  # what was made is gone again, what was there is there


def test_in_a_namespace_with_ipv6_the_fabric_still_says_nothing() -> None:
    from pillarbox.experiments.lab.linux.namespaces import set_lab_slot, write_sysctl

    for which in ("all", "default"):
        write_sysctl(f"net/ipv6/conf/{which}/disable_ipv6", "0")
    set_lab_slot(3)  # looks at the setting anew, as in the machine's own namespace
    with lab("dcell,2,1") as net:
        links = output("ip", "-6", "addr", "show", "scope", "link")
        assert "s0" not in links and "~" not in links
        assert net["h0"].cmd("ip -6 addr").strip() == ""
        seen = net["s0"].popen(["tcpdump", "-ni", "s0-eth0", "-c1", "ip6"])
        while b"listening on" not in (line := seen.stderr.readline()):
            assert line, "tcpdump has ended"
        time.sleep(1.2)  # nothing is to happen in that time
        seen.terminate()
        assert b"0 packets captured" in seen.communicate()[1]


def test_switches_in_a_loop_agree_on_a_tree() -> None:
    with lab(spanning_tree=True) as net:
        switches = [net.addSwitch(name) for name in ("s0", "s1", "s2")]
        hosts = [net.addHost(f"h{i}", ip=f"10.0.0.{i + 1}/8") for i in range(2)]
        for i in range(3):
            net.addLink(switches[i], switches[(i + 1) % 3])
        for host, switch in zip(hosts, switches[:2], strict=True):
            net.addLink(host, switch)
            host.configDefault()
        for switch in switches:
            switch.start([])
        hosts[0].cmd(f"ping -c1 -w60 {hosts[1].IP()}")  # until the tree stands
        assert reached(hosts[0], hosts[1], count=3)
        states = output("bridge", "link")
        assert states.count("state blocking") == 1
        assert len({switch.prio for switch in switches}) == 3


# A user's own network that fails in its constructor: nobody has an object to stop.
FAILING = """
from mininet.net import Mininet
from mininet.topo import Topo
from pillarbox.experiments.lab.emulation.cable_links import LabLink
from pillarbox.experiments.lab.emulation.lab_network import LabNet
from pillarbox.experiments.lab.emulation.nodes import LabHost, LabSwitch
from pillarbox.topos.base.errors import PillarboxError

class Failing(LabNet):
    def __init__(self):
        super().__init__()
        self.addSwitch("s1")
        self.addLink(self.addHost("h1"), self["s1"])
        self.addNAT()

try:
    Failing()
except PillarboxError as error:
    print(error)
topo = Topo()
topo.addLink(topo.addSwitch("s2"), topo.addHost("h2"), bw=-1)
Mininet(topo, host=LabHost, switch=LabSwitch, link=LabLink, controller=None)
"""


def test_a_network_that_fails_in_its_constructor_leaves_no_bridge() -> None:
    """Nor does `addNAT` end in an AttributeError of Mininet's."""
    done = subprocess.run(
        code_command(FAILING), capture_output=True, text=True, check=False, timeout=WAIT_S
    )
    assert done.stdout.startswith("a lab has no NAT")
    assert "a cable's rate is above 0" in done.stderr
    found = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in found.stdout.splitlines()] == ["lo"]


def test_kernel_settings_are_not_held_by_a_network_that_was_never_made() -> None:
    from pillarbox.experiments.lab.emulation.lab_network import LabNet
    from pillarbox.experiments.lab.linux import kernel_settings

    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)
    with pytest.raises(TypeError, match="nonsense"):
        LabNet(nonsense=1)
    assert not kernel_settings.HELD.exists()
