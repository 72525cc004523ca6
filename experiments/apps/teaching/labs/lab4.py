"""Lab 4: link state inside a DCell_1, local reroute beyond it (Guo 2008, section 4.3)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

from pillarbox import topos
from pillarbox.experiments.apps.teaching import cabling
from pillarbox.experiments.apps.teaching.cabling import Cabling, Link
from pillarbox.experiments.apps.teaching.grading_engine import (
    RIGHT,
    GradedCase,
    GradedPart,
    Judgement,
    Work,
    all_or_nothing,
)
from pillarbox.experiments.apps.teaching.routed_packets import failures_text, hop_text
from pillarbox.experiments.apps.teaching.sealed_router import is_integer_below
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.linkstate import SEQUENCES, next_steps
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.shortest import steps
from pillarbox.hosts.dcell import dfr
from pillarbox.hosts.dcell.rules import InnerRoutes
from pillarbox.topos.dcell import DCell

TITLE = "Link state and local reroute in DCell"
FOLDER = "4-dcell-reroute"
MODULES = ("pillarbox.topos.dcell",)
NETWORKS = ("dcell,2,2", "dcell,3,2")
CELL = 1  # level of the DCell within which servers know all link states (b in DCell's DFR)
TABLES = 12
PACKETS = 30
LONGEST_PATH = 64

Pair = tuple[int, int]
Order = Callable[[Step], tuple[int, int]]
Draw = Callable[[DCell, random.Random, Pair], Failures]
ORDERS: list[Order] = [
    lambda step: (step.port, step.peer),
    lambda step: (step.port, -step.peer),
    lambda step: (-step.port, step.peer),
    lambda step: (-step.port, -step.peer),
    lambda step: (step.peer, step.port),
]


def values(draw: random.Random) -> dict[str, Any]:
    """Draw the DCell of a student's sheet, two servers, and a cable on their path that fails."""
    dcell = dcell_of(draw.choice(NETWORKS))
    source, destination = far_pair(dcell, draw)
    near, over = dcell_exit_link(dcell, source, destination)
    return {
        "network": dcell.spec,
        "source": dcell.address(source),
        "destination": dcell.address(destination),
        "failed link": f"{dcell.address(near)}-{dcell.address(over.peer)}",
        cabling.NAME: cabling.random_cabling(draw, dcell),
    }


def dcell_of(spec: str) -> DCell:
    """Return the DCell network of a spec such as ``dcell,4,1``."""
    network = topos.parse(spec)
    assert isinstance(network, DCell)
    return network


def far_pair(dcell: DCell, draw: random.Random) -> Pair:
    """Return two servers of different DCell_1s."""
    while True:
        a, b = draw.sample(range(dcell.servers), 2)
        if not dfr.together(dcell, CELL, a, b):
            return a, b


def dcell_exit_link(dcell: DCell, source: int, destination: int) -> tuple[int, Step]:
    """Return the link by which DCellRouting leaves the source's DCell_1."""
    link = dfr.first_link(dcell, CELL, source, destination)
    assert link is not None
    return link


# -- link state ----------------------------------------------------------------------------------


def sequence_number_cases(work: Work) -> list[GradedCase]:
    """Test cases for the newer of two link states, also where sequence numbers wrap."""
    draw = work.draw("sequences")
    first = draw.randrange(SEQUENCES)
    pairs: list[tuple[int | None, int, int]] = [(None, first, first)]
    for start in (draw.randrange(SEQUENCES // 2), first, SEQUENCES - 20, SEQUENCES - 1):
        later = (start + draw.randrange(20, 1000)) % SEQUENCES
        pairs.append((start, later, later))
    return [_sequence_case(work, *pair) for pair in pairs]


def _sequence_case(work: Work, known: int | None, heard: int, then: int) -> GradedCase:
    """Return a test case of sequence numbers: `heard` is newer than `known`, `then` is not."""
    old = then if known is None else known

    def judge() -> Judgement:
        got = work.call("is_news", known, heard), work.call("is_news", then, old)
        return all_or_nothing(
            got[0] is True and got[1] is False, "{!r:.20} and {!r:.20}".format(*got)
        )

    return GradedCase(
        f"is_news({known}, {heard}) is True and is_news({then}, {old}) is False", judge
    )


def shortest_path_cases(work: Work) -> list[GradedCase]:
    """Test cases for next hops on shortest paths inside a DCell_1 with failed links."""
    dcell, draw = dcell_of(work.values["network"]), work.draw("shortest")
    return [
        _next_hop_table_case(work, dcell, draw.randrange(dcell.servers), draw)
        for _ in range(TABLES)
    ]


def _next_hop_table_case(work: Work, dcell: DCell, server: int, draw: random.Random) -> GradedCase:
    inside = dfr.members(dcell, CELL, server)
    known = advertised_links(dcell, server, NONE)
    lost = draw.sample([link for link in known if link[2] in inside and server not in link], 2)
    # Each failed link is removed in one direction: its other end still reports the link.
    known = [link for link in known if link not in lost]
    gone = {frozenset((a, b)) for a, _, b in lost}
    steps_of = _working_steps(dcell, inside, gone)
    reached = next_steps(server, steps_of)
    ports = cabling.cabling_of_sheet(work.values)

    def firsts(to: int) -> list[tuple[int, int]]:
        steps = _first_hops(steps_of, server, to)
        return [(ports.port(step.port, dcell.ports), step.peer) for step in steps]

    def judge() -> Judgement:
        answer = work.call("next_steps", server, ports.links_in_student_ports(dcell, known))
        try:
            got = {to: (port, peer) for to, port, peer in answer}
        except (TypeError, ValueError):
            return Judgement(0.0, f"{answer!r:.60} is not a list of (destination, port, peer)")
        asked = set(reached).union(got)
        wrong = [to for to in asked if to not in reached or got.get(to) not in firsts(to)]
        if not wrong:
            return RIGHT
        to = min(wrong, key=repr)
        name = dcell.address(to) if to in inside else f"{to!r:.20}"
        said = f"to {name} it names {hop_text(dcell, got.get(to))}"
        return Judgement(1 - len(wrong) / len(asked), said)

    cut = ", ".join(f"{dcell.address(a)} has lost {dcell.address(b)}" for a, _, b in lost)
    return GradedCase(f"{dcell.spec}, next_steps of {dcell.address(server)}, {cut}", judge)


def _working_steps(
    dcell: DCell, inside: Iterable[int], gone: set[frozenset[int]]
) -> Callable[[int], list[Step]]:
    members = set(inside)

    def steps_of(server: int) -> list[Step]:
        found = [step for step in steps(dcell, server) if step.peer in members]
        return [step for step in found if frozenset((server, step.peer)) not in gone]

    return steps_of


def _first_hops(steps_of: Callable[[int], list[Step]], server: int, to: int) -> list[Step]:
    """Return the first hops of all shortest paths from one server to another."""
    length = _distances_to(steps_of, to)  # distance of each server from `to`, in hops
    return [step for step in steps_of(server) if length.get(step.peer) == length[server] - 1]


def _distances_to(steps_of: Callable[[int], list[Step]], to: int) -> dict[int, int]:
    length = {to: 0}
    for at in (queue := [to]):
        for step in steps_of(at):
            if step.peer not in length:
                length[step.peer] = length[at] + 1
                queue.append(step.peer)
    return length


def advertised_links(dcell: DCell, server: int, failures: Failures) -> list[Link]:
    """Return the working links of a server's DCell_1, as its live servers advertise them."""
    inside = dfr.members(dcell, CELL, server)
    alive = [member for member in inside if member not in failures.nodes]
    return [(at, step.port, step.peer) for at in alive for step in steps(dcell, at, failures)]


# -- packets -------------------------------------------------------------------------------------


def no_failure_cases(work: Work) -> list[GradedCase]:
    """Test cases with packets without failures, whose paths DCellRouting's length bounds."""
    return routed_packet_cases(work, "undisturbed", lambda *_: NONE)


def inner_link_failure_cases(work: Work) -> list[GradedCase]:
    """Test cases in which a link on the packet's path inside the source's DCell_1 fails."""

    def draw_one(dcell: DCell, draw: random.Random, pair: Pair) -> Failures:
        hops = pairwise(dfr.path(dcell, *pair).servers)
        inside = [hop for hop in hops if dfr.together(dcell, CELL, pair[0], hop[1])]
        return Failures(links=frozenset([frozenset(draw.choice(inside))])) if inside else NONE

    return routed_packet_cases(work, "inside", draw_one, lambda failures: bool(failures.links))


def exit_link_failure_cases(work: Work) -> list[GradedCase]:
    """Test cases in which DCellRouting's link out of the source's DCell_1 fails."""

    def draw_one(dcell: DCell, _: random.Random, pair: Pair) -> Failures:
        near, over = dcell_exit_link(dcell, *pair)
        return Failures(links=frozenset([frozenset((near, over.peer))]))

    return routed_packet_cases(work, "leaving", draw_one)


def rack_failure_cases(work: Work) -> list[GradedCase]:
    """Test cases in which a rack at an end of the link between two DCell_1s fails."""

    def draw_one(dcell: DCell, draw: random.Random, pair: Pair) -> Failures:
        near, over = dcell_exit_link(dcell, *pair)
        switches = [dcell.server_plug(end, 0).node for end in (near, over.peer)]
        switch = draw.choice(switches)
        rack = frozenset(plug.node for _, plug in dcell.neighbours(switch))
        return NONE if rack.intersection(pair) else Failures(rack | {switch})

    return routed_packet_cases(work, "rack", draw_one, lambda failures: bool(failures.nodes))


def routed_packet_cases(
    work: Work, name: str, fail: Draw, usable: Callable[[Failures], bool] = lambda _: True
) -> list[GradedCase]:
    """Return test cases of packets between DCell_1s, with failures that DFR can route around."""
    dcell, draw = dcell_of(work.values["network"]), work.draw(name)
    cases: list[GradedCase] = []
    while len(cases) < PACKETS:
        pair = far_pair(dcell, draw)
        failures = fail(dcell, draw, pair)
        if usable(failures) and _surely_arrives(dcell, pair, failures):
            cases.append(_packet_case(work, dcell, pair, failures))
    return cases


def _surely_arrives(dcell: DCell, pair: Pair, failures: Failures) -> bool:
    """Return True if DFR delivers a packet whichever of equally short paths it chooses.

    The choice determines the proxy. With some choices, a packet returns to visited servers until
    its reroutes are used up. Students are free to choose, so such pairs are left out.
    """

    def arrives(order: Order) -> bool:
        view = cache(lambda server: _OrderedLinkState(dcell, server, failures, order))
        return not dfr.walk(dcell, *pair, view)[1]

    return all(map(arrives, ORDERS))


class _OrderedLinkState(dfr.Converged):
    """Link-state view of a server with a given order among equally short paths."""

    def __init__(self, dcell: DCell, server: int, failures: Failures, order: Order) -> None:
        super().__init__(dcell, CELL, server, failures)
        self.order = order

    @cached_property
    def inside(self) -> InnerRoutes:
        """Routes inside a server's DCell_1; of equally near proxies, the first in order is used."""
        found = next_steps(self.server, self._steps, lambda _: 0)
        return dfr.inside(self.dcell, self.b, found)

    def _steps(self, server: int) -> Iterator[Step]:
        return iter(sorted(super()._steps(server), key=self.order))


def _packet_case(work: Work, dcell: DCell, pair: Pair, failures: Failures) -> GradedCase:
    ends = " to ".join(map(dcell.address, pair))
    asked = f"{dcell.spec}, packet from {ends}{failures_text(dcell, failures)}"
    return GradedCase(asked, lambda: _judged_walk(work, dcell, pair, failures))


def _judged_walk(work: Work, dcell: DCell, pair: Pair, failures: Failures) -> Judgement:
    """Simulate a packet whose hops the student's function decides, and judge its path."""
    at, destination = pair
    proxy: int | None = None
    came_by: int | None = None
    ports = cabling.cabling_of_sheet(work.values)
    retry, visited = dfr.RETRY, [at]
    bound = LONGEST_PATH if failures != NONE else int(dcell.diameter_bound().value or 0)
    while at != destination:
        if len(visited) > bound:
            return Judgement(0.0, f"over {bound} hops: {_addresses(dcell, visited[:12])} ...")
        proxy = None if at == proxy else proxy
        links = ports.links_in_student_ports(dcell, advertised_links(dcell, at, failures))
        answer = work.call("choose", at, destination, proxy, came_by, links, network=dcell.spec)
        step, onward, wrong = _valid_answer(dcell, at, answer, failures, ports)
        if step is None:
            return Judgement(
                0.0, f"at {dcell.address(at)} {wrong}; so far {_addresses(dcell, visited)}"
            )
        retry -= onward not in (None, proxy)  # choosing another proxy costs one of DFR's retries
        if retry < 1:
            return Judgement(0.0, f"rerouted {dfr.RETRY} times: {_addresses(dcell, visited)}")
        # In a DCell, a cable joins two ports of the same level.
        came_by = ports.port(step.port, dcell.ports)
        at, proxy = step.peer, onward
        visited.append(at)
    return RIGHT


def _valid_answer(
    dcell: DCell, at: int, answer: Any, failures: Failures, ports: Cabling
) -> tuple[Step | None, int | None, str]:
    """Return the next hop and the proxy of a student's decision, or the error in the decision."""
    if answer is None:
        return None, None, "it drops the packet, although a path exists"
    if not isinstance(answer, list) or len(answer) != 3:
        return None, None, f"{answer!r:.50} is not a tuple (port, peer, proxy)"
    port, peer, proxy = answer
    level = ports.level(port, dcell.ports) if is_integer_below(port, dcell.ports) else None
    if level is None or peer not in dcell.peers(at, level):
        return None, None, f"server {peer!r:.10} is not the peer of port {port!r:.10}"
    if proxy is not None and not is_integer_below(proxy, dcell.servers):
        return None, None, f"{proxy!r:.20} is not a proxy"
    step = Step(level, peer)
    if failures.of_hop(dcell, at, step):
        return None, None, f"it sends to {dcell.address(peer)}, over a link that has failed"
    return step, proxy, ""


def _addresses(dcell: DCell, visited: list[int]) -> str:
    return " ".join(map(dcell.address, visited))


CHECKS = (
    GradedPart("newer link states", 10, sequence_number_cases),
    GradedPart("shortest paths inside a DCell_1", 25, shortest_path_cases),
    GradedPart("no failures", 10, no_failure_cases),
    GradedPart("a failed link inside a DCell_1", 15, inner_link_failure_cases),
    GradedPart("a failed link out of a DCell_1", 25, exit_link_failure_cases),
    GradedPart("a failed rack", 15, rack_failure_cases),
)
