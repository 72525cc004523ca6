"""``pillarbox test``: everything that must hold, in one command."""

from __future__ import annotations

import click


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.option("--all", "everything", is_flag=True, help="Also what takes long: about an hour.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[PYTEST ARGUMENTS]")
@click.pass_context
def command(ctx: click.Context, arguments: tuple[str, ...], everything: bool) -> None:
    """Run format, lint, types, import contracts and pytest.

    \b
    sudo ./pillarbox test
    sudo ./pillarbox test -k dcell
    sudo ./pillarbox test --all      long fuzzing, the soak and the benches as well
    """
    from experiments.testing import run

    if everything and arguments:
        raise click.UsageError("--all runs every test; leave it out to name some")
    ctx.exit(run(list(arguments), everything=everything))
