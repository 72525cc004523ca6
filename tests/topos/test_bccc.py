"""BCCC: wiring against a second construction, and the properties that its literature proves."""

import itertools
from collections import defaultdict

import networkx
import pytest

from pillarbox import topos
from pillarbox.topos.base.errors import PillarboxError

SPECS = ["bccc,2,1", "bccc,3,1", "bccc,2,2", "bccc,4,0", "bccc,3,2", "bccc,5,1"]


def logical_graph(bccc: topos.Topology) -> networkx.Graph:
    """Return the graph in which servers on one switch are adjacent (Lu 2022, section 2.2)."""
    return networkx.Graph(
        (server, peer)
        for server in range(bccc.servers)
        for port in range(bccc.ports)
        for peer in bccc.peers(server, port)
    )


@pytest.mark.parametrize(
    ("spec", "servers", "switches", "cables", "diameter"),
    [
        ("bccc,4,0", 4, 1, 4, 1),
        ("bccc,2,1", 8, 8, 16, 4),
        ("bccc,3,1", 18, 15, 36, 4),
        ("bccc,4,2", 192, 112, 384, 6),
        ("bccc,8,3", 16_384, 6144, 32_768, 8),
    ],
)
def test_worked_values(spec: str, servers: int, switches: int, cables: int, diameter: int) -> None:
    bccc = topos.parse(spec)
    assert (bccc.servers, bccc.switches, bccc.cables) == (servers, switches, cables)
    assert bccc.diameter_bound().value == diameter


@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 1), (2, 2), (4, 0), (3, 2)])
def test_switches_join_equal_digits_or_digits_that_differ_in_the_place(n: int, k: int) -> None:
    bccc = topos.parse(f"bccc,{n},{k}")
    expected = defaultdict(set)
    for address in itertools.product(*[range(n)] * (k + 1), range(k + 1)):
        *digits, place = address
        i = k - place  # digits are written from a_k down to a_0
        expected["level", place, (*digits[:i], "*", *digits[i + 1 :])].add(address)
        if k:
            expected["crossbar", tuple(digits)].add(address)
    found = [
        frozenset(bccc.digits(plug.node) for _, plug in bccc.neighbours(bccc.servers + switch))
        for switch in range(bccc.switches)
    ]
    assert len(found) == len(expected)
    assert set(found) == set(map(frozenset, expected.values()))


@pytest.mark.parametrize("spec", SPECS)
def test_diameter_and_degree_by_a_search(spec: str) -> None:
    bccc = topos.parse(spec)
    graph = logical_graph(bccc)
    assert networkx.diameter(graph) == bccc.diameter_bound().value
    n, k = bccc.parameters["n"], bccc.parameters["k"]
    assert {degree for _, degree in graph.degree} == {n + k - 1}  # Lu 2022, section 2.2, property 1


@pytest.mark.parametrize("spec", ["bccc,2,1", "bccc,3,1", "bccc,2,2", "bccc,4,0"])
def test_connectivity_of_the_logical_graph(spec: str) -> None:
    bccc = topos.parse(spec)
    n, k = bccc.parameters["n"], bccc.parameters["k"]
    assert networkx.node_connectivity(logical_graph(bccc)) == n + k - 1


def test_labels_name_the_digit_of_a_switch() -> None:
    bccc = topos.parse("bccc,3,1")
    labels = [bccc.switch_label(switch) for switch in range(bccc.switches)]
    assert labels[:7] == ["[0*]", "[1*]", "[2*]", "[*0]", "[*1]", "[*2]", "[00]"]
    assert labels[-1] == "[22]"


@pytest.mark.parametrize(("spec", "said"), [("bccc,1,1", "n >= 2"), ("bccc,3,33", "from 0 to 32")])
def test_parameters_are_checked(spec: str, said: str) -> None:
    with pytest.raises(PillarboxError, match=said):
        topos.parse(spec)
