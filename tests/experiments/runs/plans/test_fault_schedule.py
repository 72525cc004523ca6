"""Schedules of faults: drawn again from the same seed, and free of what cannot be undone."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import FaultAt, FaultRate
from pillarbox.experiments.runs.plans.fault_schedule import nodes_of, schedule
from pillarbox.hosts.base.fault_kinds import FAULT_KINDS
from pillarbox.hosts.base.faults import Fault
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.spec import small

SPECS = [spec for spec in small() if topos.parse(spec).switches]  # a fault may stop one
RELAYING = [spec for spec in SPECS if topos.parse(spec).ports > 1]
TEN_S = Workload(duration_s=10.0)

rates = st.builds(
    FaultRate,
    fault=st.sampled_from(
        [
            f"{kind.words} {kind.amount_words(one.usual for one in kind.amounts)}".rstrip()
            for kind in FAULT_KINDS
        ]
    ),
    per_minute=st.floats(1.0, 600.0),
    lasting_s=st.floats(0.01, 30.0),
    from_s=st.floats(0.0, 5.0),
    until_s=st.none() | st.floats(6.0, 12.0),
)


def broken(topology: topos.Topology, fault: Fault) -> set[object]:
    """Return what a fault takes away, found without the module that is tested."""
    nodes = [topology.node(text) for text in fault.what]
    if len(nodes) == 2:
        return {frozenset(nodes)}
    if fault.kind != "rack":
        return set(nodes)
    return set(nodes) | {
        server
        for server in range(topology.servers)
        for _, plug in topology.neighbours(server)
        if plug.node == nodes[0]
    }


@given(st.sampled_from(SPECS), st.lists(rates, max_size=3), st.integers(0, 99))
def test_whatever_is_drawn_can_be_done_and_undone(
    spec: str, faults: list[FaultRate], seed: int
) -> None:
    topology = topos.parse(spec)
    drawn = schedule(topology, faults, TEN_S, seed)
    assert drawn == schedule(topology, faults, TEN_S, seed)
    assert drawn == sorted(drawn, key=lambda fault: fault.at_s)
    for fault in drawn:
        nodes_of(topology, fault)  # refuses what is not there
        assert fault.until_s is not None
        assert fault.at_s < fault.until_s
        assert fault.at_s <= 12.001
    for a, b in combinations(drawn, 2):
        if a.at_s < b.until_s and b.at_s < a.until_s:  # type: ignore[operator]
            assert not broken(topology, a) & broken(topology, b)


def test_networks_are_struck_at_the_same_moments() -> None:
    rate = FaultRate("cut", per_minute=60.0, lasting_s=0.5)
    moments = {
        tuple(fault.at_s for fault in schedule(topos.parse(spec), [rate], TEN_S, 7))
        for spec in RELAYING
    }
    assert len(moments) == 1
    assert len(moments.pop()) > 3


def test_another_seed_draws_others() -> None:
    rate = FaultRate("kill", per_minute=60.0, lasting_s=0.5)
    first, second = (schedule(topos.parse("bcube,4,1"), [rate], TEN_S, seed) for seed in (1, 2))
    assert first != second


def test_a_rate_is_that_many_a_minute() -> None:
    rate = FaultRate("cut", per_minute=120.0, lasting_s=0.001)
    drawn = schedule(topos.parse("bcube,4,1"), [rate], Workload(duration_s=600.0), seed=3)
    assert 1200 - 4 * 35 < len(drawn) < 1200 + 4 * 35  # four standard deviations


def test_racks_are_drawn_where_servers_are() -> None:
    tree = topos.parse("tree,4,4")
    rate = FaultRate("rack", per_minute=600.0, lasting_s=0.01)
    hit = {fault.what for fault in schedule(tree, [rate], TEN_S, 1)}
    with_servers = {(tree.name(tree.server_plug(server, 0).node),) for server in range(16)}
    assert hit == with_servers  # and not the root


def test_names_are_written_as_people_know_them() -> None:
    (fault,) = schedule(topos.parse("dcell,4,1"), [FaultAt("cut h3-h16 at 1")], TEN_S, 0)
    assert str(fault) == "cut 0.3-4.0 at 1"


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        ([FaultAt("cut 0.0-4.3 at 1")], "0.0's cables lead to 1.0, s0"),
        ([FaultAt("kill s0 at 1")], "needs a server, and s0 is another kind"),
        ([FaultAt("stop 0.1 at 1")], "needs a switch, and 0.1 is another kind"),
        ([FaultAt("rack s9 at 1")], "its switches are s0 to s4"),
        ([FaultAt("kill 9.0 at 1")], "the numbers go from 0 to 4"),
        ([FaultAt("kill 0.0 at -1")], "before the barrier"),
        ([FaultAt("kill 0.0 at 2 until 2")], "not after it begins"),
        (
            [FaultAt("rack s0 at 1"), FaultAt("kill 0.2 at 2")],
            "begins while the rack of s0 is in effect",
        ),
        ([FaultRate("cut", 0.0, 1.0)], "need per_minute above 0"),
        ([FaultRate("cut", 1.0, 0.0)], "need lasting_s above 0"),
        ([FaultRate("cut", 1.0, 1.0, from_s=20.0)], "have an empty window"),
    ],
)
def test_what_cannot_be_is_refused(faults: list[FaultAt | FaultRate], sentence: str) -> None:
    with pytest.raises(PillarboxError, match=sentence.replace(".", r"\.")):
        schedule(topos.parse("dcell,4,1"), faults, TEN_S, 0)


def test_faults_at_random_need_an_end() -> None:
    with pytest.raises(PillarboxError, match="need until_s"):
        schedule(
            topos.parse("dcell,4,1"),
            [FaultRate("cut", 1.0, 1.0)],
            Workload(volume_bytes=1),
            seed=0,
        )


def test_one_may_begin_where_another_ends() -> None:
    twice = [FaultAt("kill 0.1 at 1 until 2"), FaultAt("kill 0.1 at 2")]
    found = schedule(topos.parse("dcell,4,1"), twice, TEN_S, 0)
    assert [str(fault) for fault in found] == [one.fault for one in twice]
