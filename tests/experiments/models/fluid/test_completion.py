"""When volumes have been delivered, against what can be worked out by hand."""

from functools import partial
from typing import Any

import numpy
import pytest

from pillarbox.experiments.models.fluid.completion import completed_s
from pillarbox.experiments.models.fluid.directed_links import Routes
from pillarbox.experiments.models.fluid.rates import MaxMin

ONE_LINK = Routes(numpy.array([0, 1, 2, 3]), numpy.array([0, 0, 0]))


def completion_s(routes: Routes, bits: Any, capacity: Any, links: int, starts: Any = None) -> Any:
    """Return when flows end that share links max-min fairly."""
    starts = numpy.zeros(routes.flows) if starts is None else starts
    return completed_s(bits, starts, partial(MaxMin(routes, links).rates, capacity))


def test_short_flows_end_and_the_others_speed_up() -> None:
    ends = completion_s(ONE_LINK, numpy.array([3.0, 6.0, 9.0]), 9.0, 1)
    assert ends.tolist() == pytest.approx([1.0, 5 / 3, 2.0])


def test_a_link_is_never_idle_while_flows_wait_for_it() -> None:
    volumes = numpy.random.default_rng(1).uniform(1, 100, 3)
    assert completion_s(ONE_LINK, volumes, 7.0, 1).max() == pytest.approx(volumes.sum() / 7)


def test_flows_that_begin_later() -> None:
    starts = numpy.array([0.0, 1.0, 20.0])
    ends = completion_s(ONE_LINK, numpy.array([10.0, 10.0, 5.0]), 5.0, 1, starts)
    assert ends.tolist() == pytest.approx([3.0, 4.0, 21.0])


def test_what_has_no_path_or_no_capacity_never_ends() -> None:
    routes = Routes(numpy.array([0, 0, 1, 2]), numpy.array([0, 1]))
    ends = completion_s(routes, numpy.ones(3), numpy.array([0.0, 2.0]), 2)
    assert ends.tolist() == pytest.approx([numpy.nan, numpy.nan, 0.5], nan_ok=True)
