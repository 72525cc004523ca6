"""``pillarbox forecast``: expected memory, machines and duration of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pillarbox.experiments.base.arguments import NumberRange, answer, json_option, network
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.experiments.apps.cluster.run_forecast import RunForecast

MOST_MACHINES = 1000
MOST_SERVER_MBIT = 1e6


@click.command()
@network
@click.option(
    "--machines",
    metavar="N",
    type=click.IntRange(1, MOST_MACHINES),
    help="Number of machines (default: the fewest that can carry the run).",
)
@click.option(
    "--server-mbit",
    type=NumberRange(0, MOST_SERVER_MBIT, min_open=True),
    default=10.0,
    show_default=True,
    help="Rate at which each server sends to all others together, in Mbit/s.",
)
@click.option(
    "--seconds",
    type=NumberRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Duration of the traffic in seconds.",
)
@click.option(
    "--processors",
    type=NumberRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="Number of processors of each machine.",
)
@click.option(
    "--memory-gib",
    type=NumberRange(min=0, min_open=True),
    default=8.0,
    show_default=True,
    help="Memory of each machine in GiB.",
)
@json_option(
    *("network", "machines", "servers", "memory_mib", "processors", "card_mbit"),
    *("start_s", "serial_s", "parallel_s", "seconds", "duration_s"),
)
def command(
    topology: Topology,
    machines: int | None,
    server_mbit: float,
    seconds: float,
    processors: float,
    memory_gib: float,
    as_json: bool,
) -> None:
    """Show the expected memory, machines and duration of a run.

    All servers send to all others at the given rate. Costs are in proportion to servers, data and
    links, as measured on two processors (docs/machines.md). Memory does not include the
    connections of the traffic. No lab is started.

    \b
    pillarbox forecast bcube,10,2 --seconds 60
    pillarbox forecast dcell,4,2 --server-mbit 50 --machines 4
    """
    from pillarbox.experiments.apps.cluster.run_forecast import fitting_forecast, run_forecast

    if machines:
        found = run_forecast(topology, machines, server_mbit)
    else:
        found = fitting_forecast(topology, server_mbit, processors, memory_gib * 1024)
    started_s = found.start_duration_s(processors)
    data = {"network": topology.spec, **found._asdict()}
    data |= {"seconds": seconds, "duration_s": started_s + seconds}
    text = _forecast_text(topology, found, server_mbit, processors, memory_gib)
    times = f"start about {started_s:.1f} s, traffic {seconds:g} s"
    answer(as_json, data, f"{text}\nduration      {times}")


def _forecast_text(
    topology: Topology,
    found: RunForecast,
    server_mbit: float,
    processors: float,
    memory_gib: float,
) -> str:
    from pillarbox.experiments.apps.cluster.run_forecast import USABLE

    warnings = []
    if found.processors > USABLE * processors:
        warnings.append("processors")
    if found.memory_mib > memory_gib * 1024:
        warnings.append("memory")
    limits = f"; too few for a valid run: {' and '.join(warnings)}" if warnings else ""
    every = "the machine" if found.machines == 1 else "the busiest machine"
    lines = [
        f"{topology.spec}, {topology.servers:,} servers, all-to-all, {server_mbit:g} Mbit/s per "
        "server",
        f"machines      {found.machines} with {processors:g} processors and {memory_gib:g} GiB"
        f"{limits}",
        f"memory        {found.memory_mib:,.0f} MiB on {every}, {found.servers:,} servers",
        f"processors    {found.processors:.2f} on {every} during traffic",
    ]
    if found.machines > 1:
        lines.append(f"network card  {found.card_mbit:,.0f} Mbit/s, both directions together")
    return "\n".join(lines)
