"""The sizes that the papers print, and those that only arithmetic can reach."""

import pytest

from pillarbox import topos


@pytest.mark.parametrize(
    ("spec", "servers"),
    [
        ("dpillar,48,3", 41_472),
        ("dpillar,48,4", 1_327_104),
        ("dpillar,48,5", 39_813_120),
        ("dcell,6,3", 3_263_442),
        ("dcell,4,2", 420),
        ("dcell,4,3", 176_820),
        ("ficonn,48,2", 361_200),
        ("ficonn,16,3", 3_553_776),
        ("ficonn,32,2", 74_528),
        ("bcube,8,3", 4_096),
        ("bcube,8,6", 2_097_152),
        ("fattree,48", 27_648),
        ("tree,4,5", 20),
    ],
)
def test_number_of_servers(spec: str, servers: int) -> None:
    assert topos.parse(spec).servers == servers


@pytest.mark.parametrize(
    ("spec", "switches", "cables"),
    [
        ("bcube,8,3", 2048, 16_384),
        ("bcube,8,3,servers=2048", 1280, 8192),
        ("dcell,8,2,servers=2048", 256, 3468),  # Guo 2009, Table 2
        ("fattree,8,levels=5", 2304, 10_240),
        ("tree,48,43,servers=2048", 44, 2091),
    ],
)
def test_container_of_2048_servers(spec: str, switches: int, cables: int) -> None:
    topology = topos.parse(spec)
    assert (topology.switches, topology.cables) == (switches, cables)


@pytest.mark.parametrize(("n", "k"), [(4, 1), (4, 2), (6, 3), (2, 4), (3, 3)])
def test_dcell_theorem_1(n: int, k: int) -> None:
    servers = topos.parse(f"dcell,{n},{k}").servers
    assert (n + 0.5) ** 2**k - 0.5 < servers < (n + 1) ** 2**k - 1


@pytest.mark.parametrize(("n", "k"), [(6, 1), (8, 2), (16, 3), (48, 2)])
def test_ficonn_theorem_1(n: int, k: int) -> None:
    assert topos.parse(f"ficonn,{n},{k}").servers >= 2 ** (k + 2) * (n / 4) ** 2**k


@pytest.mark.parametrize("servers", [1, 155, 7777, 24_491, 3_000_000])
def test_cables_of_a_partial_dcell_are_counted_without_listing_them(servers: int) -> None:
    # cable_arrays() raises if the count is not that of the cables it finds.
    for spec in (f"dcell,3,3,servers={min(servers, 24_491)}", f"dcell,2,4,servers={servers}"):
        assert len(topos.parse(spec).cable_arrays().a) == topos.parse(spec).cables
