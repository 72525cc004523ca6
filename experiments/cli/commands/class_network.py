"""``pillarbox class-network``: a live network in which each student's router runs one server."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import click

from pillarbox.experiments.base.arguments import FILE, network, routing_option
from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.topology import Topology


@click.command()
@network
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@routing_option(
    default="", about="Routing of servers without a student (default: a hop-by-hop one)."
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    help="Assign students to servers in random order (default: in the order of their names).",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    metavar="N",
    help="Run N rounds without a prompt, and print the points.",
)
@click.option(
    "--faults",
    type=FILE,
    help="File with faults, one per line after the number of its round: 3 cut 0.3-4.0.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("class-network"),
    show_default=True,
    help="Output directory for class-network.html and class-network.csv.",
)
def command(
    topology: Topology,
    folder: Path,
    routing: str,
    seed: int | None,
    rounds: int | None,
    faults: Path | None,
    out: Path,
) -> None:
    """Start a network in which each student's router file runs one server.

    FOLDER has the submissions as for grade-all: ID.py, or a directory ID with one Python file. Each
    file runs in its own sealed process. In each round every server sends a packet to every other
    server. class-network.html shows the matrix of deliveries and the points, and is written after
    each round. Faults are commands of the prompt, such as cut, kill and heal.

    \b
    sudo ./pillarbox class-network bcube,5,1 handed-in
    sudo ./pillarbox class-network dcell,4,1 handed-in --seed 7
    sudo ./pillarbox class-network dcell,4,1 handed-in --rounds 5 --faults faults.txt
    """
    from pillarbox.experiments.apps.teaching import class_network
    from pillarbox.experiments.lab.emulation import lab_registry
    from pillarbox.experiments.lab.linux import sandbox
    from pillarbox.experiments.runs.control import detached

    relays = f"the servers of {topology.spec} do not relay: choose a network such as bcube,5,1"
    require(topology.ports > 1, relays)
    require(rounds is not None or faults is None, "--faults needs --rounds: add --rounds 5")
    planned = class_network.read_faults(topology, faults) if faults else {}
    last = max(planned, default=0)
    require(last <= (rounds or 0), f"round {last} of {faults} is after the last: add --rounds")
    seats = class_network.assigned_seats(topology, folder, seed)
    routing = class_network.standard_routing(topology, routing)
    place = lab_registry.create_lab_folder()
    with ExitStack() as stack:
        stack.callback(lab_registry.remove_lab_folder, place)
        sandbox.enter()
        from pillarbox.experiments.lab.emulation.lab import Lab
        from pillarbox.experiments.lab.emulation.local_fabric import LocalFabric
        from pillarbox.experiments.runs.control import prompt
        from pillarbox.experiments.runs.control.service import Service

        detached.end_lab_on_sigterm()
        class_network.check_seal()
        settings = class_network.lab_settings(seats, routing, place.folder)
        lab = stack.enter_context(
            Lab(topology, settings, place.folder, seed or 0, fabric=LocalFabric())
        )
        stack.callback(Service(lab).close)
        live = class_network.ClassNetwork(lab, seats, out)
        try:
            live.wait_converged()
        except PillarboxError as error:  # the other servers run nevertheless
            click.echo(f"pillarbox: {error}", err=True)
        students = sum(bool(seat.student) for seat in seats)
        click.echo(
            f"lab {place.number}: {topology.spec}, {students} of {topology.servers} servers run "
            f"students' routers, the others {routing}\n"
            f"packets: {class_network.packet_format(topology, routing)}\n"
            f"page: {out / class_network.PAGE}"
        )
        if rounds is not None:
            for line in live.run_rounds(rounds, planned):
                click.echo(line)
        else:
            measuring = threading.Thread(target=live.run_until_stopped)
            measuring.start()
            try:
                prompt.run(lab)
            finally:
                live.stop.set()
                measuring.join()
            live.write()
        click.echo(live.table())
