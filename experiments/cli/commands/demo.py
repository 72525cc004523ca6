"""``pillarbox demo``: a short experiment with report, or drawings of the networks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pillarbox.experiments.base.arguments import take_role_as_root
from pillarbox.hosts.linux.user_namespace import refusal

if TYPE_CHECKING:
    from pillarbox.experiments.runs.plans.experiment import Experiment
    from pillarbox.experiments.runs.trials.records import Run


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("pillarbox-demo"),
    show_default=True,
    help="Output directory for the drawings, the run and its report.",
)
@click.option("--drawings", is_flag=True, help="Draw the networks only (needs no root).")
def command(out: Path, drawings: bool) -> int:
    """Compare BCube with a tree network and cut a cable (about 1 minute).

    BCube and a tree of 16 servers each carry the same traffic, with and without a fault. On
    machines where only root can run labs, the networks are described and drawn without root. Exit
    code 1: a trial failed or is not valid.

    \b
    sudo ./pillarbox demo
    ./pillarbox demo --drawings
    """
    from pillarbox.experiments.base.files import output_folder

    folder = output_folder(out)
    refused = refusal()
    if drawings or refused:
        draw_networks(folder)
        if refused:
            click.echo(f"Live servers need root: sudo ./pillarbox demo ({refused}).")
        return 0
    from pillarbox.experiments.runs.plans.catalogue import DEMO

    return int(not run_and_report(DEMO, folder))


def run_and_report(experiment: Experiment, folder: Path) -> bool:
    """Run an experiment in a new folder below `folder`, print its result and write its report.

    Return True if all of its trials are valid.
    """
    from pillarbox.experiments.apps.page.runs import save_beside
    from pillarbox.experiments.runs.reporting.progress import Live
    from pillarbox.experiments.runs.reporting.report_page import write_report
    from pillarbox.experiments.runs.trials.experiment_run import new_name, run

    click.echo(f"{experiment.about}.\n")
    with Live(len(experiment.systems) * experiment.repeats, experiment.name) as live:
        done = run(experiment, folder / new_name(experiment), live=live)
    click.echo(f"{result_in_sentences(done)}\n")
    take_role_as_root("command")
    page, missing = write_report(done.folder, record=save_beside)
    for sentence in missing:
        click.echo(f"pillarbox: {sentence}", err=True)
    click.echo(f"The report, for any browser: {page.resolve()}\n")
    click.echo("Next: sudo ./pillarbox run bcube-tree does the same with iperf3 (4 minutes),")
    click.echo("      sudo ./pillarbox run --list shows more experiments,")
    click.echo("      sudo ./pillarbox up bcube,4,1 gives a prompt on a live network.")
    return all(one["valid"] for one in done.records)


def result_in_sentences(run: Run) -> str:
    """Return the demo's result as text: comparison, effect of the fault, times, anomalies."""
    from pillarbox.experiments.runs.plans.catalogue import DEMO, Demo
    from pillarbox.experiments.runs.reporting import summary_text
    from pillarbox.experiments.runs.trials.summary import doubtful, sentences

    blocks = [
        sentences(
            [
                summary_text.comparison(
                    run, Demo.CUBE, Demo.TREE, summary_text.PAPERS_RATIOS[DEMO.name]
                )
            ]
        ),
        sentences(
            summary_text.after_fault(run, *pair)
            for pair in ((Demo.CUT_CUBE, Demo.CUBE), (Demo.CUT_TREE, Demo.TREE))
        ),
        summary_text.times(run),
        sentences([*summary_text.stragglers(run), *doubtful(run)]),
    ]
    return "\n\n".join(filter(None, blocks))


def draw_networks(folder: Path) -> None:
    """Print descriptions of the networks in which servers relay, and draw them to files."""
    from pillarbox.experiments.base.files import give_to_user
    from pillarbox.experiments.cli.commands.topo import counts_as_text
    from pillarbox.experiments.runs.reporting.drawing import draw_topology
    from pillarbox.topos.base.spec import kinds, network, parse

    networks = [parse(network(kind).examples[0]) for kind in kinds()]
    shown = [topology for topology in networks if topology.diameter_bound().value != 1]
    for topology in shown:
        drawing = folder / f"{topology.kind}.png"
        draw_topology(topology, drawing)
        give_to_user(drawing)
        click.echo(counts_as_text(topology))
        click.echo(f"\ndrawn in {drawing}\n")
    specs = " ".join(topology.spec for topology in shown)
    click.echo("Next: ./pillarbox topo bcube,4,2 describes a network of your choice,")
    click.echo(f"      ./pillarbox compare {specs} compares several.")
