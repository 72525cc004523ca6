"""DFR: single decisions, and whole paths."""

from __future__ import annotations

import random
from functools import cache

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.failures import NONE, Failures, parse_failures
from pillarbox.hosts.dcell import dfr
from pillarbox.hosts.dcell.dfr import Heading, Lost, ProxyHop
from pillarbox.hosts.dcell.paths import path as plain_path
from pillarbox.topos.dcell import DCell
from tests.hosts.dcell.failed import SMALL, alive, cabled, names, walked


def links(dcell: DCell, *texts: str) -> Failures:
    return parse_failures(dcell, [f"cut {text}" for text in texts])


# -- one decision ------------------------------------------------------------------------------


def decided(
    dcell: DCell,
    at: str,
    destination: str,
    failures: Failures,
    proxy: str | None = None,
    came_by: int | None = None,
) -> tuple[str, str | None, bool]:
    """What `choose` says at a server: next server, proxy, and whether it rerouted."""
    server = dcell.server(at)
    heading = Heading(
        dcell.server(destination), None if proxy is None else dcell.server(proxy), came_by
    )
    choice = dfr.choose(dcell, 1, server, heading, dfr.Converged(dcell, 1, server, failures))
    assert isinstance(choice, ProxyHop), choice
    assert choice.step.peer in dcell.peers(server, choice.step.port)
    to = None if choice.proxy is None else dcell.address(choice.proxy)
    return dcell.address(choice.step.peer), to, choice.rerouted


@pytest.fixture
def dcell() -> DCell:
    return DCell(4, 3)


def test_the_next_outgoing_link_is_taken_where_it_works(dcell: DCell) -> None:
    # From DCell_1 [0,0] to [0,1]: the level-2 cable 0.0.0.0 - 0.1.0.0.
    assert decided(dcell, "0.0.0.0", "0.1.3.3", NONE) == ("0.1.0.0", None, False)
    assert decided(dcell, "0.0.0.1", "0.1.3.3", NONE) == ("0.0.0.0", None, False)


def test_local_reroute_takes_the_nearest_link_of_the_same_level(dcell: DCell) -> None:
    cut = links(dcell, "0.0.0.0-0.1.0.0")
    assert decided(dcell, "0.0.0.1", "0.1.3.3", cut) == ("0.2.0.0", "0.2.0.0", True)
    # The end of the cut cable itself: of its neighbours, one hop away all, the lowest uid is first.
    assert decided(dcell, "0.0.0.0", "0.1.3.3", cut)[1:] == ("0.2.0.0", True)
    dead = parse_failures(dcell, ["kill 0.0.0.0"])
    assert decided(dcell, "0.0.0.1", "0.1.3.3", dead) == ("0.2.0.0", "0.2.0.0", True)


def test_servers_on_the_way_to_a_proxy_follow_it(dcell: DCell) -> None:
    cut = links(dcell, "0.0.0.0-0.1.0.0", "0.0.0.1-0.2.0.0")
    assert decided(dcell, "0.0.0.1", "0.1.3.3", cut, proxy="0.5.0.0")[1:] == ("0.5.0.0", False)


def test_proxy_goes_on_to_the_destination(dcell: DCell) -> None:
    cut = links(dcell, "0.0.0.0-0.1.0.0")
    there = decided(dcell, "0.2.0.0", "0.1.3.3", cut, proxy="0.2.0.0", came_by=2)
    assert there == ("0.2.0.1", None, False), "to the cable 0.2.0.1 - 0.1.0.1"


def test_proxy_whose_way_on_has_failed_too_jumps_up(dcell: DCell) -> None:
    # All of DCell_1 [0,1], through which the way to DCell_2 1 goes, is gone: from 0.2.0.0 the
    # packet leaves DCell_2 0 altogether.
    inner = dfr.first_link(dcell, 2, dcell.server("0.0.0.0"), dcell.server("21.0.0.0"))
    assert inner is not None and dcell.address(inner[0]) == "0.1.0.0"
    rack = parse_failures(dcell, [f"kill 0.1.{i}.{j}" for i in range(5) for j in range(4)])
    first = decided(dcell, "0.0.0.0", "21.0.0.0", rack)
    assert first[2] and first[1] is not None and first[1].startswith("0."), "level 2"
    second = decided(dcell, "0.2.0.0", "21.0.0.0", rack, proxy="0.2.0.0", came_by=2)
    assert second[2] and second[1] is not None and not second[1].startswith("0."), "level 3"
    path, why = walked(dcell, rack, dcell.server("0.0.0.0"), dcell.server("21.0.0.0"))
    assert not why and not set(path.servers) & rack.nodes


def test_departs_no_jump_up_when_the_destination_is_in_the_own_dcell(dcell: DCell) -> None:
    # The proxy's way on to 0.1.3.3 has failed; a level-3 link would only lead out of DCell_2 0.
    cut = links(dcell, "0.0.0.0-0.1.0.0", "0.2.0.1-0.1.0.1")
    _, proxy, rerouted = decided(dcell, "0.2.0.0", "0.1.3.3", cut, proxy="0.2.0.0", came_by=2)
    assert rerouted and proxy is not None and proxy.startswith("0.")
    path, why = walked(dcell, cut, dcell.server("0.0.0.1"), dcell.server("0.1.3.3"))
    assert not why and all(step.port < 3 for step in path.steps)


def test_departs_never_back_over_the_link_by_which_it_came_to_its_proxy(dcell: DCell) -> None:
    # 1.0.0.0's cable of level 3 is the only one between DCell_2 0 and 1. Who came over it as to a
    # proxy, and has its destination in DCell_2 0, takes another way into it.
    near, far = dcell.server("0.0.0.0"), dcell.server("1.0.0.0")
    assert dcell.peers(near, 3) == [far]
    back = decided(dcell, "1.0.0.0", "0.1.3.3", NONE, proxy="1.0.0.0", came_by=3)
    assert back[1:] != ("0.0.0.0", True) and back[2]
    assert back[1] is not None and back[1].split(".")[0] not in "01"
    assert decided(dcell, "1.0.0.0", "0.1.3.3", NONE) == ("0.0.0.0", None, False)


def test_lower_levels_come_last() -> None:
    # The last DCell_2 has one DCell_1: most others have a DCell_1 without any link of level 3.
    dcell = DCell(2, 3, servers=1560)
    a, b = dcell.server("6.6.0.0"), dcell.server("37.0.0.0")
    assert not any(dcell.peers(server, 3) for server in dfr.members(dcell, 1, a))
    assert decided(dcell, "6.6.0.0", "37.0.0.0", NONE)[2]
    path, why = walked(dcell, NONE, a, b)
    assert not why and path.destination == b


def test_no_way_at_all_is_an_answer() -> None:
    dcell = DCell(4, 2)
    lonely = Failures(
        links=frozenset(
            frozenset((server, peer)) for server in range(20) for peer in dcell.peers(server, 2)
        )
    )
    heading = Heading(dcell.server("5.0.0"))
    view = dfr.Converged(dcell, 1, 0, lonely)
    assert dfr.choose(dcell, 1, 0, heading, view) == Lost("no proxy is left")
    dead = dfr.Converged(dcell, 1, 0, Failures(frozenset([7])))
    assert dfr.choose(dcell, 1, 0, Heading(7), dead) == Lost("no path inside the DCell_1")


@given(st.data())
@pytest.mark.parametrize("spec", ["dcell,2,3", "dcell,3,2", "dcell,4,3,servers=5000"])
def test_all_servers_of_a_dcell_agree_on_the_next_outgoing_link(
    spec: str, data: st.DataObject
) -> None:
    dcell = topos.parse(spec)
    a, destination = (data.draw(st.integers(0, dcell.servers - 1)) for _ in range(2))
    for b in range(dcell.k + 1):
        link = dfr.first_link(dcell, b, a, destination)
        for other in dfr.members(dcell, min(b, 1), a):
            assert dfr.first_link(dcell, b, other, destination) == link
        path = plain_path(dcell, a, destination)
        above = [
            (server, step)
            for server, step in zip(path.servers, path.steps, strict=False)
            if step.port > b
        ]
        assert link == (above[0] if above else None)


# -- whole paths -------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [*SMALL, "dcell,5,0"])
def test_every_pair_without_failures_keeps_the_bound(spec: str) -> None:
    dcell = topos.parse(spec)
    view = cache(lambda server: dfr.Converged(dcell, min(1, dcell.k), server))
    for a in range(dcell.servers):
        for b in range(dcell.servers):
            path, why = dfr.walk(dcell, a, b, view)
            assert not why and path.destination == b
            assert len(set(path.servers)) == len(path.servers)
            assert len(path) <= 2 ** (dcell.k + 1) - 1
            path.nodes(dcell)  # raises where a hop follows no cable


def test_partial_dcells_grown_by_whole_dcell_1s_are_routed_without_failures() -> None:
    lost = pairs = 0
    drawn = random.Random(1)
    for whole in range(1, 301, 29):
        dcell = DCell(2, 3, servers=6 * whole)
        view = cache(lambda server, net=dcell: dfr.Converged(net, 1, server))
        for _ in range(25):
            a, b = (drawn.randrange(dcell.servers) for _ in range(2))
            path, why = dfr.walk(dcell, a, b, view)
            path.nodes(dcell)
            lost, pairs = lost + bool(why), pairs + 1
    assert lost <= 0.01 * pairs


def test_of_equally_near_proxies_the_lowest_is_taken() -> None:
    # By the upper port first, packets went round the racks 5.3 and 5.4 until their retries ended.
    dcell = DCell(2, 3, servers=300)
    rack = [f"kill 5.1.{a}.{b}" for a in range(3) for b in range(2)]
    ends = dcell.server("5.3.0.1"), dcell.server("7.0.1.1")
    (path,) = route(dcell, "dfr", *ends, parse_failures(dcell, rack)).paths
    assert names(dcell, path) == (
        "5.3.0.1 5.3.0.0 5.0.1.0 2.0.2.0 2.0.0.1 2.0.0.0 2.1.0.0 7.0.1.0 7.0.1.1"
    )


@pytest.mark.parametrize(("ratio", "least"), [(0.02, 0.999), (0.1, 0.99), (0.2, 0.93)])
def test_success_is_close_to_what_is_reachable(ratio: float, least: float) -> None:
    """Fig. 7, on 420 servers: of what any routing could deliver, DFR delivers nearly all."""
    dcell = DCell(4, 2)
    reachable = delivered = 0
    for seed in range(3):
        drawn = random.Random(seed)
        dead = frozenset(drawn.sample(range(dcell.servers), int(ratio * dcell.servers)))
        failures = Failures(dead)
        graph = cabled(dcell, failures)
        view = cache(lambda server, failed=failures: dfr.Converged(dcell, 1, server, failed))
        live = alive(dcell, failures)
        for a in drawn.sample(live, 3):
            within = networkx.node_connected_component(graph, a)
            for b in live:
                path, why = dfr.walk(dcell, a, b, view)
                assert bool(why) == (path.destination != b)
                assert b in within or why
                reachable += b in within
                delivered += not why
    assert delivered >= least * reachable, f"{delivered} of {reachable}"


def test_dropped_says_where_and_why() -> None:
    dcell = DCell(4, 1)
    cut = parse_failures(dcell, ["stop s4", "cut 4.3-3.3"])
    routed = route(dcell, "dfr", 0, dcell.server("4.3"), cut)
    assert routed.dropped == "dropped at 0.0: no path inside the DCell_1"


def test_paths_under_equal_failures_share_the_views_of_servers() -> None:
    dcell = topos.parse("dcell,4,1")
    failures = links(dcell, "0.3-4.0")
    dfr._converged.cache_clear()
    for source in range(dcell.servers):
        route(dcell, "dfr", source, (source + 7) % dcell.servers, failures)
        route(dcell, "dfr", source, (source + 3) % dcell.servers, failures)
    assert dfr._converged.cache_info().misses <= dcell.servers
