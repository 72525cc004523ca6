"""BCube's broadcast: over the paper's spanning trees, each server once, around failed links."""

import pytest

from pillarbox import topos
from pillarbox.hosts.base.actions import Drop
from pillarbox.hosts.base.failures import parse_failures
from pillarbox.hosts.bcube.broadcast import onward
from pillarbox.hosts.bcube.bsr import BSR
from pillarbox.hosts.bcube.paths import spanning_trees, width
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.wire.bcube import BCubeHeader, Hop
from pillarbox.hosts.wire.dcn import Protocol, broadcast
from pillarbox.hosts.wire.frame import ETH_DCN, Frame
from pillarbox.hosts.wire.ipv4 import UDP, Ipv4Header
from pillarbox.topos.base.digits import DigitNetwork
from pillarbox.topos.bcube import BCube


@pytest.mark.parametrize(
    "spec",
    [
        *("bcube,4,1", "bcube,2,3", "bcube,3,2", "bcube,4,2,servers=32", "bcube,3,3,servers=54"),
        *("rail,4,2", "rail,2,5", "rail,4,3,2", "mesh,3,3", "mesh,4,2"),
    ],
)
def test_servers_send_on_along_the_trees_of_fig_5(spec: str) -> None:
    bcube = topos.parse(spec)
    assert isinstance(bcube, DigitNetwork)
    for source in range(bcube.servers):
        levels = [level for level in range(bcube.k + 1) if width(bcube, level) > 1]
        for level, tree in zip(levels, spanning_trees(bcube, source), strict=True):
            edges = {
                (server, step.peer, bcube.level_of_port(step.port))
                for server in range(bcube.servers)
                for step in onward(bcube, source, level, server)
            }
            assert edges == set(tree)


@pytest.mark.parametrize("address", [0xFFFFFFFF, 0x0AFFFFFF])
@pytest.mark.parametrize("fault", ["", "cut 0.1-s5", "kill 1.1"])
def test_a_broadcast_reaches_everybody_once(address: int, fault: str) -> None:
    bcube = BCube(4, 1)
    net = MemoryNetwork(bcube, lambda _, server: BSR(bcube, server))
    failures = parse_failures(bcube, [fault] if fault else [])
    net.fail(failures)
    net.run(1.0)
    before = [one.counters["delivered"] for one in net.routers]
    net.send(2, Ipv4Header(bcube.ipv4(2), address, UDP).pack(bytes(16)))
    net.run(0.01)
    delivered = [one.counters["delivered"] - b for one, b in zip(net.routers, before, strict=True)]
    assert delivered == [server != 2 and server not in failures.nodes for server in range(16)]


def test_what_makes_no_sense_goes_no_further() -> None:
    one = BSR(BCube(4, 1), 0)
    everybody, tree = broadcast(1), (Hop(1, 0),)
    for header, reason in (
        (BCubeHeader(1, everybody - 1, Protocol.IPV4, tree, 1), "unknown multicast group"),
        (BCubeHeader(99, everybody, Protocol.IPV4, tree, 1), "unknown multicast group"),
        (BCubeHeader(1, everybody, Protocol.IPV4, (Hop(3, 0),), 1), "no such tree"),
        (BCubeHeader(1, everybody, Protocol.IPV4, (), 0), "no such tree"),
        (BCubeHeader(1, everybody, Protocol.PROBE, tree, 1), "unknown protocol"),
    ):
        frame = Frame(ETH_DCN, header.pack(b"packet"))
        assert one.receive(0, 1, frame, 0.0) == [Drop(reason, b"packet")]
