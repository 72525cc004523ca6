"""Cost and power of a network, at the papers' list prices or the user's.

There are two lists: Liao 2012, Table 1 (four switches and the cable; servers have two ports on
board) and Guo 2009, Table 2 (two switches, network cards, servers, and power). A device has the
smallest listed number of ports that suffices.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy

from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

ANY_SIZE = 2**32  # number of ports of a device whose price the user gave for any size


@dataclass(frozen=True)
class PriceList:
    """Unit prices in dollars and power in watts, by number of ports."""

    source: str
    switch_usd: dict[int, float]
    nic_usd: dict[int, float]
    cable_usd: float = 0.0
    server_usd: float = 2000.0
    switch_w: dict[int, float] = field(default_factory=dict)
    nic_w: dict[int, float] = field(default_factory=dict)
    server_w: float = 200.0


GUO = PriceList(
    source="Guo 2009, Table 2",
    switch_usd={8: 40.0, 48: 1250.0},
    nic_usd={1: 5.0, 4: 20.0},
    switch_w={8: 4.5, 48: 103.0},
    nic_w={1: 5.0, 4: 10.0},
)
# Servers have two ports on board (Liao 2012, section 2.5). Prices missing in Liao 2012 are Guo's.
LIAO = replace(
    GUO,
    source="Liao 2012, Table 1",
    switch_usd={8: 50.0, 16: 150.0, 24: 180.0, 48: 600.0},
    nic_usd={2: 0.0, 4: 20.0},
    cable_usd=1.0,
)
LISTS = {"liao2012": LIAO, "guo2009": GUO}


@dataclass(frozen=True)
class Bill:
    """A network's costs in dollars and power in watts; None if the price list lacks a device."""

    switches_usd: float | None
    cables_usd: float
    nics_usd: float | None
    servers_usd: float
    switches_w: float | None
    nics_w: float | None
    servers_w: float
    remarks: list[str]

    @property
    def network_usd(self) -> float | None:
        """Cost of switches and cables, as Liao 2012 counts it."""
        return _sum_or_none(self.switches_usd, self.cables_usd)

    @property
    def total_usd(self) -> float | None:
        """Cost of switches, cables, network cards and servers."""
        return _sum_or_none(self.switches_usd, self.cables_usd, self.nics_usd, self.servers_usd)

    @property
    def total_w(self) -> float | None:
        """Power of switches, network cards and servers."""
        return _sum_or_none(self.switches_w, self.nics_w, self.servers_w)


def _sum_or_none(*parts: float | None) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def network_bill(topology: Topology, prices: PriceList) -> Bill:
    """Return the cost and power of the network.

    A level's price factor multiplies the price of its cables, and its ports' share of the price of
    switches and network cards.
    """
    cables, server_share, switch_share = _price_factors(topology)
    remarks: list[str] = []

    def listed_price(table: dict[int, float], ports: int, what: str, option: str) -> float | None:
        if not ports:  # a network without switches
            return 0.0
        fitting = [size for size in table if size >= ports]
        if not fitting:
            largest = f"ends at {max(table)}" if table else "is empty"
            remarks.append(
                f"the list of {what} {largest} and {ports} ports are needed: give "
                f"{option} {ports}=NUMBER"
            )
            return None
        if min(fitting) > ports:
            used = "any size" if min(fitting) == ANY_SIZE else f"{min(fitting)} ports"
            remarks.append(f"{what} for {used} are used for {ports} ports")
        return table[min(fitting)]

    def cost_of_units(count: float, each: float | None) -> float | None:
        return None if each is None else count * each

    card, wide = topology.ports, topology.switch_ports
    return Bill(
        cost_of_units(
            topology.switches * switch_share,
            listed_price(prices.switch_usd, wide, "switch prices", "--switch-price"),
        ),
        cables * prices.cable_usd,
        cost_of_units(
            topology.servers * server_share,
            listed_price(prices.nic_usd, card, "NIC prices", "--nic-price"),
        ),
        topology.servers * prices.server_usd,
        cost_of_units(
            topology.switches,
            listed_price(prices.switch_w, wide, "switch powers", "--switch-power"),
        ),
        cost_of_units(
            topology.servers, listed_price(prices.nic_w, card, "NIC powers", "--nic-power")
        ),
        topology.servers * prices.server_w,
        remarks,
    )


def _price_factors(topology: Topology) -> tuple[float, float, float]:
    """Return the sum of all cables' price factors, and the mean of servers' and switches' ports'.

    Ports without a cable have the factor 1.
    """
    factors = topology.factors.prices
    if not factors:
        return topology.cables, 1, 1
    cables = topology.cable_arrays()
    of_cables = numpy.array(factors, numpy.float64)[cables.level]
    found = [float(of_cables.sum())]
    ends = numpy.concatenate([cables.a, cables.b])
    surplus = numpy.tile(of_cables - 1, 2)
    for chosen, ports in (
        (ends < topology.servers, topology.servers * topology.ports),
        (ends >= topology.servers, topology.switches * topology.switch_ports),
    ):
        found.append(1 + float(surplus[chosen].sum()) / max(ports, 1))
    total, servers, switches = found
    return total, servers, switches


def updated_price_table(
    table: dict[int, float], entries: tuple[str, ...], option: str
) -> dict[int, float]:
    """Return a price table updated with ``PORTS=NUMBER`` entries (``NUMBER``: any port count).

    >>> updated_price_table({8: 40.0}, ("64=900",), "--switch-price")
    {8: 40.0, 64: 900.0}
    """
    for entry in entries:
        ports, equals, number = entry.rpartition("=")
        value = _parsed_number(number)
        require(
            value is not None and (not equals or (ports.isascii() and ports.isdecimal())),
            f"{option} {entry}: write PORTS=NUMBER such as 64=900, or NUMBER alone for all sizes",
        )
        assert value is not None
        table = {**table, int(ports): value} if equals else {ANY_SIZE: value}
    return table


def _parsed_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
