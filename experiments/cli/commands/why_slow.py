"""``pillarbox why-slow``: explanation of the completion times of a run's flows."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pillarbox.experiments.base.arguments import FILE, STANDARD_OUTPUT, answer, json_option

FLOWS = 10  # number of flows that are explained if none is given


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("flow", metavar="[FLOW]", type=click.IntRange(min=0), required=False)
@click.option(
    "--trial",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of the trial, counted from 1.",
)
@click.option(
    "--simulated",
    is_flag=True,
    help="Explain the same TCP flows in a packet simulation, for runs without a packet log.",
)
@click.option(
    "--perfetto",
    type=FILE,
    metavar="FILE",
    help="Write all flows, faults and queues of the trial as a trace for https://ui.perfetto.dev "
    "(- for standard output).",
)
@json_option("flows", "trace")
def command(
    run: Path, flow: int | None, trial: int, simulated: bool, perfetto: Path | None, as_json: bool
) -> None:
    """Explain the completion time of a flow in parts that add up: waiting, losses, own data.

    RUN is a folder that `run --log-packets` has written, FLOW a number from its flows.csv. Without
    FLOW, the ten completed flows with the largest slowdown are explained. Meaning of the parts:
    docs/why-slow.md.

    \b
    sudo ./pillarbox run fct --log-packets
    ./pillarbox why-slow fct-20260301-101500-seed1
    ./pillarbox why-slow fct-20260301-101500-seed1 81 --json
    ./pillarbox why-slow fct-20260301-101500-seed1 --perfetto trace.json
    """
    from pillarbox.experiments.base.files import write_atomically
    from pillarbox.experiments.runs.reporting.perfetto import trace_of
    from pillarbox.experiments.runs.reporting.slow_flows import (
        explained,
        logged_trial,
        simulated_trial,
        slowest,
    )
    from pillarbox.experiments.runs.trials import records
    from pillarbox.experiments.runs.trials.summary import verdict_text
    from pillarbox.topos.base.errors import require

    to_stream = perfetto == STANDARD_OUTPUT
    prints_both = "--json prints to standard output, and so does --perfetto -: omit one of them"
    require(not (to_stream and as_json), prints_both)
    found = records.load(run)
    one = (simulated_trial if simulated else logged_trial)(found, trial - 1)
    chosen = slowest(one.flows, FLOWS if flow is None else len(one.flows))
    if flow is not None:
        known = one.flows["flow"] == flow
        require(bool(known.any()), f"trial {trial} has no flow {flow}: it has {len(known)} flows")
        chosen = chosen[chosen["flow"] == flow]
        require(len(chosen) > 0, f"flow {flow} of trial {trial} did not complete: see flows.csv")
    explanations = list(explained(one, chosen))
    record = next(record for record in found.records if record["trial"] == one.trial)
    if not simulated and not record["valid"]:
        click.echo(f"pillarbox: trial {trial} is {verdict_text(record)}", err=True)
    lines = [each.line() for each in explanations]
    if perfetto is not None:
        every = explained(one, slowest(one.flows, len(one.flows)))
        trace = json.dumps(trace_of(one, every), separators=(",", ":"))
        if to_stream:
            click.echo(trace)
            return
        write_atomically(perfetto, trace.encode())
        lines.append(f"trace: {perfetto}")
    data = {
        "flows": [each.as_json() for each in explanations],
        "trace": None if perfetto is None else str(perfetto),
    }
    answer(as_json, data, "\n".join(lines) or f"trial {trial} has no completed flow")
