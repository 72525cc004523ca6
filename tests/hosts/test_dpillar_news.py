"""What DPillarMP hears from where a packet came by."""

import pytest

import topos
from hosts.base.timers import FAST
from hosts.dpillar.multipath import BothWays
from hosts.memory.network import MemoryNetwork


@pytest.mark.parametrize(("spec", "b"), [("dpillar,4,2", 5), ("dpillar,4,3", 9)])
def test_who_hears_that_a_server_left_a_port_leaves_the_paths_that_end_there(
    spec: str, b: int
) -> None:
    net = MemoryNetwork(topos.parse(spec), lambda dpillar, at: BothWays(dpillar, at, timers=FAST))
    there = net.stream(0, b, every_s=0.001, seconds=0.3, source_port=4000)
    back = net.stream(b, 0, every_s=0.001, seconds=0.3, source_port=4001)
    net.run(0.1005)
    port = there[-3].path.steps[0].port
    met = net.topology.server_plug(0, port).node
    assert back[-3].path.nodes(net.topology)[-2] == met, "both ways use one cable"
    net.cut(0, met)
    net.run(0.1)  # nobody misses a heart-beat yet
    sent = [trip for trip in back if 0.103 < trip.sent_s < net.now - 0.001]
    assert len(sent) > 90
    assert all(trip.arrived_s for trip in sent)
    net.heal(0, met)
    net.run(3.0)
    for trip in net.trips:
        assert len(trip.arrived_s) <= 1 and (trip.arrived_s or trip.lost), trip
