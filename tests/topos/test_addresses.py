"""Addresses both ways, for single servers anywhere in networks of millions and for arrays."""

import ipaddress

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.topos.base.addressing import End
from pillarbox.topos.base.spec import small

LARGE = [
    "dpillar,48,4",
    "dpillar,6,5",
    "dcell,6,3",
    "dcell,4,3,servers=100001",
    "dcell,2,4,servers=3000001",
    "bcube,8,6",
    "bcube,8,3,servers=2048",
    "ficonn,16,3",
    "fattree,48",
    "fattree,8,levels=5",
    "tree,48,43,servers=2048",
]


@given(st.data())
@pytest.mark.parametrize("spec", LARGE)
def test_a_server_is_found_by_each_of_its_addresses(spec: str, data: st.DataObject) -> None:
    topology = topos.parse(spec)
    server = data.draw(st.integers(0, topology.servers - 1))
    assert topology.server(topology.address(server)) == server
    assert topology.server_of_ip(topology.ip(server)) == server
    assert topology.server_of_uid(topology.uid(server)) == server
    for port in range(topology.ports):
        plug = topology.server_plug(server, port)
        if plug.node >= 0:
            assert topology.plug(plug.node, plug.port) == (server, port, plug.level)


@given(st.data())
@pytest.mark.parametrize("spec", LARGE)
def test_arrays_say_what_single_questions_say(spec: str, data: st.DataObject) -> None:
    topology = topos.parse(spec)
    drawn = data.draw(st.lists(st.integers(0, topology.servers - 1), min_size=1, max_size=20))
    servers = numpy.array(drawn)
    assert topology.ipv4(servers).tolist() == [topology.ipv4(server) for server in drawn]
    assert topology.server_at(topology.digits(servers)).tolist() == drawn
    for port in range(topology.ports):
        plug = topology.server_plug(servers, port)
        nodes = numpy.broadcast_to(plug.node, servers.shape).tolist()
        assert nodes == [topology.server_plug(server, port).node for server in drawn]


@pytest.mark.parametrize("spec", LARGE)
def test_addresses_are_usable_unicast_addresses(spec: str) -> None:
    topology = topos.parse(spec)
    for server in (0, topology.servers // 2, topology.servers - 1):
        ip = ipaddress.ip_address(topology.ip(server))
        assert not (ip.is_multicast or ip.is_loopback or ip.is_unspecified or ip.is_reserved)
        first = int(topology.mac(server, topology.ports - 1).split(":")[0], 16)
        assert first & 0b11 == 0b10  # local and unicast


def test_dpillar_addresses_are_the_bits_of_figure_5() -> None:
    dpillar = topos.parse("dpillar,48,4")
    server = dpillar.server("3.23.0.1.2")
    # Section 5.1: 4 * ceil(log2(48) - 1) + 1 = 21 bits for label and NIC.
    assert dpillar.k * dpillar.symbol_bits + 1 == 21
    bits = f"{dpillar.ipv4(server, nic=1):032b}"
    assert bits == f"{10 + 3:08b}" + "000" + "10111" + "00000" + "00001" + "00010" + "1"
    assert dpillar.server_of_ipv4(dpillar.ipv4(server, nic=1)) == server


def test_departs_from_the_paper_first_octet_is_ten_plus_column() -> None:
    assert topos.parse("dpillar,8,2").ip(0) == "10.0.0.0"
    assert topos.parse("dpillar,8,2").ip(31).startswith("11.")


def test_fattree_addresses_are_those_of_al_fares() -> None:
    fattree = topos.parse("fattree,4")
    assert [fattree.ip(server) for server in (0, 1, 2, 15)] == [
        "10.0.0.2",
        "10.0.0.3",
        "10.0.1.2",
        "10.3.1.3",
    ]


@pytest.mark.parametrize("spec", ["dpillar,48,5", "dcell,3,4,servers=16777215", "fattree,256"])
def test_network_without_enough_addresses_is_still_a_network(spec: str) -> None:
    topology = topos.parse(spec)
    assert topology.address(topology.servers - 1)
    with pytest.raises(
        topos.PillarboxError, match="it can be simulated, but has no IPv4 addresses"
    ):
        topology.ip(0)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("4.0", "from 0 to 3"),
        ("0", "2 dotted"),
        ("0.0.0", "2 dotted"),
        ("a.0", "2 dotted"),
        ("-1.0", "2 dotted"),
        ("", "2 dotted"),
        ("0.٣", "2 dotted"),
    ],
)
def test_bad_address_is_refused(address: str, says: str) -> None:
    with pytest.raises(topos.PillarboxError, match=says):
        topos.parse("bcube,4,1").server(address)


def test_address_of_a_server_that_has_not_joined_is_refused() -> None:
    with pytest.raises(topos.PillarboxError, match="which has only 12 servers"):
        topos.parse("dcell,4,1,servers=12").server("4.3")


@pytest.mark.parametrize("ip", ["10.0.0.0", "10.0.0.17", "9.255.255.255", "11.0.0.1", "x", "1.2.3"])
def test_foreign_ip_is_refused(ip: str) -> None:
    with pytest.raises(topos.PillarboxError):
        topos.parse("bcube,4,1").server_of_ip(ip)


def test_ip_whose_bits_name_no_label_is_refused() -> None:
    dpillar = topos.parse("dpillar,6,2")  # symbols 0 to 2 in two bits: 3 is nobody's
    with pytest.raises(topos.PillarboxError):
        dpillar.server_of_ip("10.0.0.30")


@given(st.data())
def test_growing_a_dcell_keeps_every_address(data: st.DataObject) -> None:
    small = data.draw(st.integers(1, 24_000))
    large = data.draw(st.integers(small, 24_491))
    before = topos.parse(f"dcell,3,3,servers={small}")
    after = topos.parse(f"dcell,3,3,servers={large}")
    server = data.draw(st.integers(0, small - 1))
    assert before.address(server) == after.address(server)
    assert before.ip(server) == after.ip(server)


def test_names_fit_linux() -> None:
    dpillar = topos.parse("dpillar,48,4")
    assert len(dpillar.interface(dpillar.servers - 1, 1)) <= 15
    with pytest.raises(topos.PillarboxError, match="15 characters"):
        topos.parse("tree,1000,900000").interface(899_999_999, 10)


@pytest.mark.parametrize("name", ["s8", "h0", "0", "s", "s-1", "s²", ""])
def test_bad_switch_is_refused(name: str) -> None:
    with pytest.raises(topos.PillarboxError, match="s0 to s7"):
        topos.parse("bcube,4,1").switch(name)


@given(st.data())
@pytest.mark.parametrize("spec", ["bcube,4,1", "dcell,2,2,servers=31", "dpillar,6,3", "mesh,4,4"])
def test_a_port_is_found_by_its_address(spec: str, data: st.DataObject) -> None:
    topology = topos.parse(spec)
    topology.check_ports_addressable()
    server = data.draw(st.integers(0, topology.servers - 1))
    for port in range(topology.ports):
        assert topology.port_of_ipv4(topology.port_ipv4(server, port)) == (server, port)
    assert topology.port_of_ipv4(topology.ipv4(server)) is None
    assert topology.port_of_ipv4(topology.port_ipv4(server, topology.ports)) is None


@pytest.mark.parametrize(("spec", "fits"), [("torus,2,32767", True), ("torus,2,32768", False)])
def test_ports_of_small_networks_have_addresses(spec: str, fits: bool) -> None:
    topology = topos.parse(spec)
    if fits:
        topology.check_ports_addressable()
    else:
        with pytest.raises(topos.PillarboxError, match="at most 65534 servers"):
            topology.check_ports_addressable()


@pytest.mark.parametrize("spec", [spec for spec in small() if topos.parse(spec).ports > 1])
def test_names_of_ports_are_read_back(spec: str) -> None:
    topology = topos.parse(spec)
    for server in range(topology.servers):
        assert topology.end(topology.address(server)) == End(server)
        assert topology.end_ip(End(server)) == topology.ip(server)
        for port in range(topology.ports):
            end = End(server, port)
            assert topology.end(topology.end_name(end)) == end
            assert topology.end(f"{topology.node_name(server)}-{port}") == end
            assert topology.port_of_ipv4(topology.end_ipv4(end)) == (server, port)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0.0%2", r"0.0%2 is not a port's address: ports of bcube,4,1 .* 0 to 1, such as 0.0%1"),
        ("0.0%", "is not a port's address"),
        ("0.0%x", "is not a port's address"),
        ("h3--1", "is not a port's address"),
        ("s0", "s0 is a switch: name a server"),
        ("9.0%1", "'9.0' is not a server"),
        ("h99-0", "there is no host h99"),
    ],
)
def test_bad_names_of_ports_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(topos.PillarboxError, match=sentence):
        topos.parse("bcube,4,1").end(text)


@pytest.mark.parametrize("name", ["0.0%0", "h0-0"])
def test_a_server_with_one_port_has_no_address_of_it(name: str) -> None:
    with pytest.raises(topos.PillarboxError, match="a server of tree,4,4 has one port"):
        topos.parse("tree,4,4").end(name)
