"""Uneven exchanges: shares by Zipf's law or from a file, and whole parts of them."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.models.workloads.collectives import shares as uneven
from pillarbox.experiments.models.workloads.collectives.bound import collective_time_bound_s
from pillarbox.experiments.models.workloads.collectives.plan import CollectivePlan, plan_for
from pillarbox.experiments.models.workloads.collectives.shares import (
    MOST_SKEW,
    apportioned,
    drawn_or_read_shares,
    zipf_shares,
)
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.topos.base.errors import PillarboxError

TREE = topos.parse("tree,4,1")


def planned(size: int, operation: str = "total-exchange", **options: Any) -> CollectivePlan:
    return plan_for(TREE, Workload(operation, size, options=options), "", 1)


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=20).filter(lambda shares: sum(shares) > 1e-3),
    st.integers(0, 3),
    st.integers(0, 10_000),
)
def test_parts_are_whole_and_near_their_share(shares: list[float], least: int, more: int) -> None:
    total = least * len(shares) + more
    parts = apportioned(total, shares, least)
    assert sum(parts) == total
    for part, share in zip(parts, shares, strict=True):
        assert part >= least
        assert abs(part - least - more * share / sum(shares)) < 1 + 1e-6


@given(st.integers(1, 50), st.floats(0, MOST_SKEW), st.integers())
def test_zipf(count: int, skew: float, seed: int) -> None:
    found = sorted(zipf_shares(count, skew, Random(seed)), reverse=True)
    assert sum(found) == pytest.approx(1)
    for number, share in enumerate(found, start=1):
        assert share == pytest.approx(found[0] / number**skew)


def test_an_even_exchange_has_no_shares() -> None:
    assert drawn_or_read_shares({}, 4, Random(1)) is None
    assert drawn_or_read_shares({"skew": 0}, 4, Random(1)) is None


def test_popular_destinations_get_more_of_an_exchange(tmp_path: Path) -> None:
    file = tmp_path / "shares.json"
    file.write_text("[5, 2, 1, 0]")
    plan = planned(8000, shares=str(file))
    sent = {
        (one.sender, one.receiver): volume
        for one, volume in zip(plan.graph.transfers, plan.volumes, strict=True)
    }
    assert sent[3, 0] > sent[3, 1] > sent[3, 2]
    assert sent[2, 3] == 4  # a part has one element at least
    assert {sent[source, 0] for source in (1, 2, 3)} == {sent[3, 0]}
    assert sum(plan.volumes) == 3 * 8000  # each destination's share, from all but itself
    received = 3 * sent[3, 0]
    assert collective_time_bound_s(TREE, plan, 8.0) == received  # the popular one's port


def test_draws_follow_the_seed() -> None:
    first, again, other = (
        plan_for(TREE, Workload("total-exchange", 8000, options={"skew": 1.5}), "", seed).volumes
        for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[1, 2]", "has 2 shares, and there are 4 destinations"),
        ("[0, 0, 0, 0]", "have the sum 0.0"),
        ("[1, 1, 1, -1]", "has no shares"),
        ("[1, 1, 1, true]", "has no shares"),
        ("[1, 1, 1, 1e999]", "has no shares"),
        ('{"a": 1}', "has no shares"),
        ("[" * 99_999, "has no shares"),
        ("\x00", "has no shares"),
    ],
)
def test_wrong_files(content: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "shares.json"
    file.write_text(content)
    with pytest.raises(PillarboxError, match=words):
        planned(8000, shares=str(file))


def test_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "shares.json"
    file.write_text(json.dumps([1, 2, 3, 4]))
    monkeypatch.setattr(uneven, "MOST_FILE_BYTES", 12)
    planned(8000, shares=str(file))
    monkeypatch.setattr(uneven, "MOST_FILE_BYTES", 11)
    with pytest.raises(PillarboxError, match="has no shares"):
        planned(8000, shares=str(file))


@pytest.mark.parametrize(
    ("operation", "options", "words"),
    [
        ("total-exchange", {"skew": -0.1}, "from 0 to 10, not -0.1"),
        ("total-exchange", {"skew": 10.1}, "from 0 to 10, not 10.1"),
        ("total-exchange", {"skew": True}, "not True"),
        ("total-exchange", {"skew": "1"}, "not '1'"),
        ("total-exchange", {"skew": 1, "shares": "x"}, "exclude each other"),
        ("total-exchange", {"shares": "/none.json"}, "/none.json cannot be read"),
        ("all-reduce", {"skew": 1}, "the option skew is for total-exchange, and not for all-re"),
    ],
)
def test_wrong_options(operation: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(PillarboxError, match=words):
        planned(8000, operation, **options)
