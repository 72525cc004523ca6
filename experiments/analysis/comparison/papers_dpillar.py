"""Liao 2012: Table 1 (budgets), Table 2 (networks compared), section 2.6 (wrapped butterfly)."""

from __future__ import annotations

import math

from experiments.analysis.comparison.bisection import bisection
from experiments.analysis.comparison.measure import contrast
from experiments.analysis.comparison.papers import Check, Table, formula, number
from experiments.analysis.comparison.paths import disjoint_paths
from experiments.analysis.comparison.prices import LIAO, bill
from topos.base.spec import parse
from topos.base.topology import Topology
from topos.structures.butterflies import wrapped_columns

# Switch ports: number of servers, total networking cost, cost per server, as printed.
BUDGETS = {
    8: ("1024", "14,848", "14.5"),
    16: ("16,384", "339,968", "20.8"),
    24: ("82,944", "1,410,048", "17"),
    48: ("1,327,104", "35,831,808", "27"),
}


def table_1() -> Table:
    """Budgets of DPillars with four columns."""
    checks = []
    for ports, (servers, total, each) in BUDGETS.items():
        topology = parse(f"dpillar,{ports},4")
        cost = bill(topology, LIAO).network_usd
        assert cost is not None
        spec = topology.spec
        checks += [
            number(f"{spec} servers", servers, topology.servers),
            number(f"{spec} network, $", total, cost),
            number(f"{spec} $ per server", each, cost / topology.servers),
        ]
    return Table("DPillar, Table 1: cost of four columns", LIAO.source, checks)


def table_2(seconds: float) -> Table:
    """Formulas of five networks, each evaluated for a small one."""
    checks = [
        *_dcell(parse("dcell,4,1"), seconds),
        *_ficonn(parse("ficonn,8,1"), seconds),
        *_bcube(parse("bcube,4,1"), seconds),
        *_fattree(parse("fattree,4"), seconds),
        *_dpillar(parse("dpillar,4,3"), seconds),
        *_larger(seconds),
    ]
    return Table("DPillar, Table 2: networks compared", "Liao 2012, Table 2", checks)


def _common(topology: Topology, degree: str, each: str, factor: float, paths: str) -> list[Check]:
    """Return the rows that read alike: degree, switch cost per server, disjoint paths."""
    level = topology.ports
    spec, n = topology.spec, topology.switch_ports
    cost = topology.switches * n / topology.servers
    printed = {"l + 1": level, "1": 1, "2": 2, "n / 2": n / 2}
    found = disjoint_paths(topology).least
    return [
        formula(f"{spec} server degree", degree, printed[degree], topology.ports),
        formula(f"{spec} cost per server, U_s/n", each, factor, cost),
        formula(f"{spec} disjoint paths", paths, printed[paths], found),
    ]


def _dcell(topology: Topology, seconds: float) -> list[Check]:
    spec, servers, n = topology.spec, topology.servers, topology.switch_ports
    level = topology.parameters["k"]
    bound = servers / (4 * math.log(servers, n))
    width = bisection(topology, seconds).exact
    return [
        *_common(topology, "l + 1", "1", 1, "l + 1"),
        formula(
            f"{spec} bisection",
            "N / (4 log_n N)",
            bound,
            width,
            reason="a lower bound (Guo 2008, Theorem 2)",
        ),
        formula(
            f"{spec} servers",
            "(n+1)^(2^l)",
            (n + 1) ** 2**level,
            servers,
            reason="an upper bound (Guo 2008, Theorem 1)",
        ),
        formula(f"{spec} switches", "N / n", servers / n, topology.switches),
    ]


def _ficonn(topology: Topology, seconds: float) -> list[Check]:
    spec, servers, n = topology.spec, topology.servers, topology.switch_ports
    level = topology.parameters["k"]
    return [
        *_common(topology, "2", "1", 1, "1"),
        formula(
            f"{spec} bisection",
            "N / (4 * 2^l)",
            servers / (4 * 2**level),
            bisection(topology, seconds).exact,
            reason="a lower bound (Li 2009, Theorem 5)",
        ),
        formula(
            f"{spec} servers",
            "2^(l+2) (n/4)^(2^l)",
            2 ** (level + 2) * (n / 4) ** 2**level,
            servers,
            reason="a lower bound (Li 2009, Theorem 1)",
        ),
        formula(f"{spec} switches", "N / n", servers / n, topology.switches),
    ]


def _bcube(topology: Topology, seconds: float) -> list[Check]:
    spec, servers, n = topology.spec, topology.servers, topology.switch_ports
    levels = topology.parameters["k"] + 1
    return [
        *_common(topology, "l + 1", "l + 1", levels, "l + 1"),
        formula(f"{spec} bisection", "N / 2", servers / 2, bisection(topology, seconds).exact),
        formula(f"{spec} servers", "n^(l+1)", n**levels, servers),
        formula(f"{spec} switches", "(l+1) N / n", levels * servers / n, topology.switches),
    ]


def _fattree(topology: Topology, seconds: float) -> list[Check]:
    spec, servers, n = topology.spec, topology.servers, topology.switch_ports
    return [
        *_common(topology, "1", "5", 5, "1"),
        formula(f"{spec} bisection", "N / 2", servers / 2, bisection(topology, seconds).exact),
        formula(f"{spec} servers", "n^3 / 4", n**3 / 4, servers),
        formula(
            f"{spec} switches",
            "6 N / n",
            6 * servers / n,
            topology.switches,
            reason="the table's own cost line, and Al-Fares 2008, give 5 N / n",
        ),
    ]


def _dpillar(topology: Topology, seconds: float) -> list[Check]:
    spec, servers, n = topology.spec, topology.servers, topology.switch_ports
    k = topology.parameters["k"]
    return [
        *_common(topology, "2", "2", 2, "n / 2"),
        formula(f"{spec} bisection", "N / k", servers / k, bisection(topology, seconds).exact),
        formula(f"{spec} servers", "k (n/2)^k", k * (n / 2) ** k, servers),
        formula(
            f"{spec} switches",
            "k N / n",
            k * servers / n,
            topology.switches,
            reason="section 2.5 and the table's own cost line give 2 N / n (the same for k = 2)",
        ),
    ]


def _larger(seconds: float) -> list[Check]:
    """Return what only shows with more ports than the small networks have."""
    pillar, cube, paths = parse("dpillar,16,2"), parse("bcube,8,1"), parse("dpillar,8,2")
    corner = "cutting a corner off two symbols takes fewer cables than halving one"
    return [
        formula(
            f"{cube.spec} bisection",
            "N / 2",
            cube.servers / 2,
            bisection(cube, seconds).exact,
            reason=corner,
        ),
        formula(
            f"{pillar.spec} bisection",
            "N / k",
            pillar.servers / pillar.parameters["k"],
            bisection(pillar, seconds).exact,
            reason=f"{corner} (against Proposition 2.3)",
        ),
        formula(
            f"{paths.spec} disjoint paths",
            "n / 2",
            paths.switch_ports / 2,
            disjoint_paths(paths).least,
            reason="the paper lets paths share s's first and d's last switch; strictly disjoint "
            "paths are no more than a server's ports",
        ),
    ]


def butterfly() -> Table:
    """The contrast with the wrapped butterfly, for as many servers as nodes."""
    reason = "k' 2^k' = N solved; the paper's approximation drops log(k'/k)"
    checks = []
    for spec in ("dpillar,8,2", "dpillar,48,3", "dpillar,48,5"):
        topology = parse(spec)
        k, n = topology.parameters["k"], topology.switch_ports
        ports = contrast(topology).butterfly.degree / topology.ports
        ratio = wrapped_columns(topology.servers) / k
        words = "about log2(n) - 1"
        checks += [
            formula(f"{spec} butterfly's ports over DPillar's", "4 / 2", 2, ports),
            formula(
                f"{spec} k'/k: diameters, bisections", words, math.log2(n) - 1, ratio, reason=reason
            ),
        ]
    return Table("DPillar against the wrapped butterfly", "Liao 2012, section 2.6", checks)
