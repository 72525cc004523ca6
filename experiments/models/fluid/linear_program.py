"""The linear programs of `pillarbox.experiments.models.fluid.bounds`, solved by HiGHS.

The interior-point method with crossover to a vertex is exact, and slow above some ten thousand
variables. Larger programs are solved approximately by a first-order method (PDLP), whose run time
grows with the number of matrix entries. The error is bounded independently of the solver: see
`pillarbox.experiments.models.fluid.optimum_bounds`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy
from scipy import sparse

from pillarbox.experiments.models.arrays import Floats
from pillarbox.topos.base.errors import PillarboxError

if TYPE_CHECKING:
    import highspy

    from pillarbox.experiments.models.fluid.optimum_bounds import Commodities


# Limits of (number of sources) x (number of links) for the solvers.
MOST_EXACT = 30_000
MOST_VARIABLES = 1_000_000
MOST_SECONDS = 120.0
NEAR = 2e-5  # PDLP's relative tolerance for every condition


def maximise(
    cost: Floats, balance: sparse.csr_matrix, net: Commodities, seconds: float
) -> tuple[Floats, Floats]:
    """Return the variables that maximise cost x variables, and the dual price of each link.

    The first variables are the flow of each commodity on each link. No variable is negative,
    `balance` x variables is 0, and the commodities' total on each link is within its capacity.
    """
    import highspy

    solver = _silent_solver()
    solver.setOptionValue("time_limit", float(seconds))
    exact = len(net.sources) * len(net.capacity) <= MOST_EXACT
    # The simplex method takes many times longer on these programs. Without crossover the interior
    # point is accepted with too large an error.
    solver.setOptionValue("solver", "ipm" if exact else "pdlp")
    solver.setOptionValue("run_crossover", "on" if exact else "off")
    if not exact:
        solver.setOptionValue("kkt_tolerance", NEAR)
    solver.passModel(_linear_program(cost, balance, net))
    solver.run()
    status = solver.getModelStatus()
    found = solver.getSolution()
    values, prices = numpy.array(found.col_value), numpy.array(found.row_dual)
    # PDLP's last point is usable after a timeout; an unfinished interior point is not.
    if (exact and status != highspy.HighsModelStatus.kOptimal) or not len(prices):
        reason = solver.modelStatusToString(status)
        raise PillarboxError(
            f"the linear program was not solved ({reason}): choose a smaller network, or give it "
            "more time"
        )
    return values, numpy.abs(prices[-len(net.capacity) :])


def _silent_solver() -> highspy.Highs:
    """Return a HiGHS solver for linear programs that prints nothing.

    The constructor of release 1.16 prints a banner before options can be set on the object.
    """
    import highspy

    class SilentHighs(highspy.Highs):
        def enableCallbacks(self) -> None:  # noqa: N802 (the first method that is called)
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()

    solver = SilentHighs()
    solver.setOptionValue(
        "output_flag", False
    )  # releases of highspy that do not call enableCallbacks
    return solver


def _linear_program(cost: Floats, balance: sparse.csr_matrix, net: Commodities) -> highspy.HighsLp:
    import highspy

    count, links = len(net.sources), len(net.capacity)
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
    model.row_upper_ = numpy.concatenate([numpy.zeros(balance.shape[0]), net.capacity])
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = matrix.indptr
    model.a_matrix_.index_ = matrix.indices
    model.a_matrix_.value_ = matrix.data
    return model
