"""Line numbers in an experiment's TOML file, for error messages."""

from __future__ import annotations

import re
from collections import Counter

_HEADER = re.compile(r"\s*(\[\[?)\s*([\w.\"'-]+)\s*\]\]?")
_KEY = re.compile(r"\s*([\w.\"'-]+)\s*=")


def line_of(text: str, place: str) -> int | None:
    """Return the line number of a value in a TOML file, or of its nearest enclosing table.

    Parameters
    ----------
    text : str
        Content of a valid TOML file.
    place : str
        Dotted key of the value, including its tables, such as ``systems.0.rate_mbit``.

    >>> text = '''seed = 1
    ... [[systems]]
    ... network = "bcube,4,1"
    ... [[systems]]
    ... rate_mbit = -5
    ... '''
    >>> line_of(text, "systems.1.rate_mbit"), line_of(text, "systems.1.mtu"), line_of(text, "about")
    (5, 4, None)
    """
    lines = _lines_by_place(text)
    parts = place.split(".")
    tables = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((lines[table] for table in tables if table in lines), None)


def _lines_by_place(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    table, arrays = "", Counter[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = header[2].replace('"', "").replace("'", "")
            if header[1] == "[[":
                arrays[table] += 1
            first, _, rest = table.partition(".")
            if arrays[first]:
                table = ".".join(filter(None, [first, str(arrays[first] - 1), rest]))
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            found.setdefault(".".join(filter(None, [table, key[1].strip("\"'")])), number)
    return found
