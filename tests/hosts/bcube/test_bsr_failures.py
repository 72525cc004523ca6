"""BSR around failures: its flows in memory, and the failed-link database."""

from dataclasses import replace
from functools import partial

import pytest

from pillarbox import topos
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.bcube.bsr import BSR
from pillarbox.hosts.bcube.paths import path_set
from pillarbox.hosts.bcube.selection import parallel_paths
from pillarbox.hosts.memory.memory_network import MemoryNetwork, Trip
from pillarbox.hosts.memory.tryout import PROBE_S, network_of
from pillarbox.topos.bcube import BCube
from tests.hosts.bcube.failed import living_pair, random_failures


def told_lost(trips: list[Trip]) -> list[Trip]:
    """Those that did not arrive; each must say why."""
    lost = [trip for trip in trips if not trip.arrived_s]
    assert all(trip.lost for trip in lost)
    return lost


@pytest.mark.parametrize(("spec", "seeds"), [("bcube,4,1", 15), ("bcube,2,3", 5)])
def test_flows_arrive_wherever_a_path_is_left(spec: str, seeds: int) -> None:
    bcube = topos.parse(spec)
    arrived = dropped = 0
    for seed in range(seeds):
        failures = random_failures(bcube, seed)
        network = network_of(bcube, BSR, failures, seed)
        pairs = [living_pair(bcube, failures, 100 * seed + i) for i in range(8)]
        for a, b in pairs:
            network.send_udp(a, b)
        network.run(PROBE_S)
        trips = [network.send_udp(a, b) for a, b in pairs]
        network.run(0.01)
        for trip in trips:
            if route(bcube, "bsr", trip.source, trip.destination, failures).paths:
                arrived += 1
                assert trip.arrived_s, (seed, trip)
                assert failures.first_on(bcube, trip.path) is None
            else:
                dropped += 1
                assert trip.lost == "no path is left"
    assert arrived > 30
    assert dropped > 0 or bcube.k == 3


def default_relay(bcube: BCube, a: int, b: int) -> tuple[int, int]:
    """The first relay of the default path, and the switch behind it."""
    nodes = parallel_paths(bcube, a, b)[0].nodes(bcube)
    return nodes[2], nodes[3] - bcube.servers


FAULTS = ["cut", "silent cut", "server", "switch", "silent switch"]


def break_it(network: MemoryNetwork, fault: str, relay: int, switch: int) -> None:
    node = network.topology.servers + switch
    if fault == "server":
        network.kill(relay)
    elif "cut" in fault:
        network.cut(relay, node, silent=fault.startswith("silent"))
    else:
        network.stop_switch(switch, silent=fault.startswith("silent"))


def mend_it(network: MemoryNetwork, fault: str, relay: int, switch: int) -> None:
    if fault == "server":
        network.revive(relay)
    elif "cut" in fault:
        network.heal(relay, network.topology.servers + switch)
    else:
        network.start_switch(switch)


EVERY_S = 0.005
NOTICE_S = FAST.neighbour_timeout_s + FAST.heartbeat_s
# Rounds of probes that follow one another sooner, to spare virtual time.
EAGER = replace(FAST, probe_interval_s=1.0, probe_jitter_s=0.2)
# A failed link is forgotten, the next round begins, and its probes are answered.
RETURN_S = EAGER.failed_link_timeout_s + EAGER.probe_interval_s + EAGER.probe_jitter_s + 0.2


@pytest.mark.parametrize("fault", FAULTS)
def test_stream_leaves_what_fails_and_returns(fault: str) -> None:
    bcube = topos.parse("bcube,3,2")
    a, b = bcube.server("0.0.0"), bcube.server("0.1.1")
    first, second = parallel_paths(bcube, a, b)[:2]
    assert (len(first), len(second)) == (2, 2)
    network = MemoryNetwork(bcube, partial(BSR, timers=EAGER))
    trips = network.stream(a, b, EVERY_S, 1.0 + RETURN_S + 1.0, source_port=4000)
    network.run(0.5)
    assert {trip.path for trip in trips if trip.arrived_s} == {first}
    # Both shortest paths break: what is left is longer.
    broken = [
        (path.steps[0].peer, path.nodes(bcube)[3] - bcube.servers) for path in (first, second)
    ]
    for relay, switch in broken:
        break_it(network, fault, relay, switch)
    failed_s = network.now
    network.run(0.5)
    for relay, switch in broken:
        mend_it(network, fault, relay, switch)
    network.run(RETURN_S)
    returned_s = network.now
    network.run(1.0)

    lost = told_lost(trips)
    at_once = not (fault.startswith("silent") or fault == "server")
    assert bool(lost) != at_once, "what meets a link that is known to have failed comes back"
    assert all(trip.sent_s <= failed_s + NOTICE_S for trip in lost)
    assert {trip.lost for trip in lost} <= {"lost where something has failed"}
    between = [t for t in trips if failed_s + NOTICE_S + EVERY_S < t.sent_s < failed_s + 0.5]
    assert between
    assert {len(trip.path) for trip in between} == {4}
    assert {len(trip.path) for trip in trips if trip.sent_s > returned_s} == {2}


def test_own_first_hop_is_left_at_once() -> None:
    bcube = topos.parse("bcube,4,1")
    a, b = bcube.server("0.0"), bcube.server("1.3")
    network = MemoryNetwork(bcube, BSR)
    trips = network.stream(a, b, EVERY_S, 0.5, source_port=4000)
    network.run(0.25)
    network.cut(a, bcube.server_plug(a, 1).node)
    network.run(0.5)
    assert told_lost(trips) == []
    assert [trip.path.steps[0].port for trip in (trips[0], trips[-1])] == [1, 0]


def test_switching_to_a_known_path_needs_no_probe() -> None:
    """Guo 2009, section 4.3: the source does not probe at once when another path is available."""
    bcube = topos.parse("bcube,4,1")
    a, b = bcube.server("0.0"), bcube.server("1.3")
    network = MemoryNetwork(bcube, BSR)
    network.stream(a, b, EVERY_S, 0.5, source_port=4000)
    network.run(0.25)
    relay, switch = default_relay(bcube, a, b)
    rounds = network.routers[a].counters["probe rounds"]
    network.cut(relay, bcube.servers + switch)
    network.run(0.25)
    assert network.routers[a].counters["probe rounds"] == rounds == 1
    assert network.routers[a].state()["flows"][0]["path"] == ["0.0", "0.3", "1.3"]


def test_probes_begin_at_once_when_no_path_is_left() -> None:
    bcube = topos.parse("bcube,4,1")
    a, b = bcube.server("0.0"), bcube.server("1.3")
    network = MemoryNetwork(bcube, BSR)
    trips = network.stream(a, b, EVERY_S, 0.5, source_port=4000)
    network.run(0.25)
    for path in parallel_paths(bcube, a, b):
        network.cut(path.steps[0].peer, path.nodes(bcube)[3])
    network.run(0.25)
    assert network.routers[a].counters["probe rounds"] == 2
    assert len(told_lost(trips)) <= 2
    assert len(trips[-1].path) == 3  # both failures are known at once: the shortest that is left


def test_a_flow_that_has_ended_probes_no_more() -> None:
    bcube = topos.parse("bcube,4,1")
    a, b = bcube.server("0.0"), bcube.server("1.3")
    network = MemoryNetwork(bcube, BSR)
    network.stream(a, b, EVERY_S, 0.25, source_port=4000)
    network.run(2.0)
    for path in parallel_paths(bcube, a, b):
        network.cut(path.steps[0].peer, path.nodes(bcube)[3])
    network.run(1.0)
    assert network.routers[a].counters["probe rounds"] == 1
    trips = network.stream(a, b, EVERY_S, 0.25, source_port=4000)
    network.run(0.25)
    assert network.routers[a].counters["probe rounds"] == 2
    assert len(told_lost(trips)) <= 1, "it goes around what is known to have failed"


def test_server_that_was_cut_off_goes_on_when_a_link_is_back() -> None:
    bcube = topos.parse("bcube,4,1")
    a, b = bcube.server("0.0"), bcube.server("1.3")
    network = MemoryNetwork(bcube, BSR)
    trips = network.stream(a, b, EVERY_S, 0.9, source_port=4000)
    network.run(0.2)
    cables = [(a, bcube.server_plug(a, port).node) for port in range(bcube.ports)]
    for cable in cables:
        network.cut(*cable)
    network.run(0.2)
    assert told_lost(trips)[-1].lost == "no path is left"
    network.heal(*cables[0])
    network.run(0.5)
    # Not only with the next round, which is a second away.
    arrived = [t for t in trips if t.sent_s > 0.4 + 2 * FAST.heartbeat_s and t.arrived_s]
    assert len(arrived) > 50


def test_dead_destination_and_its_return() -> None:
    bcube = topos.parse("bcube,4,1")
    a, b = bcube.server("0.0"), bcube.server("1.3")
    network = MemoryNetwork(bcube, partial(BSR, timers=EAGER))
    trips = network.stream(a, b, EVERY_S, 1.0 + RETURN_S + 0.5, source_port=4000)
    network.run(0.5)
    network.kill(b)
    network.run(0.5)
    assert told_lost(trips)[-1].lost == "no path is left"
    network.revive(b)
    network.run(RETURN_S + 0.5)
    assert all(trip.arrived_s for trip in trips if trip.sent_s > 1.0 + RETURN_S)


# -- the failed-link database --------------------------------------------------------------------


def with_overheard_failure() -> tuple[MemoryNetwork, BCube, int, frozenset[int]]:
    """A network in which a relay has passed on a message about a link that is not its own."""
    bcube = topos.parse("bcube,2,3")
    a, b = bcube.server("0.0.0.0"), bcube.server("1.1.1.1")
    path = parallel_paths(bcube, a, b)[0]
    first, second, third = path.servers[1:4]
    network = MemoryNetwork(bcube, BSR)
    network.cut(second, third)  # of these two alone: the switch and its cables live
    network.run(NOTICE_S + 0.05)
    assert second not in (a, first)
    network.send_udp(a, b)
    network.run(0.01)
    return network, bcube, first, frozenset((second, third))


def test_relay_overhears_a_path_failure_and_avoids_the_link() -> None:
    network, bcube, relay, link = with_overheard_failure()
    told = sorted(map(bcube.address, link))
    assert told in [sorted(pair) for pair in network.routers[relay].state()["failed_links"]]
    target = next(
        b
        for b in range(bcube.servers)
        if b != relay and link in parallel_paths(bcube, relay, b)[0].links
    )
    trip = network.send_udp(relay, target)
    network.run(0.01)
    assert trip.arrived_s, "its first packet already goes another way"
    assert link not in trip.path.links


def test_overheard_failure_is_forgotten_in_time() -> None:
    network, _, relay, link = with_overheard_failure()
    router = network.routers[relay]
    assert link in router.failures(network.now).links
    network.run(FAST.failed_link_timeout_s)
    assert link not in router.failures(network.now).links


def test_answer_over_a_link_proves_that_it_works_again() -> None:
    network, bcube, relay, link = with_overheard_failure()
    router = network.routers[relay]
    network.heal(*link)
    network.run(NOTICE_S)
    assert link in router.failures(network.now).links
    # Another source, which knows nothing of it, probes a path over that link and this relay.
    source, target = next(
        (a, b)
        for a in range(bcube.servers)
        for b in range(bcube.servers)
        if a != b
        and link not in network.routers[a].failures(network.now).links
        and any(
            link in path.links and relay in path.servers[1:-1] for path in path_set(bcube, a, b)
        )
    )
    network.send_udp(source, target)
    network.run(0.01)
    assert link not in router.failures(network.now).links


def test_silent_path_fails_when_its_probe_is_not_answered() -> None:
    """Nobody tells of a link that is dead for a moment: the timeout does."""
    bcube = topos.parse("bcube,4,1")
    a, b = bcube.server("0.0"), bcube.server("1.3")
    impatient = replace(FAST, probe_timeout_s=FAST.neighbour_timeout_s / 2)
    network = MemoryNetwork(bcube, partial(BSR, timers=impatient))
    relay, switch = default_relay(bcube, a, b)
    network.cut(relay, bcube.servers + switch, silent=True)
    network.send_udp(a, b)
    network.run(impatient.probe_timeout_s / 2)
    assert network.routers[a].state()["flows"][0]["path"] == ["0.0", "1.0", "1.3"]
    network.run(impatient.probe_timeout_s)
    flow = network.routers[a].state()["flows"][0]
    assert flow["path"] == ["0.0", "0.3", "1.3"]
    states = {tuple(one["path"]): one["state"] for one in flow["candidates"]}
    assert states["0.0", "1.0", "1.3"] == "failed"


def test_no_first_packet_goes_over_the_switch_that_did_not_reach_its_destination() -> None:
    bcube = topos.parse("bcube,4,1")
    network = network_of(bcube, BSR)
    silent, *others = (bcube.server(f"{digit}.0") for digit in range(4))
    network.cut(silent, bcube.server_plug(silent, 1).node)
    network.run(1.0)  # whom they do not hear any more, they know
    trips = [network.send_udp(*ends) for one in others for ends in ((one, silent), (silent, one))]
    network.run(0.01)
    assert all(trip.arrived_s for trip in trips), "the first packet of each flow arrives"


@pytest.mark.parametrize("spec", ["bcube,4,1", "bcube,4,2,servers=32"])
def test_departs_from_the_paper_a_server_tells_those_on_the_switch_that_its_cable_is_cut(
    spec: str,
) -> None:
    bcube = topos.parse(spec)
    network = network_of(bcube, BSR)
    network.run(0.1)
    for level in range(bcube.ports):
        switch = bcube.server_plug(0, level).node
        network.cut(0, switch)
        network.run(0.01)
        for peer in bcube.peers(0, level):
            assert not network.routers[peer].neighbours.works(Step(level, 0))
            trip = network.send_udp(peer, 0)
            network.run(0.01)
            assert trip.arrived_s
        network.heal(0, switch)
        network.run(1.0)
        assert all(router.down() == [] for router in network.routers)


def test_a_server_that_only_hears_a_neighbour_no_more_does_not_tell_of_its_cable() -> None:
    bcube = topos.parse("bcube,4,1")
    network = network_of(bcube, BSR)
    network.cut(0, bcube.server_plug(0, 1).node, silent=True)
    network.run(1.0)
    assert network.routers[0].down() != []
    assert network.routers[0].counters["cut cables told"] == 0


def test_departs_from_the_paper_a_relay_tells_sources_at_once() -> None:
    """Not only when their next packet meets the failed link."""
    bcube = topos.parse("bcube,4,1")
    network = network_of(bcube, BSR)
    source, relay, destination = map(bcube.server, ("0.0", "1.0", "1.3"))
    network.send_udp(source, destination)
    network.run(PROBE_S)
    path = network.send_udp(source, destination)
    network.run(0.01)
    assert path.path.servers == (source, relay, destination)
    network.cut(relay, bcube.server_plug(relay, 0).node)  # which nobody but the relay can notice
    network.run(0.01)
    assert network.routers[source].counters["sent"] == 2, "it has sent nothing meanwhile"
    around = network.send_udp(source, destination)
    network.run(0.01)
    assert around.arrived_s
    assert relay not in around.path.servers
    passing = network.routers[relay].passing  # type: ignore[attr-defined]
    assert all(step.port != 0 for _, step in passing)
