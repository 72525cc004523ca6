"""Text for a terminal: tables whose columns stand below one another, and sentences that fit."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Any

WIDTH = 120
GAP = "  "
LEAST_CELL = 13
LONGEST = 400  # characters of one foreign text, such as a file name or a student's message
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # Unicode categories of letters that are not drawn
JOINERS = "\u200c\u200d"  # not drawn either, but scripts and emoji are written with them


def printable(text: str, limit: int = LONGEST) -> str:
    r"""Return foreign text as one line without control characters, cut to a maximum length.

    Control characters (C0, C1, DEL), terminal escapes, bidirectional controls, other invisible
    format characters, line separators and lone surrogates become visible escapes. All other
    Unicode is left as it is.

    >>> print(printable("red: \x1b[31m, \u202egpj.exe, Zürich 東京\n"))
    red: \x1b[31m, \u202egpj.exe, Zürich 東京\n
    >>> printable("a" * 20, limit=8)
    'aaaaaaa…'
    """
    shown = re.sub(r"[^\x20-\x7e]", _visible, text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def printable_lines(text: str) -> str:
    r"""Return text of many lines without control characters; line breaks and tabs stay.

    DEL stays as well: terminals ignore it, and JSON holds it unescaped.

    >>> print(printable_lines("first\nsecond\x07"))
    first
    second\x07
    """
    return re.sub(r"[^\n\t\x20-\x7f]", _visible, text)


def _visible(found: re.Match[str]) -> str:
    letter = found[0]
    if unicodedata.category(letter) not in HIDDEN or letter in JOINERS:
        return letter
    return letter.encode("unicode_escape").decode()


def columns(rows: Iterable[Sequence[str]], numbers: Collection[int] = ()) -> str:
    """Return rows of cells as lines: these columns to the right, the others to the left.

    >>> print(columns([["SP", "4"], ["MP", "12"]], numbers=[1]))
    SP   4
    MP  12
    """
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        GAP.join(
            cell.rjust(width) if i in numbers else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def records(rows: Sequence[dict[str, Any]]) -> str:
    """Return records of the same keys as a table: numbers to the right, words to the left.

    >>> print(records([{"case": "a", "build_s": 0.25, "ratio": 1.0}, {"case": "bb", "build_s": None,
    ...     "ratio": 12.0}]))
    case  build_s  ratio
    a        0.25      1
    bb          -     12
    """
    keys = list(rows[0])
    words = (any(isinstance(row[key], str) for row in rows) for key in keys)
    numbers = [i for i, is_words in enumerate(words) if not is_words]
    return columns([keys, *([_cell(row[key]) for key in keys] for row in rows)], numbers)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        # Three digits are more than a machine with other tenants repeats.
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def side_by_side(rows: list[tuple[str, list[str]]], width: int = WIDTH) -> str:
    """Return rows of a name and cells as text; columns that do not fit stand below the others."""
    label = max(len(name) for name, _ in rows)
    fitting = max(1, (width - label) // (LEAST_CELL + len(GAP)))
    count = max(len(cells) for _, cells in rows)
    return "\n\n".join(
        _block([(name, cells[first : first + fitting]) for name, cells in rows], label, width)
        for first in range(0, count, fitting)
    )


def _block(rows: list[tuple[str, list[str]]], label: int, width: int) -> str:
    count = max(len(cells) for _, cells in rows)
    share = (width - label) // count - len(GAP)
    widths = [min(share, max(len(cells[i]) for _, cells in rows)) for i in range(count)]
    lines: list[list[str]] = []
    for name, cells in rows:
        wrapped = [textwrap.wrap(cell, w) or [""] for cell, w in zip(cells, widths, strict=True)]
        for row in range(max(map(len, wrapped))):
            parts = (part[row] if row < len(part) else "" for part in wrapped)
            padded = [part.ljust(w) for part, w in zip(parts, widths, strict=True)]
            lines.append([name if row == 0 else "", *padded])
    return columns(lines)


def paragraphs(sentences: Iterable[str], width: int = WIDTH - 20) -> str:
    """Return each sentence as lines of its own, further lines indented."""
    return "\n".join(
        textwrap.fill(sentence, width, subsequent_indent="  ") for sentence in sentences
    )


def listing(rows: Iterable[Sequence[str]], width: int = WIDTH) -> str:
    """Return rows whose columns are as wide as their text; the last one takes what is left."""
    rows = list(rows)
    firsts = columns([[*row[:-1], "."] for row in rows]).splitlines()
    left = max(20, width - len(firsts[0]) + 1)
    lines: list[str] = []
    for first, (*_, last) in zip(firsts, rows, strict=True):
        start = first[:-1]
        parts = textwrap.wrap(last, left) or [""]
        lines.append((start + parts[0]).rstrip())
        lines += [" " * len(start) + part for part in parts[1:]]
    return "\n".join(lines)
