"""Lab 5: BCube's source routing (Guo 2009, sections 3.3 and 4). Fill in what is marked TODO.

A path is a list of steps, each the port that it leaves by and the server it comes to.
"""

from pillarbox.hosts.base.path import Step

# TODO: the numbers of your sheet's cabling, port (FIRST + TURN * level) mod ports.
FIRST, TURN = 0, 1


def port(network, level):
    """Return by which port your servers reach the servers that differ in digit `level` alone."""
    return (FIRST + TURN * level) % network.ports


def path_set(bcube, source, destination):
    """Return the k + 1 parallel paths of BuildPathSet (Fig. 3), P_k first, P_0 last.

    `bcube` has n, k, digits(server), which is (a_k, ..., a_0), and server_at(digits). Port
    `port(bcube, l)` leads to the servers that differ in digit l alone. The two servers are
    different.
    """
    # TODO: return [[Step(port, server), Step(port, server), ...], ...]
    return []


def choose(paths, free_bps, using, own_bps):
    """Return the number of the path to use, None if none works.

    Parameters
    ----------
    paths : tuple of paths
        What `path_set` returned; each path is a tuple of (port, server).
    free_bps : tuple of int or None
        The available bandwidth that the last probe of each path found; None for a path that has
        failed.
    using : int or None
        The number of the path that the flow uses now; None for none.
    own_bps : int
        What the flow itself sends over that path.
    """
    # TODO
    return None
