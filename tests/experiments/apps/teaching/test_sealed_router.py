"""Routers in sealed children: answers are checked, and servers share nothing but frames."""

import pytest

from pillarbox import topos
from pillarbox.experiments.apps.teaching import grading_engine
from pillarbox.experiments.apps.teaching.child import ChildKeeper
from pillarbox.experiments.apps.teaching.routed_packets import routed_trips
from pillarbox.experiments.apps.teaching.sealed_router import NO_ACTION, WRONG_SERVER, arrived_path
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from pillarbox.hosts.base.failures import NONE
from pillarbox.hosts.memory.memory_network import Trip

NETWORK = topos.parse("dpillar,4,2")
HEAD = """
from pillarbox.hosts.base.actions import Deliver, Drop, Send
from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.wire.frame import Frame

met = []

class Mine(HopByHop):
    plain_ip = True
    def next_step(self, destination, came_by):
        for port in (0, 1):
            if destination in self.topology.peers(self.server, port):
                return Step(port, destination)
        return None
"""
MODULES = [
    "pillarbox.hosts.base.hop_by_hop",
    "pillarbox.hosts.base.path",
    "pillarbox.hosts.wire.frame",
]


def sent(source: str, *pairs: tuple[int, int]) -> list[Trip]:
    sheet = sheet_of("2", "ada")
    with ChildKeeper(source, MODULES, [NETWORK.spec]) as keeper:
        work = grading_engine.Work(sheet, keeper, "")
        return list(routed_trips(work, NETWORK, NONE, pairs))


def near(server: int) -> int:
    return NETWORK.peers(server, 0)[0]


def outcome(body: str, pair: tuple[int, int] = (0, near(0))) -> str:
    method = "    def outgoing(self, packet, flow, destination, now):\n"
    (trip,) = sent(HEAD + method + "".join(f"        {line}\n" for line in body.split("; ")), pair)
    return arrived_path(trip)[1]


def test_router_delivers() -> None:
    (trip,) = sent(HEAD, (0, near(0)))
    path, lost = arrived_path(trip)
    assert path is not None
    assert (path.servers, lost) == ((0, near(0)), "")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return [Deliver(packet)]", WRONG_SERVER),
        ("return [Send(7, 1, Frame(2048, packet))]", NO_ACTION),
        ("return [Send('0', 1, Frame(2048, packet))]", NO_ACTION),
        ("return [Send(0, 10**9, Frame(2048, packet))]", "next hop is no neighbour"),
        ("return [Send(0, 0.5, Frame(2048, packet))]", "next hop is no neighbour"),
        ("return [Send(0, destination, Frame(1 << 20, packet))]", NO_ACTION),
        ("return [Send(0, destination, Frame(2048, bytes(80000)))]", NO_ACTION),
        ("return [Drop('no wish', packet)]", "no wish"),
        ("return ['mine']", "TypeError"),
        ("return None", "TypeError"),
        ("return 1 / 0", "ZeroDivisionError"),
        ("return [Send(0, destination, Frame(2048, packet))] * 2", "duplicated on its path"),
    ],
)
def test_answer_that_is_no_forwarding_arrives_nowhere(body: str, says: str) -> None:
    assert says in outcome(body)


def test_servers_share_no_memory() -> None:
    # In one process the destination would find the packet in `met`, without any frame.
    body = """
    def outgoing(self, packet, flow, destination, now):
        met.append(packet)
        return []
    def poll(self, now):
        super().poll(now)
        return [Deliver(packet) for packet in met]
"""
    (trip,) = sent(HEAD + body, (0, near(0)))
    assert not trip.arrived_s


def test_delivery_without_a_way_does_not_count() -> None:
    # The packet's number is known to everybody: its destination makes it up by itself.
    body = """
    def outgoing(self, packet, flow, destination, now):
        return []
    def poll(self, now):
        from pillarbox.hosts.wire.marks import udp_packet
        return [*super().poll(now), Deliver(udp_packet(self.topology, 0, self.server, serial=0))]
"""
    (trip,) = sent(HEAD + body, (0, near(0)))
    assert arrived_path(trip)[0] is None


def test_router_that_never_rests_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pillarbox.experiments.apps.teaching.sealed_router.MOST_QUESTIONS", 2000)
    body = """
    @property
    def next_poll(self):
        return 0.0
"""
    check = grading_engine.GradedPart(
        "rest", 1, lambda work: [grading_engine.GradedCase("a second", lambda: rest(work))]
    )
    sheet = sheet_of("2", "ada")
    with ChildKeeper(HEAD + body, MODULES, [NETWORK.spec]) as keeper:
        mark, stopped = grading_engine.mark_of_check(check, grading_engine.Work(sheet, keeper, ""))
    assert stopped
    assert "never become idle" in mark.why


def rest(work: grading_engine.Work) -> grading_engine.Judgement:
    with work.network(NETWORK) as memory:
        memory.run(1.0)
    return grading_engine.RIGHT
