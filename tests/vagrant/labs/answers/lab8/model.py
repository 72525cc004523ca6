"""Switches on a ring with chords; every cable of that graph is a server with two ports."""

from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.path import Step
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Bound, Plug, Topology


class Chords(Topology):
    """Server i.0 stands between the switches i and i + 1, server i.1 between i and i + s.

    Of all chords s the class takes the one that brings switches nearest to one another.
    """

    title = "Ring with chords"
    paper = "lab 8"
    examples = ("mine,13", "mine,8")

    def __init__(self, m):
        require(m >= 5, f"a ring with chords has m >= 5 switches, not {m}")
        super().__init__(m=m)
        self.m = m
        self.servers, self.switches, self.cables = 2 * m, m, 4 * m
        self.ports, self.switch_ports = 2, 4
        self.check_size()
        self.s = min(range(2, (m + 1) // 2), key=lambda s: sum(self.distances(s).values()))
        self.far = self.distances(self.s)

    def distances(self, s):
        """Return how many servers lie between switch 0 and each other switch."""
        far, queue = {0: 0}, [0]
        for switch in queue:
            for step in (1, -1, s, -s):
                near = (switch + step) % self.m
                if near not in far:
                    far[near] = far[switch] + 1
                    queue.append(near)
        return far

    def span(self, kind):
        return 1 + kind * (self.s - 1)

    def switches_of(self, server):
        """Return the switches at port 0 and port 1."""
        switch, kind = self.digits(server)
        return switch, (switch + self.span(kind)) % self.m

    def server_plug(self, server, port):
        kind = server % 2
        return Plug(self.servers + self.switches_of(server)[port], kind + 2 * port, kind)

    def switch_plug(self, switch, port):
        kind = port % 2
        first = switch if port < 2 else (switch - self.span(kind)) % self.m
        return Plug(2 * first + kind, port // 2, kind)

    def digits(self, server):
        return server // 2, server % 2

    def server_at(self, digits):
        return 2 * digits[0] + digits[1]

    def radices(self):
        return self.m, 2

    def switch_label(self, switch):
        return f"ring {switch}"

    def diameter_bound(self):
        # The ring looks the same from every switch: search from server 0 and from server 1.
        ways = [
            1 + min(self.far[(b - a) % self.m] for a in self.switches_of(s) for b in ends)
            for s in (0, 1)
            for server in range(self.servers)
            if server != s
            for ends in [self.switches_of(server)]
        ]
        return Bound(max(ways), "searched", "lab 8")

    def bisection(self):
        return Bound(None, "not worked out", "lab 8")

    def disjoint_paths(self):
        return Bound(2, "a server's ports", "lab 8")


class Nearer(HopByHop):
    """Go nearer; where the way nearer is dead, go on to anywhere but back."""

    def next_step(self, destination, came_by):
        network = self.topology
        ends = network.switches_of(destination)
        found = []
        for port in (0, 1):
            for peer in network.peers(self.server, port):
                step = Step(port, peer)
                if not self.neighbours.works(step):
                    continue
                if peer == destination:
                    return step
                here, beyond = network.switches_of(self.server)[port], network.switches_of(peer)
                there = beyond[0] if beyond[1] == here else beyond[1]
                hops = min(network.far[(end - there) % network.m] for end in ends)
                found.append((port == came_by, hops, self.random.random(), step))
        return min(found)[-1] if found else None
