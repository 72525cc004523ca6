"""``pillarbox doctor``: what this machine can do, what each lack costs, and how to mend it."""

from __future__ import annotations

import textwrap

import click

from experiments.arguments import answer, json_option

WIDTH = 100
MARKS = {"ok": "ok", "less": "less", "missing": "MISSING", "unknown": "?"}


@click.command()
@json_option("findings")
def command(as_json: bool) -> int:
    """Check kernel features and tools; explain what is missing.

    Exit code 1: something is missing that every lab needs.

    \b
    sudo ./pillarbox doctor
    """
    from experiments.doctor import computer, kernel, programs
    from experiments.doctor.finding import MISSING, OK

    probes = [*kernel.probes(), *programs.probes(), *computer.probes()]
    findings = [probe() for probe in probes]
    missing = [one for one in findings if one.state == MISSING]
    if as_json:
        answer(True, {"findings": [one.plain() for one in findings]}, "", indent=1)
        return 1 if missing else 0
    name_width = max(len(one.name) for one in findings)
    for one in findings:
        click.echo(f"{MARKS[one.state]:<8}{one.name:<{name_width + 2}}{_folded(one.found)}")
        for label, text in (("costs", one.costs), ("mend", one.mend)):
            if text:
                click.echo(_folded(f"{label + ':':<7}{text}", indent=8 + name_width + 2))
    wrong = [one.name for one in findings if one.state not in (OK, "unknown")]
    if missing:
        click.echo(f"\nNo lab runs here: {', '.join(one.name for one in missing)}.")
    elif wrong:
        click.echo(f"\nLabs run here, with less: {', '.join(wrong)}.")
    else:
        click.echo("\nNothing that labs want is known to be missing here.")
    return 1 if missing else 0


def _folded(text: str, indent: int = 0) -> str:
    """Return a text in lines; those after the first stand below it."""
    first = " " * indent
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * (indent or 24),
        break_on_hyphens=False,
        break_long_words=False,
    )
