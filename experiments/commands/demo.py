"""``pillarbox demo``: a first look at everything there is."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("pillarbox-demo"),
    show_default=True,
    help="Folder for the drawings.",
)
def command(out: Path) -> None:
    """Describe and draw the networks in which servers relay.

    \b
    sudo ./pillarbox demo
    """
    from experiments.commands.topo import summary
    from experiments.drawing import draw_topology
    from experiments.files import give_to_user, output_folder
    from topos.base.spec import kinds, network, parse

    folder = output_folder(out)
    networks = [parse(network(kind).examples[0]) for kind in kinds()]
    shown = [topology for topology in networks if topology.ports > 1]
    for topology in shown:
        drawing = folder / f"{topology.kind}.png"
        draw_topology(topology, drawing)
        give_to_user(drawing)
        click.echo(summary(topology))
        click.echo(f"\ndrawn in {drawing}\n")
    specs = " ".join(topology.spec for topology in shown)
    click.echo("Next: ./pillarbox topo bcube,4,2 describes a network of your choice,")
    click.echo(f"      ./pillarbox compare {specs} sets several side by side.")
