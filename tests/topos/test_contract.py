"""Every network found keeps the contract, cable by cable; a new one is tested when its file is."""

import pytest

from pillarbox import topos
from pillarbox.topos.base.check import problems

EXAMPLES = [spec for kind in topos.kinds() for spec in topos.network(kind).examples]


def test_all_shipped_networks_are_found() -> None:
    four = {"bcube", "dcell", "dpillar", "ficonn"}
    assert four | {"bccc", "fattree", "mesh", "rail", "torus", "tree"} <= set(topos.kinds())


def test_networks_for_comparison_are_found() -> None:
    assert {"domains", "jellyfish", "vl2"} <= set(topos.kinds())


@pytest.mark.parametrize("spec", EXAMPLES)
def test_network_keeps_its_contract(spec: str) -> None:
    assert problems(topos.parse(spec)) == []


@pytest.mark.parametrize("spec", EXAMPLES)
def test_spec_is_read_back(spec: str) -> None:
    assert topos.parse(spec).spec == spec


@pytest.mark.parametrize("spec", EXAMPLES)
def test_every_server_reaches_every_other(spec: str) -> None:
    topology = topos.parse(spec)
    seen, pending = {0}, [0]
    while pending:
        for _, plug in topology.neighbours(pending.pop()):
            if plug.node not in seen:
                seen.add(plug.node)
                pending.append(plug.node)
    assert seen >= set(range(topology.servers))


@pytest.mark.parametrize("spec", EXAMPLES)
def test_peers_are_mutual(spec: str) -> None:
    topology = topos.parse(spec)
    pairs = {
        (server, peer)
        for server in range(topology.servers)
        for port in range(topology.ports)
        for peer in topology.peers(server, port)
    }
    assert pairs == {(b, a) for a, b in pairs}
    assert all(a != b for a, b in pairs)


@pytest.mark.parametrize("spec", EXAMPLES)
def test_diameter_is_within_the_bound(spec: str) -> None:
    topology = topos.parse(spec)
    bound = topology.diameter_bound().value
    if bound is None:  # the paper proves none for some partial networks, and only for those
        assert "servers" in topology.parameters
        return
    around = [
        {peer for port in range(topology.ports) for peer in topology.peers(server, port)}
        for server in range(topology.servers)
    ]
    for source in range(0, topology.servers, max(1, topology.servers // 40)):
        reached, edge, hops = {source}, {source}, 0
        while edge:
            edge = {peer for server in edge for peer in around[server]} - reached
            reached |= edge
            hops += bool(edge)
        assert hops <= bound
