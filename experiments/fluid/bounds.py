"""What any routing could reach at best: maximum concurrent flow and throughput, by linear programs.

Traffic may split over all paths. All flows of one source are one commodity, which leaves some of
itself at each destination: as many variables as sources times links, and not pairs times links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy
from numpy.typing import NDArray
from scipy import sparse

from experiments.fluid.links import end_of, link_count, working_links
from topos.base.errors import TopologyError, require
from topos.base.topology import Topology

if TYPE_CHECKING:
    Floats = NDArray[numpy.float64]
    Bools = NDArray[numpy.bool_]
    Ints = NDArray[numpy.int64]

# Sources times links. HiGHS takes about a minute for the largest.
MOST_VARIABLES = 60_000
MOST_SECONDS = 120.0


class _Program(NamedTuple):
    """One linear program: its capacities are 1 at most, so that all numbers are near 1."""

    incidence: sparse.csr_matrix  # nodes x links: what enters minus what leaves
    capacity: Floats
    sources: list[int]
    demands: list[Counter[int]]  # of each source, by destination


def concurrent_flow_bps(
    topology: Topology,
    pairs: Sequence[tuple[int, int]],
    capacity_bps: float | Floats,
    works: Bools | None = None,
) -> float:
    """Return the largest rate that all flows between these pairs can have at the same time.

    Parameters
    ----------
    topology : Topology
        The network.
    pairs : sequence of (source, destination)
        A pair that stands there twice has two flows.
    capacity_bps : float or array
        Of every link, or by the number of each.
    works : array, optional
        By the number of each link, whether it works (see `working_links`).

    Returns
    -------
    float
        0 where failures part a pair.
    """
    if not pairs:
        return 0.0
    scale, program = _program(topology, pairs, capacity_bps, works)
    links, nodes = len(program.capacity), program.incidence.shape[0]
    count = len(program.sources)
    wanted = numpy.zeros((count, nodes))  # by each commodity, at each node, of one unit of rate
    for row, (source, demand) in enumerate(zip(program.sources, program.demands, strict=True)):
        for destination, flows in demand.items():
            wanted[row, destination] += flows
            wanted[row, source] -= flows
    # Variables: commodity by commodity the flow on each link, and last the rate.
    balance = sparse.hstack(
        [sparse.block_diag([program.incidence] * count), -wanted.reshape(-1, 1)], format="csr"
    )
    cost = numpy.zeros(count * links + 1)
    cost[-1] = 1.0
    return _largest(cost, balance, program) * scale


def throughput_bps(
    topology: Topology,
    pairs: Sequence[tuple[int, int]],
    capacity_bps: float | Floats,
    works: Bools | None = None,
) -> float:
    """Return the largest sum of rates between these pairs, some of which may then get nothing.

    No routing and no way to share the links carries more. See `concurrent_flow_bps` for the rest.
    """
    if not pairs:
        return 0.0
    scale, program = _program(topology, pairs, capacity_bps, works)
    links, nodes = len(program.capacity), program.incidence.shape[0]
    count = len(program.sources)
    # A variable for what each commodity leaves at each of its destinations.
    ends = [
        (row, source, destination)
        for row, (source, demand) in enumerate(zip(program.sources, program.demands, strict=True))
        for destination in demand
    ]
    columns = numpy.arange(len(ends))
    rows = numpy.array([row * nodes for row, _, _ in ends])
    near, far = (numpy.array([end[which] for end in ends]) for which in (1, 2))
    left = sparse.csr_matrix(
        (
            numpy.concatenate([-numpy.ones(len(ends)), numpy.ones(len(ends))]),
            (numpy.concatenate([rows + far, rows + near]), numpy.concatenate([columns, columns])),
        ),
        (count * nodes, len(ends)),
    )
    balance = sparse.hstack([sparse.block_diag([program.incidence] * count), left], format="csr")
    cost = numpy.zeros(balance.shape[1])
    cost[count * links :] = 1.0
    return _largest(cost, balance, program) * scale


def is_small_enough(topology: Topology, pairs: Sequence[tuple[int, int]]) -> bool:
    """Tell whether these programs are solved here."""
    return len({source for source, _ in pairs}) * 2 * topology.cables <= MOST_VARIABLES


def _program(
    topology: Topology,
    pairs: Sequence[tuple[int, int]],
    capacity_bps: float | Floats,
    works: Bools | None,
) -> tuple[float, _Program]:
    """Return what the capacities were divided by, and the program."""
    sources = sorted({source for source, _ in pairs})
    require(
        is_small_enough(topology, pairs),
        f"the optimum of {len(pairs)} flows from {len(sources)} servers of {topology.spec} is a "
        f"linear program of {len(sources) * 2 * topology.cables} variables, and the limit is "
        f"{MOST_VARIABLES}: choose a smaller network or fewer sources",
    )
    demands = [Counter[int]() for _ in sources]
    row_of = {source: row for row, source in enumerate(sources)}
    for source, destination in pairs:
        require(source != destination, "a flow has two different ends")
        demands[row_of[source]][destination] += 1
    capacity = numpy.full(link_count(topology), capacity_bps, numpy.float64)
    usable = working_links(topology) if works is None else works
    links = numpy.flatnonzero(usable & (capacity > 0))
    near = numpy.array([end_of(topology, link) for link in links.tolist()]).reshape(-1, 2)
    far = [topology.plug(node, port).node for node, port in near.tolist()]
    numbers = numpy.arange(len(links))
    incidence = sparse.csr_matrix(
        (
            numpy.concatenate([-numpy.ones(len(links)), numpy.ones(len(links))]),
            (numpy.concatenate([near[:, 0], far]).astype(numpy.int64), numpy.tile(numbers, 2)),
        ),
        (topology.nodes, len(links)),
    )
    scale = float(capacity[links].max(initial=0.0)) or 1.0
    return scale, _Program(incidence, capacity[links] / scale, sources, demands)


def _largest(cost: Floats, balance: sparse.csr_matrix, program: _Program) -> float:
    """Return the largest value of cost x variables, all of which are 0 or more."""
    import highspy

    count, links = len(program.sources), len(program.capacity)
    shared = sparse.hstack(
        [
            *[sparse.eye(links)] * count,
            sparse.csr_matrix((links, balance.shape[1] - count * links)),
        ]
    )
    matrix = sparse.vstack([balance, shared], format="csc")
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = matrix.shape[1], matrix.shape[0]
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = cost
    model.col_lower_ = numpy.zeros(matrix.shape[1])
    model.col_upper_ = numpy.full(matrix.shape[1], highspy.kHighsInf)
    model.row_lower_ = numpy.concatenate(
        [numpy.zeros(balance.shape[0]), numpy.full(links, -highspy.kHighsInf)]
    )
    model.row_upper_ = numpy.concatenate([numpy.zeros(balance.shape[0]), program.capacity])
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = matrix.indptr
    model.a_matrix_.index_ = matrix.indices
    model.a_matrix_.value_ = matrix.data
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("solver", "ipm")  # simplex takes many times longer on these
    # Without crossover to a vertex the interior point is accepted too loosely.
    solver.setOptionValue("run_crossover", "on")
    solver.setOptionValue("time_limit", MOST_SECONDS)
    solver.passModel(model)
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        reason = solver.modelStatusToString(status)
        raise TopologyError(f"the linear program was not solved ({reason}): choose a smaller one")
    return max(float(solver.getInfo().objective_function_value), 0.0)
