"""A Markdown page of the reproduced figures: verdicts and the numbers, with notes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pillarbox.experiments.runs.reporting.reproduced import drawing
from pillarbox.experiments.runs.reporting.reproduced.result import Reproduction

HEAD = """# Results

Compare the figures and tables of the four papers, and our own, with these results of:

```sh
sudo ./pillarbox reproduce --all --out results
```

| term | meaning |
|---|---|
| spread | 95 % confidence interval of ours |
| ideal | best value that the paths in use permit, or as the notes say |
| agrees | the whole interval is within the tolerance of the paper's number |
| claim holds | the whole interval satisfies the sentence that is quoted from the paper |
| paper's erratum | the print is wrong: ours is the value that [errata.md](errata.md) derives |
| differs | no part of the interval is within the tolerance, or satisfies the sentence |
| not decided | only a part of the interval is, or does |

A figure has the verdict of its worst value, in the order differs, not decided, paper's erratum,
claim holds, agrees. Absolute numbers that the papers measured on their hardware (seconds, Gbit/s)
are in the column "paper" and are not judged; the sentences that the papers base on them are. If a
paper permits several interpretations, the notes name the one that is compared.

The column "code" is a digest of the code and data on which a figure depends, without comments and
docstrings. A test compares it with the present code.

The command continues after an interruption and keeps results of unchanged code and settings.
`results/report.html` also contains the figures, `results/results.md` is this page.
[papers.md](papers.md) lists the parts of each paper."""
SHARED_CHARACTERS = 80  # minimum length of a note that is printed once for several figures
MOST_ROWS = 40  # maximum table rows on the Markdown page; report.html has all


def page(found: Iterable[Reproduction], every: Iterable[str] = ()) -> str:
    """Return the Markdown page of all reproduced figures.

    `every` are the names of all figures. The page lists those that are not reproduced yet.
    """
    found = list(found)
    names = {made.name for made in found}
    left = [name for name in every if name not in names]
    counts = Counter(made.verdict for made in found)
    tally = ", ".join(f"{word}: {count}" for word, count in counts.most_common())
    shared = _shared_notes(found)
    parts = [HEAD, f"Of {len(found)} figures and tables, {tally}.", _machines_sentence(found)]
    parts.append(f"Not made yet: {', '.join(left)}." if left else "")
    parts.append("\n".join(_overview(found)))
    if shared:
        numbered = "\n".join(f"{number}. {note}" for number, note in enumerate(shared, 1))
        parts.append(f"### Notes on several figures\n\n{numbered}")
    parts += ["\n\n".join(_figure_paragraphs(made, shared)) for made in found]
    return "\n\n".join(part for part in parts if part) + "\n"


def record(made: Reproduction) -> str:
    """Return size, duration and date of a figure's reproduction as text, empty if unknown."""
    if not made.made:
        return ""
    size = "--quick" if made.made["quick"] else "full size"
    return f"{size}, {_duration_text(made.made['seconds'])}, {made.made['at'][:10]}"


def _duration_text(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _machines_sentence(found: Sequence[Reproduction]) -> str:
    """Return a sentence on the machines and Pillarbox versions that reproduced the figures."""
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
        "The time of a simulated figure is the CPU time of all its tasks, that of a live one the "
        "duration of the last call of the command."
    )
    return f"Made on: {'; '.join(lines)}. {how}" if lines else ""


def _overview(found: Sequence[Reproduction]) -> Iterator[str]:
    yield "| figure | title | verdict | made | code |"
    yield "|---|---|---|---|---|"
    for made in found:
        own = (made.title, made.verdict, record(made), made.made.get("code", ""))
        cells = (f"[{made.name}](#{made.name})", *own)
        yield f"| {' | '.join(map(_escaped, cells))} |"


def _sentence_lines(note: str) -> str:
    return f"{_escaped(note).rstrip('.')}."


def _shared_notes(found: Sequence[Reproduction]) -> list[str]:
    """Return the long notes that several reproduced figures share."""
    counts = Counter(_sentence_lines(note) for made in found for note in made.notes)
    return [note for note, n in counts.items() if n > 1 and len(note) >= SHARED_CHARACTERS]


def _figure_paragraphs(made: Reproduction, shared: Sequence[str]) -> Iterator[str]:
    """Yield the Markdown paragraphs of a reproduced figure."""
    yield f"## {made.name}"
    yield f"{_escaped(made.title)}. **{made.verdict}**"
    if made.reasons:
        yield "\n".join(f"- {_linked(reason, made.errata)}" for reason in made.reasons)
    points = made.rows or (made.points if made.kind == "table" else ())
    if points:
        columns, rows = drawing.table_of(made, points)
        columns[0] = columns[0] or "series"
        lines = [columns, ["---", "---", *["---:"] * (len(columns) - 2)], *rows[:MOST_ROWS]]
        yield "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)
        if len(rows) > MOST_ROWS:
            yield f"{len(rows) - MOST_ROWS} more rows are in report.html."
    notes = [_sentence_lines(note) for note in made.notes]
    numbers = [str(shared.index(note) + 1) for note in notes if note in shared]
    own = [note for note in notes if note not in shared]
    if numbers:
        own.append(f"See [notes](#notes-on-several-figures): {', '.join(numbers)}.")
    yield " ".join(own)


def _linked(reason: str, errata: Iterable[str]) -> str:
    """Return a reason in Markdown, in which the headings of errata are links."""
    text = _escaped(reason)
    for title in map(_escaped, errata):
        text = text.replace(title, f"[{title}](errata.md#{anchor(title)})")
    return text


def anchor(title: str) -> str:
    """Return the anchor of a heading of a Markdown page.

    >>> anchor("Wires of the fat-tree (Guo 2009, Table 1)")
    'wires-of-the-fat-tree-guo-2009-table-1'
    """
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _escaped(text: str) -> str:
    """Return a text with all Markdown characters escaped."""
    for sign in "\\|*_<>":
        text = text.replace(sign, f"\\{sign}")
    return text
