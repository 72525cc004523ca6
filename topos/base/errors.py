"""The one error of the topologies: bad input, told in one sentence."""

from __future__ import annotations


class PillarboxError(ValueError):
    """A parameter, address or name that does not exist in the network; the text says what would."""


def require(condition: bool, sentence: str) -> None:
    """Raise PillarboxError with that sentence unless the condition holds."""
    if not condition:
        raise PillarboxError(sentence)
