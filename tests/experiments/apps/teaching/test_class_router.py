"""One server of a class network: what a student's code can do to its packets, and when it ends."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.apps.teaching import child, class_router, sealed_router
from pillarbox.experiments.apps.teaching.class_router import ClassRouter, write_router
from pillarbox.hosts.base.actions import Action, Deliver, Drop, Send
from pillarbox.hosts.base.load import router_from_file
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.router import is_heartbeat
from pillarbox.hosts.bcube.plain import BCubeRouting
from pillarbox.hosts.wire.frame import ETH_IP, Frame
from pillarbox.hosts.wire.marks import udp_packet

NETWORK = topos.parse("bcube,2,1")
PEER, RELAYED = 1, 3  # servers next to server 0, and two hops from it
HEAD = """
from pillarbox.hosts.base.actions import EVERYONE, Deliver, Drop, Send
from pillarbox.hosts.base.hop_by_hop import HopByHop
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.wire.frame import Frame

class Mine(HopByHop):
    def next_step(self, destination, came_by):
        for port in (0, 1):
            for peer in self.topology.peers(self.server, port):
                if self.neighbours.works(Step(port, peer)):
                    return Step(port, peer)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def made(folder: Path) -> Iterator[Any]:
    """Give a function that creates the router of server 0 with a student's file."""
    with_children: list[ClassRouter] = []

    def router(source: str, refused: str = "") -> ClassRouter:
        files = {} if refused else {0: source}
        file = write_router(folder, "bcube", files, {0: refused} if refused else {})
        server = router_from_file(file)(NETWORK, 0)
        assert isinstance(server, ClassRouter)
        with_children.append(server)
        return server

    yield router
    for one in with_children:
        if hasattr(one, "_keeper"):
            one._keeper.__exit__()


def packet(serial: int = 7, source: int = 0, destination: int = RELAYED) -> bytes:
    return udp_packet(NETWORK, source, destination, serial=serial)


def outgoing(body: str) -> str:
    method = "    def outgoing(self, packet, flow, destination, now):\n"
    return HEAD + method + "".join(f"        {line}\n" for line in body.split("; "))


def reasons(actions: list[Action]) -> list[str]:
    return [action.reason if isinstance(action, Drop) else "" for action in actions]


def test_server_without_a_file_runs_the_standard_router(folder: Path) -> None:
    server = router_from_file(write_router(folder, "bcube", {1: HEAD}, {}))
    assert type(server(NETWORK, 0)) is BCubeRouting


def test_router_forwards_and_notices_a_dead_neighbour(made: Any) -> None:
    router = made(HEAD)
    (sent,) = router.send(packet(), 1.0)
    assert (sent.port, sent.peer, router.stopped) == (0, PEER, "")
    router.silence(Step(0, PEER), 2.0)
    (sent,) = router.send(packet(8), 2.0)
    assert (sent.port, sent.peer) == (1, 2)
    router.heard(Step(0, PEER), True, 3.0)
    (sent,) = router.send(packet(9), 3.0)
    assert sent.port == 0
    router.carrier(0, False, 4.0)
    (sent,) = router.send(packet(10), 4.0)
    assert sent.port == 1


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def broken(:", "SyntaxError"),
        ("raise RuntimeError('no wish')", "no wish"),
        ("import os; os._exit(3)", "its process ended"),
        ("import ctypes; ctypes.string_at(0)", "ended by signal 11"),
        ("all = [bytes(1000) for _ in range(10**8)]", "memory limit"),
        ("", "defines 0 routers"),
    ],
)
def test_bad_file_is_a_dead_server(made: Any, source: str, says: str) -> None:
    router = made(source)
    assert says in router.stopped
    assert router.heartbeats() == []
    assert reasons(router.send(packet(), 1.0)) == [f"stopped: {router.stopped}"]
    assert router.state()["stopped"] == router.stopped
    assert router.poll(1.0) == []


def test_refused_file_is_a_dead_server(made: Any) -> None:
    router = made(HEAD, "refused: it is a link")
    assert router.stopped == "refused: it is a link"
    assert router.heartbeats() == []


def test_router_that_loops_is_stopped_later(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    router = made(outgoing("while True: pass"))
    assert not router.stopped
    assert router.heartbeats()
    revision = router.neighbours.revision
    monkeypatch.setattr(child, "DECISION_S", 0.2)
    (dropped,) = router.send(packet(), 1.0)
    assert "it loops or waits" in dropped.reason
    assert router.heartbeats() == []
    assert router.neighbours.revision > revision  # so that the forwarder ends its heartbeats


def test_exception_drops_the_packet_only(made: Any) -> None:
    router = made(outgoing("1 / 0"))
    assert "ZeroDivisionError" in reasons(router.send(packet(), 1.0))[0]
    assert not router.stopped


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return [Send(0, 1, Frame(2048, packet))] * 2", ["", class_router.NOT_HELD]),
        ("return [Send(0, EVERYONE, Frame(2048, packet))]", [class_router.NOT_HELD]),
        ("return [Send(0, 1, Frame(2048, packet[:-1] + b'8'))]", [class_router.NOT_HELD]),
        ("return [Deliver(packet)]", ["delivered at a server that is not its destination"]),
        ("return [Deliver(b'')]", ["the router's answer is not a valid action"]),
        ("return self.heartbeats()", [class_router.HEARTBEAT] * 2),
        (
            "return ['nothing']",
            ["TypeError: a router answers with Send, Deliver or Drop, not with str"],
        ),
    ],
)
def test_forged_actions_are_not_executed(made: Any, body: str, says: list[str]) -> None:
    assert reasons(made(outgoing(body)).send(packet(), 1.0)) == says


def test_marked_packet_is_sent_on_as_often_as_it_arrives(made: Any) -> None:
    router = made(HEAD)
    header = router.send(packet(1, 0), 1.0)[0].frame  # a frame with the header of the routing
    frames = [header] * (class_router.MOST_VISITS + 1)
    arrivals = [router.receive(1, 2, frame, 2.0) for frame in frames[1:]]
    assert [reasons(one) for one in arrivals[:-1]] == [[""]] * (class_router.MOST_VISITS - 1)
    assert reasons(arrivals[-1]) == [class_router.LOOP]


def test_destination_may_deliver_only_what_arrived(made: Any) -> None:
    mine = packet(5, 2, 0)
    source = f"got = {mine!r}\n" + HEAD
    source += "    def incoming(self, *_):\n        return [Deliver(got)] * 2\n"
    router = made(source)
    assert (
        reasons(router.receive(1, 2, Frame(ETH_IP, b"another"), 1.0)) == [class_router.NOT_HELD] * 2
    )
    actions = router.receive(1, 2, Frame(ETH_IP, mine), 1.0)
    assert isinstance(actions[0], Deliver)
    assert reasons(actions[1:]) == [class_router.NOT_HELD]


def test_flood_is_limited(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_router, "FRAME_BURST", 3)
    router = made(outgoing("return [Send(0, 1, Frame(0x88b5, bytes(9)))] * 4"))
    assert reasons(router.send(packet(), 1.0)) == ["", "", "", class_router.TOO_MANY_FRAMES]
    later = 1.0 + 1.5 / class_router.FRAMES_PER_S
    assert reasons(router.send(packet(), later)).count("") == 1


def test_flood_does_not_stop_marked_packets(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_router, "FRAME_BURST", 1)
    router = made(HEAD)
    unmarked = packet().replace(b"pillarbox trip", bytes(14))
    assert reasons([*router.send(unmarked, 1.0), *router.send(unmarked, 1.0)]) == [
        "",
        class_router.TOO_MANY_FRAMES,
    ]
    assert reasons(router.send(packet(), 1.0)) == [""]


def test_deliveries_of_unmarked_packets_are_limited(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_router, "FRAME_BURST", 2)
    mine = packet(source=2, destination=0).replace(b"pillarbox trip", bytes(14))
    body = f"return [Deliver({mine!r})] * 3"
    assert reasons(made(outgoing(body)).send(packet(), 1.0)) == [
        "",
        "",
        class_router.TOO_MANY_FRAMES,
    ]


def hostile_answer(text: str) -> str:
    """Return a file that writes this text as the answer to each event."""
    return HEAD + (
        "import json\nwritten = json.dumps\n"
        "def answer(told):\n"
        "    if not isinstance(told.get('answer'), list):\n        return written(told)\n"
        f"    return '{{\"number\": %d, %s}}' % (told['number'], {text!r})\n"
        "json.dumps = answer\n"
    )


@pytest.mark.parametrize("when", ["NaN", "null", "true", "1" + "0" * 400])
def test_answer_without_a_time_ends_the_child(made: Any, when: str) -> None:
    router = made(hostile_answer(f'"answer": [[], {when}]'))
    router.send(packet(), 1.0)
    assert "not a valid time" in router.stopped
    assert not router.child.alive


@pytest.mark.parametrize("peer", ["1.0", "true", "-1.0", "[]"])
def test_peer_is_an_integer(made: Any, peer: str) -> None:
    router = made(hostile_answer(f'"answer": [[["send", 0, {peer}, 2048, "00"]], 9]'))
    assert reasons(router.send(packet(), 1.0)) == ["next hop is no neighbour"]


def test_drop_reasons_are_limited(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_router, "MOST_REASONS", 3)
    router = made(outgoing("return [Drop(str(one % 5), packet) for one in range(10)]"))
    other = sealed_router.OTHER_REASON
    assert reasons(router.send(packet(), 1.0)) == ["0", "1", "2", other, other] * 2


def test_code_may_not_poll_all_the_time(made: Any) -> None:
    router = made(HEAD + "    @property\n    def next_poll(self):\n        return 0.0\n")
    router.poll(1.0)
    assert router.next_poll == 1.0 + class_router.LEAST_WAIT_S


def test_share_of_the_time_is_limited(made: Any) -> None:
    waited_s = 2 * child.PATIENCE_S
    router = made(HEAD)
    router._keeper.waited_s = waited_s
    router.send(packet(1), waited_s / class_router.TIME_SHARE)  # all of the time is credited
    assert not router.stopped
    router._keeper.waited_s = waited_s
    router.send(packet(2), waited_s / class_router.TIME_SHARE)
    assert "all its answers took" in router.stopped


def test_forwarder_sends_the_heartbeats(made: Any) -> None:
    router = made(HEAD)
    beats = router.heartbeats()
    assert len(beats) == NETWORK.ports
    assert all(is_heartbeat(beat.frame) for beat in beats)
    router.leave_heartbeats_to_others()
    assert not [one for one in router.poll(30.0) if isinstance(one, Send)]
