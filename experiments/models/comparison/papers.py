"""The papers' tables: Liao 2012, Tables 1, 2 and section 2.6; Guo 2009, 1 and 2; Guo 2008, 3.

Only values printed in a paper are typed in; the values compared with them are computed from the
networks and structures. A row of formulas consists of its subject, the printed formula, its value,
our value and, where they need not be equal, their relation and its reason. Where the print is
wrong, an erratum has the value that follows from its derivation in docs/errata.md. A formula that a
paper proves as a bound counts as that bound in every table that prints it, whether or not the table
says so. `seconds` limits the time for each exact bisection width.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pillarbox.experiments.models.comparison import speedups
from pillarbox.experiments.models.comparison.bisection import bisection
from pillarbox.experiments.models.comparison.network_measures import butterfly_comparison
from pillarbox.experiments.models.comparison.path_metrics import (
    diameter,
    disjoint_paths,
    link_loads,
)
from pillarbox.experiments.models.comparison.prices import GUO, LIAO, network_bill
from pillarbox.experiments.models.comparison.table_checks import (
    AT_LEAST,
    AT_MOST,
    EQUAL,
    Erratum,
    Formula,
    PaperTable,
    TableCheck,
    formula_checks,
    number_check,
)
from pillarbox.experiments.models.comparison.tabulated import table_cell_check, table_row_checks
from pillarbox.experiments.models.workloads.distribution_plan import nearest_servers
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology
from pillarbox.topos.dcell import DCell
from pillarbox.topos.structures.butterflies import wrapped_columns


def checked_paper_tables(seconds: float) -> list[PaperTable]:
    """Return the checks of all papers' tables."""
    every = (
        check_dpillar_table_1,
        check_dpillar_table_2,
        check_butterfly_comparison,
        check_bcube_table_1,
        check_bcube_table_2,
        check_dcell_table_3,
    )
    return [table(seconds) for table in every]


# -- Liao 2012 -------------------------------------------------------------------------------------

# Switch ports: number of servers, total networking cost, cost per server, as printed.
BUDGETS = {
    8: ("1024", "14,848", "14.5"),
    16: ("16,384", "339,968", "20.8"),
    24: ("82,944", "1,410,048", "17"),
    48: ("1,327,104", "35,831,808", "27"),
}


def check_dpillar_table_1(_: float = 0.0) -> PaperTable:
    """Check Liao 2012, Table 1: cost of DPillars with four columns."""
    checks = []
    for ports, (servers, total, each) in BUDGETS.items():
        topology = parse(f"dpillar,{ports},4")
        cost = network_bill(topology, LIAO).network_usd
        assert cost is not None
        spec = topology.spec
        checks += [
            number_check(f"{spec} servers", servers, topology.servers),
            number_check(f"{spec} network, $", total, cost),
            number_check(f"{spec} $ per server", each, cost / topology.servers),
        ]
    return PaperTable("DPillar, Table 1: cost of four columns", LIAO.source, checks)


def check_dpillar_table_2(seconds: float) -> PaperTable:
    """Check Liao 2012, Table 2: formulas of five networks, each evaluated for a small one."""

    def bisection_width(topology: Topology) -> int | None:
        return bisection(topology, seconds).exact

    def disjoint_path_count(topology: Topology) -> int | None:
        return disjoint_paths(topology).least

    def rows(
        own: Topology,
        degree: tuple[str, float],
        cost: tuple[str, float],
        paths: tuple[str, float],
        across: Formula,
        servers: Formula,
        switches: Formula,
    ) -> list[TableCheck]:
        """Return the checks of one network's printed formulas in Liao 2012, Table 2."""
        each = own.switches * own.switch_ports / own.servers
        return formula_checks(
            own.spec,
            ("server degree", *degree, own.ports),
            ("cost per server, U_s/n", *cost, each),
            ("disjoint paths", *paths, disjoint_path_count(own)),
            ("bisection", *across[:2], bisection_width(own), *across[2:]),
            ("servers", *servers[:2], own.servers, *servers[2:]),
            ("switches", *switches[:2], own.switches, *switches[2:]),
        )

    dcell, ficonn, bcube = parse("dcell,4,1"), parse("ficonn,8,1"), parse("bcube,4,1")
    fattree, dpillar = parse("fattree,4"), parse("dpillar,4,3")
    levels, wires = ("l + 1", 2), dcell.servers / (4 * math.log(dcell.servers, 4))
    checks = rows(
        dcell,
        levels,
        ("1", 1),
        levels,
        ("N / (4 log_n N)", wires, AT_LEAST, "a lower bound (Guo 2008, Theorem 2)"),
        ("(n+1)^(2^l)", (4 + 1) ** 2**1, AT_MOST, "an upper bound (Guo 2008, Theorem 1)"),
        ("N / n", dcell.servers / 4),
    )
    checks += rows(
        ficonn,
        ("2", 2),
        ("1", 1),
        ("1", 1),
        (
            "N / (4 * 2^l)",
            ficonn.servers / (4 * 2**1),
            AT_LEAST,
            "a lower bound (Li 2009, Theorem 5)",
        ),
        (
            "2^(l+2) (n/4)^(2^l)",
            2**3 * (8 / 4) ** 2**1,
            AT_LEAST,
            "a lower bound (Li 2009, Theorem 1)",
        ),
        ("N / n", ficonn.servers / 8),
    )
    checks += rows(
        bcube,
        levels,
        levels,
        levels,
        ("N / 2", bcube.servers / 2),
        ("n^(l+1)", 4**2),
        ("(l+1) N / n", 2 * bcube.servers / 4),
    )
    six = "the table's own cost line, and Al-Fares 2008, give 5 N / n"
    checks += rows(
        fattree,
        ("1", 1),
        ("5", 5),
        ("1", 1),
        ("N / 2", fattree.servers / 2),
        ("n^3 / 4", 4**3 / 4),
        (
            *("6 N / n", 6 * fattree.servers / 4, EQUAL, six),
            Erratum("Switches of the fat-tree (Liao 2012, Table 2)", 5 * fattree.servers / 4),
        ),
    )
    k_n = "section 2.5 and the table's own cost line give 2 N / n (the same for k = 2)"
    checks += rows(
        dpillar,
        ("2", 2),
        ("2", 2),
        ("n / 2", 4 / 2),
        ("N / k", dpillar.servers / 3),
        ("k (n/2)^k", 3 * (4 / 2) ** 3),
        (
            *("k N / n", 3 * dpillar.servers / 4, EQUAL, k_n),
            Erratum("Switches of DPillar (Liao 2012, Table 2)", 2 * dpillar.servers / 4),
        ),
    )
    # Rows of larger networks: differences from the paper that appear only with more ports.
    corner = "cutting a corner off two symbols takes fewer cables than halving one"
    against = f"{corner} (against Proposition 2.3)"
    shared = (
        "the paper lets paths share s's first and d's last switch; strictly disjoint paths are no "
        "more than a server's ports"
    )
    bcube, dpillar, wide = parse("bcube,8,1"), parse("dpillar,16,2"), parse("dpillar,8,2")
    for own, words, why, entry, right in (
        (bcube, "N / 2", corner, "Bisection width of BCube (Liao 2012, Table 2)", 28),
        (
            *(dpillar, "N / k", against),
            "Bisection width of DPillar (Liao 2012, Proposition 2.3 and Table 2)",
            56,
        ),
    ):
        printed, erratum = own.servers / 2, Erratum(entry, right)
        row = "bisection", words, printed, bisection_width(own), EQUAL, why, erratum
        checks += formula_checks(own.spec, row)
    ports = Erratum("Disjoint paths of DPillar (Liao 2012, Table 2)", wide.ports)
    paths = "n / 2", 8 / 2, disjoint_path_count(wide), EQUAL, shared, ports
    checks += formula_checks(wide.spec, ("disjoint paths", *paths))
    return PaperTable("DPillar, Table 2: networks compared", "Liao 2012, Table 2", checks)


def check_butterfly_comparison(_: float = 0.0) -> PaperTable:
    """Compare DPillar with the wrapped butterfly of as many nodes (Liao 2012)."""
    reason = "k' 2^k' = N solved; the paper's approximation drops log(k'/k)"
    checks = []
    for spec in ("dpillar,8,2", "dpillar,48,3", "dpillar,48,5"):
        topology = parse(spec)
        ports = butterfly_comparison(topology).butterfly.degree / topology.ports
        ratio = wrapped_columns(topology.servers) / topology.parameters["k"]
        near = math.log2(topology.switch_ports) - 1
        words = "k'/k: diameters, bisections", "about log2(n) - 1"
        checks += formula_checks(
            spec,
            ("butterfly's ports over DPillar's", "4 / 2", 2, ports),
            (*words, near, ratio, EQUAL, reason),
        )
    return PaperTable("DPillar against the wrapped butterfly", "Liao 2012, section 2.6", checks)


# -- Guo 2009 --------------------------------------------------------------------------------------


def aggregate_bottleneck_throughput(topology: Topology) -> float:
    """Return the aggregate bottleneck throughput in links: all flows at the rate of the slowest
    one.

    Flows are split evenly over the paths of fewest cables.

    >>> round(aggregate_bottleneck_throughput(parse("bcube,4,1")), 6)
    20.0
    """
    flows = topology.servers * (topology.servers - 1)
    return round(float(flows / link_loads(topology).max()), 9)


SEVERAL = 2  # receivers of a distributed file: as many as a server of these networks has ports


def check_bcube_table_1(_: float = 0.0) -> PaperTable:
    """Check Guo 2009, Table 1: speed-ups and throughput of each structure on its own paths."""

    def rows(
        own: Topology, times: tuple[str, float], to_all: str, *others: Formula
    ) -> list[TableCheck]:
        """Return the checks of a structure's row of Guo 2009, Table 1: speed-ups and wires."""
        (rate, rate_value, *related), wires = others
        several = speedups.speedup_of_file_distribution(
            own, nearest_servers(own, speedups.SOURCE, SEVERAL)
        )
        everybody = [server for server in range(own.servers) if server != speedups.SOURCE]
        if isinstance(own, DCell):
            # The DCell paper sends different data to each server, and has no trees to all.
            several = speedups.speedup_to_groups(own, "dcell")
            best = "the best trees of all, by a linear program"
            held: Formula = (speedups.best_speedup_to_all(own), AT_MOST, best)
        else:
            held = (speedups.speedup_of_file_distribution(own, everybody),)
        return formula_checks(
            own.spec,
            ("one-to-one", *times, speedups.speedup_to_one(own)),
            ("one-to-several", *times, several),
            ("one-to-all", to_all, times[1], *held),
            ("all-to-all (ABT)", rate, rate_value, aggregate_bottleneck_throughput(own), *related),
            ("wires", *wires, own.cables),
        )

    def wires_by_layers(own: Topology) -> Formula:
        return "N log2(N/2)", own.servers * math.log2(own.servers / 2)

    def even(own: Topology, n: int) -> Formula:
        return "n (N-1) / (n-1)", n * (own.servers - 1) / (n - 1)

    tree, fattree, wide = parse("tree,8,8"), parse("fattree,4,levels=5"), parse("fattree,8")
    dcell, bcube = parse("dcell,4,1"), parse("bcube,4,1")
    root = "the paper counts the root's capacity alone; flows inside a leaf do not need it"
    ports = "log2(N/2) layers are those of 4-port switches; with n ports log_(n/2)(N/2)"
    bound = "N / 2^k'", dcell.servers / 2**1, AT_LEAST, "a lower bound (Guo 2008, Theorem 5)"
    # Of 64 servers 8 share a leaf's cable to the root: it carries 8 x 56 of the 64 x 63 flows.
    of_root = Erratum(
        "Aggregate bottleneck throughput of the tree (Guo 2009, Table 1)", 64 * 63 / (8 * 56)
    )
    of_layers = Erratum(
        "Wires of the fat-tree (Guo 2009, Table 1)", wide.servers * math.log(wide.servers / 2, 4)
    )
    checks = [
        *rows(tree, ("1", 1), "1", ("n", 8, EQUAL, root, of_root), even(tree, 8)),
        *rows(fattree, ("1", 1), "1", ("N", fattree.servers), wires_by_layers(fattree)),
        *formula_checks(
            wide.spec, ("wires", *wires_by_layers(wide), wide.cables, EQUAL, ports, of_layers)
        ),
        *rows(
            dcell,
            ("k' + 1", 2),
            "<= k' + 1",
            bound,
            ("(k'/2 + 1) N", (1 / 2 + 1) * dcell.servers),
        ),
        *rows(bcube, ("k + 1", 2), "k + 1", even(bcube, 4), ("N log_n N", bcube.servers * 2)),
    ]
    title = "BCube, Table 1: performance (speed-ups of traffic over each network's own paths)"
    return PaperTable(title, "Guo 2009, Table 1", checks)


# As printed: cost of switches, NICs and all in k$, their power in kW, wires, and (from the text
# around the table) the number of switches.
CONTAINER = {
    "tree,48,43,servers=2048": ("55", "10", "4161", "4.4", "10", "424", "2091", "44"),
    "fattree,8,levels=5": ("92", "10", "4198", "10", "10", "430", "10240", "2304"),
    "dcell,8,2,servers=2048": ("10", "41", "4147", "1.2", "20", "431", "3468", "256"),
    "bcube,8,3,servers=2048": ("51", "41", "4188", "5.8", "20", "435", "8192", "1280"),
}
COLUMNS = (
    *(f"{what}, {unit}" for unit in ("k$", "kW") for what in ("switches", "NICs", "total")),
    *("wires", "switches"),
)
ERRATA = {
    ("tree,48,43,servers=2048", COLUMNS[3]): (
        "44 x 103 W = 4.53 kW; the print's 4.4 is that of 43",
        Erratum("Power of the tree's switches (Guo 2009, Table 2)", 44 * 103 / 1000),
    ),
}


def check_bcube_table_2(_: float = 0.0) -> PaperTable:
    """Check Guo 2009, Table 2: cost, power and wires of a container."""
    # Guo 2009 gives a 48-port switch 48 servers and an uplink.
    prices = replace(
        GUO,
        switch_usd={**GUO.switch_usd, 49: GUO.switch_usd[48]},
        switch_w={**GUO.switch_w, 49: GUO.switch_w[48]},
    )
    checks = []
    for spec, printed in CONTAINER.items():
        topology = parse(spec)
        cost = network_bill(topology, prices)
        parts = (cost.switches_usd, cost.nics_usd, cost.total_usd)
        powers = (cost.switches_w, cost.nics_w, cost.total_w)
        thousands = [(value or 0) / 1000 for value in (*parts, *powers)]
        ours = [*thousands, topology.cables, topology.switches]
        for what, paper, value in zip(COLUMNS, printed, ours, strict=True):
            wrong = ERRATA.get((spec, what), ("", None))
            checks.append(number_check(f"{topology.title}: {what}", paper, value, *wrong))
    return PaperTable("BCube, Table 2: a container of 2048 servers", GUO.source, checks)


# -- Guo 2008 --------------------------------------------------------------------------------------

# In the table's order; all have 64 nodes except the butterfly, whose nearest size is 80.
STRUCTURES = (
    *("fullmesh,64", "ring,64", "torus,8", "tree,64,5"),
    *("fattree,64", "hypercube,6", "butterfly,4", "debruijn,4,3"),
)


def check_dcell_table_3(seconds: float) -> PaperTable:
    """Check Guo 2008, Table 3: degree, diameter, bisection and bottleneck degree of structures."""
    checks = [check for spec in STRUCTURES for check in table_row_checks(spec)]
    # Trees of other sizes, for which the formulas hold that do not fit the first tree.
    checks += [
        table_cell_check("tree,64,3", "bisection"),
        table_cell_check("tree,80,5", "bottleneck"),
    ]
    dcell = parse("dcell,4,1")
    servers, log = dcell.servers, math.log(dcell.servers, 4)
    busiest = round(float(link_loads(dcell).max()), 9)
    width = bisection(dcell, seconds).exact
    lower = AT_LEAST, "a lower bound (section 3.3)"
    checks += formula_checks(
        dcell.spec,
        ("degree", "k + 1", 2, dcell.ports),
        ("diameter", "< 2 log_n N - 1", 2 * log - 1, diameter(dcell).value, AT_MOST),
        ("bisection", "N / (4 log_n N)", servers / (4 * log), width, *lower),
        ("bottleneck", "< N log_n N", servers * log, busiest, AT_MOST),
    )
    return PaperTable("DCell, Table 3: structures compared", "Guo 2008, Table 3", checks)
