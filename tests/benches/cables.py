"""Computation of all cables of large networks, and of BCube compared with FNSS and networkx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from typing import Any

from pillarbox.experiments.lab.linux.measurement import in_child, interleaved, medians, ratios
from pillarbox.topos.base.spec import parse
from pillarbox.topos.bcube import BCube
from tests.benches._frame import Row

LARGE = ("bcube,8,6", "dcell,6,3", "dpillar,48,4", "ficonn,16,3")
SMALL = ("bcube,4,3", "dcell,4,2")
BESIDE = ((8, 3, 11), (8, 4, 7))  # BCubes to compare with other builders: n, k, rounds
BESIDE_SMALL = ((4, 2, 2),)
MOST_MIB = 1.5e9 / 2**20
LEAST_TIMES = 30
TIME_LIMIT_S = 300.0
NOTES = f"""
build_s is a median; peak_mib is the peak memory of a process that only builds, interpreter and
imports included. In the second table the builders took turns in one process; slower_times compares
them with Pillarbox in that run (goal: {LEAST_TIMES}).
The results differ in form: Pillarbox returns arrays (both ends, both ports, level), the others a
networkx graph of Python objects. right_switches_percent: percentage of switches that connect
exactly the servers that differ in one digit, as in Guo 2009, section 3.1.
"""
OURS = "pillarbox"


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each large network, then for each program that builds each BCube."""
    for spec in SMALL if quick else LARGE:
        yield _large_row(spec, quick)
    for n, k, rounds in BESIDE_SMALL if quick else BESIDE:
        yield from _builder_rows(n, k, rounds, judged=not quick)


# -- every cable -------------------------------------------------------------------------------


def _large_row(spec: str, quick: bool) -> Row:
    network = parse(spec)
    result = in_child(build_s, spec, 1 if quick else 5, time_limit_s=TIME_LIMIT_S)
    row = {"network": spec, "servers": network.servers, "cables": network.cables}
    row |= {"build_s": result.value, "per_cable_ns": None, "peak_mib": result.peak_mib}
    if result.failure:
        return row | {"outcome": f"failed: {result.failure}"}
    row["per_cable_ns"] = result.value / network.cables * 1e9
    fits = result.peak_mib is not None and result.peak_mib < MOST_MIB
    return row | {"outcome": "ok" if fits else f"missed: under {MOST_MIB:.0f} MiB wanted"}


def build_s(spec: str, rounds: int) -> float:
    """Return the median time to compute all cables of a network, in seconds."""
    network = parse(spec)
    return medians(interleaved({spec: network.cable_arrays}, rounds))[spec]


# -- other builders -----------------------------------------------------------------------------


def _builder_rows(n: int, k: int, rounds: int, *, judged: bool) -> Iterator[Row]:
    compared = in_child(compare, n, k, rounds, time_limit_s=TIME_LIMIT_S)
    for name in BUILDERS:
        row: Row = {"network": f"bcube,{n},{k}", "builder": name, "cables": None, "build_s": None}
        row |= {"per_cable_ns": None, "slower_times": None, "peak_mib": None}
        row |= {"right_switches_percent": None, "outcome": f"failed: {compared.failure}"}
        if not compared.failure:
            row |= compared.value[name]
        if row["outcome"] == "ok":
            alone = in_child(build, name, n, k, time_limit_s=TIME_LIMIT_S)
            row["peak_mib"] = alone.peak_mib
            if alone.failure:
                row["outcome"] = f"failed: {alone.failure}"
            elif name != OURS and judged:
                enough = row["slower_times"] >= LEAST_TIMES
                row["outcome"] = "ok" if enough else f"missed: {LEAST_TIMES} times wanted"
        yield row


def compare(n: int, k: int, rounds: int) -> dict[str, Row]:
    """Build a BCube by each installed library in turns; return build times by library."""
    rows: dict[str, Row] = {}
    cases = {}
    for name, builder in BUILDERS.items():
        try:
            made = builder(n, k)  # the first build is not timed: it imports and allocates
        except ImportError as error:
            rows[name] = {"outcome": f"skipped: {error}: pip install 'pillarbox[bench]'"}
            continue
        links = list(_links(made))
        right = _right_switches(n, k, links) / ((k + 1) * n**k)
        rows[name] = {"cables": len(links), "right_switches_percent": right * 100, "outcome": "ok"}
        cases[name] = partial(builder, n, k)
        del made, links
    times = medians(interleaved(cases, rounds))
    per_cable = {name: time / rows[name]["cables"] for name, time in times.items()}
    for name, ratio in ratios(per_cable, OURS).items():
        rows[name] |= {"build_s": times[name], "per_cable_ns": per_cable[name] * 1e9}
        rows[name]["slower_times"] = ratio
    return rows


def build(name: str, n: int, k: int) -> None:
    """Build a BCube once by the named library, to measure peak memory."""
    BUILDERS[name](n, k)


def _links(made: Any) -> Iterable[tuple[int, int]]:
    """Return the links (server, switch) of a built BCube, given as arrays or a graph."""
    if hasattr(made, "edges"):
        # Node numbers of servers are below those of switches.
        return (tuple(sorted(edge)) for edge in made.edges)
    return zip(made.a.tolist(), made.b.tolist(), strict=True)


def _right_switches(n: int, k: int, links: Iterable[tuple[int, int]]) -> int:
    """Return the number of switches that connect the servers of BCube's definition."""
    switches: dict[int, list[int]] = {}
    for server, switch in links:
        switches.setdefault(switch, []).append(server)
    found = Counter(frozenset(servers) for servers in switches.values())
    wanted = Counter[frozenset[int]]()
    for level in range(k + 1):
        # As the paper defines a switch: all digits except one are fixed.
        for rest in product(range(n), repeat=k):
            first = sum(d * n ** (i + (i >= level)) for i, d in enumerate(rest))
            wanted[frozenset(first + d * n**level for d in range(n))] += 1
    return (wanted & found).total()


# -- the builders ------------------------------------------------------------------------------


def _pillarbox(n: int, k: int) -> Any:
    return BCube(n, k).cable_arrays()


def _fnss(n: int, k: int) -> Any:
    from fnss.topologies.datacenter import bcube_topology

    return bcube_topology(n, k)


def networkx_loop(n: int, k: int) -> Any:
    """Return BCube as a networkx graph, built edge by edge with straightforward code.

    The graph has no attributes, which FNSS adds to its nodes and edges at a cost in time.
    """
    import networkx

    graph = networkx.Graph()
    switch = n ** (k + 1)
    for level in range(k + 1):
        weight = n**level
        for high in range(0, n ** (k + 1), n * weight):
            for low in range(weight):
                for digit in range(n):
                    graph.add_edge(high + digit * weight + low, switch)
                switch += 1
    return graph


BUILDERS: dict[str, Callable[[int, int], Any]] = {
    OURS: _pillarbox,
    "fnss": _fnss,
    "networkx loop": networkx_loop,
}
