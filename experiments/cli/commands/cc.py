"""``pillarbox cc``: try a TCP congestion control, such as one of one's own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from pillarbox.experiments.base.arguments import answer, json_option
from pillarbox.topos.base.errors import NotPermittedError, require

if TYPE_CHECKING:
    from pillarbox.experiments.runs.trials.control_trials import ControlResult


@click.command()
@click.argument("control")
@click.option(
    "--queue",
    type=click.Choice(["droptail", "codel", "fq_codel", "ecn"]),
    default="droptail",
    show_default=True,
    help="Queueing discipline (tc qdisc) of every port; dctcp needs ecn.",
)
@json_option("controls")
def command(control: str, queue: str, as_json: bool) -> int:
    """Compile and load a TCP congestion control, and compare it with Reno.

    CONTROL is your file NAME.bpf.c, a shipped control (dctcp, delay, scalable), or one of the
    kernel's. Two flows share a port of 20 Mbit/s for four seconds, first with Reno. The control is
    registered meanwhile only; the machine's default does not change.

    \b
    sudo ./pillarbox cc mine.bpf.c
    sudo ./pillarbox cc dctcp --queue ecn
    sudo ./pillarbox up bcube,4,1 --tcp mine.bpf.c
    """
    from pillarbox.experiments.lab.linux.congestion import control_in_use, source_of
    from pillarbox.experiments.runs.trials.control_trials import control_results

    source = source_of(control)
    require(os.geteuid() == 0, "loading a control needs root: use sudo", NotPermittedError)
    word = str(source.resolve()) if source else control
    with control_in_use(word):
        pass  # a control that the kernel refuses ends the command before Reno is measured
    results = []
    for result in control_results(word, queue):
        results.append(result)
        if not as_json:
            click.echo(_line(result))
    if as_json:
        answer(as_json, {"controls": [result._asdict() for result in results]}, "")
    return 1 if results[-1].why else 0


def _line(result: ControlResult) -> str:
    """Return a control's result as a line of text."""
    if not result.goodput_bps:
        return f"{result.control:<12}  {result.why or 'no byte arrived'}"
    parts = [f"{result.control:<12}  {result.goodput_bps / 1e6:4.1f} Mbit/s"]
    if result.fairness is not None:
        parts.append(f"fairness {result.fairness:.2f}")
    if result.round_trip_ms is not None:
        parts.append(f"round trip {result.round_trip_ms:.1f} ms")
    parts.append(f"{result.retransmits} segments sent again")
    return ", ".join(parts) + (f" (not valid: {result.why})" if result.why else "")
