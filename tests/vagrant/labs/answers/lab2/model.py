from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.path import Step

DIRECTION = 1


class DPillarSP(HopByHop):
    plain_ip = True

    def next_step(self, destination, came_by):
        dpillar = self.topology
        column, *label = dpillar.digits(self.server)
        _, *wanted = dpillar.digits(destination)
        port = DIRECTION if came_by is None else 1 - came_by
        symbol = (column - port) % dpillar.k
        place = dpillar.k - 1 - symbol
        label[place] = wanted[place]
        onward = (column + (1 if port == 0 else -1)) % dpillar.k
        return Step(port, dpillar.server_at([onward, *label]))
