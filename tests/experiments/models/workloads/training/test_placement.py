"""Placement of jobs: distinct servers, and sub-structures that no two jobs share."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.models.workloads.training.placement import PLACEMENTS, servers_of_jobs
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.spec import kinds, network
from pillarbox.topos.base.topology import Topology

IN_CELLS = [kind for kind in kinds() if network(kind).cell]


def test_networks_with_sub_structures() -> None:
    assert set(IN_CELLS) == {"bcube", "dcell", "domains", "ficonn", "rail"}


@given(
    st.sampled_from([spec for kind in IN_CELLS for spec in network(kind).examples]),
    st.sampled_from(PLACEMENTS),
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(0, 9),
)
def test_no_two_jobs_share_a_server(spec: str, placement: str, ranks: list[int], seed: int) -> None:
    topology = topos.parse(spec)
    assume(sum(ranks) <= topology.servers)
    with suppress(PillarboxError):  # the placement may need more servers
        found = servers_of_jobs(topology, ranks, placement, seed)
        check_servers(topology, ranks, placement, found)


def check_servers(
    topology: Topology, ranks: list[int], placement: str, found: list[tuple[int, ...]]
) -> None:
    assert list(map(len, found)) == ranks
    everyone = [server for servers in found for server in servers]
    assert len(set(everyone)) == len(everyone)
    assert all(0 <= server < topology.servers for server in everyone)
    if placement == "paper":
        cells = [{topology.digits(server)[:-1] for server in servers} for servers in found]
        assert sum(map(len, cells)) == len(set().union(*cells))


@pytest.mark.parametrize(
    ("spec", "ranks", "servers"),
    [
        ("dcell,4,1", [5, 4], [(0, 1, 2, 3, 4), (8, 9, 10, 11)]),
        # 12 ranks leave one BCube_0 of the first BCube_1, too few for 8: these take the second.
        ("bcube,4,2", [12, 8, 4], [range(12), range(16, 24), range(12, 16)]),
        ("rail,4,2", [3, 2], [(0, 1, 2), (4, 5)]),
    ],
)
def test_smallest_sub_structure_with_enough_free_ones(
    spec: str, ranks: list[int], servers: list[range]
) -> None:
    found = servers_of_jobs(topos.parse(spec), ranks, "paper", 1)
    assert found == list(map(tuple, servers))


def test_packed_jobs_follow_one_another() -> None:
    assert servers_of_jobs(topos.parse("tree,2,2"), [1, 3], "packed", 1) == [(0,), (1, 2, 3)]


@pytest.mark.parametrize(
    ("spec", "ranks", "placement", "words"),
    [
        ("tree,4,4", [2], "paper", "no paper describes sub-structures of tree,4,4"),
        ("fattree,4", [2, 2], "paper", "choose the placement packed or random"),
        ("rail,4,2", [2, 2, 2], "paper", "has no domain of its own for each of 3 jobs"),
        ("tree,2,2", [5], "packed", "has 4 servers, and this workload has 5 ranks"),
        ("tree,2,2", [3, 2], "random", "these 2 jobs have 5 ranks"),
        ("tree,2,2", [2], "best", "options.placement is packed"),
    ],
)
def test_wrong_placements(spec: str, ranks: list[int], placement: str, words: str) -> None:
    with pytest.raises(PillarboxError) as raised:
        servers_of_jobs(topos.parse(spec), ranks, placement, 1)
    assert words in str(raised.value)
