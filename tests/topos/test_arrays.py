"""Cables as arrays: in blocks so small that they matter, and in full."""

from collections import Counter

import numpy
import pytest

from pillarbox import topos
from pillarbox.topos.base import arrays
from pillarbox.topos.base.errors import PillarboxError

EXAMPLES = [spec for kind in topos.kinds() for spec in topos.network(kind).examples]


@pytest.mark.parametrize("block", [7, 1 << 15])
@pytest.mark.parametrize("spec", EXAMPLES)
def test_arrays_are_the_links_whatever_the_size_of_a_block(
    spec: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "BLOCK", block)
    topology = topos.parse(spec)
    told = topology.cable_arrays()
    rows = zip(*(column.tolist() for column in told), strict=True)
    assert Counter(rows) == Counter(tuple(map(int, link)) for link in topology.links())


def test_columns_are_of_the_smallest_types_that_hold_them() -> None:
    told = topos.parse("bcube,8,4").cable_arrays()
    assert [column.dtype for column in told] == [
        numpy.dtype(name) for name in ("uint16", "uint8", "uint16", "uint8", "uint8")
    ]
    assert told.a.max() == 8**5 - 1  # and nothing wrapped around
    assert told.b.max() == 8**5 + 5 * 8**4 - 1


@pytest.mark.parametrize("error", [-1, 1])
def test_wrong_count_is_told_and_no_array_given(error: int) -> None:
    topology = topos.parse("bcube,4,1")
    topology.cables += error
    with pytest.raises(PillarboxError, match=r"bcube,4,1 declares \d+ cables, but wires 32"):
        topology.cable_arrays()
