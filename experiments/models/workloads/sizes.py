"""Flow size distributions: those of papers by name, or from a file.

A distribution is a table of points (bytes, share of the flows that are at most that large). Between
two points it is a straight line, as users of ns-2, ns-3 and htsim interpret such tables; two points
of the same size are flows of exactly that size.

The tables are coarse: ten to twenty points read off the papers' curves, not the papers'
measurements. They are in common use, so results are comparable with others':

- web-search: Alizadeh 2010 (DCTCP, SIGCOMM, Figure 4), in the bytes of HPCC's table (Li 2019,
  SIGCOMM, section 5.1).
- data-mining: Greenberg 2009 (VL2, SIGCOMM, Figure 2), in packets of 1460 bytes as pFabric has it
  (Alizadeh 2013, SIGCOMM).
- hadoop: Facebook's, Roy 2015 (SIGCOMM, Figure 6), in the bytes of HPCC's table.
- cache: Facebook's cache followers, Roy 2015 (Figure 6), in packets of 1460 bytes.
- storage: Alibaba's block storage of 2019, published with HPCC's programs, not in its paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy

from pillarbox.experiments.models.arrays import Floats, Ints
from pillarbox.experiments.models.workloads.workload import MOST_BYTES
from pillarbox.topos.base.errors import PillarboxError, UnknownNameError, meant, require

PACKET_BYTES = 1460
ROUNDING = 1e-9
LONGEST_NAME, LONGEST_FILE = (
    255,
    1 << 20,
)  # maximum characters of a distribution's file name and file
Point = tuple[float, float]

# Classes of flow sizes in tables of slowdowns: from the first to below the second size, in bytes.
ALL = "all"
CLASSES: dict[str, tuple[float, float]] = {
    "below 10 kB": (0, 1e4),
    "10-100 kB": (1e4, 1e5),
    "0.1-1 MB": (1e5, 1e6),
    "1-10 MB": (1e6, 1e7),
    "10 MB and more": (1e7, numpy.inf),
    ALL: (0, numpy.inf),
}


def _points_from_packets(*points: Point) -> tuple[Point, ...]:
    return tuple((packets * PACKET_BYTES, share) for packets, share in points)


def _points_from_percent(*points: Point) -> tuple[Point, ...]:
    return tuple((size, percent / 100) for size, percent in points)


TABLES: dict[str, tuple[Point, ...]] = {
    "web-search": _points_from_percent(
        *((1, 0), (10_000, 15), (20_000, 20), (30_000, 30), (50_000, 40), (80_000, 53)),
        *((200_000, 60), (1_000_000, 70), (2_000_000, 80), (5_000_000, 90), (10_000_000, 97)),
        (30_000_000, 100),
    ),
    "data-mining": _points_from_packets(
        *((1, 0.0), (1, 0.5), (2, 0.6), (3, 0.7), (7, 0.8), (267, 0.9), (2107, 0.95)),
        *((66_667, 0.99), (666_667, 1.0)),
    ),
    "hadoop": _points_from_percent(
        *((1, 0), (100, 1), (200, 2), (300, 5), (350, 15), (400, 20), (500, 30), (600, 40)),
        *((700, 50), (1000, 60), (2000, 67), (7000, 70), (30_000, 72), (50_000, 82)),
        *((80_000, 87), (120_000, 90), (300_000, 95), (1_000_000, 97.5), (2_000_000, 99)),
        (10_000_000, 100),
    ),
    "cache": _points_from_packets(
        *((1, 0.0), (1, 0.36), (2, 0.4), (7, 0.46), (13, 0.5), (67, 0.6), (133, 0.7)),
        *((667, 0.78), (1333, 0.8), (2000, 0.9), (2667, 0.99), (33_333, 1.0)),
    ),
    "storage": _points_from_percent(
        *((1, 0), (4000, 22.93), (8000, 69.21), (16_000, 80.61), (32_000, 90.47)),
        *((64_000, 93.53), (128_000, 96.77), (256_000, 97.53), (2_000_000, 100)),
    ),
}


@dataclass(frozen=True)
class FlowSizes:
    """Cumulative distribution of flow sizes, from which random sizes are drawn.

    Parameters
    ----------
    name : str
        Name in errors and tables.
    points : sequence of (bytes, share)
        Points with non-decreasing sizes and shares; the last share is 1.

    Examples
    --------
    >>> sizes = sizes_of("web-search")
    >>> round(sizes.mean_bytes), sizes.most_bytes
    (1711250, 30000000)
    >>> sizes_of("1000").draw(3, numpy.random.default_rng(1)).tolist()
    [1000, 1000, 1000]
    """

    name: str
    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        _check_distribution(self.name, self.points)

    @property
    def mean_bytes(self) -> float:
        """Mean flow size of the distribution in bytes."""
        at, shares = self._sizes_and_shares()
        return float(numpy.sum(numpy.diff(shares) * (at[1:] + at[:-1]) / 2))

    @property
    def most_bytes(self) -> int:
        """Largest flow size of the distribution in bytes."""
        return int(self.points[-1][0])

    def draw(self, count: int, draw: numpy.random.Generator) -> Ints:
        """Return `count` random flow sizes in whole bytes, at least 1 (inverse transform)."""
        at, shares = self._sizes_and_shares()
        found = numpy.interp(draw.random(count), shares, at)
        return numpy.maximum(1, numpy.rint(found)).astype(numpy.int64)

    def scaled(self, factor: float) -> FlowSizes:
        """Return the distribution with all flow sizes multiplied by a factor.

        >>> sizes_of("storage").scaled(0.5).most_bytes
        1000000
        """
        require(
            factor > 0 and numpy.isfinite(factor),
            f"size_scale: flow sizes are scaled by a factor above 0, not {factor}",
        )
        if factor == 1:
            return self
        points = tuple((max(1.0, size * factor), share) for size, share in self.points)
        return FlowSizes(f"{self.name} x {factor:g}", points)

    def _sizes_and_shares(self) -> tuple[Floats, Floats]:
        """Return the distribution's sizes and cumulative shares, starting with a share of 0."""
        at, shares = (
            numpy.array(column, numpy.float64) for column in zip(*self.points, strict=True)
        )
        if shares[0] > 0:  # shares[0] of all flows have exactly the first size
            at, shares = numpy.insert(at, 0, at[0]), numpy.insert(shares, 0, 0.0)
        return at, shares


def sizes_of(name: str) -> FlowSizes:
    """Return a distribution of flow sizes: by name, from a file, or one size in bytes."""
    if name in TABLES:
        return FlowSizes(name, TABLES[name])
    if name.strip().isdecimal():
        return FlowSizes(f"{name.strip()} bytes", ((float(name), 1.0),))
    looks_like_file = "/" in name or "." in name
    require(
        looks_like_file or (len(name) <= LONGEST_NAME and Path(name).is_file()),
        f"there is no distribution of sizes {name!r}: {meant(name, TABLES)}; or give a number of "
        "bytes for all flows, or a FILE whose lines have bytes and probability",
        UnknownNameError,
    )
    return read_sizes(Path(name))


def read_sizes(file: Path) -> FlowSizes:
    """Read a distribution of flow sizes from a file: lines of bytes and cumulative probability."""
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(LONGEST_FILE + 1)
        require(
            len(text) <= LONGEST_FILE,
            f"the file of flow sizes {file} has more than {LONGEST_FILE} characters",
        )
        lines = text.splitlines()
    except PillarboxError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise PillarboxError(f"the file of flow sizes {file} cannot be read: {reason}") from None
    points = [
        _parsed_point(file, number, line)
        for number, line in enumerate((line.partition("#")[0] for line in lines), start=1)
        if line.strip()
    ]
    return FlowSizes(str(file), tuple(points))


def _parsed_point(file: Path, number: int, line: str) -> Point:
    try:
        size, share = map(float, line.replace(",", " ").split())
    except ValueError:
        raise PillarboxError(
            f"line {number} of {file} is {line.strip()!r}: each line has bytes and the share of "
            "flows that are at most that large, such as 10000 0.15"
        ) from None
    return size, share


def _check_distribution(name: str, points: Sequence[Point]) -> None:
    """Raise PillarboxError if the points are no cumulative distribution of flow sizes."""
    require(bool(points), f"{name} is no distribution of sizes: it has no point")
    for size, share in points:
        require(
            1 <= size <= MOST_BYTES,
            f"{name} is no distribution of sizes: a flow has 1 to {MOST_BYTES:g} B, not {size:g}",
        )
        require(
            share >= 0,
            f"{name} is no distribution of sizes: a share is not below 0, as {share:g} is",
        )
    for (size, share), (next_size, next_share) in pairwise(points):
        require(
            size <= next_size and share <= next_share,
            f"{name} is no cumulative distribution: after {size:g} bytes and {share:g} come "
            f"{next_size:g} bytes and {next_share:g}, and neither may go down",
        )
    last = points[-1][1]
    percent = ": divide percents by 100" if abs(last - 100) < 1 else ""
    require(
        abs(last - 1) <= ROUNDING,
        f"{name} is no cumulative distribution: its last share is {last:g}, not 1{percent}",
    )
