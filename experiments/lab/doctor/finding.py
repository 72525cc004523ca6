"""Finding of a probe: a requirement of labs and its state on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

OK, LESS, MISSING, UNKNOWN = "ok", "less", "missing", "unknown"


@dataclass(frozen=True)
class Finding:
    """`doctor`'s finding on one requirement of labs: present, missing, and how to install it.

    Attributes
    ----------
    name
        Name of the requirement.
    state
        ``ok``; ``less``: labs run with restrictions; ``missing``: labs do not run; ``unknown``.
    found
        Observed value.
    costs, mend
        Effect of the deficiency, and its fix; empty if the state is ``ok``.
    """

    name: str
    state: str
    found: str
    costs: str = ""
    mend: str = ""

    def plain(self) -> dict[str, Any]:
        """Return `doctor`'s finding as JSON data."""
        return asdict(self)


Probe = Callable[[], Finding]


def finding(name: str, found: str, lack: str, costs: str, mend: str, state: str = LESS) -> Finding:
    """Return `doctor`'s finding: ``ok``, or `state` if `lack` describes a missing feature.

    >>> finding("iperf3", "3.12", "", "no TCP tests", "install iperf3").state
    'ok'
    >>> finding("iperf3", "", "there is none", "no TCP tests", "install iperf3").found
    'there is none'
    """
    if not lack:
        return Finding(name, OK, found)
    return Finding(name, state, lack, costs, mend)
