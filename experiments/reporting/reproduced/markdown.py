"""The Markdown page of all reproduced figures: verdicts, and the compared numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from experiments.reporting.reproduced import drawing
from experiments.reporting.reproduced.result import Reproduction

HEAD = """# Results

All figures and tables of the four papers, and additional figures, as reproduced by
`sudo ./pillarbox reproduce --all --out results`. For each figure: the paper's numbers, our numbers
with a 95 % confidence interval ("spread"), the ideal, and a verdict with its reasons. A random or
measured number agrees if its whole interval is within the tolerance, differs if the whole interval
is outside, and is not decided otherwise. [papers.md](papers.md) maps the parts of the papers to the
code. The command resumes after an interruption, and skips figures whose code and settings have not
changed. `results/report.html` also has the drawings.

This page is the command's output `results/results.md`."""
MOST_ROWS = 40  # maximum number of rows of a table; report.html has all rows


def page(found: Iterable[Reproduction], every: Iterable[str] = ()) -> str:
    """Return the Markdown page of all reproduced figures.

    `every` are the names of all figures. The page lists those that are not reproduced yet.
    """
    found = list(found)
    names = {made.name for made in found}
    left = [name for name in every if name not in names]
    counts = Counter(made.verdict for made in found)
    tally = ", ".join(f"{word}: {count}" for word, count in counts.most_common())
    parts = [f"{HEAD} Of {len(found)} figures and tables, {tally}.", _machines_sentence(found)]
    parts.append(f"Not made yet: {', '.join(left)}." if left else "")
    parts.append("\n".join(_overview_lines(found)))
    parts += ["\n\n".join(_figure_section(made)) for made in found]
    return "\n\n".join(part for part in parts if part) + "\n"


def record(made: Reproduction) -> str:
    """Return the size, duration and date of a reproduction; an empty text if unknown."""
    if not made.made:
        return ""
    size = "--quick" if made.made["quick"] else "full size"
    return f"{size}, {_duration_text(made.made['seconds'])}, {made.made['at'][:10]}"


def _duration_text(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _machines_sentence(found: Sequence[Reproduction]) -> str:
    """Return a sentence on the machines and Pillarbox versions of the reproductions."""
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
        "The time of a simulated figure is the processor time of all its tasks. The time of a live "
        "figure is the duration of the last call of the command."
    )
    return f"Made on: {'; '.join(lines)}. {how}" if lines else ""


def _overview_lines(found: Sequence[Reproduction]) -> Iterator[str]:
    yield "| figure | title | verdict | reproduced |"
    yield "|---|---|---|---|"
    for made in found:
        cells = (f"[{made.name}](#{made.name})", made.title, made.verdict, record(made))
        yield f"| {' | '.join(map(_escaped, cells))} |"


def _figure_section(made: Reproduction) -> Iterator[str]:
    """Yield the paragraphs of a reproduced figure."""
    yield f"## {made.name}"
    yield f"{_escaped(made.title)}. **{made.verdict}**"
    if made.reasons:
        yield "\n".join(f"- {_escaped(reason)}" for reason in made.reasons)
    points = made.rows or (made.points if made.kind == "table" else ())
    if points:
        columns, rows = drawing.table_of(made, points)
        columns[0] = columns[0] or "series"
        lines = [columns, ["---", "---", *["---:"] * (len(columns) - 2)], *rows[:MOST_ROWS]]
        yield "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)
        if len(rows) > MOST_ROWS:
            yield f"report.html has {len(rows) - MOST_ROWS} more rows."
    yield " ".join(f"{_escaped(note).rstrip('.')}." for note in made.notes)


def _escaped(text: str) -> str:
    """Return a text with all Markdown characters escaped."""
    for sign in "\\|*_<>":
        text = text.replace(sign, f"\\{sign}")
    return text
