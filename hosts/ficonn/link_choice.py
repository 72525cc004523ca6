"""Available bandwidth of a FiConn server's two outgoing links, as TAR compares it (Li 2009, IV).

Rules on plain numbers, like those of `pillarbox.hosts.ficonn.rules`: routers call them with rates
in bit/s measured by byte counters, the simulator with shares of a link's rate from a throughput
model.
"""

from __future__ import annotations

from pillarbox.topos.ficonn import BACKUP, SWITCH


def free_bandwidth(
    backup: float,
    switch: float,
    backup_rate: float,
    switch_rate: float,
    own_port: int,
    own_rate: float,
    flows: int,
    virtual: int,
) -> tuple[float, float]:
    """Return the bandwidth available to a flow on a server's backup link and its level-0 link.

    Parameters
    ----------
    backup, switch : float
        Measured loads of the two outgoing links.
    backup_rate, switch_rate : float
        Rates of the two links, in the same unit.
    own_port : int
        Port by which the flow leaves this server now, else NOWHERE.
    own_rate : float
        The flow's measured rate.
    flows, virtual : int
        Number of flows that cross this server, and number of virtual flows.
    """
    # the mean rate of a flow, assumed for each virtual flow (section IV.D)
    volume = (backup + switch) / max(1, flows)
    # Departs from the paper: a flow does not compete with itself. Otherwise a flow would leave the
    # link that it fills at every round, and return at the next.
    own_backup = min(own_rate, backup) if own_port == BACKUP else 0.0
    own_switch = min(own_rate, switch) if own_port == SWITCH else 0.0
    return (
        max(0.0, backup_rate - backup) + own_backup,
        max(0.0, max(0.0, switch_rate - switch) + own_switch - volume * virtual),
    )


def better_link(backup: float, switch: float, equal_share: float) -> int:
    """Return the link with more available bandwidth: 1 backup, -1 level 0, 0 equal.

    Departs from the paper: measured bandwidths within the fraction `equal_share` of each other
    count as equal. Otherwise noise would move flows away from TOR's shorter paths.
    """
    if backup * equal_share > switch:
        return 1
    return -1 if switch * equal_share > backup else 0
