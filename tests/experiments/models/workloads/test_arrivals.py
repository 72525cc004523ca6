"""Arrivals in memory: the load that was asked for, Poisson, by the seed; and traces of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.models.workloads.arrivals import (
    MOST_OFF,
    Arrivals,
    measurement_window,
    offered_bps,
    poisson_arrivals,
)
from pillarbox.experiments.models.workloads.demand import ARRIVING, demand_of, racks_of
from pillarbox.experiments.models.workloads.patterns import PATTERNS
from pillarbox.experiments.models.workloads.sizes import sizes_of
from pillarbox.experiments.models.workloads.traces import read_trace, write_trace
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology

BCUBE = topos.parse("bcube,4,1")
NETWORKS = [topos.parse(spec) for kind in topos.kinds() for spec in topos.network(kind).examples]
SMALL = [topology for topology in NETWORKS if 4 < topology.servers <= 64]
CAPACITY_BPS = 16e8


def arriving(**values: Any) -> Workload:
    given = {"arrivals": "poisson", "load": 0.6, "duration_s": 20.0, "sizes": "storage"}
    return Workload(**(given | values))


@given(
    st.floats(0.05, 0.95),
    st.sampled_from(["web-search", "storage", "hadoop", "20000"]),
    st.integers(0, 1 << 31),
)
def test_what_is_offered_is_what_was_asked_for(load: float, sizes: str, seed: int) -> None:
    workload = arriving(load=load, sizes=sizes, size_scale=5.0, duration_s=60.0)
    found = poisson_arrivals(BCUBE, workload, seed, CAPACITY_BPS)
    assert offered_bps(found, measurement_window(workload)) == pytest.approx(
        load * CAPACITY_BPS, rel=MOST_OFF
    )
    assert (numpy.diff(found.start_s) >= 0).all()
    assert found.start_s[-1] < 63
    assert (found.source != found.destination).all()


def test_sizes_and_moments_are_those_of_the_distributions() -> None:
    workload = arriving(size_scale=0.5, warm_up_s=0, cool_down_s=0)
    found = poisson_arrivals(BCUBE, workload, 3, CAPACITY_BPS)
    count = len(found.start_s)
    most = 1.95 / count**0.5  # Kolmogorov's bound at 1 in 1000
    sizes, ranks = numpy.sort(found.volume_bytes), numpy.arange(1, count + 1) / count
    expected = numpy.interp(sizes + 0.5, *zip(*sizes_of("storage").scaled(0.5).points, strict=True))
    assert numpy.abs(ranks - expected).max() < most + 1 / count + 1e-3  # whole bytes
    gaps = numpy.sort(numpy.diff(found.start_s)) / (20.0 / count)
    assert numpy.abs(ranks[: count - 1] - (1 - numpy.exp(-gaps))).max() < most


def test_the_seed_decides_everything() -> None:
    first, again, other = (
        poisson_arrivals(BCUBE, arriving(), seed, CAPACITY_BPS) for seed in (1, 1, 2)
    )
    for one, same in zip(first, again, strict=True):
        assert (one == same).all()
    assert len(first.start_s) != len(other.start_s) or (first.start_s != other.start_s).any()


@given(st.sampled_from(SMALL), st.sampled_from([*PATTERNS, *ARRIVING]), st.integers(0, 1 << 31))
def test_every_pattern_is_shares(topology: Topology, pattern: str, seed: int) -> None:
    workload = arriving(pattern=pattern)
    _, servers = numpy.unique(racks_of(topology), return_counts=True)
    if pattern == "rack" and (len(servers) == 1 or servers.min() == 1):
        with pytest.raises(PillarboxError, match="choose another pattern than rack"):
            demand_of(topology, workload, seed)
        return
    demand = demand_of(topology, workload, seed)
    assert demand.sum() == pytest.approx(1)
    assert (demand >= 0).all()
    assert not numpy.diag(demand).any()


def test_so_much_stays_in_the_rack_and_so_much_goes_to_the_hot_spot() -> None:
    racks = racks_of(BCUBE)
    inside = racks[:, None] == racks[None, :]
    rack = demand_of(BCUBE, arriving(pattern="rack", options={"share": 0.7}), 1)
    assert rack[inside].sum() == pytest.approx(0.7)
    options = {"share": 0.4, "servers": "0.0,1.1"}
    hot = demand_of(BCUBE, arriving(pattern="hotspot", options=options), 1)
    others = 0.6 * 2 / 16
    assert hot[:, [0, 5]].sum() == pytest.approx(0.4 + others)


@given(st.sampled_from(SMALL), st.integers(1, 4), st.integers(0, 1 << 31))
def test_requests_are_answered_by_several_at_once(
    topology: Topology, senders: int, seed: int
) -> None:
    workload = arriving(pattern="incast", options={"senders": senders}, sizes="5000")
    found = poisson_arrivals(topology, workload, seed, 1e7)
    assert offered_bps(found, measurement_window(workload)) == pytest.approx(6e6, rel=MOST_OFF)
    for start_s in numpy.unique(found.start_s):
        own = found.start_s == start_s
        assert own.sum() == senders
        (asks,) = numpy.unique(found.destination[own])
        assert len({*found.source[own].tolist(), int(asks)}) == senders + 1


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 1 << 31))
def test_a_shuffle_is_every_sender_to_every_receiver_at_once(
    senders: int, receivers: int, seed: int
) -> None:
    options = {"senders": senders, "receivers": receivers}
    workload = arriving(pattern="shuffle", options=options, sizes="5000")
    found = poisson_arrivals(BCUBE, workload, seed, 1e7)
    assert offered_bps(found, measurement_window(workload)) == pytest.approx(6e6, rel=MOST_OFF)
    for start_s in numpy.unique(found.start_s)[:5]:
        own = found.start_s == start_s
        pairs = set(zip(found.source[own].tolist(), found.destination[own].tolist(), strict=True))
        assert len(pairs) == own.sum() == senders * receivers
        ends = [{pair[side] for pair in pairs} for side in (0, 1)]
        assert [len(one) for one in ends] == [senders, receivers]
        assert not ends[0] & ends[1]


def test_requests_come_on_top_of_their_background_and_within_the_load() -> None:
    options = {"bytes": 2000, "per_s": 50}
    workload = arriving(pattern="requests", options=options, sizes="web-search", size_scale=0.02)
    found = poisson_arrivals(BCUBE, workload, 1, CAPACITY_BPS)
    small = found.volume_bytes == 2000
    assert small.sum() == 50 * (measurement_window(workload).until_s + workload.cool_down_s)
    assert (numpy.diff(found.start_s) >= 0).all()
    wanted = 0.6 * CAPACITY_BPS
    assert offered_bps(found, measurement_window(workload)) == pytest.approx(
        wanted, rel=2 * MOST_OFF
    )


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"load": 1.0}, "above 0 and below 1, not 1"),
        ({"load": 0.0}, "above 0 and below 1, not 0"),
        ({"load": None}, "need a load"),
        ({"load_of": "server"}, "did you mean servers"),
        ({"duration_s": None}, "need duration_s"),
        ({"volume_bytes": 5}, "omit volume_bytes"),
        ({"arrivals": "posson"}, "arrivals are poisson, or a trace"),
        ({"arrivals": None}, "a load needs arrivals"),
        ({"arrivals": "mine.csv"}, "omit load"),
        ({"warm_up_s": -1.0}, "warm_up_s is at least 0"),
    ],
)
def test_what_is_no_workload_is_refused(values: dict[str, Any], told: str) -> None:
    with pytest.raises(PillarboxError, match=told):
        arriving(**values)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"sizes": "70000000", "load": 0.01}, "no flows of 70000000 bytes"),
        ({"sizes": "1", "duration_s": 1e6}, "more than"),
        ({"size_scale": 0.0}, "scaled by a factor above 0"),
        ({"pattern": "rack", "options": {"share": 2}}, "a share from 0 to 1"),
        ({"pattern": "rack", "options": {"part": 2}}, "has no option 'part'"),
        ({"pattern": "racks"}, "did you mean rack"),
        ({"pattern": "incast", "options": {"senders": 16}}, "from 1 to 15"),
        ({"pattern": "shuffle", "options": {"senders": 12, "receivers": 5}}, "from 1 to 4"),
        ({"pattern": "shuffle", "options": {"receiver": 5}}, "has no option 'receiver'"),
        ({"pattern": "requests", "options": {"per_s": 0}}, "from 1 to 100000"),
        (
            {"pattern": "requests", "options": {"bytes": 1 << 20, "per_s": 90_000}},
            "more than a load of 0.6",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(values: dict[str, Any], told: str) -> None:
    with pytest.raises(PillarboxError, match=told):
        poisson_arrivals(BCUBE, arriving(**values), 1, CAPACITY_BPS)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("numbers", [False, True])
def test_a_trace_is_read_as_it_was_written(tmp_path: Path, ending: str, numbers: bool) -> None:
    for topology in (BCUBE, topos.parse("dcell,4,1"), topos.parse("tree,4,2")):
        made = poisson_arrivals(topology, arriving(duration_s=2.0), 1, CAPACITY_BPS)
        file = tmp_path / f"flows.{ending}"
        write_trace(topology, made, file, numbers=numbers)
        read = read_trace(topology, file)
        assert read.start_s == pytest.approx(made.start_s, abs=1e-9)
        for one, same in zip(read[1:], made[1:], strict=True):
            assert (one == same).all()


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("", "without flows"),
        ("1,0.0,0.1,10\n0.5,0.0,0.1,10", "row 2 .*, column time_s: 0.5 s goes back in time"),
        ("-1,0.0,0.1,10", "column time_s: time begins at 0"),
        ("1e10,0.0,0.1,10", "column time_s: a flow begins by 1e.09 s"),
        ("soon,0.0,0.1,10", "row 1 .*, column time_s: a flow has a number here"),
        (",0.0,0.1,10", "column time_s: a flow has a number here"),
        ("inf,0.0,0.1,10", "column time_s: a flow has a number here"),
        ("1,0.0,0.1,0", "column bytes: a flow has at least 1 byte, not 0"),
        ("1,0.0,0.1,1.5", "column bytes: bytes are a whole number"),
        ("1,0.0,0.1,", "column bytes: a flow has a number here"),
        ("1,0.0,0.1,1e99", "column bytes: a flow has at most 1e.15 bytes, not 1e.99"),
        (f"1,0.0,0.1,{'9' * 400}", "column bytes: a flow has a number here"),
        ("1,,0.1,10", "row 1 .*, column source: a flow has a server here"),
        ("1,0.0,,10", "column destination: a flow has a server here"),
        ("1,0.0,0.0,10", "column destination: server 0 would send to itself"),
        ("1,0.0,0.9,10", "column destination: .* is not a server of bcube,4,1"),
        ("1,0,16,10", "column destination: there is no server 16"),
        (f"1,0,{'9' * 5000},10", "column destination: 9*… is no server"),
        ("1,0.0,s1,10", "column destination: s1 is no server"),
        ("1,0.0,0.1,10\n1,0.0,0.1", "row 2 .* has 3 columns, and its header has 4"),
        ("1,0.0,0.1,10,5", "row 1 .* has 5 columns"),
        (f"1{',0' * 400_000}", "a line of 65536 or more characters"),
        ('1,0.0,0.1,"10', "is no trace: unexpected end of data"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, rows: str, told: str) -> None:
    file = tmp_path / "flows.csv"
    file.write_text(f"time_s,source,destination,bytes\n{rows}\n")
    with pytest.raises(PillarboxError, match=told):
        read_trace(BCUBE, file)


def test_a_file_that_is_no_table_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(PillarboxError, match="cannot be read"):
        read_trace(BCUBE, tmp_path / "none.csv")
    for ending in ("csv", "parquet"):
        file = tmp_path / f"flows.{ending}"
        file.write_text("time,from\n1,2\n")
        with pytest.raises(PillarboxError, match="is no trace"):
            read_trace(BCUBE, file)


def test_arrivals_are_flows() -> None:
    made = Arrivals(*(numpy.array(column) for column in ([0.5], [1], [2], [300])))
    (flow,) = made.flows()
    assert (flow.source, flow.destination, flow.volume_bytes, flow.start_s) == (1, 2, 300, 0.5)
