"""``pillarbox report``: figures and report page of a run."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Output directory of the report (default: the run's directory).",
)
@click.option("--open/--no-open", "opened", default=False, help="Open the report in the browser.")
def command(run: Path, out: Path | None, opened: bool) -> None:
    """Draw a run's figures and write its report.html.

    The report is a single file; it links a recording next to it, page.html. Damaged or missing
    records are listed, and the rest is shown.

    \b
    pillarbox report quick-20260301-101500-seed1
    pillarbox report quick-20260301-101500-seed1 --open
    """
    # This import fails first without the extra [report], and names it in the error.
    import pillarbox.experiments.runs.reporting.report_page as reporting
    from pillarbox.experiments.apps.page.runs import save_beside

    page, missing = reporting.write_report(run, out, save_beside)
    for sentence in missing:
        click.echo(f"pillarbox: {sentence}", err=True)
    click.echo(str(page))
    if opened:
        click.launch(str(page))
