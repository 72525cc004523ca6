"""What routers tell a data plane of single flows: whose answers hold no longer."""

from pillarbox import topos
from pillarbox.hosts.base import router
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.dpillar import multipath
from pillarbox.hosts.ficonn.router import Tar
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.wire.ipv4 import flow_key
from pillarbox.hosts.wire.marks import udp_packet


def test_where_nobody_takes_them_they_do_not_grow_without_end() -> None:
    ficonn = topos.parse("ficonn,4,1")
    one = Tar(ficonn, 0, timers=FAST)
    for port in range(3 * router.MOST_CHANGED):
        one.flow_answers_change(flow_key(udp_packet(ficonn, 0, 5, source_port=port)))
        assert len(one.changed_flows) <= router.MOST_CHANGED
    assert one.generation == 2, "all was taken back instead"


def test_a_path_that_is_left_takes_back_the_flows_to_its_destination_alone() -> None:
    net = MemoryNetwork(
        topos.parse("dpillar,4,3"),
        lambda topology, server: multipath.FaultTolerant(topology, server, timers=FAST),
    )
    source, first, second = net.routers[0], 9, 13
    assert isinstance(source, multipath.FaultTolerant)
    flows = {
        flow_key(udp_packet(net.topology, 0, to, source_port=port)): (to, port)
        for to in (first, second)
        for port in (4000, 4001)
    }
    for to, port in flows.values():
        net.send_udp(0, to, source_port=port)
    net.run(0.05)
    source.changed_flows.clear()
    own = source.own_generation
    known = source.destinations.get(first)
    assert known is not None and known.probing.current_path is not None
    broken = known.probing.current_path.steps
    known.probing.fail_where(lambda path: path.steps == broken)
    source.choose(known)
    assert source.changed_flows == {flow for flow, (to, _) in flows.items() if to == first}
    assert source.own_generation == own
    # One that is asked about again is remembered again; very many are taken back together.
    source.changed_flows.clear()
    for port in range(3 * multipath.MOST_FLOWS):
        source.send(udp_packet(net.topology, 0, first, source_port=port), net.now)
    assert len(known.flows) <= multipath.MOST_FLOWS < len(source.changed_flows)
