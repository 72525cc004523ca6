"""Lab 4: link state and local reroute in DCell (Guo 2008, section 4.3). Fill in the TODOs.

A link is (server, port, peer), as the server at its near end lists it. Level 0 leads to the servers
on the same switch, level l over the server's level-l cable.
"""

# TODO: the numbers of your sheet's cabling, port (FIRST + TURN * level) mod ports.
FIRST, TURN = 0, 1


def port(network, level):
    """Return by which port your servers reach a level."""
    return (FIRST + TURN * level) % network.ports


def is_news(known, heard):
    """Tell whether a link state with sequence number `heard` is newer than the one `known`.

    Both are from 0 to 2**32 - 1, and after the last comes 0 again: of two numbers the newer is
    less than half of all numbers ahead. `known` is None if none was heard.
    """
    # TODO
    return False


def next_steps(server, links):
    """Return the next hop to each other server of the DCell_1 that can be reached.

    `links` is what the servers of the DCell_1 list; some lead out of it. A link inside works if
    both of its ends list it. Return a list of (destination, port, peer).
    """
    # TODO
    return []


def get_link(dcell, a, b, level):
    """Return the two ends of the cable between the DCell_{level-1}s of two servers (GetLink)."""
    size, whole = dcell.sizes[level - 1], dcell.sizes[level]
    base = a // whole * whole
    cell_a, cell_b = a % whole // size, b % whole // size
    near = base + cell_a * size + cell_b - (cell_b > cell_a)
    far = base + cell_b * size + cell_a - (cell_a > cell_b)
    return near, far


def choose(dcell, server, destination, proxy, came_by, links):
    """Return where a packet goes: (port, peer, proxy), or None to drop it.

    Parameters
    ----------
    dcell : DCell
        The network: dcell.sizes, dcell.k, dcell.digits(server).
    server, destination : int
        Where the packet is, and where it shall go.
    proxy : int or None
        The server to which it was rerouted, as long as it is not there.
    came_by : int or None
        The port by which it came; None if this server sends it.
    links : tuple of (server, port, peer)
        What the servers of this DCell_1 list: their links that work.

    The proxy of your answer goes with the packet: the old one as long as it is not reached, None
    for none, another one for a reroute. A packet may be rerouted four times.
    """
    # TODO: which link does DCellRouting leave this DCell_1 by? Does it work, can it be reached?
    # TODO: else take another link of that level, and its far end as the proxy.
    return None
