"""Pillarbox's errors: each says in one sentence what was wrong and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PillarboxError(ValueError):
    """What was asked for cannot be done: a network, name, option or machine does not allow it."""


class InvalidValueError(PillarboxError):
    """A setting has a value that cannot be used.

    Attributes
    ----------
    key : str
        The setting's place in the experiment or the lab, such as ``systems.0.rate_mbit``.
    """

    def __init__(self, sentence: str, key: str) -> None:
        super().__init__(sentence)
        self.key = key


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
