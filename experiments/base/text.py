"""Text for a terminal: aligned tables, wrapped sentences, and escaped control characters."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Any

WIDTH = 120  # Maximum width of text tables in characters.
GAP = "  "
LEAST_CELL = 13  # Least width of a column in characters.
LONGEST = 400  # Length limit of a foreign text, such as a file name, in characters.
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # Unicode categories of invisible characters.
JOINERS = "\u200c\u200d"  # Invisible joiners that some scripts and emoji need: not escaped.


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
    shown = re.sub(r"[^\x20-\x7e]", _escaped, text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def printable_lines(text: str) -> str:
    r"""Return text of many lines with control characters escaped, except line breaks and tabs.

    DEL is not escaped either: terminals ignore it, and JSON contains it unescaped.

    >>> print(printable_lines("first\nsecond\x07"))
    first
    second\x07
    """
    return re.sub(r"[^\n\t\x20-\x7f]", _escaped, text)


def _escaped(found: re.Match[str]) -> str:
    letter = found[0]
    if unicodedata.category(letter) not in HIDDEN or letter in JOINERS:
        return letter
    return letter.encode("unicode_escape").decode()


def counted(number: int, noun: str) -> str:
    """Return a number and its noun.

    >>> counted(1, "job"), counted(2, "job")
    ('1 job', '2 jobs')
    """
    return f"{number} {noun}" + ("s" if number != 1 else "")


def columns(rows: Iterable[Sequence[str]], numbers: Collection[int] = ()) -> str:
    """Return rows of cells as an aligned text table; columns in `numbers` are right-aligned.

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
    """Return records with the same keys as a text table; columns of numbers are right-aligned.

    >>> print(records([{"case": "a", "build_s": 0.25, "ratio": 1.0}, {"case": "bb", "build_s": None,
    ...     "ratio": 12.0}]))
    case  build_s  ratio
    a        0.25      1
    bb          -     12
    """
    keys = list(rows[0])
    words = (any(isinstance(row[key], str) for row in rows) for key in keys)
    numbers = [i for i, is_words in enumerate(words) if not is_words]
    return columns([keys, *([_cell_text(row[key]) for key in keys] for row in rows)], numbers)


def _cell_text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        # Measurements on a shared machine are not reproducible beyond three digits.
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def side_by_side(rows: list[tuple[str, list[str]]], width: int = WIDTH) -> str:
    """Return a table of names and cells as text; columns that do not fit go into a block below."""
    label = max(len(name) for name, _ in rows)
    fitting = max(1, (width - label) // (LEAST_CELL + len(GAP)))
    count = max(len(cells) for _, cells in rows)
    return "\n\n".join(
        _block_text([(name, cells[first : first + fitting]) for name, cells in rows], label, width)
        for first in range(0, count, fitting)
    )


def _block_text(rows: list[tuple[str, list[str]]], label: int, width: int) -> str:
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
    """Return sentences as wrapped paragraphs; continuation lines are indented."""
    return "\n".join(
        textwrap.fill(sentence, width, subsequent_indent="  ") for sentence in sentences
    )


def listing(rows: Iterable[Sequence[str]], width: int = WIDTH) -> str:
    """Return rows as a text table; the last column is wrapped to the remaining width."""
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
