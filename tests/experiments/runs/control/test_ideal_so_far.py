"""The ideal of a workload that is still sending is computed as that of the finished trial."""

from __future__ import annotations

import numpy
import pytest

from pillarbox.experiments.models.fluid.path_bound import PathBound
from pillarbox.experiments.runs.control.ideal_so_far import GoodputAndBound
from pillarbox.experiments.runs.trials.order import FlowPathsAtTime
from pillarbox.experiments.runs.trials.recorded_paths import paths_of
from pillarbox.experiments.runs.trust.verdict import judge
from pillarbox.hosts.base.failures import NONE
from tests.experiments.runs.seen import SEEN
from tests.experiments.runs.trials.test_ideals import (
    APART,
    BOTH_ONE_WAY,
    CABLE_BPS,
    CUBE,
    LASTING,
    PAIR,
    measured,
)


def bound_between(before: FlowPathsAtTime, after: FlowPathsAtTime) -> PathBound:
    pairs = [(flow.source, flow.destination) for flow, _ in PAIR]
    ends = [paths_of(CUBE, "bsr", pairs, one.paths) for one in (before, after)]
    return PathBound(CUBE, "bsr", ends[0], 1e7, 9000, ends[1])


def followed(*samples: FlowPathsAtTime) -> GoodputAndBound:
    """Follow the flows of `PAIR`, whose samples become known one after the other."""
    so_far = GoodputAndBound(bound_between, has_volume=False)
    shares = numpy.array([shares for _, shares in PAIR])
    for at_s in range(5):
        so_far.add_row(at_s, (shares[:, :at_s].sum(axis=1) * CABLE_BPS / 8).astype(numpy.int64))
        so_far.add_samples([one for one in samples if one.at_s <= at_s])
    return so_far


MOVED = (
    *(FlowPathsAtTime(at_s, BOTH_ONE_WAY, NONE) for at_s in (0.0, 1.0, 2.0)),
    *(FlowPathsAtTime(at_s, APART, NONE) for at_s in (2.0, 4.0)),
)
UNKNOWN_MOMENT = (FlowPathsAtTime(0.0, BOTH_ONE_WAY, NONE), FlowPathsAtTime(3.0, APART, NONE))
NOT_SEEN = tuple(FlowPathsAtTime(at_s, BOTH_ONE_WAY, NONE) for at_s in (0.0, 2.0, 4.0))


@pytest.mark.parametrize("samples", [MOVED, NOT_SEEN])
def test_the_ideal_is_that_of_the_finished_trial(samples: tuple[FlowPathsAtTime, ...]) -> None:
    total = followed(*samples).total
    record = measured(LASTING, PAIR, sampled=samples, paths=samples[-1].paths)
    assert total.achieved_bps == pytest.approx(record["goodput_bps"], rel=1e-3)
    assert total.ideal_bps == pytest.approx(record["ideal_bps"], rel=1e-3)
    verdict = judge(SEEN, total.ideal_bps, total.achieved_bps)
    of_ideal = [reason for reason in verdict.reasons if "of the ideal" in reason]
    assert of_ideal == [one for one in record["verdict"]["reasons"] if "of the ideal" in one]
    assert bool(of_ideal) == (samples == NOT_SEEN)


def test_bytes_over_paths_not_yet_confirmed_are_not_compared() -> None:
    total = followed(*UNKNOWN_MOMENT).total
    assert total.achieved_bps <= 1.001 * total.ideal_bps
    alone = followed(UNKNOWN_MOMENT[0]).total
    assert numpy.isnan(alone.ideal_bps)
