"""Networks that run DPillarMP, what fails in them, and how each packet ended."""

from dataclasses import replace

from pillarbox import topos
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.base.timers import FAST, Timers
from pillarbox.hosts.dpillar import light_weight, multipath, spraying, traffic_aware
from pillarbox.hosts.dpillar.tunnel import RESERVED
from pillarbox.hosts.memory.frame_devices import FrameHop
from pillarbox.hosts.memory.memory_network import MemoryNetwork, Trip
from pillarbox.hosts.wire.frame import ETH_IP
from pillarbox.hosts.wire.ipv4 import IP_IN_IP, Ipv4Header, Tunnel, decapsulate

ROUTERS = {
    "mp": multipath.FaultTolerant,
    "mp-ccw": multipath.MultipathCounterClockwise,
    "mp-both": multipath.BothWays,
    "mp-any": multipath.AnyPairing,
    "mp-far-side": multipath.FarSide,
    "mp-random": light_weight.RandomPath,
    "mp-aware": traffic_aware.TrafficAware,
    "spray": spraying.Spray,
}
MOST_HOPS = 64  # a packet's usual time to live, which is its tunnel's
PROBED = ["mp", "mp-ccw", "mp-both", "mp-any", "mp-far-side", "mp-aware"]
# Rounds of probes that follow one another sooner, to spare virtual time.
EAGER = replace(FAST, probe_interval_s=1.0, probe_jitter_s=0.25)
# So that little virtual time, and few heartbeats, make a test.
BRISK = replace(
    EAGER,
    heartbeat_s=0.1,
    neighbour_timeout_s=0.21,
    probe_interval_s=0.2,
    probe_jitter_s=0.05,
    probe_timeout_s=0.01,
)


def network(
    spec: str, make: type[Router], *devices: object, timers: Timers = EAGER, seed: int = 0
) -> MemoryNetwork:
    return MemoryNetwork(
        topos.parse(spec),
        lambda net, server: make(net, server, timers=timers, seed=seed),
        devices,
    )


def control(hop: FrameHop) -> tuple[Tunnel, Ipv4Header, bytes] | None:
    """Return tunnel, inner header and body of a control message that is in its tunnel."""
    if hop.frame.ethertype != ETH_IP or Ipv4Header.parse(hop.frame.data)[0].protocol != IP_IN_IP:
        return None
    tunnel, _, packet = decapsulate(hop.frame.data)
    inner, body = Ipv4Header.parse(packet)
    return (tunnel, inner, body) if inner.protocol in RESERVED else None


def assert_each_ended_once(trips: list[Trip]) -> None:
    for trip in trips:
        assert len(trip.arrived_s) <= 1, trip
        assert trip.arrived_s or trip.lost, trip
        assert len(trip.steps) <= MOST_HOPS + 1


def strike(net: MemoryNetwork, path: Path, fault: str) -> object:
    """Let something in the middle of the path fail; return how to mend it."""
    nodes = path.nodes(net.topology)
    middle = len(nodes) // 2 - (len(nodes) // 2) % 2  # a server
    server, switch = nodes[middle], nodes[middle + 1]
    assert 0 < middle < len(nodes) - 2
    if "cut" in fault:
        net.cut(server, switch, silent="silent" in fault)
        return lambda: net.heal(server, switch)
    if fault == "server":
        net.kill(server)
        return lambda: net.revive(server)
    net.stop_switch(switch - net.topology.servers, silent="silent" in fault)
    return lambda: net.start_switch(switch - net.topology.servers)
