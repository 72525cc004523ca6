"""Lab 6: FiConn's traffic-aware routing (Li 2009, III.B and IV). Fill in what is marked TODO.

Servers are numbers. `ficonn` has n, k, digits(server), sizes (N_0 to N_k: servers 0 to N_l - 1 are
the first FiConn_l), level(server) (of its backup link; 0 where it has none) and
server_plug(server, 1).node (the server at the other end of its backup link).
"""

import random

BYZERO, BYONE = -1, -2  # entries of the PR field that are no server


def next_hop(ficonn, server, destination):
    """Return the server to which TOR sends what is for another server (Algorithm 2)."""
    # TODO
    return None


def choose(ficonn, server, destination, came, progress, backup_bps, switch_bps):
    """Return what a server does with a path probe: (the next server, the PR field).

    Parameters
    ----------
    server, destination : int
        Where the probe is, and where it shall go.
    came : int or None
        The server from which it came; None where `server` is its source.
    progress : tuple of int
        The PR field: PR_1, PR_2, ...; each is BYZERO, BYONE, or the proxy.
    backup_bps, switch_bps : int
        What is free on the backup link and on the level-0 link: hb and zb. A link that has failed
        has nothing free.

    To bypass its backup link a relay puts the proxy into the PR field and answers with `came`: the
    probe goes back to where it set out from, and sets out anew (Source ReRoute, which is there).
    """
    progress = list(progress)
    # TODO: is this server a proxy of the PR field?
    # TODO: where is the probe to go, and what is TOR's next hop on the path there?
    # TODO: is the other link better, and may it be taken?
    return None
