"""``pillarbox calibrate``: the highest link rate that this machine emulates faithfully."""

from __future__ import annotations

import click

from pillarbox.experiments.base.arguments import (
    answer,
    json_option,
    network,
    plane,
    routing_option,
    timers,
)
from pillarbox.hosts.linux.user_namespace import require_root_or_user_namespace
from pillarbox.topos.base.topology import Topology


@click.command()
@network
@routing_option(default="")
@plane
@timers
@click.option(
    "--mtu",
    type=click.IntRange(576, 65000),
    default=9000,
    show_default=True,
    help="Largest IP packet, in bytes.",
)
@click.option(
    "--again", is_flag=True, help="Calibrate again even if this machine's result is stored."
)
@click.option("--quiet", is_flag=True, help="Print only the highest faithful rate.")
@json_option("network", "rate_mbit")
def command(
    topology: Topology,
    routing: str,
    plane: str,
    timers: str,
    mtu: int,
    again: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Find the highest link rate that this machine emulates faithfully.

    All servers send at full rate in trials of two seconds, at rising rates until a trial is not
    valid. The result is one step below the highest rate that is valid repeatedly. Takes about a
    minute; run nothing else meanwhile. The rate is stored: `run` uses it for the rate "calibrated".

    \b
    sudo ./pillarbox calibrate bcube,4,1
    sudo ./pillarbox calibrate bcube,4,1 --mtu 1500
    sudo ./pillarbox calibrate dcell,4,1 --plane python --again
    """
    require_root_or_user_namespace("a calibration")
    from pillarbox.experiments.runs.plans.experiment import System
    from pillarbox.experiments.runs.trials.calibration import calibrated_rate

    rate_mbit = calibrated_rate(
        System(topology.spec, routing=routing, plane=plane, timers=timers, mtu=mtu),
        say=lambda line: None if quiet else click.echo(line, err=True),
        again=again,
    )
    text = f"{rate_mbit:g}" if quiet else f"{topology.spec}: {rate_mbit:g} Mbit/s"
    answer(as_json, {"network": topology.spec, "rate_mbit": rate_mbit}, text)
    return 0
