"""Heartbeats of servers at one switch, which a pacer sends to one server or to all."""

from __future__ import annotations

import itertools
import mmap
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from pillarbox.hosts.live import heartbeat_pacer, heartbeats
from pillarbox.hosts.live.devices import BROADCAST_MAC
from pillarbox.hosts.live.heartbeat_pacer import HeartbeatPort, PacerConnection
from pillarbox.hosts.live.liveness import LONGEST_ANSWER
from tests.hosts.live.pacers import (
    ANSWER_BYTES,
    LINK_BYTES,
    SEGMENT_AT,
    STATE_AT,
    WAIT_S,
    pacing,
    tables,
)

CROWD = 5
PACE_S = 6 * heartbeat_pacer.TICK_S


def mac(server: int) -> bytes:
    return bytes([2, 0, 0, 0, 0, server])


class Switch:
    """A switch with so many servers, which hear all that comes: this test does so, and answers."""

    def __init__(self, arrivals: socket.socket, crowd: int = CROWD) -> None:
        self.crowd = crowd
        self.torn: set[tuple[int, int]] = set()  # (from, to)
        self.deaf: tuple[int, int] | None = None  # who does not hear the other, which hears it
        maps = tables(crowd * crowd)
        self._table, self._vouched, self._answers = (
            mmap.mmap(maps[name].fd, 0) for name in ("links", "vouched", "answers")
        )
        heartbeat_pacer.send_kernel_tables(arrivals, maps)
        for each in maps.values():
            os.close(each.fd)
        self._arrivals = arrivals
        self._answered = deque[tuple[int, bytes]]()  # by whom, and with what
        self._cables: dict[socket.socket, int] = {}
        self.servers: dict[int, PacerConnection] = {}
        for server in range(self.crowd):
            self.begin(server)

    def begin(self, server: int) -> None:
        cable, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._cables[cable] = server
        hears = {peer: self.place(peer, server) for peer in range(self.crowd) if peer != server}
        with end:
            outlet = HeartbeatPort(end, 7, hears)
            self.servers[server] = PacerConnection(self._arrivals, server, {0: outlet}, PACE_S)
        self.says(server, b"")

    def place(self, sender: int, hearer: int) -> int:
        return hearer * self.crowd + sender

    def says(self, server: int, what: bytes) -> None:
        self.servers[server].set_frames({0: BROADCAST_MAC + mac(server) + what})

    def close(self) -> None:
        maps = self._table, self._vouched, self._answers
        for each in (*self.servers.values(), *self._cables, *maps):
            each.close()

    def carry(self) -> tuple[int, bytes]:
        """Carry the next frame; return from whom, and to whom."""
        sender, frame = self._next()
        to = frame[:6]
        for hearer in range(self.crowd):
            wanted = to in (BROADCAST_MAC, mac(hearer))
            if wanted and hearer != sender and (sender, hearer) not in self.torn:
                at = self.place(sender, hearer) * LINK_BYTES
                self._table[at : at + 8] = time.monotonic_ns().to_bytes(8, sys.byteorder)
                self._table[at + STATE_AT] = 1 if (sender, hearer) == self.deaf else 3
                if to_one(to) and (answer := self.answer(sender, hearer)):
                    self._answered.append((hearer, answer))
        return sender, to

    @property
    def is_answered(self) -> bool:
        """Tell whether the next frame is an answer to an earlier one."""
        return bool(self._answered)

    def _next(self) -> tuple[int, bytes]:
        if self._answered:
            return self._answered.popleft()
        while True:
            cable = select.select([*self._cables], [], [], WAIT_S)[0][0]
            if frame := cable.recv(999):
                return self._cables[cable], frame
            del self._cables[cable]  # its server has ended
            cable.close()

    def answer(self, sender: int, hearer: int) -> bytes:
        at = self.place(sender, hearer) * ANSWER_BYTES
        size = int.from_bytes(self._answers[at : at + 4], sys.byteorder)
        return self._answers[at + 4 : at + 4 + size]

    def until(self, wanted: Callable[[bytes], bool]) -> None:
        """Carry frames until so many in a row as there are servers go to whom that wants."""
        deadline, row = time.monotonic() + WAIT_S, 0
        while row < self.crowd:
            assert time.monotonic() < deadline
            row = row + 1 if wanted(self.carry()[1]) else 0

    def cell(self, sender: int, hearer: int) -> int:
        at = self.place(sender, hearer) * LINK_BYTES + SEGMENT_AT
        return int.from_bytes(self._table[at : at + 4], sys.byteorder)

    def vouched_ns(self, cell: int) -> int:
        return int.from_bytes(self._vouched[8 * cell : 8 * cell + 8], sys.byteorder)


def to_all(to: bytes) -> bool:
    return to == BROADCAST_MAC


def to_one(to: bytes) -> bool:
    return to != BROADCAST_MAC


@pytest.fixture
def switch() -> Iterator[Switch]:
    with pacing() as (_, arrivals), closing(Switch(arrivals)) as made:
        made.until(to_one)
        yield made


@pytest.mark.parametrize("crowd", [2, 3, 4, 6])
def test_who_hear_each_other_beat_to_one_at_a_time_and_to_each_in_turn(crowd: int) -> None:
    met: set[tuple[int, bytes]] = set()
    deadline = time.monotonic() + WAIT_S
    with pacing() as (_, arrivals), closing(Switch(arrivals, crowd)) as switch:
        while len(met) < crowd * (crowd - 1):
            assert time.monotonic() < deadline
            sender, to = switch.carry()
            assert to != mac(sender)
            if to_one(to):  # not so where this test was late to carry one
                met.add((sender, to))


def test_of_a_heartbeat_that_goes_round_the_pacer_sends_the_first_alone(switch: Switch) -> None:
    began: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while len(began) < 4:
        assert time.monotonic() < deadline
        is_answer = switch.is_answered
        sender, to = switch.carry()
        if to_one(to) and not is_answer:  # not so where this test was late to carry one
            began.append(sender)
    assert set(began) == {0}


def test_each_counts_as_heard_by_all_when_each_was_heard_by_one(switch: Switch) -> None:
    began_ns = time.monotonic_ns()
    while not all(
        switch.vouched_ns(switch.cell(sender, hearer)) > began_ns
        for sender, hearer in itertools.permutations(range(CROWD), 2)
    ):
        switch.carry()
        assert time.monotonic_ns() - began_ns < WAIT_S * 1e9


def test_one_who_was_not_heard_by_one_beats_to_all_with_all_others_and_counts_no_more(
    switch: Switch,
) -> None:
    switch.torn.add((1, 3))
    switch.until(to_all)
    vouched_ns = switch.vouched_ns(switch.cell(1, 3))
    switch.until(to_all)
    assert switch.vouched_ns(switch.cell(1, 3)) == vouched_ns
    switch.torn.clear()
    late = list(itertools.takewhile(to_all, iter(lambda: switch.carry()[1], b"")))
    assert len(late) >= (heartbeats.TO_ALL - 1) * CROWD, "it goes round again after a while"
    switch.until(to_one)


def test_what_is_too_long_for_an_answer_goes_to_all(switch: Switch) -> None:
    for server in range(CROWD):
        switch.says(server, bytes(LONGEST_ANSWER))
    switch.until(to_all)
    for _ in range(6 * CROWD):
        assert to_all(switch.carry()[1])


def test_all_beat_to_all_while_one_does_not_hear_another(switch: Switch) -> None:
    switch.deaf = (1, 3)
    switch.says(3, b"")  # the same as before: its kernel rang
    switch.until(to_all)
    for _ in range(6 * CROWD):
        assert to_all(switch.carry()[1])
    switch.deaf = None
    switch.until(to_one)


def test_news_of_one_of_many_go_to_all(switch: Switch) -> None:
    switch.says(2, b"news")
    switch.until(to_all)
    switch.until(to_one)


def test_where_one_of_many_has_ended_all_others_beat_to_all(switch: Switch) -> None:
    switch.servers[4].close()
    switch.until(to_all)
    for _ in range(4 * CROWD):
        assert to_all(switch.carry()[1])


def test_once_who_is_at_a_switch_has_changed_the_cell_it_had_vouches_for_nobody(
    switch: Switch,
) -> None:
    earlier = switch.cell(1, 3)
    switch.servers[4].close()
    switch.until(to_all)
    vouched_ns = switch.vouched_ns(earlier)
    switch.begin(4)
    switch.until(to_one)
    assert switch.cell(1, 3) not in (0, earlier)
    assert switch.vouched_ns(earlier) == vouched_ns
