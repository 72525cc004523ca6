"""Expected costs of a run over machines."""

from __future__ import annotations

import pytest

from pillarbox import topos
from pillarbox.experiments.apps.cluster import run_forecast as run_forecast_module
from pillarbox.experiments.apps.cluster.run_forecast import (
    USABLE,
    Costs,
    fitting_forecast,
    run_forecast,
)
from pillarbox.topos.base.errors import PillarboxError

BCUBE = topos.parse("bcube,4,1")
COSTS = Costs(
    lab_mib=100.0,
    machine_mib=50.0,
    server_mib=10.0,
    lab_start_s=1.0,
    machine_start_s=2.0,
    server_start_s=0.5,
    server_machine_s=0.75,
    cable_start_s=0.25,
    cable_pair_start_s=0.0625,
    server_idle=0.01,
    gbit_link_s=0.1,
)


def test_costs_of_one_machine_are_sums_over_servers_and_data() -> None:
    found = run_forecast(BCUBE, 1, 100.0, COSTS)
    assert (found.servers, found.memory_mib) == (16, 260.0)
    assert found.serial_s == 1.0 + 32 * 0.25 + 32 * 32 / 2 * 0.0625  # 32 cables
    assert found.start_s == 16 * 0.5 + found.serial_s
    assert found.parallel_s == 16 * 0.75
    assert found.start_duration_s(2) == found.serial_s + 6.0
    # 1.6 Gbit/s over 3.2 links on average
    assert found.processors == pytest.approx(16 * 0.01 + 1.6 * 3.2 * 0.1)
    assert found.card_mbit == 0


def test_costs_of_two_machines_are_divided() -> None:
    one, two = (run_forecast(BCUBE, machines, 100.0, COSTS) for machines in (1, 2))
    assert (two.servers, two.memory_mib) == (8, 230.0)
    assert two.start_s == 2.0 + 8 * 0.5 + two.serial_s
    assert two.parallel_s == 2.0 + 8 * 0.75
    assert two.serial_s == 1.0 + 16 * 0.25 + 16 * 16 / 2 * 0.0625
    assert two.processors == pytest.approx(one.processors / 2)
    assert two.card_mbit == pytest.approx(1600 * 0.8)  # a flow crosses 0.8 times


def test_fewest_machines_that_have_the_processors() -> None:
    needed = run_forecast(BCUBE, 1, 100.0, COSTS).processors
    assert fitting_forecast(BCUBE, 100.0, needed / USABLE * 1.01, 1e6, COSTS).machines == 1
    assert fitting_forecast(BCUBE, 100.0, needed / USABLE * 0.99, 1e6, COSTS).machines == 2


def test_fewest_machines_that_have_the_memory() -> None:
    assert fitting_forecast(BCUBE, 1.0, 100.0, 260.0, COSTS).machines == 1
    assert fitting_forecast(BCUBE, 1.0, 100.0, 259.0, COSTS).machines == 2
    assert fitting_forecast(BCUBE, 1.0, 100.0, 229.0, COSTS).machines == 3
    for memory_mib in (159.0, 150.0, 0.0):
        with pytest.raises(PillarboxError, match="no number of machines up to 16"):
            fitting_forecast(BCUBE, 1.0, 100.0, memory_mib, COSTS)


def test_processors_that_no_number_of_machines_has() -> None:
    needed = min(run_forecast(BCUBE, n, 100.0, COSTS).processors for n in range(1, 17))
    found = fitting_forecast(BCUBE, 100.0, needed / USABLE * 1.001, 1e6, COSTS)
    assert found.processors == needed
    for processors in (needed / USABLE * 0.999, 1e-300):
        with pytest.raises(PillarboxError, match="no number of machines up to 16"):
            fitting_forecast(BCUBE, 100.0, processors, 1e6, COSTS)


def test_idle_servers_that_need_too_much_are_refused_before_any_forecast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unexpected(*_: object) -> None:
        raise AssertionError("traffic was forecast")

    huge = topos.parse("dcell,6,3")  # 3,263,442 servers: minutes of computation
    monkeypatch.setattr(run_forecast_module, "run_forecast", unexpected)
    with pytest.raises(PillarboxError, match="no number of machines up to 100"):
        fitting_forecast(huge, 10.0, 2.0, 8192.0, COSTS)
    with pytest.raises(AssertionError, match="traffic was forecast"):
        fitting_forecast(huge, 10.0, 1e6, 1e6, COSTS)
