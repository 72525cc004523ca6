"""Paths of flows, read from what servers say of themselves."""

from __future__ import annotations

import pytest

from pillarbox import topos
from pillarbox.experiments.runs.trials import recorded_paths
from pillarbox.experiments.runs.trials.recorded_paths import (
    chosen_paths,
    path_of,
    paths_of,
    recorded_flow_paths,
)
from pillarbox.hosts.dpillar.multipath import BothWays


def test_source_routes_of_tcp_flows_alone():
    states = {
        "0.0": {
            "flows": [
                {"protocol": 6, "path": ["0.0", "0.1", "1.1"]},
                {"protocol": 6, "path": ["0.0", "1.0", "1.1"]},
                {"protocol": 17, "path": ["0.0", "0.1"]},
                {"protocol": 6, "path": []},
            ]
        },
        "1.1": {},
    }
    assert chosen_paths(states) == {("0.0", "1.1"): [("0.0", "0.1", "1.1"), ("0.0", "1.0", "1.1")]}


def test_paths_to_a_destination_and_of_single_flows():
    def destination(*used: bool) -> list:
        paths = [{"servers": ["0.0.0", f"1.0.{n}"], "in use": use} for n, use in enumerate(used)]
        return [{"server": "1.0.1", "paths": paths}]

    states = {"0.0.0": {"destinations": destination(False, True)}}
    assert chosen_paths(states) == {("0.0.0", "1.0.1"): [("0.0.0", "1.0.1")]}
    flow = {"protocol": 6, "path": {"servers": ["0.0.0", "1.1.0", "1.0.1"]}}
    states["0.0.0"]["flows"] = [flow]
    assert chosen_paths(states) == {("0.0.0", "1.0.1"): [("0.0.0", "1.1.0", "1.0.1")]}


def test_a_pair_whose_ways_have_all_failed_has_none():
    destination = {"server": "1.0.1", "paths": [{"servers": ["0.0.0", "1.0.1"], "in use": False}]}
    chosen = chosen_paths({"0.0.0": {"destinations": [destination]}})
    assert recorded_flow_paths(chosen, [("0.0.0", "1.0.1")] * 2) == ((), ())


def test_entries_are_followed_from_server_to_server():
    key = [1, 2, 6, 4000, 80]
    own = {"flow": key, "destination": "2"}
    states = {
        "0": {"flows": [own], "entries": [{"flow": key, "next": "1"}]},
        "1": {"entries": [{"flow": key, "next": "2"}]},
        "2": {"entries": [{"flow": key, "next": None}]},
    }
    assert chosen_paths(states) == {("0", "2"): [("0", "1", "2")]}
    states["1"]["entries"][0]["next"] = "0"  # a loop is no way
    assert chosen_paths(states) == {}


def test_a_way_is_a_path_where_its_servers_are_neighbours():
    topology = topos.parse("bcube,2,1")
    assert path_of(topology, ("0.0", "0.1", "1.1")).servers == (0, 1, 3)
    assert path_of(topology, ("0.0", "1.1")) is None
    assert path_of(topology, ()) is None


def test_the_chosen_way_counts_before_the_computed_one():
    topology = topos.parse("bcube,2,1")
    ways = [("0.0", "1.0", "1.1"), ("0.0", "0.1", "1.1"), ()]
    found = paths_of(topology, "shortest", [(0, 3), (0, 3), (0, 1)], ways)
    assert [path.servers for path in found] == [(0, 2, 3), (0, 1, 3), (0, 1)]
    assert paths_of(topology, "my_router.py", [(0, 3)], [()]) == [None]


def test_flows_over_switches_keep_the_switches_that_routing_chose():
    topology = topos.parse("fattree,4")
    pairs = [(0, 4), (0, 8), (1, 9), (2, 10)]
    found = paths_of(topology, "two-level", pairs, [()] * 4)
    assert len({step.via for path in found for step in path.steps}) == 4


def test_paths_are_computed_only_for_flows_without_a_recorded_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed: list[tuple[int, int]] = []

    def static_flow_paths(topology, routing, pairs, failures):
        computed.extend(pairs)
        return [None] * len(pairs)

    monkeypatch.setattr(recorded_paths, "static_flow_paths", static_flow_paths)
    recorded = [("0.0", "1.0", "1.1"), (), ("0.0", "0.1")]
    found = paths_of(topos.parse("bcube,2,1"), "bsr", [(0, 3), (3, 0), (0, 1)], recorded)
    assert computed == [(3, 0)]
    assert [path and path.servers for path in found] == [(0, 2, 3), None, (0, 1)]


def test_both_ports_to_the_same_server_are_told_apart():
    """In DPillar with two columns a server shares both of its switches with another one."""
    dpillar = topos.parse("dpillar,4,2")
    state = {
        "server": "0.0.1",
        "paths": [
            {"servers": ["0.0.0", "1.0.0", "0.0.1"], "ports": [port, port], "in use": port == 1}
            for port in (0, 1)
        ],
    }
    (recorded,) = recorded_flow_paths(
        chosen_paths({"0.0.0": {"destinations": [state]}}), [("0.0.0", "0.0.1")]
    )
    found = path_of(dpillar, recorded)
    assert found is not None
    assert [step.port for step in found.steps] == [1, 1]
    unknown = path_of(dpillar, ["0.0.0", "1.0.0"])
    assert unknown is not None and unknown.steps[0].port == 0
    assert path_of(dpillar, ["0.0.0%1", "1.0.1"]) != path_of(dpillar, ["0.0.0%0", "1.0.1"])


def test_every_path_that_dpillar_reports_is_read_as_it_is():
    dpillar = topos.parse("dpillar,4,2")
    router = BothWays(dpillar, 0)
    for destination in range(1, dpillar.servers):
        for path in router.tunnels_to(destination):
            recorded = recorded_paths._passed(router.path_state(path))
            assert path_of(dpillar, recorded) == path
