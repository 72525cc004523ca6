"""Pillarbox's exceptions: the message is one sentence that names the mistake and its correction."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PillarboxError(ValueError):
    """Error of a request: the network, name, option or machine does not allow it."""


class UnknownNameError(PillarboxError):
    """Error of a name that does not exist: a network, node, cable, routing, command or file."""


class UnsupportedError(PillarboxError):
    """Error of a request that this network, routing, kernel or machine cannot carry out."""


class NotPermittedError(PillarboxError):
    """Error of a request that this caller is not allowed to make, such as one that needs root."""


class LabEndedError(PillarboxError):
    """Error of a request to a lab that has ended, or is ending or starting."""


class KernelError(PillarboxError):
    """Error of a request that the kernel refused."""


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
    known = list(dict.fromkeys(known))
    close = difflib.get_close_matches(name, known, 1)
    return f"did you mean {close[0]}?" if close else otherwise or f"there are {', '.join(known)}"


def require(condition: bool, sentence: str, error: type[PillarboxError] = PillarboxError) -> None:
    """Raise PillarboxError, or a class of it, with this sentence unless the condition is true."""
    if not condition:
        raise error(sentence)


# Classes of errors by name, for errors that one process reports to another.
ERRORS: dict[str, type[PillarboxError]] = {
    error.__name__: error
    for error in (
        PillarboxError,
        UnknownNameError,
        UnsupportedError,
        NotPermittedError,
        LabEndedError,
        KernelError,
    )
}


def reported_error(kind: str, sentence: str) -> PillarboxError:
    """Return an error that another process has reported, by the name of its class."""
    return ERRORS.get(kind, PillarboxError)(sentence)


def error_kind(error: Exception) -> str:
    """Return the name of an error's class that another process can look up in `ERRORS`."""
    return next((one.__name__ for one in type(error).__mro__ if one.__name__ in ERRORS), "")
