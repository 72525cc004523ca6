"""``pillarbox artifact``: one file of a run, for reviewers."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File to write (default: RUN.pillarbox.zip).",
)
def command(run: Path, out: Path | None) -> None:
    """Pack a run into one file that a reviewer can read, verify and repeat.

    It has the records, the plan with your files (routers, controls, graphs, traces), versions and
    settings, the report, hashes of all files, and metadata by RO-Crate. The same run gives the same
    bytes.

    \b
    pillarbox artifact quick-20260301-101500-seed1
    sudo pillarbox repeat quick-20260301-101500-seed1.pillarbox.zip
    """
    import pillarbox.experiments.runs.reporting.report_page as reporting
    from pillarbox.experiments.apps.page.runs import save_beside
    from pillarbox.experiments.base.files import give_to_user
    from pillarbox.experiments.runs.reporting import artifact
    from pillarbox.experiments.runs.trials.records import load

    found = load(run)
    _, missing = reporting.write_report(run, None, save_beside)
    for sentence in missing:
        click.echo(f"pillarbox: {sentence}", err=True)
    file = artifact.write_artifact(found, out or Path(f"{run.resolve().name}{artifact.SUFFIX}"))
    give_to_user(file)
    click.echo(str(file))
