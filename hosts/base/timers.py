"""How often and how long: the papers' values, and fast ones for a laboratory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from hosts.base.declared import declared
from topos.base.errors import PillarboxError
from topos.base.topology import Topology

# What one control message costs a machine: to send, and for each server that receives it. Measured
# on hundreds of live servers of either plane (`pillarbox bench scale`). A router by itself takes a
# tenth of that; the rest is the price of waking a process whose memory is in no cache any more.
SEND_COST_S = 190e-6
RECEIVE_COST_S = 160e-6
# Probes of all servers together may take this much of the machine; and heart-beats, where each has
# to wake its receivers up.
PROBE_SHARE = HEART_BEAT_SHARE = 0.1
CPUS = 2
SMALL = 64  # servers


@dataclass(frozen=True)
class Timers:
    """Every interval and timeout of the protocols, in seconds."""

    heart_beat_s: float
    confirmed_heart_beat_s: float  # the same where what was not heard is sent again at once
    neighbour_timeout_s: float  # without a heart-beat for so long, the link is down
    link_state_refresh_s: float  # how often a server floods its link state unasked
    link_state_timeout_s: float  # link state that was not refreshed for so long is forgotten
    probe_interval_s: float  # how often a flow's paths are probed
    probe_jitter_s: float  # at most so much is added at random, against oscillation
    probe_timeout_s: float  # a probe of a known path without an answer for so long has failed
    search_timeout_s: float  # a probe that looks for a path, likewise
    failed_link_timeout_s: float  # how long an overheard failure is believed
    flow_idle_s: float  # a flow without packets for so long is forgotten
    unreachable_hold_s: float  # how long nothing is sent to an unreachable destination
    probe_spacing_s: float = 0.0  # from one round of probes of a server to its next, on average

    def next_probe_s(self, random: Random) -> float:
        """Return how long a flow waits until its paths are probed again."""
        return self.probe_interval_s + self.probe_jitter_s * random.random()

    @property
    def longest_probe_interval_s(self) -> float:
        """How long that may be."""
        return self.probe_interval_s + self.probe_jitter_s


# Heart-beats and their timeout: Guo 2008, section 7.1. Probing: Guo 2009, section 4.3. What the
# papers do not say is chosen in proportion.
PAPER = Timers(
    heart_beat_s=1.0,
    confirmed_heart_beat_s=1.0,
    neighbour_timeout_s=5.0,
    link_state_refresh_s=10.0,
    link_state_timeout_s=35.0,
    probe_interval_s=10.0,
    probe_jitter_s=2.0,
    probe_timeout_s=1.0,
    search_timeout_s=1.0,
    failed_link_timeout_s=10.0,
    flow_idle_s=60.0,
    unreachable_hold_s=5.0,
)


# What notices a failure, or its end, is fast. What looks for a better path is the paper's: flows
# that move before TCP has found its rate move again and again, and a probe that a busy server
# answers late is no failure. Neighbours and messages tell of those.
#
# TCP that is busy tries again some 60 ms after a failure, then after 180 and 420. Silence is
# noticed in time for the second try. Two heart-beats in a row may be lost, with or without repeats.
def fast(paper: Timers) -> Timers:
    """Return timers that notice failures sooner than a paper's."""
    return replace(
        paper,
        heart_beat_s=0.035,
        confirmed_heart_beat_s=0.05,
        neighbour_timeout_s=0.12,
        search_timeout_s=0.1,
        failed_link_timeout_s=2.0,
        unreachable_hold_s=0.5,
    )


FAST = fast(PAPER)

# In networks of more than SMALL servers: a heart-beat costs the kernel some microseconds for each
# who hears it. One of them may be lost; where those are sent again, three tries after the first.
MANY_HEART_BEAT_S, MANY_NEIGHBOUR_TIMEOUT_S, MANY_CONFIRMED_S = 0.13, 0.28, 0.23
# A refresh says nothing new, and wakes up who hears it. Both are OSPF's (RFC 2328, appendix B).
MANY_REFRESH_S, MANY_LINK_STATE_TIMEOUT_S = 1800.0, 3600.0
# In the others, where each heart-beat wakes up who is to hear it.
WAKING_HEART_BEAT_S, WAKING_NEIGHBOUR_TIMEOUT_S = 0.08, 0.18


def timers_for(topology: Topology, name: str = "fast", cpus: int = CPUS) -> Timers:
    """Return the timers of that name: ``paper``, or ``fast`` ones, which notice failures sooner.

    Fast ones notice a silent failure in 120 ms, and in networks of more than SMALL servers in 280.
    There link states that say nothing new are hardly ever told. With either a server keeps
    its rounds of probes apart, which the papers' own servers, each a machine by itself, need not:
    thousands of flows that all probe at their time would leave no time for anything else, and where
    no answer comes in time everything seems broken.

    >>> import topos
    >>> timers = timers_for(topos.parse("bcube,4,1"))
    >>> timers == replace(FAST, probe_spacing_s=timers.probe_spacing_s)
    True
    """
    network = declared(topology.kind)
    timers = network.paper_timers if network else PAPER
    if name == "fast":
        timers = _of_many(timers) if topology.servers > SMALL else fast(timers)
    elif name != "paper":
        raise PillarboxError(f"there are no {name!r} timers: there are fast and paper")
    spacing_s = topology.servers * probe_round_cost_s(topology) / (PROBE_SHARE * cpus)
    return replace(timers, probe_spacing_s=spacing_s)


def where_processes_watch(timers: Timers, topology: Topology, cpus: int = CPUS) -> Timers:
    """Return timers that a machine can bear where each heart-beat wakes up who is to hear it.

    Heart-beats are rarer then, and silence is noticed later: in networks of more than SMALL servers
    so much that heart-beats take at most a tenth of the machine.
    """
    if topology.servers > SMALL:
        load = heart_beat_load(topology) / timers.heart_beat_s / (HEART_BEAT_SHARE * cpus)
        heart_beat_s = timers.heart_beat_s * max(1.0, load)
        neighbour_timeout_s = timers.neighbour_timeout_s * max(1.0, load)
    else:
        heart_beat_s = max(timers.heart_beat_s, WAKING_HEART_BEAT_S)
        neighbour_timeout_s = max(timers.neighbour_timeout_s, WAKING_NEIGHBOUR_TIMEOUT_S)
    return replace(timers, heart_beat_s=heart_beat_s, neighbour_timeout_s=neighbour_timeout_s)


def _of_many(paper: Timers) -> Timers:
    """Return fast timers of a large network."""
    return replace(
        fast(paper),
        heart_beat_s=MANY_HEART_BEAT_S,
        confirmed_heart_beat_s=MANY_CONFIRMED_S,
        neighbour_timeout_s=MANY_NEIGHBOUR_TIMEOUT_S,
        link_state_refresh_s=MANY_REFRESH_S,
        link_state_timeout_s=MANY_LINK_STATE_TIMEOUT_S,
    )


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
