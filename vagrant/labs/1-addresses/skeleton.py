"""Lab 1: addresses and wiring of the network on your sheet. Fill in what is marked TODO.

An address is a tuple of digits, most significant first, as in the paper and in `pillarbox topo`.
n and k are the network's parameters: your functions are asked about other sizes too, so compute.
"""


def address(n, k, number):
    """Return the digits of the server with that number."""
    # TODO


def number(n, k, digits):
    """Return the number of the server with these digits: the inverse."""
    # TODO


def peers(n, k, digits, port):
    """Return the addresses of all servers one hop away through that port, in any order."""
    # TODO


def switch(n, k, digits, port):
    """Return the number of the switch at that port, None if there is a server, or no cable."""
    # TODO


def port_to(n, k, a, b):
    """Return the lowest port by which server a reaches server b in one hop, None if none does."""
    # TODO
