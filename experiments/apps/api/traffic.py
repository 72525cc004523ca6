"""Flows between servers, as objects: one class per usual pattern (docs/experiments.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pillarbox.topos.base.errors import PillarboxError, require

BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}

Tool = Literal["generator", "iperf3", "auto"]
Servers = int | Sequence[str]  # number of servers to choose at random, or server addresses


class Traffic:
    """Flows between a lab's servers, given by the name of a traffic pattern.

    Parameters
    ----------
    pattern : str
        Name of a pattern, such as ``all-reduce``. Usual patterns have a class: `AllToAll`.
    volume : str or int, optional
        Size of each flow, in bytes or as ``"1MB"``.
    seconds : float, optional
        Duration of each flow in seconds, instead of its size.
    tool : str
        Program that sends: the built-in ``"generator"``, ``"iperf3"``, or ``"auto"``.
    congestion : str
        TCP congestion control.
    options
        Options of the pattern, as `docs/experiments.md` lists them: ``flows=3``.
    """

    def __init__(
        self,
        pattern: str,
        *,
        volume: str | int | None = None,
        seconds: float | None = None,
        tool: Tool = "generator",
        congestion: str = "cubic",
        **options: str | float | Sequence[str] | None,
    ) -> None:
        require(
            (volume is None) != (seconds is None),
            "traffic needs a volume or a duration: give either volume or seconds",
        )
        amount = (
            {"duration_s": seconds} if volume is None else {"volume_bytes": _parsed_bytes(volume)}
        )
        values = {"tool": tool, **amount, "congestion": congestion, **options}
        self.words = [pattern]
        for name, value in values.items():
            if value is not None:
                listed = isinstance(value, Sequence) and not isinstance(value, str)
                text = ",".join(map(str, value)) if listed else value  # type: ignore[arg-type]
                self.words.append(f"{name}={text}")

    def __repr__(self) -> str:
        return f"<traffic {' '.join(self.words)}>"


@dataclass(kw_only=True, repr=False, eq=False)
class UsualTraffic(Traffic):
    """Base class of the usual traffic patterns, such as `AllToAll`, with their options."""

    pattern: ClassVar[str]
    volume: str | int | None = None
    seconds: float | None = None
    tool: Tool = "generator"
    congestion: str = "cubic"

    def __post_init__(self) -> None:
        super().__init__(self.pattern, **vars(self))


@dataclass(kw_only=True, repr=False, eq=False)
class AllToAll(UsualTraffic):
    """Traffic pattern: every server sends to every other."""

    pattern = "all-to-all"


@dataclass(kw_only=True, repr=False, eq=False)
class Permutation(UsualTraffic):
    """Every server sends to one server and receives from one server, drawn at random."""

    pattern = "permutation"


@dataclass(kw_only=True, repr=False, eq=False)
class OneToAll(UsualTraffic):
    """Traffic pattern: one server sends to all others."""

    pattern = "one-to-all"
    source: str | None = None


@dataclass(kw_only=True, repr=False, eq=False)
class OneToOne(UsualTraffic):
    """One server sends to another; `flows` defaults to the number of disjoint paths."""

    pattern = "one-to-one"
    source: str | None = None
    destination: str | None = None
    flows: int | None = None


@dataclass(kw_only=True, repr=False, eq=False)
class OneToSeveral(UsualTraffic):
    """One server sends to several others: given addresses, or a number of random servers."""

    pattern = "one-to-several"
    source: str | None = None
    receivers: Servers = 2


@dataclass(kw_only=True, repr=False, eq=False)
class SeveralToOne(UsualTraffic):
    """Several servers (addresses, or a number of random servers) send to one server."""

    pattern = "several-to-one"
    senders: Servers = 2
    destination: str | None = None


@dataclass(kw_only=True, repr=False, eq=False)
class Burst(UsualTraffic):
    """Every server of one group sends to every server of another group."""

    pattern = "burst"
    senders: Servers | None = None
    receivers: Servers | None = None


def _parsed_bytes(volume: str | int) -> int:
    """Parse an amount of data, as ``10 MB``; return it in bytes.

    >>> _parsed_bytes("1.5MB"), _parsed_bytes(70)
    (1500000, 70)
    """
    read = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kMG]?)B?", str(volume))
    if read is None:
        raise PillarboxError(f"{volume!r} is not a volume of data: write a number of bytes, or 1MB")
    return round(float(read[1]) * BYTES[read[2]])
