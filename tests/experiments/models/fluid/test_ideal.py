"""Ideals of whole networks, from the papers' own numbers and by hand."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.models.fluid import ideal as fluid
from pillarbox.experiments.models.fluid.ideal import (
    Ideal,
    acknowledged_share,
    bound_bps,
    header_bytes,
    header_efficiency,
    ideal,
)
from pillarbox.experiments.models.workloads.flows import Flow
from pillarbox.hosts.base.failures import parse_failures
from pillarbox.topos.base.errors import PillarboxError


def all_to_all(spec: str, volume_bytes: int) -> tuple[topos.Topology, list[Flow]]:
    network = topos.parse(spec)
    pairs = itertools.permutations(range(network.servers), 2)
    return network, [Flow(i, a, b, volume_bytes) for i, (a, b) in enumerate(pairs)]


def without_headers(spec: str, routing: str, volume_bytes: int) -> Ideal:
    """Return the ideal at a goodput of 1 Gbit/s a cable and next to no acknowledgements."""
    network, flows = all_to_all(spec, volume_bytes)
    rate_bps = 1e9 / header_efficiency(header_bytes(network, routing))
    return ideal(network, routing, flows, rate_bps, segments_per_ack=1e9)


@pytest.mark.parametrize(
    ("spec", "routing", "volume_bytes", "ends_s"),
    [
        ("dcell,4,1", "dcell", 5 * 10**9, 1080),  # the testbeds: Guo 2008, section 7.3
        ("tree,4,5", "", 5 * 10**9, 2560),
        ("bcube,4,1", "bcube", 683 * 10**6, 65.5),  # Guo 2009, section 7.5
        ("tree,4,4", "", 683 * 10**6, 262),
    ],
)
def test_completion_of_the_papers_testbeds(
    spec: str, routing: str, volume_bytes: int, ends_s: float
) -> None:
    found = without_headers(spec, routing, volume_bytes)
    assert found.completion_s == pytest.approx(ends_s, rel=0.002)


def test_bcube_fills_every_link_alike() -> None:
    found = without_headers("bcube,4,1", "bcube", 1)
    assert found.total_bps == pytest.approx(20e9)  # Theorem 6 of Guo 2009


def test_headers_and_acknowledgements_take_their_part() -> None:
    network = topos.parse("bcube,4,1")
    both = [Flow(0, 0, 1, duration_s=1.0), Flow(1, 1, 0, duration_s=1.0)]
    one_way = ideal(network, "bsr", both[:1], 1e8)
    assert one_way.goodput_bps.tolist() == pytest.approx([1e8 * 1448 / 1550])
    # With goodput g each way: g 1550 / 1448 + g 102 / 2896 fills the link.
    two_ways = ideal(network, "bsr", both, 1e8)
    assert two_ways.goodput_bps == pytest.approx([1e8 / (1550 / 1448 + 102 / 2896)] * 2)
    assert numpy.isnan(two_ways.end_s).all()


def test_acknowledgements_over_a_crowded_link_hold_no_flow_back() -> None:
    network = topos.parse("tree,8,1")
    crowd = [Flow(i, i, 0, duration_s=1.0) for i in range(1, 6)]
    alone = Flow(9, 0, 7, duration_s=1.0)  # its acknowledgements come over the crowd's last link
    found = ideal(network, "", [*crowd, alone], 1e8)
    assert found.goodput_bps[-1] > 0.9 * 1e8
    assert found.goodput_bps[:-1].sum() < 0.95 * 1e8


def test_acknowledgements_take_at_most_all_of_a_link() -> None:
    network = topos.parse("tree,3,1")
    flows = [Flow(0, 0, 1, duration_s=1.0), Flow(1, 2, 0, duration_s=1.0)]
    backs = [ideal(network, "", [Flow(0, 1, 0, duration_s=1.0)], 1e8).paths[0], None]
    # 100 acknowledgements per segment of the first flow arrive where the second flow's data do.
    found = ideal(network, "", flows, 1e8, ack_paths=backs, segments_per_ack=0.01)
    assert found.goodput_bps.tolist() == [pytest.approx(1e8 * header_efficiency(0)), 0.0]


def test_header_shares() -> None:
    assert header_efficiency(20) == pytest.approx(1448 / 1534)
    assert acknowledged_share(20) == pytest.approx(86 / 2896)


def test_a_caller_may_say_which_paths() -> None:
    network = topos.parse("bcube,4,1")
    flows = [Flow(0, 0, 5, 10**6), Flow(1, 0, 5, 10**6)]
    usual = ideal(network, "bcube", flows, 1e8)
    other = ideal(network, "bcube", flows, 1e8, paths=[usual.paths[0], None])
    assert numpy.isnan(other.goodput_bps[1])
    assert numpy.isnan(other.end_s[1])
    assert other.goodput_bps[0] == pytest.approx(2 * usual.goodput_bps[0])


def test_failures_change_the_paths() -> None:
    network = topos.parse("bcube,2,1")
    flows = [Flow(0, 0, 3, 10**6)]
    broken = parse_failures(network, ["kill 1.0"])
    whole = ideal(network, "bsr", flows, 1e8)
    around = ideal(network, "bsr", flows, 1e8, failures=broken)
    assert whole.paths[0] != around.paths[0]
    assert ideal(network, "bcube", flows, 1e8, failures=broken).total_bps in (0, whole.total_bps)


def test_what_is_not_there_is_refused() -> None:
    network = topos.parse("bcube,2,1")
    with pytest.raises(PillarboxError, match="has no routing 'ospf'"):
        ideal(network, "ospf", [], 1e8)
    with pytest.raises(PillarboxError, match="a cable rate"):
        ideal(network, "", [], 0)


@pytest.mark.parametrize("spec", ["bcube,4,1", "bcube,2,2"])
def test_the_bound_is_the_papers_throughput_of_bcube(spec: str) -> None:
    """Guo 2009, Theorem 6: ABT = n (N-1) / (n-1)."""
    network, flows = all_to_all(spec, 1000)
    n = network.parameters["n"]
    links = n * (network.servers - 1) / (n - 1)
    bound = bound_bps(network, "bsr", flows, 1e8, mtu=9000)
    assert bound == pytest.approx(links * 1e8 * header_efficiency(36, 9000))


def test_the_bound_is_above_what_theorem_5_promises_of_dcell() -> None:
    """Guo 2008: fewer than t_k 2^(k-l) flows share a link of level l."""
    network, flows = all_to_all("dcell,4,1", 1000)
    promised_bps = len(flows) / (2 * network.servers) * 1e8 * header_efficiency(20)
    bound = bound_bps(network, "dfr", flows, 1e8)
    assert bound is not None
    assert bound > promised_bps


def test_flows_that_last_are_bound_by_what_the_network_carries_in_all() -> None:
    network, together = all_to_all("tree,2,2", 1000)
    lasting = [replace(flow, volume_bytes=None, duration_s=1.0) for flow in together]
    in_all, at_once = (bound_bps(network, "", flows, 1.0) for flows in (lasting, together))
    assert in_all == pytest.approx(4 * header_efficiency(0))  # to neighbours, by all four ports
    assert at_once == pytest.approx(3 * header_efficiency(0))  # one cable between the halves


def test_an_algorithm_without_a_router_has_no_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fluid, "algorithms", lambda _: {"by hand": SimpleNamespace(router=None)})
    assert header_bytes(topos.parse("tree,2,2"), "") == 0


@pytest.mark.parametrize(("most", "is_computed"), [(24, True), (23, False)])
def test_a_bound_is_computed_up_to_the_size_limit(
    most: int, is_computed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fluid.MOST_VARIABLES == 10_000
    monkeypatch.setattr(fluid, "MOST_VARIABLES", most)
    monkeypatch.setattr(fluid, "_max_total_rate", fluid._max_total_rate.__wrapped__)  # no cache
    tree = topos.parse("tree,2,2")
    flows = [Flow(at, *pair, 1000) for at, pair in enumerate([(0, 1), (1, 0), (1, 2)])]
    bound = bound_bps(tree, "", flows, 1.0)  # 2 sources x 12 links
    assert (bound is not None) == is_computed


def test_a_bound_that_takes_long_or_is_for_different_volumes_is_none() -> None:
    large, flows = topos.parse("bcube,8,2"), [Flow(a, a, 500, 1000) for a in range(40)]
    assert bound_bps(large, "bsr", flows, 1e8) is None
    network, flows = all_to_all("bcube,2,1", 1000)
    assert bound_bps(network, "bsr", [*flows, Flow(99, 0, 1, 2000)], 1e8) is None
