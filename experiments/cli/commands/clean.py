"""``pillarbox clean``: removal of leftovers of killed labs."""

from __future__ import annotations

import os

import click


@click.command()
@click.option(
    "--dry-run", is_flag=True, help="List leftovers of killed labs without removing them."
)
def command(dry_run: bool) -> int:
    """Remove leftovers of labs that were killed.

    Labs in a sandbox leave at most two changed kernel settings, until the next lab ends. A lab of
    --no-sandbox leaves something only if its cleanup process was killed as well. Running labs, and
    anything that Pillarbox did not make, are not touched. Exit code 1: something is left.

    \b
    sudo ./pillarbox clean
    sudo ./pillarbox clean --dry-run
    """
    from pillarbox.experiments.lab.emulation import lab_registry
    from pillarbox.experiments.lab.linux import cgroups, kernel_settings, sweep
    from pillarbox.topos.base.errors import require

    require(os.geteuid() == 0, "cleaning up needs root: sudo ./pillarbox clean")
    done = "found" if dry_run else "removed"
    for leftover in sweep.sweep(remove=not dry_run):
        click.echo(f"{done} {leftover}")
    for number in lab_registry.remove_dead(remove=not dry_run):
        click.echo(f"{done} the folder of lab {number}, which is dead")
    for setting in kernel_settings.leftover_settings(remove=not dry_run):
        click.echo(f"{done} a kernel setting ({setting})")
    if not dry_run:
        cgroups.remove_dead(
            cgroups.parents()
        )  # removes the cgroups of dead labs, whose processes have ended
    left = [str(leftover) for leftover in sweep.sweep(remove=False)] + sweep.unexplained()
    left += [f"the folder of lab {number}" for number in lab_registry.remove_dead(remove=False)]
    for remaining in left if not dry_run else sweep.unexplained():
        click.echo(f"left: {remaining}")
    running = sweep.live_lab_slots()
    if running:
        click.echo(f"still running: {', '.join(f'run {slot}' for slot in running)}")
    if not left:
        click.echo("clean: no record, process, cgroup or link of a dead lab is left")
    return int(bool(left))
