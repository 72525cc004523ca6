"""``pillarbox status``: state of a running lab or of one of its servers."""

from __future__ import annotations

import click

from pillarbox.experiments.base.arguments import answer, complete, json_option, lab
from pillarbox.experiments.runs.control.verbs import VERBS


@click.command()
@click.argument("server", shell_complete=complete("servers"), metavar="[ADDR]", required=False)
@lab
@json_option(*VERBS["status"].keys)
def command(server: str | None, number: int | None, as_json: bool) -> None:
    """Show the state of a running lab, or of one of its servers.

    \b
    sudo ./pillarbox status
    sudo ./pillarbox status 0.3 --json
    """
    from pillarbox.experiments.runs.control.verb_commands import asked

    answer(as_json, *asked(number, "status", filter(None, [server])))
