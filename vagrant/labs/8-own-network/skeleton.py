"""Lab 8: a network of your own, and its router. Fill in what is marked TODO.

docs/extending.md explains every method of a network, docs/writing-a-router.md those of a router.
"""

from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.path import Step
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.polymorphic import NOTHING, select
from pillarbox.topos.base.topology import Bound, Plug, Topology


class Mine(Topology):
    """TODO: what is wired to what, in a picture or in a sentence."""

    title = "TODO"
    paper = "lab 8"
    # TODO: the size that your sheet asks for, and after it one or two others.
    examples = ("mine,TODO", "mine,TODO")

    def __init__(self, m):  # TODO: the numbers of a spec, under your own names
        # TODO: require(condition, sentence) refuses what cannot be built.
        super().__init__(m=m)
        self.m = m
        # TODO: how many there are.
        self.servers = self.switches = self.cables = 0
        self.ports = self.switch_ports = 0
        self.check_size()

    def server_plug(self, server, port):
        """Return Plug(node, port there, level); switch s is node self.servers + s."""
        # TODO
        return Plug(NOTHING, 0, 0)

    def switch_plug(self, switch, port):
        """Return the same for a switch's port: what is plugged in there leads back here."""
        # TODO
        return Plug(NOTHING, 0, 0)

    def digits(self, server):
        """Return the server's address, most significant digit first."""
        # TODO

    def server_at(self, digits):
        """Return the server with these digits."""
        # TODO

    def radices(self):
        """Return how many values each digit can take."""
        # TODO

    def switch_label(self, switch):
        return f"s{switch}"

    def diameter_bound(self):
        """Return how many hops are enough between any two servers."""
        return Bound(None, "TODO: a formula", "lab 8")

    def bisection(self):
        return Bound(None, "not worked out", "lab 8")

    def disjoint_paths(self):
        """Return how many paths between any two servers share no server and no switch."""
        return Bound(None, "TODO", "lab 8")


class MyRouter(HopByHop):
    """TODO: in a sentence, how a packet finds its path."""

    def next_step(self, destination, came_by):
        """Return Step(port, peer), or None if there is no path.

        `self.neighbours.works(step)` tells whether that neighbour answers; `came_by` is the port by
        which the packet came, None if this server sends it.
        """
        network = self.topology  # a Mine, with every method that you give it
        # TODO
        return None
