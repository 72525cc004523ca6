"""Flows between servers, as objects: one class per usual pattern (docs/experiments.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from topos.base.errors import PillarboxError, require

BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}

Tool = Literal["generator", "iperf3", "auto"]
Servers = int | Sequence[str]  # number of servers to draw, or their addresses


class Traffic:
    """Flows between servers, given by the name of a traffic pattern.

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
        require((volume is None) != (seconds is None), "traffic has either a volume, or seconds")
        amount = {"duration_s": seconds} if volume is None else {"volume_bytes": _bytes(volume)}
        values = {"tool": tool, **amount, "congestion": congestion, **options}
        self.words = [pattern]
        for name, value in values.items():
            if value is not None:
                listed = isinstance(value, Sequence) and not isinstance(value, str)
                text = ",".join(map(str, value)) if listed else value  # type: ignore[arg-type]
                self.words.append(f"{name}={text}")

    def __repr__(self) -> str:
        return f"<traffic {' '.join(self.words)}>"


class AllToAll(Traffic):
    """Every server sends to every other."""

    def __init__(
        self,
        *,
        volume: str | int | None = None,
        seconds: float | None = None,
        tool: Tool = "generator",
        congestion: str = "cubic",
    ) -> None:
        super().__init__(
            "all-to-all",
            volume=volume,
            seconds=seconds,
            tool=tool,
            congestion=congestion,
        )


class Permutation(Traffic):
    """Every server sends to one server and receives from one server, drawn at random."""

    def __init__(
        self,
        *,
        volume: str | int | None = None,
        seconds: float | None = None,
        tool: Tool = "generator",
        congestion: str = "cubic",
    ) -> None:
        super().__init__(
            "permutation",
            volume=volume,
            seconds=seconds,
            tool=tool,
            congestion=congestion,
        )


class OneToAll(Traffic):
    """One server sends to all others."""

    def __init__(
        self,
        *,
        volume: str | int | None = None,
        seconds: float | None = None,
        source: str | None = None,
        tool: Tool = "generator",
        congestion: str = "cubic",
    ) -> None:
        super().__init__(
            "one-to-all",
            volume=volume,
            seconds=seconds,
            tool=tool,
            congestion=congestion,
            source=source,
        )


class OneToOne(Traffic):
    """One server sends to another; `flows` defaults to the number of disjoint paths."""

    def __init__(
        self,
        *,
        volume: str | int | None = None,
        seconds: float | None = None,
        source: str | None = None,
        destination: str | None = None,
        flows: int | None = None,
        tool: Tool = "generator",
        congestion: str = "cubic",
    ) -> None:
        super().__init__(
            "one-to-one",
            volume=volume,
            seconds=seconds,
            tool=tool,
            congestion=congestion,
            source=source,
            destination=destination,
            flows=flows,
        )


class OneToSeveral(Traffic):
    """One server sends to several others, given by address or as a number of servers to draw."""

    def __init__(
        self,
        *,
        volume: str | int | None = None,
        seconds: float | None = None,
        source: str | None = None,
        receivers: Servers = 2,
        tool: Tool = "generator",
        congestion: str = "cubic",
    ) -> None:
        super().__init__(
            "one-to-several",
            volume=volume,
            seconds=seconds,
            tool=tool,
            congestion=congestion,
            source=source,
            receivers=receivers,
        )


class SeveralToOne(Traffic):
    """Several servers, given by address or as a number to draw, send to one server."""

    def __init__(
        self,
        *,
        volume: str | int | None = None,
        seconds: float | None = None,
        senders: Servers = 2,
        destination: str | None = None,
        tool: Tool = "generator",
        congestion: str = "cubic",
    ) -> None:
        super().__init__(
            "several-to-one",
            volume=volume,
            seconds=seconds,
            tool=tool,
            congestion=congestion,
            senders=senders,
            destination=destination,
        )


class Burst(Traffic):
    """Every server of one group sends to every server of another."""

    def __init__(
        self,
        *,
        volume: str | int | None = None,
        seconds: float | None = None,
        senders: Servers | None = None,
        receivers: Servers | None = None,
        tool: Tool = "generator",
        congestion: str = "cubic",
    ) -> None:
        super().__init__(
            "burst",
            volume=volume,
            seconds=seconds,
            tool=tool,
            congestion=congestion,
            senders=senders,
            receivers=receivers,
        )


def _bytes(volume: str | int) -> int:
    """Return a volume in bytes.

    >>> _bytes("1.5MB"), _bytes(70)
    (1500000, 70)
    """
    read = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kMG]?)B?", str(volume))
    if read is None:
        raise PillarboxError(f"{volume!r} is no volume: write bytes, or 1MB")
    return round(float(read[1]) * BYTES[read[2]])
