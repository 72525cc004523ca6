"""``pillarbox trace``: the path of a packet in a running lab."""

from __future__ import annotations

import click

from pillarbox.experiments.base.arguments import answer, complete, json_option, lab
from pillarbox.experiments.runs.control.verbs import VERBS

LOST = 1


@click.command()
@click.argument("source", shell_complete=complete("servers"), metavar="SRC")
@click.argument("destination", shell_complete=complete("servers"), metavar="DST")
@lab
@json_option(*VERBS["path"].keys)
@click.pass_context
def command(
    ctx: click.Context, source: str, destination: str, number: int | None, as_json: bool
) -> None:
    """Trace a packet through a running lab, hop by hop.

    Prints the computed path next to it. 0.0%1 is the address of port 1 of server 0.0, in a lab with
    port addresses. Exit code 1: the packet did not arrive.

    \b
    sudo ./pillarbox trace 0.0 4.3
    sudo ./pillarbox trace 0.0%1 4.3
    """
    from pillarbox.experiments.runs.control.verb_commands import asked

    found, text = asked(number, "path", [source, destination])
    answer(as_json, found, text)
    ctx.exit(0 if found["delivered"] else LOST)
