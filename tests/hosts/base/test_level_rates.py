"""Available bandwidth of servers whose ports have different rates."""

from __future__ import annotations

import pytest

from pillarbox import topos
from pillarbox.hosts.base.bandwidth import Bandwidth, Direction
from pillarbox.hosts.base.load import router_for
from pillarbox.hosts.bcube.bsr import BSR
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.topos.base.topology import Topology

RATE_BPS = 1e6


def test_each_port_has_the_rate_of_its_level() -> None:
    bandwidth = Bandwidth(2, RATE_BPS, (9, 2))
    for at_s, octets in ((0.0, 0), (1.0, 125_000)):
        bandwidth.observe(0, 0, octets, at_s)
        bandwidth.observe(1, octets, 0, at_s)
    assert bandwidth.available_bps(0, Direction.OUT) == pytest.approx(8e6)
    assert bandwidth.available_bps(1, Direction.IN) == pytest.approx(1e6)
    assert bandwidth.slowest_bps == 2e6
    assert bandwidth.most_used_share == pytest.approx(0.5)  # of the slower port


@pytest.mark.parametrize(
    ("spec", "routing"),
    [
        ("bcube,2,1,rates=9:1", "bsr"),
        ("dpillar,4,2,rates=3:2", "mp-aware"),
        ("ficonn,4,2,rates=7:3:1", "tar"),
        ("dcell,2,2,rates=7:3:1", "dfr"),
    ],
)
def test_routers_know_the_rate_of_each_port(spec: str, routing: str) -> None:
    network = topos.parse(spec)
    for server in range(network.servers):
        router = router_for(network, routing)(network, server, rate_bps=RATE_BPS)
        for port, plug in network.neighbours(server):
            expected = RATE_BPS * network.factors.rates[plug.level]
            assert router.bandwidth.available_bps(port, Direction.OUT) == expected


def test_routers_of_equal_levels_have_no_factors() -> None:
    bcube = topos.parse("bcube,2,1")
    assert BSR(bcube, 0, rate_bps=RATE_BPS).bandwidth.factors == []


def test_probes_of_bsr_report_the_slowest_level_of_a_path() -> None:
    bcube = topos.parse("bcube,2,1,rates=9:1")

    def router(network: Topology, server: int) -> BSR:
        return BSR(network, server, rate_bps=RATE_BPS)

    net = MemoryNetwork(bcube, router)
    net.run(0.3)
    net.send_udp(0, 1)
    net.run(0.1)
    (flow,) = net.routers[0].state()["flows"]
    reported = {len(one["path"]) - 1: one["available_bps"] for one in flow["candidates"]}
    # Directly over level 0; or over level 1, level 0 and level 1.
    assert reported == {1: pytest.approx(9e6, rel=0.1), 3: pytest.approx(1e6, rel=0.1)}
