"""DCell's rules on single servers, worked out from the paper's definitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pillarbox.hosts.dcell import rules
from pillarbox.hosts.dcell.rules import NONE, DCellHop, choose, own_link

SIZES = [2, 6, 42, 1806]  # dcell,2,3
NET = rules.nested(SIZES)
NO_HOP = DCellHop(NONE, NONE, NONE, False)


class Links:
    """States of the links of a DCell_b; records the servers and levels whose state is read."""

    def __init__(self, *working: tuple[int, int]) -> None:
        self.working, self.read = working, list[tuple[int, int]]()

    def __getitem__(self, link: tuple[int, int]) -> bool:
        self.read.append(link)
        return link in self.working


def inside_of(ports: list[int], peers: list[int], nearest: list[int]) -> Any:
    return SimpleNamespace(ports=ports, peers=peers, nearest=nearest)


ALONE = inside_of([NONE] * 2, [NONE] * 2, [])  # no other server of the DCell_0 is reachable


def test_a_hop_over_an_own_link_keeps_the_proxy_ahead() -> None:
    works: Any = {(0, 1): False}
    assert own_link(works, 0, 7, NONE, (0, 5, 1)) == NO_HOP
    assert own_link({(0, 1): True}, 0, 7, NONE, (0, 5, 1)) == DCellHop(1, 5, 7, False)
    assert own_link({(0, 1): True}, 0, 0, NONE, (0, 5, 1)) == DCellHop(1, 5, NONE, False)
    assert own_link({(0, 1): True}, 0, 7, 1, (0, 5, 1)) == NO_HOP  # the link of arrival
    assert own_link({(1, 1): True}, 0, 7, NONE, (1, 5, 1)) == NO_HOP  # another server's link


def test_a_destination_in_the_own_dcell_that_cannot_be_reached_has_no_hop() -> None:
    hop = choose(NET, 0, Links(), ALONE, 0, 1, NONE, NONE, (1, NONE, NONE))
    assert hop == NO_HOP


@pytest.mark.parametrize(
    ("level", "proxy", "destination", "levels"),
    [
        # Fig. 5: the level of the failed link, then the higher levels, then the lower ones.
        (1, NONE, 2, [1, 2, 3]),
        (2, NONE, 6, [2, 3, 1]),
        (3, NONE, 42, [3, 2, 1]),
        # At the proxy: one level higher, unless the destination is in the same DCell_l.
        (1, 0, 6, [2, 3, 1]),
        (1, 0, 1, [1, 2, 3]),
        (2, 0, 42, [3, 2, 1]),
        (3, 0, 42, [3, 2, 1]),
    ],
)
def test_levels_are_tried_from_the_failed_one_up_and_then_down(
    level: int, proxy: int, destination: int, levels: list[int]
) -> None:
    link = (1, NONE, level)  # the link belongs to server 1, which is not reachable
    links = Links()
    assert choose(NET, 0, links, ALONE, 0, destination, proxy, NONE, link) == NO_HOP
    assert links.read == [(0, tried) for tried in levels]
    # The link of arrival is not used.
    links = Links()
    assert choose(NET, 0, links, ALONE, 0, destination, proxy, 2, link) == NO_HOP
    assert links.read == [(0, tried) for tried in levels if tried != 2]


@pytest.mark.parametrize(
    ("works", "found"),
    [
        # The cable of server 4 at level 2 has failed: levels 2, 3 and 1 are tried.
        ([(5, 2)], DCellHop(0, 5, 36, True)),
        ([(4, 3)], DCellHop(3, 210, 210, True)),
        ([(5, 3)], DCellHop(0, 5, 252, True)),
        ([(5, 1)], DCellHop(0, 5, 3, True)),
        ([(4, 3), (5, 3)], DCellHop(3, 210, 210, True)),  # the own cable of a level first
        ([(4, 3), (5, 2)], DCellHop(0, 5, 36, True)),  # the level comes before the distance
        ([(4, 1), (5, 3)], DCellHop(0, 5, 252, True)),
    ],
)
def test_the_proxy_is_the_far_end_of_the_nearest_working_link(
    works: list[tuple[int, int]], found: DCellHop
) -> None:
    inside = inside_of([NONE, 0], [NONE, 1], [1])
    assert choose(NET, 0, Links(*works), inside, 4, 30, NONE, NONE, (4, 30, 2)) == found


@pytest.mark.parametrize(
    ("works", "proxy", "found"),
    [
        (True, NONE, DCellHop(0, 5, NONE, False)),
        (True, 30, DCellHop(0, 5, 30, False)),
        (True, 4, DCellHop(0, 5, NONE, False)),  # at the proxy, which the packet leaves behind
        (False, NONE, DCellHop(2, 30, 30, True)),
    ],
)
def test_a_packet_heads_for_the_link_inside_its_dcell_if_the_link_works(
    works: bool, proxy: int, found: DCellHop
) -> None:
    links = Links((4, 2), *[(5, 1)] * works)
    inside = inside_of([NONE, 0], [NONE, 1], [])
    assert choose(NET, 0, links, inside, 4, 2, proxy, NONE, (5, 3, 1)) == found
