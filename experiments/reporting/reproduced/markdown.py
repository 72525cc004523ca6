"""The figures made again as one page of Markdown: verdicts, and the numbers they are about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from experiments.reporting.reproduced import drawing
from experiments.reporting.reproduced.result import Reproduction

HEAD = """# Results

Every figure and table of the four papers, and our own, as
`sudo ./pillarbox reproduce --all --out results` makes them: the papers' numbers beside ours with
their 95 % confidence interval ("spread"), what is ideal, and whether they agree, or why not. What
is drawn or measured agrees if its whole interval is near enough, differs if no part of it is, and
else is not decided. [papers.md](papers.md) says which part of which paper is where. The command
goes on where it was stopped, and makes nothing again whose code and settings are the same;
`results/report.html` then has the figures as well.

This page is what it wrote (`results/results.md`)."""
MOST_ROWS = 40  # of a table here; the rest are in report.html


def page(found: Iterable[Reproduction], every: Iterable[str] = ()) -> str:
    """Return the page; `every` names all figures, of which some may not have been made."""
    found = list(found)
    names = {made.name for made in found}
    left = [name for name in every if name not in names]
    counts = Counter(made.verdict for made in found)
    tally = ", ".join(f"{word}: {count}" for word, count in counts.most_common())
    parts = [f"{HEAD} Of {len(found)} figures and tables, {tally}.", _machines(found)]
    parts.append(f"Not made yet: {', '.join(left)}." if left else "")
    parts.append("\n".join(_overview(found)))
    parts += ["\n\n".join(_section(made)) for made in found]
    return "\n\n".join(part for part in parts if part) + "\n"


def record(made: Reproduction) -> str:
    """Return in which size, when and in what time a figure was made; nothing if that is unknown."""
    if not made.made:
        return ""
    size = "--quick" if made.made["quick"] else "full size"
    return f"{size}, {_duration(made.made['seconds'])}, {made.made['at'][:10]}"


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _machines(found: Sequence[Reproduction]) -> str:
    """Return on what the figures were made, and by which versions."""
    versions: dict[str, list[str]] = {}
    for made in found:
        if made.made:
            here, program = made.made["machine"], made.made["pillarbox"]
            machine = (
                f"{here['processors']} processors ({here['processor']}), "
                f"{here['memory_kib'] / 2**20:.0f} GiB, {here['system']}, kernel "
                f"{here['kernel'].partition('-')[0]}"
            )
            version = f"{program['version']} ({str(program['commit'])[:10]})"
            known = versions.setdefault(machine, [])
            known += [] if version in known else [version]
    lines = [f"{machine}, by Pillarbox {', '.join(known)}" for machine, known in versions.items()]
    how = (
        "The time of a simulated figure is what all its tasks took of a processor; that of a "
        "live one is what the last call of the command took."
    )
    return f"Made on: {'; '.join(lines)}. {how}" if lines else ""


def _overview(found: Sequence[Reproduction]) -> Iterator[str]:
    yield "| figure | what it shows | verdict | made |"
    yield "|---|---|---|---|"
    for made in found:
        cells = (f"[{made.name}](#{made.name})", made.title, made.verdict, record(made))
        yield f"| {' | '.join(map(_plain, cells))} |"


def _section(made: Reproduction) -> Iterator[str]:
    """Yield the paragraphs on one figure."""
    yield f"## {made.name}"
    yield f"{_plain(made.title)}. **{made.verdict}**"
    if made.reasons:
        yield "\n".join(f"- {_plain(reason)}" for reason in made.reasons)
    points = made.rows or (made.points if made.kind == "table" else ())
    if points:
        columns, rows = drawing.table_of(made, points)
        columns[0] = columns[0] or "of"
        lines = [columns, ["---", "---", *["---:"] * (len(columns) - 2)], *rows[:MOST_ROWS]]
        yield "\n".join(f"| {' | '.join(map(_plain, line))} |" for line in lines)
        if len(rows) > MOST_ROWS:
            yield f"{len(rows) - MOST_ROWS} more stand in report.html."
    yield " ".join(f"{_plain(note).rstrip('.')}." for note in made.notes)


def _plain(text: str) -> str:
    """Return text in which nothing is taken for markup."""
    for sign in "\\|*_<>":
        text = text.replace(sign, f"\\{sign}")
    return text
