# A ring of switches: servers have one port, do not relay, and lose all when their switch dies.
from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.path import Step
from pillarbox.topos.base.topology import Bound, Plug, Topology


class Ring(Topology):
    title = "Ring of switches"
    paper = "lab 8"
    examples = ("mine,13", "mine,8")
    switches_interconnect = True

    def __init__(self, m):
        super().__init__(m=m)
        self.m = self.switches = m
        self.servers, self.cables, self.ports, self.switch_ports = 2 * m, 3 * m, 1, 4
        self.check_size()

    def server_plug(self, server, port):
        return Plug(self.servers + server // 2, server % 2, 0)

    def switch_plug(self, switch, port):
        if port < 2:
            return Plug(2 * switch + port, 0, 0)
        step = 1 if port == 2 else -1
        return Plug(self.servers + (switch + step) % self.m, 5 - port, 1)

    def digits(self, server):
        return server // 2, server % 2

    def server_at(self, digits):
        return 2 * digits[0] + digits[1]

    def radices(self):
        return self.m, 2

    def switch_label(self, switch):
        return f"ring {switch}"

    def diameter_bound(self):
        return Bound(1, "1", "lab 8")

    def bisection(self):
        return Bound(2, "2", "lab 8")

    def disjoint_paths(self):
        return Bound(1, "1", "lab 8")


class Direct(HopByHop):
    def next_step(self, destination, came_by):
        return Step(0, destination)
