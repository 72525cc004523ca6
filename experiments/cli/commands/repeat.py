"""``pillarbox repeat``: run an artifact's experiment again, and compare the results."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from pillarbox.experiments.base.arguments import FOLDER, MORE, answer, json_option
from pillarbox.hosts.linux.user_namespace import require_root_or_user_namespace


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=FOLDER, help="Output directory of the new run (must not exist).")
@click.option("--repeats", type=click.IntRange(min=1), help="Number of trials per system.")
@click.option(
    "--trust-code",
    is_flag=True,
    help="Run the routers and congestion controls in the artifact: they run as root.",
)
@click.option("--verify", is_flag=True, help="Only verify the artifact and print its results.")
@json_option(MORE)
def command(
    file: Path,
    out: Path | None,
    repeats: int | None,
    trust_code: bool,
    verify: bool,
    as_json: bool,
) -> int:
    """Run the experiment of an artifact again, and say whether the results agree.

    Two results agree if the confidence interval of their ratio includes 1 or is within 5 % of it.
    Exit code 1: a result differs, or one of the runs has no valid trial.

    \b
    pillarbox repeat quick-20260301-101500-seed1.pillarbox.zip --verify
    sudo pillarbox repeat quick-20260301-101500-seed1.pillarbox.zip
    """
    from dataclasses import replace

    from pillarbox.experiments.runs.reporting import artifact
    from pillarbox.experiments.runs.reporting.progress import Live
    from pillarbox.experiments.runs.trials import agreement
    from pillarbox.experiments.runs.trials.experiment_run import new_name, orders_of, run
    from pillarbox.experiments.runs.trials.records import load
    from pillarbox.experiments.runs.trials.summary import text_of

    if not verify:
        require_root_or_user_namespace("repeating a run, unless by --verify,")
    with tempfile.TemporaryDirectory() as scratch:
        first = load(artifact.opened(file, Path(scratch)))
        if verify:
            data = {"verified": True, "trials": first.records}
            answer(as_json, data, f"{file}: all files as they were written\n\n{text_of(first)}")
            return 0
        plan = artifact.repeated_plan(Path(scratch), first.manifest["plan"], trusted=trust_code)
        experiment = replace(plan, repeats=repeats or plan.repeats)
        folder, orders = out or new_name(experiment), orders_of(experiment)
        trials = len(experiment.systems) * experiment.repeats
        with Live(trials, experiment.name) as live:
            second = run(experiment, folder, orders=orders, live=live)
        found = agreement.agreement(first, second)
        told = [text_of(second), agreement.text_of(found), str(second.folder)]
        answer(as_json, agreement.as_plain(found), "\n\n".join(told))
    return int(not found.agree)
