"""The one error of Pillarbox: what was wrong and what would be right, in one sentence."""

from __future__ import annotations


class PillarboxError(ValueError):
    """What was asked for cannot be done: a network, name, option or machine does not allow it."""


def require(condition: bool, sentence: str) -> None:
    """Raise PillarboxError with that sentence unless the condition holds."""
    if not condition:
        raise PillarboxError(sentence)
