"""``pillarbox test``: everything that must hold, in one command."""

from __future__ import annotations

import click


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[PYTEST ARGUMENTS]")
@click.pass_context
def command(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Run format, lint, types, import contracts and pytest.

    \b
    sudo ./pillarbox test
    sudo ./pillarbox test -k dcell
    """
    from experiments.testing import run

    ctx.exit(run(list(arguments)))
