"""Guo 2009: Table 1 (performance) and Table 2 (cost, power and wires of 2048 servers)."""

from __future__ import annotations

import math
from dataclasses import replace

from experiments.analysis.comparison.papers import AT_LEAST, AT_MOST, Check, Table, formula, number
from experiments.analysis.comparison.paths import link_loads
from experiments.analysis.comparison.prices import GUO, bill
from topos.base.spec import parse
from topos.base.topology import Topology


def throughput(topology: Topology) -> float:
    """Return the aggregate bottleneck throughput in links: all flows at the slowest one's rate.

    Flows are split evenly over the paths of fewest cables.

    >>> round(throughput(parse("bcube,4,1")), 6)
    20.0
    """
    flows = topology.servers * (topology.servers - 1)
    return round(float(flows / link_loads(topology).max()), 9)


def table_1() -> Table:
    """What the structure alone decides of the table's formulas."""
    checks = [
        *_tree(parse("tree,8,8")),
        *_fattree(parse("fattree,4,levels=5")),
        *_dcell(parse("dcell,4,1")),
        *_bcube(parse("bcube,4,1")),
    ]
    title = "BCube, Table 1: performance (speed-ups are bounded by a server's ports)"
    return Table(title, "Guo 2009, Table 1", checks)


def _speedups(topology: Topology, words: str, value: int, to_all: str = "") -> list[Check]:
    spec, ports = topology.spec, topology.ports
    return [
        formula(f"{spec} one-to-one", words, value, ports),
        formula(f"{spec} one-to-several", words, value, ports),
        formula(f"{spec} one-to-all", to_all or words, value, ports, AT_MOST),
    ]


def _tree(topology: Topology) -> list[Check]:
    spec, n, servers = topology.spec, topology.parameters["n"], topology.servers
    wires = n * (servers - 1) / (n - 1)
    reason = "the paper counts the root's capacity alone; flows inside a leaf do not need it"
    return [
        *_speedups(topology, "1", 1),
        formula(f"{spec} all-to-all (ABT)", "n", n, throughput(topology), reason=reason),
        formula(f"{spec} wires", "n (N-1) / (n-1)", wires, topology.cables),
    ]


def _fattree(topology: Topology) -> list[Check]:
    spec, servers = topology.spec, topology.servers
    wide = parse("fattree,8")
    reason = "log2(N/2) layers are those of 4-port switches; with n ports log_(n/2)(N/2)"
    return [
        *_speedups(topology, "1", 1),
        formula(f"{spec} all-to-all (ABT)", "N", servers, throughput(topology)),
        formula(f"{spec} wires", "N log2(N/2)", servers * math.log2(servers / 2), topology.cables),
        formula(
            f"{wide.spec} wires",
            "N log2(N/2)",
            wide.servers * math.log2(wide.servers / 2),
            wide.cables,
            reason=reason,
        ),
    ]


def _dcell(topology: Topology) -> list[Check]:
    spec, servers, k = topology.spec, topology.servers, topology.parameters["k"]
    return [
        *_speedups(topology, "k' + 1", k + 1, "<= k' + 1"),
        formula(
            f"{spec} all-to-all (ABT)",
            "N / 2^k'",
            servers / 2**k,
            throughput(topology),
            AT_LEAST,
            "a lower bound (Guo 2008, Theorem 5)",
        ),
        formula(f"{spec} wires", "(k'/2 + 1) N", (k / 2 + 1) * servers, topology.cables),
    ]


def _bcube(topology: Topology) -> list[Check]:
    spec, n, servers = topology.spec, topology.parameters["n"], topology.servers
    k = topology.parameters["k"]
    rate = n * (servers - 1) / (n - 1)
    wires = servers * round(math.log(servers, n), 9)
    return [
        *_speedups(topology, "k + 1", k + 1),
        formula(f"{spec} all-to-all (ABT)", "n (N-1) / (n-1)", rate, throughput(topology)),
        formula(f"{spec} wires", "N log_n N", wires, topology.cables),
    ]


# As printed: cost in k$ of switches, NICs, total; power in kW of the same; wires; and switches of
# the text around the table.
CONTAINER = {
    "tree,48,43,servers=2048": ("55", "10", "4161", "4.4", "10", "424", "2091", "44"),
    "fattree,8,levels=5": ("92", "10", "4198", "10", "10", "430", "10240", "2304"),
    "dcell,8,2,servers=2048": ("10", "41", "4147", "1.2", "20", "431", "3468", "256"),
    "bcube,8,3,servers=2048": ("51", "41", "4188", "5.8", "20", "435", "8192", "1280"),
}
COLUMNS = (
    "switches, k$",
    "NICs, k$",
    "total, k$",
    "switches, kW",
    "NICs, kW",
    "total, kW",
    "wires",
    "switches",
)
REASONS = {
    (
        "tree,48,43,servers=2048",
        "switches, kW",
    ): "44 x 103 W = 4.53 kW; the print's 4.4 is that of 43"
}


def table_2() -> Table:
    """Cost, power and wires of a container."""
    # Guo 2009 lets a 48-port switch have 48 servers and an uplink.
    prices = replace(
        GUO,
        switch_usd={**GUO.switch_usd, 49: GUO.switch_usd[48]},
        switch_w={**GUO.switch_w, 49: GUO.switch_w[48]},
    )
    checks = []
    for spec, printed in CONTAINER.items():
        topology = parse(spec)
        cost = bill(topology, prices)
        parts = (cost.switches_usd, cost.nics_usd, cost.total_usd)
        powers = (cost.switches_w, cost.nics_w, cost.total_w)
        thousands = [(value or 0) / 1000 for value in (*parts, *powers)]
        ours = [*thousands, topology.cables, topology.switches]
        for what, paper, value in zip(COLUMNS, printed, ours, strict=True):
            reason = REASONS.get((spec, what), "")
            checks.append(number(f"{topology.title}: {what}", paper, value, reason))
    return Table("BCube, Table 2: a container of 2048 servers", GUO.source, checks)
