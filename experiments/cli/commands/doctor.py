"""``pillarbox doctor``: checks of kernel features and tools, with consequences and fixes."""

from __future__ import annotations

import textwrap

import click

from pillarbox.experiments.base.arguments import answer, json_option

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
    from pillarbox.experiments.lab.doctor import computer, kernel, programs
    from pillarbox.experiments.lab.doctor.finding import MISSING, OK

    probes = [*kernel.probes(), *programs.probes(), *computer.probes()]
    findings = [probe() for probe in probes]
    missing = [one for one in findings if one.state == MISSING]
    if as_json:
        answer(True, {"findings": [one.plain() for one in findings]}, "", indent=1)
        return 1 if missing else 0
    name_width = max(len(one.name) for one in findings)
    for one in findings:
        click.echo(f"{MARKS[one.state]:<8}{one.name:<{name_width + 2}}{_wrapped(one.found)}")
        for label, text in (("costs", one.costs), ("fix", one.mend)):
            if text:
                click.echo(_wrapped(f"{label + ':':<7}{text}", indent=8 + name_width + 2))
    wrong = [one.name for one in findings if one.state not in (OK, "unknown")]
    if missing:
        click.echo(f"\nLabs cannot run here; missing: {', '.join(one.name for one in missing)}.")
    elif wrong:
        click.echo(f"\nLabs run here, with limits: {', '.join(wrong)}.")
    else:
        click.echo("\nLabs run here; no missing feature was found.")
    return 1 if missing else 0


def _wrapped(text: str, indent: int = 0) -> str:
    """Wrap a text to the terminal's width; further lines are indented."""
    first = " " * indent
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * (indent or 24),
        break_on_hyphens=False,
        break_long_words=False,
    )
