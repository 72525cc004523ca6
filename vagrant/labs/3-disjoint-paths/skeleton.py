"""Lab 3: disjoint paths, and another one when one fails. Fill in what is marked TODO.

A path is a list of steps, each the port that it leaves by and the server it comes to.
"""

from pillarbox.hosts.base.path import Step

# TODO: the numbers of your sheet's cabling, port (FIRST + TURN * level) mod ports.
FIRST, TURN = 0, 1


def port(network, level):
    """Return by which port your servers reach a level; a DPillar's level 0 is clockwise."""
    return (FIRST + TURN * level) % network.ports


def path_set(network, source, destination):
    """Return disjoint paths between two servers that share no switch.

    `network` is the one of your sheet or one of another size: network.n, network.k,
    network.digits(server), network.server_at(digits); network.half in a DPillar.
    """
    # TODO: return [[Step(port, server), Step(port, server), ...], ...]
    return []


def choose(source, paths, failed):
    """Return the number of the path to use, None if none is left.

    `paths` is what `path_set` returned; `failed` are the links of which the source was told that
    they have failed, in the order of the messages: (server, port, peer).
    """
    # TODO
    return None
