"""Which neighbours live, as the kernel finds it: heartbeats are noted there, and so is silence."""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pillarbox.hosts.base.path import Step
from pillarbox.hosts.live.devices import BROADCAST_MAC
from pillarbox.hosts.live.lab_programs import LIVENESS, ServerPrograms, SingleServerPrograms
from pillarbox.hosts.live.liveness import (
    Liveness,
    NeighbourLink,
    NeighbourLinkTable,
    NeighbourState,
    start_detection,
)
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN
from pillarbox.hosts.wire.messages import Heartbeat
from tests.benches._three_servers import RELAY, A, B, ThreeServers, mac
from tests.hosts.live.cables import inject, listening

pytestmark = pytest.mark.root

WAIT_S = 20.0
FOR_EVER_S, SOON_S = 1000.0, 0.05
BURSTS = 300  # bursts of heartbeats that change the state of a link again and again
MOST_LATE_NS = 1_000_000_000  # as liveness.h has it
TO_A, TO_B = Step(0, A), Step(1, B)
WELL = NeighbourState.HEARD | NeighbourState.HEARS_ME
LINKS = {TO_A: ("eth0", mac(A, 0)), TO_B: ("eth1", mac(B, 0))}


@dataclass
class Watched:
    """The relay, whose kernel watches A and B."""

    lab: ThreeServers
    programs: ServerPrograms
    watch: Liveness
    links: dict[Step, NeighbourLink]
    left: socket.socket  # sees what the kernel leaves to Python

    def beats(self, heard: tuple[int, ...] = (RELAY,), to: bytes = BROADCAST_MAC) -> None:
        """Let A send a heartbeat that says whom it hears."""
        inject(self.lab, _beat(heard, to))

    def injects(self, data: bytes, to: bytes = BROADCAST_MAC) -> None:
        inject(self.lab, _frame(data, to))

    def was_heard(self, seconds_ago: int) -> None:
        """Let A's last heartbeat have come then."""
        links, key = (
            self.programs.maps["links"],
            self.watch.link_indices(0)[A].to_bytes(4, sys.byteorder),
        )
        then_ns = time.monotonic_ns() - seconds_ago * 1_000_000_000
        links[key] = then_ns.to_bytes(8, sys.byteorder) + links[key][8:]

    def table(self) -> NeighbourLinkTable:
        """Return what the pacer has of the links."""
        maps = [self.programs.maps[name] for name in ("links", "vouched", "answers")]
        return NeighbourLinkTable(*(each.fd for each in maps), entries=maps[0].entries)

    def noted(self, least: int) -> None:
        """Wait until the kernel has noted so many heartbeats."""
        deadline = time.monotonic() + WAIT_S
        while self.watch.heartbeats < least:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def rings(self, within_s: float = WAIT_S) -> bool:
        return bool(select.select([self.watch.bell], [], [], within_s)[0])

    def news(self) -> dict[Step, NeighbourState]:
        """Wait for news, and return it."""
        assert self.rings()
        return dict(self.watch.changed_links())


def _beat(heard: tuple[int, ...], to: bytes = BROADCAST_MAC) -> bytes:
    """Return A's heartbeat that says whom it hears."""
    return _frame(DcnHeader(A, A, Protocol.HEARTBEAT).pack(Heartbeat(0, heard).pack()), to)


def _frame(data: bytes, to: bytes) -> bytes:
    return to + mac(A, 0) + ETH_DCN.to_bytes(2, "big") + data


def _watching(interfaces: list[int], links: int) -> ServerPrograms:
    """Let the program that only watches see what comes in by these interfaces."""
    programs = SingleServerPrograms(LIVENESS, links)
    for index in interfaces:
        programs.attach("port_in", index, egress=False)
    return programs


@pytest.fixture(params=["own program", "forwarding programs"])
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    timeout_s = getattr(request.function, "timeout_s", FOR_EVER_S)
    with ThreeServers() as lab:
        forwards = request.param == "forwarding programs"
        programs = lab.add_table(RELAY, links=len(LINKS)).programs if forwards else None
        with lab.servers[RELAY].entered():
            index = {step: socket.if_nametoindex(name) for step, (name, _) in LINKS.items()}
            programs = programs or _watching(list(index.values()), len(LINKS))
        links = {
            step: NeighbourLink(step, step.peer, index[step], at) for step, (_, at) in LINKS.items()
        }
        with listening(lab, RELAY, 0, ETH_DCN) as left:
            watch = Liveness(programs, [*links.values()], RELAY, time.monotonic())
            start_detection(programs.lab, timeout_s)
            yield Watched(lab, programs, watch, links, left)
        if not forwards:
            programs.close()


def test_a_heartbeat_that_says_what_is_known_wakes_nobody(watched: Watched) -> None:
    watched.beats()
    watched.beats(heard=(7, RELAY, 9))
    watched.noted(2)
    assert not watched.rings(0)
    assert dict(watched.watch.changed_links()) == {}
    watched.left.setblocking(False)
    with pytest.raises(BlockingIOError):
        watched.left.recv(1 << 16)


def test_who_does_not_hear_me_is_news_and_so_is_that_it_does_again(watched: Watched) -> None:
    watched.beats(heard=(7, 9))
    assert watched.news() == {TO_A: NeighbourState.HEARD}
    watched.beats(heard=(7, 9))
    watched.noted(2)
    assert not watched.rings(0), "it was told"
    watched.beats()
    assert watched.news() == {TO_A: WELL}


def test_silence_is_news_and_so_is_its_end(watched: Watched) -> None:
    found: dict[Step, NeighbourState] = {}
    while found.keys() != {TO_A, TO_B}:
        found |= watched.news()
    assert found == {TO_A: NeighbourState.SILENT, TO_B: NeighbourState.SILENT}
    watched.beats()
    assert watched.news()[TO_A] == WELL


test_silence_is_news_and_so_is_its_end.timeout_s = SOON_S  # type: ignore[attr-defined]


def test_who_is_vouched_for_is_not_silent(watched: Watched) -> None:
    entries, heard = watched.programs.maps["links"].entries, watched.table()
    cell = heard.assign_cell([watched.watch.link_indices(0)[A]])
    assert [heard.assign_cell([]) for _ in range(entries - 1)] == [*range(2, entries), 0]
    heard.record_cell_heard(cell, time.monotonic_ns() + int(FOR_EVER_S * 1e9))
    found: dict[Step, NeighbourState] = {}
    while TO_B not in found:
        found |= watched.news()
    watched.beats()  # if it was silent before it was vouched for
    while found.get(TO_A, WELL) != WELL:
        found |= watched.news()
    watched.watch.resize([watched.links[TO_A]], time.monotonic())
    watched.watch.resize([*watched.links.values()], time.monotonic())  # heard later than A
    assert watched.news() == {TO_B: NeighbourState.SILENT}


test_who_is_vouched_for_is_not_silent.timeout_s = SOON_S  # type: ignore[attr-defined]


SIZE = len(DcnHeader(A, A, Protocol.HEARTBEAT).pack(Heartbeat(0, (RELAY,)).pack()))
ANSWER = mac(A, 0) + mac(RELAY, 0) + ETH_DCN.to_bytes(2, "big") + bytes(range(SIZE))
TO_RELAY = mac(RELAY, 0)


def test_a_heartbeat_to_one_is_answered(watched: Watched) -> None:
    watched.table().set_answer(watched.watch.link_indices(0)[A], ANSWER)
    with listening(watched.lab, A, 0, ETH_DCN) as back:
        watched.was_heard(seconds_ago=1)
        watched.beats(to=TO_RELAY)
        assert back.recv(1 << 16) == ANSWER


@pytest.mark.parametrize(
    ("answer", "seconds_ago", "beat"),
    [
        (b"", 1, {"to": TO_RELAY}),
        (ANSWER, 1, {}),
        (ANSWER, 1, {"to": TO_RELAY, "heard": (7, RELAY)}),
        (ANSWER, 1, {"to": TO_RELAY, "heard": (7,)}),
        (ANSWER, -1, {"to": TO_RELAY}),
    ],
    ids=["nothing to say", "to all", "of another length", "not heard", "one right after another"],
)
def test_no_other_heartbeat_is_answered(
    watched: Watched, answer: bytes, seconds_ago: int, beat: dict[str, Any]
) -> None:
    watched.table().set_answer(watched.watch.link_indices(0)[A], answer)
    with listening(watched.lab, A, 0, ETH_DCN) as back:
        watched.was_heard(seconds_ago)
        watched.beats(**beat)
        watched.noted(1)
        back.setblocking(False)
        with pytest.raises(BlockingIOError):
            back.recv(1 << 16)


def test_news_that_nobody_took_is_told_again(watched: Watched) -> None:
    watched.beats(heard=())
    assert watched.rings()
    watched.watch.disable_events()  # as if the bell had been rung while nobody listened
    assert not watched.rings(0)
    watched.beats(heard=())
    assert watched.news() == {TO_A: NeighbourState.HEARD}


def test_no_change_is_lost_while_others_are_read(watched: Watched) -> None:
    beats = [_beat(heard) for heard in ((7,), (RELAY,))]
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        for burst in range(BURSTS):
            inject(watched.lab, *beats, times=burst % 3)
            inject(watched.lab, beats[burst % 2])
            theirs.send(b"x")
            if not theirs.recv(1):
                break
        os._exit(0)
    theirs.close()
    events, known = select.epoll(), WELL
    for each in (watched.watch.bell, ours.fileno()):
        events.register(each, select.EPOLLIN)
    with ours:
        for burst in range(BURSTS):
            final, is_sent = (WELL if burst % 2 else NeighbourState.HEARD), False
            while known != final or not is_sent:
                ready = [descriptor for descriptor, _ in events.poll(WAIT_S)]
                assert ready, f"burst {burst}: the state is {final!r}, and nobody says so"
                if watched.watch.bell in ready:
                    known = dict(watched.watch.changed_links()).get(TO_A, known)
                is_sent = is_sent or (ours.fileno() in ready and bool(ours.recv(1)))
            ours.send(b"x")
    assert os.waitpid(child, 0)[1] == 0


def test_what_is_to_be_forgotten_is_silent_until_it_is_heard(watched: Watched) -> None:
    watched.beats()
    watched.noted(1)
    watched.watch.mark_silent(TO_A, 0.0)
    assert not watched.watch.hears(TO_A)
    assert watched.watch.hears(TO_B)
    watched.beats()
    assert watched.news() == {TO_A: WELL}


def test_heartbeats_from_before_a_cut_bring_nobody_back(watched: Watched) -> None:
    watched.watch.mark_silent(TO_A, time.monotonic() + FOR_EVER_S)
    watched.beats()
    watched.noted(1)
    assert not watched.rings(0)
    watched.watch.mark_silent(TO_A, float("-inf"))
    watched.beats()
    assert watched.news() == {TO_A: WELL}


GOOD = DcnHeader(A, A, Protocol.HEARTBEAT).pack(Heartbeat(0, (RELAY, 9)).pack())
REFUSED = {
    "header": bytes([*GOOD[:9], GOOD[9] ^ 1, *GOOD[10:]]),
    "body": bytes([*GOOD[:-1], GOOD[-1] ^ 1]),
    "cut short": GOOD[:-4],
    "too long": DcnHeader(A, A, Protocol.HEARTBEAT).pack(Heartbeat(0, (9,)).pack() + bytes(4)),
    "empty": DcnHeader(A, A, Protocol.HEARTBEAT).pack(b""),
    "another sender": DcnHeader(B, B, Protocol.HEARTBEAT).pack(Heartbeat(0, (RELAY,)).pack()),
    "data": DcnHeader(A, B, Protocol.IPV4).pack(Heartbeat(0, ()).pack()),
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_right_heartbeat_is_left_to_python(watched: Watched, data: bytes) -> None:
    watched.injects(data)
    assert watched.left.recv(1 << 16)[14:] == data
    watched.injects(GOOD)
    watched.noted(1)
    assert watched.watch.heartbeats == 1
    assert not watched.rings(0)


def test_nobody_is_silent_while_the_heartbeats_sender_is_late() -> None:
    with ThreeServers() as lab, lab.servers[RELAY].entered():
        programs = _watching([socket.if_nametoindex("eth0")], 1)
        paced, key = programs.maps["paced"], bytes(4)
        began_ns = time.monotonic_ns()
        paced[key] = began_ns.to_bytes(8, sys.byteorder)
        link = NeighbourLink(TO_A, A, socket.if_nametoindex("eth0"), mac(A, 0))
        watch = Liveness(programs, [link], RELAY, time.monotonic())
        start_detection(programs.lab, SOON_S)
        rang = select.select([watch.bell], [], [], 4 * SOON_S)[0]
        assert not rang or time.monotonic_ns() - began_ns > MOST_LATE_NS
        paced[key] = time.monotonic_ns().to_bytes(8, sys.byteorder)
        assert select.select([watch.bell], [], [], WAIT_S)[0]
        assert dict(watch.changed_links()) == {TO_A: NeighbourState.SILENT}
        programs.close()


def test_a_sender_that_hangs_is_waited_for_no_longer_than_a_second() -> None:
    with ThreeServers() as lab, lab.servers[RELAY].entered():
        programs = _watching([socket.if_nametoindex("eth0")], 1)
        programs.maps["paced"][bytes(4)] = time.monotonic_ns().to_bytes(8, sys.byteorder)
        link = NeighbourLink(TO_A, A, socket.if_nametoindex("eth0"), mac(A, 0))
        watch = Liveness(programs, [link], RELAY, time.monotonic())
        start_detection(programs.lab, SOON_S)
        assert select.select([watch.bell], [], [], WAIT_S)[0]
        programs.close()


def test_a_link_is_found_where_another_has_its_place_and_when_that_is_free_again() -> None:
    with ThreeServers() as lab, lab.servers[RELAY].entered():
        index = socket.if_nametoindex("eth0")
        programs = _watching([index], 2)
        here = NeighbourLink(TO_A, A, index, mac(A, 0))
        others = (
            NeighbourLink(TO_A._replace(peer=uid), uid, index, mac(uid, 0))
            for uid in range(100, 300)
        )
        watch = Liveness(programs, [here], RELAY, time.monotonic())
        place = watch.link_indices(0)[A]
        watch.resize([], time.monotonic())
        for other in others:  # until one has it
            watch.resize([other], time.monotonic())
            if place in watch.link_indices(0).values():
                break
        watch.resize([other, here], time.monotonic())
        assert watch.link_indices(0)[A] != place
        with listening(lab, RELAY, 0, ETH_DCN) as left:
            watched = Watched(lab, programs, watch, {TO_A: here}, left)
            watched.beats()
            watched.noted(1)
            watch.resize([here], time.monotonic())
            watched.beats()
            watched.noted(2)
        programs.close()


def test_a_dead_servers_kernel_judges_no_more() -> None:
    """The timer ends with the process that holds the tables: else the kernel would keep them."""
    with ThreeServers() as lab, lab.servers[RELAY].entered():
        programs = _watching([socket.if_nametoindex("eth0")], 1)
        link = NeighbourLink(TO_A, A, socket.if_nametoindex("eth0"), mac(A, 0))
        watch = Liveness(programs, [link], RELAY, time.monotonic())
        start_detection(programs.lab, SOON_S)
        assert select.select([watch.bell], [], [], WAIT_S)[0]
        programs.close()
        assert dict(watch.changed_links()) == {
            TO_A: NeighbourState.SILENT
        }  # our copy of the entries stays
