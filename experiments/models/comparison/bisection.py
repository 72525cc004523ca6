"""Bisection width: the minimum number of cables whose removal splits the servers into two halves.

Cables count by the relative rate of their level: the width is in cables of the network's rate.
Switches may be on either side; with an odd number of servers one half has one more. The exact value
is known when a lower and an upper bound meet:

- Upper bound: cuts along one or two of the paper's digits, along the slowest eigenvector of the
  network's Laplacian, and the best solution of the integer program.
- Lower bound: all pairs of servers exchange one flow on evenly split shortest paths; floor(N/2)
  ceil(N/2) pairs are on different sides of any bisection, so it cuts at least that number divided
  by the pairs on the busiest cable (the argument of Li 2009, Theorem 5, with the real loads).
- Exact value by trying both sides for every switch, where switches are few and every cable ends
  at one.
- Otherwise integer programming (HiGHS), whose dual bound is the lower bound if time runs out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from pillarbox.experiments.models.arrays import Bools, Floats, Ints
from pillarbox.experiments.models.comparison.path_metrics import adjacency, cable_rates, link_loads
from pillarbox.topos.base.diameter import MOST_SEARCHED
from pillarbox.topos.base.topology import Topology

SWITCH_SIDES = 1 << 24  # limit of (choices of switch sides) x servers for exhaustive search
CHUNK = 1 << 12
MOST_PROGRAMMED = 100  # maximum number of servers for an integer program
MOST_CORNERS = 6  # maximum width of a tried corner (box of servers) in each address digit
ROUNDING = 1e-6


class Bisection(NamedTuple):
    """Lower and upper bound of the bisection width, in cables; None where not computed."""

    lower: int | None
    upper: int | None
    note: str

    @property
    def exact(self) -> int | None:
        """Exact bisection width if both bounds are equal, else None."""
        return self.lower if self.lower == self.upper else None

    def __str__(self) -> str:
        if self.lower is None:
            return "-"
        return f"{self.lower:,}" if self.exact is not None else f"{self.lower:,} .. {self.upper:,}"


def bisection(topology: Topology, seconds: float) -> Bisection:
    """Return bounds of a network's bisection width, equal if `seconds` suffice for a search."""
    servers = topology.servers
    if servers > MOST_SEARCHED:
        return Bisection(None, None, f"not computed: more than {MOST_SEARCHED:,} servers")
    if servers < 2:
        return Bisection(0, 0, "one server")
    lower, upper = bisection_bound_by_flows(topology), smallest_structured_cut(topology)
    note = "flows of all pairs, and cuts along digits and the slowest eigenvector"
    if lower < upper and _sides_are_few(topology):
        value = bisection_by_switch_sides(topology)
        return Bisection(value, value, "every choice of sides for the switches")
    if lower < upper and servers <= MOST_PROGRAMMED and seconds > 0:
        program = bisection_by_integer_program(topology, lower, upper, seconds)
        lower, upper = max(lower, program[0]), min(upper, program[1])
        note = f"integer program, at most {seconds:g} s"
    return Bisection(lower, upper, note)


def bisection_bound_by_flows(topology: Topology) -> int:
    """Return the bisection width's lower bound by the loads of all-to-all flows."""
    half = topology.servers // 2
    # Number of unordered pairs of servers whose traffic crosses the busiest cable.
    busiest = float((link_loads(topology).sum(axis=0) / cable_rates(topology)).max()) / 2
    return math.ceil(half * (topology.servers - half) / busiest - ROUNDING)


# -- upper bounds --------------------------------------------------------------------------------


def smallest_structured_cut(topology: Topology) -> int:
    """Return the smallest bisection, in cables, that splits certain server orders in halves.

    There are three kinds of order: by one digit first; by a corner (all servers whose digit i is
    below p, then those whose digit j is below q); and by the slowest eigenvector. Corners beat the
    papers' straight cuts where switches have 6 ports or more: a switch with few servers in a half
    costs few cables.
    """
    matrix = adjacency(topology)
    half = topology.servers // 2
    return min(cut_size(topology, matrix, order[:half]) for order in _server_orders(topology))


def _server_orders(topology: Topology) -> Iterator[Ints]:
    servers = numpy.arange(topology.servers)
    digits = [numpy.broadcast_to(d, servers.shape) for d in topology.digits(servers)]
    yield numpy.argsort(_fiedler_vector(topology), kind="stable")
    for i, digit in enumerate(digits):
        others = [*digits[:i], *digits[i + 1 :]]
        yield numpy.lexsort([*others[::-1], digit])
        # A maximum flow for each corner would take too long.
        for j in range(0 if topology.switches_interconnect else len(digits)):
            for p, q in itertools.product(_corner_widths(topology, i), _corner_widths(topology, j)):
                if i != j:
                    rank = numpy.where(digit < p, 0, numpy.where(digits[j] < q, 1, 2))
                    yield numpy.lexsort([*others[::-1], digit, rank])


def _corner_widths(topology: Topology, position: int) -> range:
    return range(1, min(topology.radices()[position] // 2, MOST_CORNERS) + 1)


def cut_size(topology: Topology, matrix: sparse.csr_matrix, half: Ints) -> int:
    """Return the cables cut between these servers and the others, with the best switch sides."""
    inside = numpy.zeros(topology.servers)
    inside[half] = 1
    if topology.switches_interconnect:
        return _cut_through_fabric(topology, matrix, inside == 1)
    cables = matrix[: topology.servers]
    ones = cables.T @ inside  # for each node: number of cables to servers of `half`
    among = cables.T @ (1 - inside)
    switches = slice(topology.servers, None)
    direct = ((1 - inside) * ones[: topology.servers]).sum()
    return int(direct + numpy.minimum(ones[switches], among[switches]).sum())


def _cut_through_fabric(topology: Topology, matrix: sparse.csr_matrix, inside: Bools) -> int:
    """Return the size of the cut where switches are interconnected: a minimum cut by max-flow."""
    source, sink = topology.nodes, topology.nodes + 1
    servers = numpy.arange(topology.servers)
    rows = numpy.where(inside, source, servers)
    columns = numpy.where(inside, servers, sink)
    cables = matrix.tocoo()
    plenty = int(cables.data.sum()) + 1
    data = numpy.concatenate([cables.data, numpy.full(len(rows), plenty)]).astype(numpy.int32)
    ends = (numpy.concatenate([cables.row, rows]), numpy.concatenate([cables.col, columns]))
    network = sparse.csr_matrix((data, ends), (topology.nodes + 2,) * 2)
    return int(sparse.csgraph.maximum_flow(network, source, sink).flow_value)


def _fiedler_vector(topology: Topology) -> Floats:
    """Return the Laplacian's eigenvector of the second smallest eigenvalue, for the servers."""
    matrix = adjacency(topology)
    laplacian = sparse.csgraph.laplacian(matrix).astype(float)
    if topology.nodes <= 500:
        vectors = numpy.linalg.eigh(laplacian.toarray())[1]
        column: Floats = vectors[: topology.servers, 1]
        return column
    # A fixed start vector gives the same result in every run.
    start = numpy.cos(numpy.arange(topology.nodes))
    shifted = 2 * laplacian.diagonal().max() * sparse.eye(topology.nodes) - laplacian
    vectors = sparse.linalg.eigsh(shifted, 2, v0=start, which="LA", tol=1e-3)[1]
    slow: Floats = vectors[: topology.servers, 0]
    return slow


# -- exact values --------------------------------------------------------------------------------


def _sides_are_few(topology: Topology) -> bool:
    direct = (topology.cable_arrays().b < topology.servers).any()
    few = topology.switches <= 24 and topology.servers << topology.switches <= 2 * SWITCH_SIDES
    return few and not direct


def bisection_by_switch_sides(topology: Topology) -> int:
    """Return the bisection width by trying every choice of sides for the switches.

    Given the sides, a server costs its cables to the other side, so the servers with the largest
    gain form the half. Only for networks without cables between servers.
    """
    matrix = adjacency(topology).toarray().astype(numpy.int32)
    servers, switches = topology.servers, topology.switches
    uplinks = matrix[:servers, servers:]
    between = numpy.triu(matrix[servers:, servers:])
    ports = uplinks.sum(axis=1)
    least = int(cable_rates(topology).sum())
    for first in range(
        0, 1 << (switches - 1), CHUNK
    ):  # the last switch stays on side 0, since swapping the sides changes nothing
        choices = numpy.arange(first, min(first + CHUNK, 1 << (switches - 1)))
        sides = (choices[:, None] >> numpy.arange(switches)) & 1
        ones = sides @ uplinks.T  # for each server: number of cables to switches on side 1
        gains = numpy.sort(ports - 2 * ones, axis=1).cumsum(axis=1)
        cut = ones.sum(axis=1)
        for i, j in zip(*between.nonzero(), strict=True):
            cut = cut + between[i, j] * (sides[:, i] != sides[:, j])
        for half in {servers // 2, servers - servers // 2}:
            least = min(least, int((cut + gains[:, half - 1]).min()))
    return least


def bisection_by_integer_program(
    topology: Topology, lower: int, upper: int, seconds: float
) -> tuple[int, int]:
    """Return the lower and upper bound of a network's bisection width by integer programming."""
    cables = topology.cable_arrays()
    a, b = cables.a.astype(numpy.int64), cables.b.astype(numpy.int64)
    return minimum_cut_bounds(
        a, b, topology.nodes, topology.servers, lower, upper, seconds, cable_rates(topology)
    )


def minimum_cut_bounds(
    a: Ints,
    b: Ints,
    nodes: int,
    halved: int,
    lower: int,
    upper: int,
    seconds: float,
    weights: Floats | None = None,
) -> tuple[int, int]:
    """Return the minimum cut's lower and upper bound by the HiGHS solver (equal if it finishes).

    `a` and `b` are the cables' ends, and the first `halved` nodes are split into halves. A binary
    variable per node is its side, and one per cable is whether it is cut; node 0 is on side 0. A
    cable counts by its weight, a whole number (1 if not given).
    """
    count, half = len(a), halved // 2
    wires = numpy.arange(count)
    ends = sparse.coo_matrix(
        (
            numpy.concatenate([numpy.ones(count), -numpy.ones(count)]),
            (numpy.concatenate([wires, wires]), numpy.concatenate([a, b])),
        ),
        (count, nodes),
    )
    cut = sparse.eye(count)
    in_half = (numpy.arange(nodes + count) < halved).astype(float)
    objective = numpy.concatenate(
        [numpy.zeros(nodes), numpy.ones(count) if weights is None else weights]
    )
    most = numpy.ones(nodes + count)
    most[0] = 0
    found = milp(
        objective,
        integrality=numpy.concatenate([numpy.ones(nodes), numpy.zeros(count)]),
        bounds=Bounds(0, most),
        constraints=[
            LinearConstraint(sparse.hstack([ends, -cut]), -numpy.inf, 0),
            LinearConstraint(sparse.hstack([-ends, -cut]), -numpy.inf, 0),
            LinearConstraint(in_half, half, halved - half),
            LinearConstraint(objective, lower, upper),
        ],
        options={"time_limit": seconds},
    )
    dual = found.mip_dual_bound
    proven = lower if dual is None or not math.isfinite(dual) else math.ceil(dual - ROUNDING)
    reached = upper if found.fun is None else round(found.fun)
    return max(lower, proven), min(upper, reached)
