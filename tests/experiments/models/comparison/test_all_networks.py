"""The table of all networks: what is in it, and its measures against other ways to compute them."""

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.comparison import all_networks, path_metrics
from pillarbox.experiments.models.comparison.shortest_flows import shortest_flows
from pillarbox.experiments.models.fluid.directed_links import cabled_links, working_links
from pillarbox.hosts.base.failures import parse_failures
from pillarbox.topos.base import diameter as exact


@pytest.mark.parametrize("size", list(all_networks.SPECS))
def test_every_network_is_in_the_table_and_of_about_the_size(size: int) -> None:
    specs = [spec for known, spec in all_networks.installed_specs() if known == size]
    assert {spec.partition(",")[0] for spec in specs} >= set(topos.kinds())
    assert all(0.75 * size <= topos.parse(spec).servers <= 1.25 * size for spec in specs)


@pytest.mark.parametrize(
    "spec", ["bcube,3,1", "dcell,3,1", "ficonn,4,1", "hypercube,4", "tree,3,3"]
)
def test_flows_take_shortest_paths_and_load_all_cables(spec: str) -> None:
    topology = topos.parse(spec)
    partners = all_networks.balanced_partners(
        topology.servers, topology.servers - 1, numpy.random.default_rng(1)
    )
    flows = shortest_flows(topology, partners, seed=1)
    assert flows.longest_hops == exact.diameter(topology)
    # Both count the links of all pairs' shortest paths.
    assert flows.loads.sum() == pytest.approx(len(flows.routes.links))
    assert not flows.loads[
        numpy.setdiff1d(numpy.arange(len(flows.loads)), cabled_links(topology))
    ].any()


@pytest.mark.parametrize("spec", ["bcube,3,1", "hypercube,4", "tree,3,3", "fattree,4"])
def test_loads_are_those_of_brandes_where_paths_are_symmetric(spec: str) -> None:
    topology = topos.parse(spec)
    partners = all_networks.balanced_partners(topology.servers, 1, numpy.random.default_rng(1))
    loads = shortest_flows(topology, partners, seed=1).loads
    assert loads.max() == pytest.approx(path_metrics.link_loads(topology).max())


def test_flows_avoid_failed_links_and_have_none_without_a_path() -> None:
    ring = topos.parse("graph-ring,5") if "ring" in topos.kinds() else topos.parse("ring,5")
    works = working_links(ring, parse_failures(ring, ["cut 0-1"]))
    flows = shortest_flows(ring, numpy.array([[1], [0], [1], [2], [3]]), seed=1, works=works)
    assert numpy.diff(flows.routes.starts).tolist() == [4, 4, 1, 1, 1]
    assert works[flows.routes.links].all()
    tree = topos.parse("tree,2,2")
    works = working_links(tree, parse_failures(tree, ["cut 0.0-s0"]))
    flows = shortest_flows(tree, numpy.array([[1], [0], [3], [2]]), seed=1, works=works)
    assert numpy.diff(flows.routes.starts).tolist() == [0, 0, 2, 2]


def test_partners_are_as_many_for_each_and_never_the_server_itself() -> None:
    found = all_networks.balanced_partners(12, 5, numpy.random.default_rng(3))
    assert (numpy.bincount(found.ravel()) == 5).all()
    assert all(
        server not in row and len(set(row)) == 5 for server, row in enumerate(found.tolist())
    )


@pytest.mark.parametrize(
    ("spec", "per_server"),
    [
        ("bcube,8,1", 8 * 63 / 7 / 64),  # Guo 2009, Theorem 6: n (N - 1) / (n - 1)
        ("hypercube,6", 63 / 32),  # Guo 2008, Table 3: N / 2 flows on each edge
        ("fattree,8", 1.0),
    ],
)
def test_all_to_all_is_the_papers(spec: str, per_server: float) -> None:
    _, _, bounded, all_to_all, sampled, worst, broken = all_networks.measured_network(spec)
    assert all_to_all == pytest.approx(per_server)
    assert not bounded
    assert 0 < worst < sampled
    assert 0 < broken < sampled
