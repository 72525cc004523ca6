"""What a probe found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

OK, LESS, MISSING, UNKNOWN = "ok", "less", "missing", "unknown"


@dataclass(frozen=True)
class Finding:
    """One thing that labs want, and how it is here.

    Attributes
    ----------
    name
        What it is.
    state
        ``ok``; ``less``: labs run, with less; ``missing``: they do not run; ``unknown``.
    found
        What there is.
    costs, mend
        What its lack costs, and how to get it; empty where nothing is wrong.
    """

    name: str
    state: str
    found: str
    costs: str = ""
    mend: str = ""

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


Probe = Callable[[], Finding]


def finding(name: str, found: str, lack: str, costs: str, mend: str, state: str = LESS) -> Finding:
    """Return that all is well, or what is wrong where `lack` says so.

    >>> finding("iperf3", "3.12", "", "no TCP tests", "install iperf3").state
    'ok'
    >>> finding("iperf3", "", "there is none", "no TCP tests", "install iperf3").found
    'there is none'
    """
    if not lack:
        return Finding(name, OK, found)
    return Finding(name, state, lack, costs, mend)
