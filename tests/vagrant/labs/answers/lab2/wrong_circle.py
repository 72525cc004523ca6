"""Never sets a symbol: packets go round and round."""

from hosts.base.hop_by_hop import HopByHop
from hosts.base.path import Step

DIRECTION = 1


class DPillarSP(HopByHop):
    plain_ip = True

    def next_step(self, destination, came_by):
        dpillar = self.topology
        column, *label = dpillar.digits(self.server)
        port = DIRECTION if came_by is None else 1 - came_by
        onward = (column + (1 if port == 0 else -1)) % dpillar.k
        return Step(port, dpillar.server_at([onward, *label]))
