"""DPillar's shortest paths from the addresses alone, against a search of the graph."""

from __future__ import annotations

import pytest

from pillarbox.hosts.dpillar.paths import minimal_path
from pillarbox.hosts.dpillar.rules import fewest_hops, numbers
from pillarbox.topos.dpillar import DPillar

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
