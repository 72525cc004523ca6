"""Lab 2: DPillarSP (Liao 2012, Algorithm 1). Fill in what is marked TODO."""

from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.path import Step
from pillarbox.topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE

# TODO: the direction of your sheet, CLOCKWISE or COUNTER_CLOCKWISE. They are the numbers of the
# ports: port 0 leads clockwise, port 1 counter-clockwise.
DIRECTION = CLOCKWISE


class DPillarSP(HopByHop):
    """Set one symbol of the label a hop, then go round to the destination's column."""

    plain_ip = True

    def next_step(self, destination, came_by):
        """Return Step(port, peer): out of which port, to which server one column on.

        `came_by` is the port by which the packet came; None if this server sends it itself.
        """
        dpillar = self.topology  # dpillar.n, dpillar.k, dpillar.half (n/2 values of a symbol)
        column, *label = dpillar.digits(self.server)  # label[0] is symbol k-1, label[-1] symbol 0
        # TODO: which way does this packet go?
        # TODO: which symbol can a hop that way set, and to what?
        # TODO: return Step(port, dpillar.server_at([column of the next server, *its label]))
        return None
