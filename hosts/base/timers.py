"""How often and how long: the papers' values, and fast ones for a laboratory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hosts.base.declared import declared
from topos.base.errors import PillarboxError
from topos.base.topology import Topology

# What one heart-beat costs a machine: to send, and for each server that receives it. Measured on
# hundreds of live servers of either plane (`pillarbox bench scale`). A router by itself takes a
# tenth of that; the rest is the price of waking a process whose memory is in no cache any more.
SEND_COST_S = 190e-6
RECEIVE_COST_S = 160e-6
# Heart-beats of all servers together may take this much of the machine, and their probes as much.
HEART_BEAT_SHARE = 0.1
PROBE_SHARE = 0.1
CPUS = 2
SMALL = 64


@dataclass(frozen=True)
class Timers:
    """Every interval and timeout of the protocols, in seconds."""

    heart_beat_s: float
    neighbour_timeout_s: float  # without a heart-beat for so long, the link is down
    link_state_refresh_s: float  # how often a server floods its link state unasked
    link_state_timeout_s: float  # link state that was not refreshed for so long is forgotten
    probe_interval_s: float  # how often a flow's paths are probed
    probe_jitter_s: float  # at most so much is added at random, against oscillation
    probe_timeout_s: float  # a probe without an answer for so long has failed
    failed_link_timeout_s: float  # how long an overheard failure is believed
    flow_idle_s: float  # a flow without packets for so long is forgotten
    unreachable_hold_s: float  # how long nothing is sent to an unreachable destination
    probe_spacing_s: float = 0.0  # from one round of probes of a server to its next, on average


# Heart-beats and their timeout: Guo 2008, section 7.1. Probing: Guo 2009, section 4.3. What the
# papers do not say is chosen in proportion.
PAPER = Timers(
    heart_beat_s=1.0,
    neighbour_timeout_s=5.0,
    link_state_refresh_s=10.0,
    link_state_timeout_s=35.0,
    probe_interval_s=10.0,
    probe_jitter_s=2.0,
    probe_timeout_s=1.0,
    failed_link_timeout_s=10.0,
    flow_idle_s=60.0,
    unreachable_hold_s=5.0,
)

FAST = Timers(
    heart_beat_s=0.045,
    neighbour_timeout_s=0.14,
    link_state_refresh_s=1.0,
    link_state_timeout_s=3.5,
    probe_interval_s=1.0,
    probe_jitter_s=0.25,
    probe_timeout_s=0.1,
    failed_link_timeout_s=2.0,
    flow_idle_s=30.0,
    unreachable_hold_s=0.5,
)


def timers_for(topology: Topology, name: str = "fast", cpus: int = CPUS) -> Timers:
    """Return the timers of that name: ``paper``, or ``fast`` ones that the machine can bear.

    Fast ones notice a silent failure in 150 ms in networks of up to SMALL servers, whatever that
    costs. In larger ones, where heart-beats of all servers would take more than a tenth of the
    machine, all intervals are longer by the same factor. With either a server keeps its rounds of
    probes apart, which the papers' own servers, each a machine by itself, need not: thousands of
    flows that all probe at their time would leave no time for anything else, and where nobody
    answers in time everything seems broken.

    >>> import topos
    >>> fast = timers_for(topos.parse("bcube,4,1"))
    >>> fast == replace(FAST, probe_spacing_s=fast.probe_spacing_s)
    True
    """
    if name == "paper":
        network = declared(topology.kind)
        timers = network.paper_timers if network else PAPER
    elif name == "fast":
        timers = FAST
        if topology.servers > SMALL:
            share = HEART_BEAT_SHARE * cpus
            timers = scaled(FAST, max(1.0, heart_beat_load(topology) / FAST.heart_beat_s / share))
    else:
        raise PillarboxError(f"there are no {name!r} timers: there are fast and paper")
    spacing_s = topology.servers * probe_round_cost_s(topology) / (PROBE_SHARE * cpus)
    return replace(timers, probe_spacing_s=spacing_s)


def scaled(timers: Timers, factor: float) -> Timers:
    """Return the timers, each longer by that factor."""
    return Timers(**{name: value * factor for name, value in vars(timers).items()})


def heart_beat_load(topology: Topology) -> float:
    """Return the seconds of processor time that one heart-beat of every server costs."""
    sampled = range(0, topology.servers, max(1, topology.servers // 64))
    cost = 0.0
    for server in sampled:
        for port in range(topology.ports):
            cost += SEND_COST_S + RECEIVE_COST_S * len(topology.peers(server, port))
    return cost * topology.servers / len(sampled)


def probe_round_cost_s(topology: Topology) -> float:
    """Return the seconds of processor time that one round of probes costs: there and back again."""
    paths, hops = topology.disjoint_paths().value, topology.diameter_bound().value
    return 2 * (paths or 1) * (hops or 1) * (SEND_COST_S + RECEIVE_COST_S)
