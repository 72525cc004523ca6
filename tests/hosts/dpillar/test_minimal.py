"""DPillar's shortest paths from the addresses alone, against a search of the graph."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.hosts.dpillar.paths import minimal_path, sp_path
from pillarbox.hosts.dpillar.rules import (
    fewest_hops,
    nearest,
    neighbour,
    numbers,
    sibling,
    symbol,
    symbol_set,
)
from pillarbox.topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE, DPillar

NETWORKS = ((4, 2), (6, 2), (4, 3), (6, 3), (4, 4), (8, 3), (4, 5), (4, 6))
SOURCES = 5  # of each network; every server is a destination


def searched(dpillar: DPillar, source: int) -> dict[int, int]:
    """Return the hops from a server to every server, by a search of the graph."""
    hops, level = {source: 0}, [source]
    while level:
        beyond = {
            peer
            for server in level
            for port in range(2)
            for peer in dpillar.peers(server, port)
            if peer not in hops
        }
        level = sorted(beyond)
        hops |= dict.fromkeys(level, max(hops.values()) + 1)
    return hops


@pytest.mark.parametrize(("n", "k"), NETWORKS)
def test_as_short_as_a_search_finds(n: int, k: int) -> None:
    dpillar = DPillar(n, k)
    for source in range(0, dpillar.servers, dpillar.servers // SOURCES):
        for destination, hops in searched(dpillar, source).items():
            assert fewest_hops(*numbers(dpillar), source, destination) == hops
            path = minimal_path(dpillar, source, destination)
            assert len(path.servers) - 1 == hops


def test_it_turns_where_that_is_shorter() -> None:
    dpillar = DPillar(4, 5)
    # The symbols on both sides of column 0 change: one hop each way, and no way around.
    source, destination = dpillar.server("0.0.0.0.0.0"), dpillar.server("0.1.0.0.0.1")
    assert fewest_hops(*numbers(dpillar), source, destination) == 2


@pytest.mark.parametrize(("n", "k"), [(4, 2), (8, 2), (4, 3), (6, 3), (4, 4)])
def test_each_hop_is_the_first_of_the_search_s_next_hops(n: int, k: int) -> None:
    """Of all next hops, clockwise ones are first, and of these one to the next column."""
    dpillar = DPillar(n, k)
    own = numbers(dpillar)
    for destination in range(dpillar.servers):
        left = searched(dpillar, destination)
        for here in set(range(dpillar.servers)) - {destination}:
            peers = []
            for port in (CLOCKWISE, COUNTER_CLOCKWISE):
                wanted = symbol(*own[1:], destination, symbol_set(own[0], own[2], here, port))
                peers += [(port, step(*own, here, port, wanted)) for step in (neighbour, sibling)]
            first = next(hop for hop in peers if left[hop[1]] == left[here] - 1)
            assert nearest(*own, here, destination) == first
            assert tuple(minimal_path(dpillar, here, destination).steps[0])[:2] == first


@given(data=st.data(), k=st.integers(2, 14), half=st.integers(2, 4))
def test_paths_of_large_networks(data: st.DataObject, k: int, half: int) -> None:
    dpillar = DPillar(2 * half, k)
    source = data.draw(st.integers(0, dpillar.servers - 1))
    # few differing symbols: walks that turn
    label = source % dpillar.column_servers
    for position in data.draw(st.lists(st.integers(0, k - 1), max_size=4)):
        label += (data.draw(st.integers(0, half - 1)) - label // half**position % half) * (
            half**position
        )
    destination = data.draw(st.integers(0, k - 1)) * dpillar.column_servers + label
    if source == destination:
        return
    own = numbers(dpillar)
    hops = fewest_hops(*own, source, destination)
    assert hops == fewest_hops(*own, destination, source)
    for port in (CLOCKWISE, COUNTER_CLOCKWISE):
        assert hops <= len(sp_path(dpillar, source, destination, port).steps)
    path = minimal_path(dpillar, source, destination)
    assert path.servers[-1] == destination
    assert len(path.steps) == hops
    for number, (here, step) in enumerate(zip(path.servers, path.steps, strict=False)):
        assert dpillar.server_plug(here, step.port)[0] in {
            dpillar.server_plug(step.peer, port)[0] for port in range(2)
        }
        assert fewest_hops(*own, here, destination) == hops - number
        assert nearest(*own, here, destination) == (step.port, step.peer)
