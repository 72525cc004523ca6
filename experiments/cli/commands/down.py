"""``pillarbox down``: end a running lab."""

from __future__ import annotations

import click

from pillarbox.experiments.base.arguments import lab


@click.command()
@lab
def command(number: int | None) -> None:
    """End a running lab.

    \b
    sudo ./pillarbox up dcell,4,1 --detach
    sudo ./pillarbox down
    """
    from pillarbox.experiments.lab.emulation import lab_registry
    from pillarbox.experiments.runs.control.client import ask

    folder = lab_registry.folder_of(number)
    ask(folder, ask="down")
    lab_registry.wait_for_end(folder)
