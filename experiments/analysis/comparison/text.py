"""Aligned text tables that fit a terminal: cells that are too long go on in the next line."""

from __future__ import annotations

import textwrap

WIDTH = 120
GAP = "  "
LEAST_CELL = 13


def table(rows: list[tuple[str, list[str]]], width: int = WIDTH) -> str:
    """Return rows of a name and cells as text; columns that do not fit stand below the others."""
    label = max(len(name) for name, _ in rows)
    fitting = max(1, (width - label) // (LEAST_CELL + len(GAP)))
    count = max(len(cells) for _, cells in rows)
    blocks = [
        _block([(name, cells[first : first + fitting]) for name, cells in rows], label, width)
        for first in range(0, count, fitting)
    ]
    return "\n\n".join(blocks)


def _block(rows: list[tuple[str, list[str]]], label: int, width: int) -> str:
    count = max(len(cells) for _, cells in rows)
    share = (width - label) // count - len(GAP)
    widths = [min(share, max(len(cells[i]) for _, cells in rows)) for i in range(count)]
    lines: list[str] = []
    for name, cells in rows:
        wrapped = [textwrap.wrap(cell, w) or [""] for cell, w in zip(cells, widths, strict=True)]
        for row in range(max(map(len, wrapped))):
            words = [
                (part[row] if row < len(part) else "").ljust(w)
                for part, w in zip(wrapped, widths, strict=True)
            ]
            first = name.ljust(label) if row == 0 else " " * label
            lines.append(GAP.join([first, *words]).rstrip())
    return "\n".join(lines)


def paragraphs(sentences: list[str], width: int = WIDTH - 20) -> str:
    """Return each sentence as lines of its own, further lines indented."""
    return "\n".join(
        textwrap.fill(sentence, width, subsequent_indent="  ") for sentence in sentences
    )


def listing(rows: list[tuple[str, list[str]]], width: int = WIDTH) -> str:
    """Return rows whose columns are as wide as their text; the last one takes what is left."""
    cells = [[name, *rest] for name, rest in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]) - 1)]
    left = max(20, width - sum(widths) - len(GAP) * len(widths))
    lines: list[str] = []
    for *first, last in cells:
        start = GAP.join(cell.ljust(w) for cell, w in zip(first, widths, strict=True)) + GAP
        parts = textwrap.wrap(last, left) or [""]
        lines.append((start + parts[0]).rstrip())
        lines += [" " * len(start) + part for part in parts[1:]]
    return "\n".join(lines)
