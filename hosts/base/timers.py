"""Intervals and timeouts of the protocols: the papers' values, and fast ones for the lab."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from pillarbox.hosts.base.declarations import declared
from pillarbox.topos.base.errors import UnknownNameError
from pillarbox.topos.base.topology import Topology

# CPU time of sending, and of receiving, one control message, in seconds.
# Measured on hundreds of live servers with both data planes (`pillarbox bench scale`).
# The router takes a tenth of this time; waking a process with cold CPU caches takes the rest.
SEND_COST_S = 190e-6
RECEIVE_COST_S = 160e-6
# Maximum fraction of the machine's CPU time for the probes of all servers.
# The same limit applies to heartbeats if each heartbeat wakes its receivers' processes.
PROBE_SHARE = HEARTBEAT_SHARE = 0.1
CPUS = 2  # CPU cores of the machine assumed if the number is not given
SMALL = 64  # maximum number of servers of a small network


@dataclass(frozen=True)
class Timers:
    """All intervals and timeouts of the protocols, in seconds."""

    heartbeat_s: float  # heartbeat interval
    confirmed_heartbeat_s: float  # heartbeat interval if lost heartbeats are retransmitted
    neighbour_timeout_s: float  # time without a heartbeat after which a link is down
    link_state_refresh_s: float  # interval between floods of an unchanged link state
    link_state_timeout_s: float  # lifetime of a link state without refresh
    probe_interval_s: float  # interval between probes of a flow's paths
    probe_jitter_s: float  # maximum random addition to the interval, against oscillation
    probe_timeout_s: float  # time without an answer after which a probe of a known path has failed
    search_timeout_s: (
        float  # time without an answer after which a probe that searches for a path has failed
    )
    # lifetime of a link failure learned from messages of other servers
    failed_link_timeout_s: float
    flow_idle_s: float  # idle time after which a flow is removed
    unreachable_hold_s: float  # time without packets to a destination after an unreachable message
    probe_spacing_s: float = 0.0  # average interval between a server's probe rounds

    def next_probe_s(self, random: Random) -> float:
        """Return a random delay until a flow's paths are probed again, in seconds."""
        return self.probe_interval_s + self.probe_jitter_s * random.random()

    @property
    def longest_probe_interval_s(self) -> float:
        """Upper bound of the delay between two probes of a flow's paths, in seconds."""
        return self.probe_interval_s + self.probe_jitter_s


# Heartbeats and their timeout: Guo 2008, section 7.1. Probing: Guo 2009, section 4.3.
# Timers that the papers do not specify are chosen in proportion to the specified ones.
PAPER = Timers(
    heartbeat_s=1.0,
    confirmed_heartbeat_s=1.0,
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


# Timers that detect a failure or its end are fast; timers that search for better paths are not.
# Flows that change paths before TCP has reached its rate would keep changing paths.
# A late probe answer of a busy server is not a failure: neighbours and messages report failures.
#
# A busy TCP connection retransmits about 60 ms after a failure, then after 180 and 420 ms.
# A silent neighbour is detected in time for the second retransmission.
# Two consecutive heartbeats may be lost, even if heartbeats are retransmitted.
def fast(paper: Timers) -> Timers:
    """Return timers that detect failures faster than a paper's timers."""
    return replace(
        paper,
        heartbeat_s=0.035,
        confirmed_heartbeat_s=0.05,
        neighbour_timeout_s=0.12,
        search_timeout_s=0.1,
        failed_link_timeout_s=2.0,
        unreachable_hold_s=0.5,
    )


FAST = fast(PAPER)

# Timers of networks with more than SMALL servers, in seconds.
# A heartbeat costs the kernel some microseconds per receiver.
# One heartbeat may be lost; a retransmitted heartbeat is sent up to four times.
MANY_HEARTBEAT_S, MANY_NEIGHBOUR_TIMEOUT_S, MANY_CONFIRMED_S = 0.13, 0.28, 0.23
# Link-state timers are those of OSPF (RFC 2328, appendix B), since a refresh wakes its receivers.
MANY_REFRESH_S, MANY_LINK_STATE_TIMEOUT_S = 1800.0, 3600.0
# Timers of small networks in which each heartbeat wakes its receivers' processes, in seconds.
WAKING_HEARTBEAT_S, WAKING_NEIGHBOUR_TIMEOUT_S = 0.08, 0.18
# Lower bound of the timeout without real-time priority, in seconds. Measured with dcell,4,1 on 2
# busy processors (load 17), links lost in the first seconds: 74 to 301 with a timeout of 0.18 s,
# 4 to 183 with 0.36 s, 0 to 29 with 0.54 s.
LATE_NEIGHBOUR_TIMEOUT_S = 0.54


def timers_for(topology: Topology, name: str = "fast", cpus: int = CPUS) -> Timers:
    """Return the timers named ``paper`` or ``fast``; fast timers detect failures sooner.

    Fast timers detect a silent failure in 120 ms, or 280 ms in networks of more than SMALL servers,
    which also flood unchanged link states very rarely. With both, a server spaces its probe rounds;
    the papers' servers, each a machine of its own, do not need that. On one machine, thousands of
    flows that probe independently would use all CPU time, and late answers would look like
    failures of all paths.

    >>> from pillarbox import topos
    >>> timers = timers_for(topos.parse("bcube,4,1"))
    >>> timers == replace(FAST, probe_spacing_s=timers.probe_spacing_s)
    True
    """
    network = declared(topology.kind)
    timers = network.paper_timers if network else PAPER
    if name == "fast":
        timers = _large_network_timers(timers) if topology.servers > SMALL else fast(timers)
    elif name != "paper":
        raise UnknownNameError(f"there are no {name!r} timers: choose fast or paper")
    spacing_s = topology.servers * probe_round_cost_s(topology) / (PROBE_SHARE * cpus)
    return replace(timers, probe_spacing_s=spacing_s)


def where_processes_watch(
    timers: Timers, topology: Topology, cpus: int = CPUS, *, prioritised: bool = True
) -> Timers:
    """Return timers that bound the CPU load if user processes, not the kernel, read heartbeats.

    If the process that sends heartbeats has no real-time priority (`prioritised`), silence is
    detected later, because heartbeats are late while the processors are busy.

    Heartbeats are less frequent and silence is detected later. In networks of more than SMALL
    servers, the interval is long enough that heartbeats use at most a tenth of the CPU time.
    """
    if topology.servers > SMALL:
        load = heartbeat_load(topology) / timers.heartbeat_s / (HEARTBEAT_SHARE * cpus)
        heartbeat_s = timers.heartbeat_s * max(1.0, load)
        neighbour_timeout_s = timers.neighbour_timeout_s * max(1.0, load)
    else:
        heartbeat_s = max(timers.heartbeat_s, WAKING_HEARTBEAT_S)
        neighbour_timeout_s = max(timers.neighbour_timeout_s, WAKING_NEIGHBOUR_TIMEOUT_S)
    if not prioritised:
        neighbour_timeout_s = max(neighbour_timeout_s, LATE_NEIGHBOUR_TIMEOUT_S)
    return replace(timers, heartbeat_s=heartbeat_s, neighbour_timeout_s=neighbour_timeout_s)


def _large_network_timers(paper: Timers) -> Timers:
    """Return the fast timers of networks with more than SMALL servers."""
    return replace(
        fast(paper),
        heartbeat_s=MANY_HEARTBEAT_S,
        confirmed_heartbeat_s=MANY_CONFIRMED_S,
        neighbour_timeout_s=MANY_NEIGHBOUR_TIMEOUT_S,
        link_state_refresh_s=MANY_REFRESH_S,
        link_state_timeout_s=MANY_LINK_STATE_TIMEOUT_S,
    )


def heartbeat_load(topology: Topology) -> float:
    """Return the CPU time of one heartbeat of every server, in seconds."""
    sampled = range(0, topology.servers, max(1, topology.servers // 64))
    cost = 0.0
    for server in sampled:
        for port in range(topology.ports):
            cost += SEND_COST_S + RECEIVE_COST_S * len(topology.peers(server, port))
    return cost * topology.servers / len(sampled)


def probe_round_cost_s(topology: Topology) -> float:
    """Return the CPU time of one probe round, probes and answers, in seconds."""
    paths, hops = topology.disjoint_paths().value, topology.diameter_bound().value
    return 2 * (paths or 1) * (hops or 1) * (SEND_COST_S + RECEIVE_COST_S)
