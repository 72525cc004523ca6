"""``pillarbox trace``: the way of a packet in a running lab."""

from __future__ import annotations

import json

import click

LOST = 1


@click.command()
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
@click.option("--lab", "number", type=int, help="Which lab, where several are running.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def command(
    ctx: click.Context, source: str, destination: str, number: int | None, as_json: bool
) -> None:
    """Send a marked packet through a running lab and tell its way, hop by hop.

    Beside it stands the way that is computed from what has failed. Exit code 1 says that the
    packet did not arrive.

    \b
    sudo ./pillarbox trace 0.0 4.3
    """
    from experiments.emulation import registry
    from experiments.emulation.service import ask

    found = ask(registry.folder_of(number), ask="trace", source=source, destination=destination)
    if as_json:
        click.echo(json.dumps(found))
    else:
        arrived = "arrived" if found["delivered"] else f"lost: {found['dropped'] or 'no trace'}"
        click.echo(f"taken:    {' '.join(found['path'])} ({arrived})")
        click.echo(f"computed: {' '.join(found['computed']) or 'none'}")
    ctx.exit(0 if found["delivered"] else LOST)
