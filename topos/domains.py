"""Scale-up domains with rails below a spine: the baseline of Rail-only (arXiv 2307.12169).

Rail-only compares itself with GPU clusters whose rails a Clos network joins (Fig. 1 of the paper).
D domains of G servers (GPUs) each: server d.g has two ports. Port 0 leads to the switch of domain
d, port 1 to the leaf switch of rail g. Each leaf switch has one uplink to each of S spine switches,
so that any pair of servers communicates over switches alone::

    spine 0 .. S-1        port g to leaf g
    leaf g                ports 0 .. D-1 to servers d.g, port D + s to spine s
    domain d              ports 0 .. G-1 to servers d.g

With S = D, the default, a leaf has as many cables up as down: the spine is non-blocking.
`spines=` takes fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pillarbox.topos.base.errors import require
from pillarbox.topos.base.layout import Layout, row_height
from pillarbox.topos.base.polymorphic import NOTHING, Number, select
from pillarbox.topos.base.topology import Bound, Plug, Topology

DOMAIN_LEVEL, RAIL_LEVEL, SPINE_LEVEL = 0, 1, 2


class Domains(Topology):
    """D domains of G servers each, with G rails below S spine switches (default: S = D).

    >>> domains = Domains(4, 2)
    >>> domains.servers, domains.switches, domains.cables
    (8, 8, 24)
    >>> [domains.address(peer) for peer in domains.peers(domains.server("1.2"), port=0)]
    ['1.0', '1.1', '1.3']
    """

    title = "Scale-up domains and rails below a spine"
    paper = "Wang 2023, Fig. 1"
    cell = "domain"
    examples = ("domains,4,2", "domains,3,4", "domains,2,4,spines=1")
    switches_interconnect = True

    def __init__(self, g: int, d: int, spines: int | None = None) -> None:
        require(g >= 2, f"a domain has g >= 2 servers, not {g}")
        require(d >= 2, f"domains are d >= 2, not {d}")
        self.g, self.d = g, d
        self.spines = d if spines is None else spines
        require(
            1 <= self.spines <= d,
            f"domains,{g},{d} has 1 to {d} spine switches ({d}: as many cables up as down), not "
            f"{self.spines}",
        )
        super().__init__(g=g, d=d, spines=None if self.spines == d else spines)
        self.servers = g * d
        self.switches = d + g + self.spines
        self.cables = 2 * self.servers + g * self.spines
        self.ports = 2
        self.switch_ports = max(g, d + self.spines)
        self.check_size()

    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the domain switch (port 0) or the rail's leaf switch (port 1) of a server."""
        domain, rail = server // self.g, server % self.g
        if port == 0:
            return Plug(self.servers + domain, rail, DOMAIN_LEVEL)
        return Plug(self.servers + self.d + rail, domain, RAIL_LEVEL)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return the far end of a port of a domain, leaf or spine switch (module's docstring)."""
        leaf = switch - self.d
        spine = leaf - self.g
        in_domain = Plug(switch * self.g + port if port < self.g else NOTHING, 0, DOMAIN_LEVEL)
        first_spine = self.servers + self.d + self.g
        of_leaf = (
            Plug(port * self.g + leaf, 1, RAIL_LEVEL)
            if port < self.d
            else Plug(
                first_spine + port - self.d if port < self.d + self.spines else NOTHING,
                leaf,
                SPINE_LEVEL,
            )
        )
        of_spine = Plug(
            self.servers + self.d + port if port < self.g else NOTHING,
            self.d + spine,
            SPINE_LEVEL,
        )
        ends = zip(in_domain, of_leaf, of_spine, strict=True)
        return Plug(*(select(leaf < 0, x, select(spine < 0, y, z)) for x, y, z in ends))

    def digits(self, server: Number) -> tuple[Number, ...]:
        """Return the digits of a server's address: domain, then rail."""
        return server // self.g, server % self.g

    def server_at(self, digits: Sequence[Number]) -> Any:
        """Return the server of this domain and rail."""
        return digits[0] * self.g + digits[1]

    def radices(self) -> tuple[int, ...]:
        """Return the number of values of each digit of an address: ``d, g``."""
        return self.d, self.g

    def switch_label(self, switch: int) -> str:
        """Return a switch's label: ``domain 0``, ``leaf 1`` or ``spine 0``."""
        if switch < self.d:
            return f"domain {switch}"
        leaf = switch - self.d
        return f"leaf {leaf}" if leaf < self.g else f"spine {leaf - self.g}"

    def diameter_bound(self) -> Bound:
        """Return the longest path: 1 server hop, through at most three switches."""
        return Bound(1, "1 (up to 3 switches)", "the structure")

    def bisection(self) -> Bound:
        """Return a bound without a value: it depends on the sizes of domains and spine."""
        return Bound(None, "not in the paper", "Wang 2023")

    def disjoint_paths(self) -> Bound:
        """Return a bound without a value: 2 within a domain or a rail, 1 or 2 to other servers."""
        return Bound(None, "not in the paper", "Wang 2023")

    def description(self) -> str:
        """Return a sentence that describes the network: domains, rails and spine switches."""
        return (
            f"Scale-up domains and rails of {self.servers} servers, {self.g} per domain: each "
            f"server has 2 ports, to its domain's and its rail's switch; {self.spines} spine "
            "switches."
        )

    def layout(self) -> Layout:
        """Return the drawing: domain switches below the servers, leaves and spines above."""
        pitch = self.g + 0.6
        width = self.d * pitch
        layout = Layout({}, level_names=("domains", "rails", "leaves to spines"))
        for server in range(self.servers):
            domain, rail = divmod(server, self.g)
            layout.positions[server] = (domain * pitch + rail, 0.0)
        step = row_height(width)
        node = self.servers
        rows = ((self.d, -row_height(self.g)), (self.g, step), (self.spines, 2 * step))
        for count, height in rows:
            for place in range(count):
                layout.positions[node] = ((place + 0.5) * width / count - 0.8, height)
                node += 1
        layout.name_rows(
            [(0.0, "servers"), (rows[0][1], "domains"), (step, "leaves"), (2 * step, "spines")]
        )
        return layout
