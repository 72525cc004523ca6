"""``pillarbox test``: tests and static checks."""

from __future__ import annotations

import click


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Run Pillarbox's long tests as well (about three hours).",
)
@click.option("--static", is_flag=True, help="Check only format, style, types and import rules.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[PYTEST ARGUMENTS]")
@click.pass_context
def command(ctx: click.Context, arguments: tuple[str, ...], everything: bool, static: bool) -> None:
    """Run the tests and static checks.

    \b
    sudo ./pillarbox test
    sudo ./pillarbox test -k dcell
    sudo ./pillarbox test --all      long fuzzing, the soak and the benches as well
    """
    from pillarbox.experiments.base.interpreter import require_modules
    from tests.harness.steps import run, run_static

    require_modules("pytest", "mypy", "ruff")

    if static + everything + bool(arguments) > 1:
        raise click.UsageError("--all, --static and arguments for pytest exclude one another")
    ctx.exit(run_static() if static else run(list(arguments), everything=everything))
