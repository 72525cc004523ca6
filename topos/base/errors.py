"""The one error of Pillarbox: what was wrong and what would be right, in one sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PillarboxError(ValueError):
    """What was asked for cannot be done: a network, name, option or machine does not allow it."""


def meant(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return what a user meant who wrote a name that there is not; else `otherwise`, or all names.

    >>> meant("dcel", ["bcube", "dcell"])
    'did you mean dcell?'
    >>> meant("ring", ["bcube", "dcell"])
    'there are bcube, dcell'
    >>> meant("ring", ["bcube", "dcell"], "--list shows all")
    '--list shows all'
    """
    known = list(known)
    close = difflib.get_close_matches(name, known, 1)
    return f"did you mean {close[0]}?" if close else otherwise or f"there are {', '.join(known)}"


def require(condition: bool, sentence: str) -> None:
    """Raise PillarboxError with that sentence unless the condition holds."""
    if not condition:
        raise PillarboxError(sentence)
