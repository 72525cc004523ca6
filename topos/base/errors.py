"""Pillarbox's exceptions: the message is one sentence that names the mistake and its correction."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PillarboxError(ValueError):
    """Error of a request: the network, name, option or machine does not allow it."""


class InvalidValueError(PillarboxError):
    """Error of an invalid value in the settings of an experiment or lab.

    Attributes
    ----------
    key : str
        Path of the setting in the experiment or lab, such as ``systems.0.rate_mbit``.
    """

    def __init__(self, sentence: str, key: str) -> None:
        super().__init__(sentence)
        self.key = key


def meant(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a hint for an unknown name: the closest known name, else `otherwise`, else all names.

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
    """Raise PillarboxError with this sentence unless the condition is true."""
    if not condition:
        raise PillarboxError(sentence)
