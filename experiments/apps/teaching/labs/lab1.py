"""Lab 1: addresses and wiring, of the network that is drawn for the student."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from pillarbox import topos
from pillarbox.experiments.apps.teaching.grading_engine import (
    GradedCase,
    GradedPart,
    Judgement,
    Work,
    all_or_nothing,
)
from pillarbox.topos.base.polymorphic import NOTHING
from pillarbox.topos.base.topology import Topology

TITLE = "Addresses and wiring"
FOLDER = "1-addresses"
MODULES: tuple[str, ...] = ()
NETWORKS: tuple[str, ...] = ()
# Networks for lab sheets, and networks of other sizes, which test that the code is general.
OWN = {
    "dpillar,6,2": ("dpillar,4,4", "dpillar,8,3"),
    "dcell,4,1": ("dcell,5,1", "dcell,3,2"),
    "bcube,4,1": ("bcube,3,3", "bcube,5,2"),
    "ficonn,4,2": ("ficonn,6,2", "ficonn,8,1"),
}
CASES = 40
OTHER_CASES = 24
MOSTLY = 0.8

Judge = Callable[[Work, Topology, random.Random], GradedCase]


def values(draw: random.Random) -> dict[str, Any]:
    """Draw the network of a student's sheet, and a server for an example by hand."""
    network = topos.parse(draw.choice(list(OWN)))
    server = draw.randrange(network.servers)
    return {
        "network": network.spec,
        **{name: network.parameters[name] for name in ("n", "k")},
        "server": network.address(server),
    }


def address_cases(work: Work) -> list[GradedCase]:
    """Test cases for the student's conversion of server numbers to addresses and back."""
    return cases_of_kinds(work, "addresses", [address_case, number_case])


def peer_cases(work: Work) -> list[GradedCase]:
    """Test cases for a server's peers, the servers at a distance of one hop."""
    return cases_of_kinds(work, "peers", [peers_at_port_case])


def switch_cases(work: Work) -> list[GradedCase]:
    """Test cases for the switch at the far end of a server's cable."""
    return cases_of_kinds(work, "switches", [switch_at_port_case])


def port_cases(work: Work) -> list[GradedCase]:
    """Test cases for the port of a server that leads to another server."""
    return cases_of_kinds(work, "ports", [port_to_peer_case])


def other_size_cases(work: Work) -> list[GradedCase]:
    """Test cases of every kind for a network of another size."""
    spec = work.draw("size").choice(OWN[work.values["network"]])
    kinds = [address_case, number_case, peers_at_port_case, switch_at_port_case]
    return cases_of_kinds(work, "other", kinds, topos.parse(spec), OTHER_CASES)


def cases_of_kinds(
    work: Work,
    name: str,
    kinds: Sequence[Judge],
    network: Topology | None = None,
    many: int = CASES,
) -> list[GradedCase]:
    """Return `many` test cases about a network, with each kind of question in turn."""
    own = network or topos.parse(work.values["network"])
    draw = work.draw(name)
    return [kinds[i % len(kinds)](work, own, draw) for i in range(many)]


def address_case(work: Work, network: Topology, draw: random.Random) -> GradedCase:
    """Return a test case that asks for the address of a server, given by its number."""
    server = draw.randrange(network.servers)
    return _answer_case(work, network, "address", [server], list(network.digits(server)))


def number_case(work: Work, network: Topology, draw: random.Random) -> GradedCase:
    """Return a test case that asks for the number of a server, given by its address."""
    server = draw.randrange(network.servers)
    return _answer_case(work, network, "number", [list(network.digits(server))], server)


def switch_at_port_case(work: Work, network: Topology, draw: random.Random) -> GradedCase:
    """Return a test case that asks for the switch at a server's port (None if there is none)."""
    server, port = draw.randrange(network.servers), draw.randrange(network.ports)
    if draw.random() < MOSTLY and network.server_plug(server, port).node < network.servers:
        port = 0  # port 0 leads to a switch in every network
    node = network.server_plug(server, port).node
    switch = node - network.servers if node >= network.servers else None
    return _answer_case(work, network, "switch", [list(network.digits(server)), port], switch)


def port_to_peer_case(work: Work, network: Topology, draw: random.Random) -> GradedCase:
    """Return a test case that asks for the lowest port to a peer (None if there is none)."""
    server = draw.randrange(network.servers)
    near = [peer for port in range(network.ports) for peer in network.peers(server, port)]
    to = draw.choice(near) if draw.random() < MOSTLY else draw.randrange(network.servers)
    ports = (port for port in range(network.ports) if to in network.peers(server, port))
    ends = [list(network.digits(server)), list(network.digits(to))]
    return _answer_case(work, network, "port_to", ends, next(ports, None))


def peers_at_port_case(work: Work, network: Topology, draw: random.Random) -> GradedCase:
    """Return a test case that asks for the peers at a server's port; each correct peer counts."""
    cabled = [
        (server, port)
        for server in range(network.servers)
        for port in range(network.ports)
        if network.server_plug(server, port).node != NOTHING
    ]
    server, port = draw.choice(cabled)
    right = {network.digits(peer) for peer in network.peers(server, port)}
    arguments = [list(network.digits(server)), port]

    def judge() -> Judgement:
        answer = work.call("peers", *_parameters_n_and_k(network), *arguments)
        try:
            got = {tuple(digits) for digits in answer}
            share = len(got & right) / len(got | right)
        except TypeError:
            return Judgement(0.0, f"{answer!r:.80} is not a list of addresses")
        return Judgement(share, f"{_addresses_text(got)}, right is {_addresses_text(right)}")

    return GradedCase(_question_text(network, "peers", arguments), judge)


def _answer_case(
    work: Work, network: Topology, function: str, arguments: list[Any], right: Any
) -> GradedCase:
    def judge() -> Judgement:
        answer = work.call(function, *_parameters_n_and_k(network), *arguments)
        same = type(answer) is type(right) and answer == right
        return all_or_nothing(same, f"{answer!r:.60}, right is {right!r}")

    return GradedCase(_question_text(network, function, arguments), judge)


def _parameters_n_and_k(network: Topology) -> list[int]:
    return [network.parameters["n"], network.parameters["k"]]


def _question_text(network: Topology, function: str, arguments: list[Any]) -> str:
    given = [
        tuple(a) if isinstance(a, list) else a for a in (*_parameters_n_and_k(network), *arguments)
    ]
    return f"{network.spec}, {function}({', '.join(map(repr, given))})"


def _addresses_text(addresses: set[Any]) -> str:
    return f"{sorted(addresses, key=repr)!r:.100}"


CHECKS = (
    GradedPart("addresses and numbers", 20, address_cases),
    GradedPart("peers", 35, peer_cases),
    GradedPart("switches", 20, switch_cases),
    GradedPart("the port to a server", 10, port_cases),
    GradedPart("a network of another size", 15, other_size_cases),
)
