"""Rail-only (Wang 2023, arXiv 2307.12169): domains of servers, joined by rails, without a spine.

The paper removes the spine layer of a GPU cluster: what remains are domains of high bandwidth, and
rails, each a switched network of the servers at the same place in all domains. Traffic between
different places of different domains is forwarded by a server (abstract). So the network is a BCube
whose levels have different sizes: level 0 joins the G servers of a domain, level 1 the D servers of
a rail::

       rail 0      rail 1                  level-1 switches: digit 1 (the domain) removed
       |    \\      |    \\
      0.0   0.1   1.0   1.1  ...           servers domain.place
        \\   /       \\   /
      domain 0    domain 1                 level-0 switches: digit 0 (the place) removed

Departs from the paper: a rail is one switch here, where a large network needs a Clos network, and a
domain is one switch. Further sizes add levels of rails.
"""

from __future__ import annotations

from collections.abc import Sequence

from pillarbox.topos.base.errors import require
from pillarbox.topos.base.switched_digits import SwitchedDigits
from pillarbox.topos.base.topology import Bound, count_text

DOMAINS, RAILS = 0, 1  # levels


class Rail(SwitchedDigits):
    """Rail-only network: the sizes of its levels, domain size first, then domains per rail.

    >>> rail = Rail(8, 4)
    >>> rail.servers, rail.switches, rail.ports
    (32, 12, 2)
    >>> [rail.address(peer) for peer in rail.peers(rail.server("2.5"), port=1)]
    ['0.5', '1.5', '3.5']
    """

    title = "Rail-only"
    paper = "Wang 2023"
    cell = "domain"
    examples = ("rail,4,2", "rail,3,2,2", "rail,2,5")

    def __init__(self, *sizes: int) -> None:
        require(
            len(sizes) >= 2,
            "rail takes the domain size, the number of domains, and further sizes if there are "
            "more levels: write rail,8,4",
        )
        require(min(sizes) >= 2, f"each size of a rail network is 2 or more, not {min(sizes)}")
        super().__init__(*sizes)
        self.set_levels(sizes, switch_ports=max(sizes))
        self.check_size()

    def cell_title(self, level: int, digits: Sequence[int]) -> str:
        """Return the name of a domain, or of a group of domains, in the drawing."""
        return f"{'domain' if level == DOMAINS else 'group'} {'.'.join(map(str, digits))}"

    def level_title(self, level: int) -> str:
        """Return the name of a level's row of switches in the drawing."""
        return {DOMAINS: "domains", RAILS: "rails"}.get(level, f"level {level}")

    def switch_label(self, switch: int) -> str:
        """Return ``domain 1`` or ``rail 3``, with the digits that the servers of a switch share."""
        level, digits = self.switch_place(switch)
        name = {DOMAINS: "domain", RAILS: "rail"}.get(level, f"level-{level} rail")
        return f"{name} {'.'.join(map(str, digits))}"

    def diameter_bound(self) -> Bound:
        """Return the length of the longest path: each hop corrects one digit."""
        return Bound(self.ports, "number of levels", "Guo 2009, Theorem 1, for levels of any size")

    def bisection(self) -> Bound:
        """Return no value: the paper has none, and halving a level is not always the least cut."""
        formula = "<= N / 2 (if a level has an even size)"
        return Bound(None, formula, "the structure")

    def disjoint_paths(self) -> Bound:
        """Return the number of disjoint paths: one per first digit, as in BCube."""
        return Bound(self.ports, "number of levels", "Guo 2009, Theorem 3, for levels of any size")

    def description(self) -> str:
        """Return a sentence that describes the network: domains, rails, ports."""
        domain, domains, *further = self.sizes
        more = f" in each of {self.servers // (domain * domains)} groups" if further else ""
        return (
            f"Rail-only network of {self.servers_text()}: {count_text(domains, 'domain')} of "
            f"{count_text(domain, 'server')}{more}; each server has {self.ports} ports, one to its "
            f"domain and one {'per level of rails' if further else 'to its rail'}."
        )
