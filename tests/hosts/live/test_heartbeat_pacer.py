"""The process that sends the heart-beats of many servers: in time, and none for the dead."""

from __future__ import annotations

import itertools
import mmap
import os
import resource
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TypeAlias

import pytest

from hosts.linux.bpf import Map
from hosts.linux.calls import readable
from hosts.live import heartbeat_pacer, heartbeats
from hosts.live.devices import BROADCAST_MAC
from hosts.live.heartbeat_pacer import HeartbeatPort, HeartBeats
from hosts.live.liveness import LONGEST_ANSWER

INTERVAL_S = 0.01
WAIT_S = 20.0


class Server:
    """A server with cables that this test holds the other ends of."""

    def __init__(
        self, arrivals: socket.socket, ports: tuple[int, ...], interval_s: float = INTERVAL_S
    ) -> None:
        self.cables: dict[int, socket.socket] = {}
        with ExitStack() as stack:
            theirs = {}
            for port in ports:
                self.cables[port], end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self.cables[port].settimeout(WAIT_S)
                theirs[port] = stack.enter_context(end)
            outlets = {port: HeartbeatPort(end, port // 2) for port, end in theirs.items()}
            self.heart_beats = HeartBeats(arrivals, 0, outlets, interval_s)

    def close(self) -> None:
        for end in (self.heart_beats, *self.cables.values()):
            end.close()


Serve: TypeAlias = Callable[..., Server]


def started(lifeline: int) -> tuple[int, socket.socket]:
    channel, theirs = heartbeat_pacer.arrivals()
    with theirs:
        return heartbeat_pacer.start(theirs, lifeline), channel


@contextmanager
def pacing() -> Iterator[tuple[int, socket.socket]]:
    lifeline, held = os.pipe()
    process, channel = started(lifeline)
    with channel:
        yield process, channel
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    os.close(lifeline)
    os.close(held)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Give what makes servers of one pacer."""
    with pacing() as (_, arrivals), ExitStack() as stack:
        yield lambda *ports, **how: stack.enter_context(
            closing(Server(arrivals, ports or (0,), **how))
        )


def test_what_a_server_says_is_sent_again_and_again_by_its_port(serve: Serve) -> None:
    server = serve(0, 3)
    server.heart_beats.say({0: b"up", 3: b"down"})
    for _ in range(3):
        assert server.cables[0].recv(99) == b"up"
        assert server.cables[3].recv(99) == b"down"


def test_it_ends_with_the_last_server_once_nobody_can_start_another(
    capfd: pytest.CaptureFixture[str],
) -> None:
    lifeline, held = os.pipe()
    process, arrivals = started(lifeline)
    with closing(Server(arrivals, (0,))) as server:
        server.heart_beats.say({0: b"up"})
        arrivals.close()
        assert [server.cables[0].recv(99) for _ in range(3)] == [b"up"] * 3
    assert os.waitpid(process, 0)[1] == 0
    os.close(lifeline)
    os.close(held)
    assert capfd.readouterr() == ("", "")


def test_it_ends_with_the_lab_even_while_servers_beat() -> None:
    lifeline, held = os.pipe()
    process, arrivals = started(lifeline)
    with arrivals, closing(Server(arrivals, (0,))) as server:
        server.heart_beats.say({0: b"up"})
        assert server.cables[0].recv(99) == b"up"
        os.close(held)
        assert os.waitpid(process, 0)[1] == signal.SIGKILL
    os.close(lifeline)


def test_another_one_continues_the_clock_once_all_have_registered_again() -> None:
    """What a lab's kernel goes by stands still between the two, so that nobody is silent."""
    maps = tables(1)
    lifeline, held = os.pipe()
    arrivals, theirs = heartbeat_pacer.arrivals()
    cables, ends = zip(
        *(socket.socketpair(type=socket.SOCK_SEQPACKET) for _ in range(2)), strict=True
    )
    clock = mmap.mmap(maps["paced"].fd, mmap.PAGESIZE)
    with arrivals, theirs, clock as shown, ExitStack() as stack:
        process = heartbeat_pacer.start(theirs, lifeline)
        heartbeat_pacer.show_tables(arrivals, maps)
        servers = []
        for number, (cable, end) in enumerate(zip(cables, ends, strict=True)):
            cable.settimeout(WAIT_S)
            made = HeartBeats(arrivals, number, {0: HeartbeatPort(end, number)}, INTERVAL_S)
            servers.append(stack.enter_context(closing(made)))
            made.say({0: b"here"})
            assert cable.recv(99) == b"here"
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        for made in servers:
            assert readable([made], WAIT_S)  # so a forwarder notices
        stopped = shown[:8]
        process = heartbeat_pacer.start(theirs, lifeline)
        heartbeat_pacer.show_tables(arrivals, maps, running=[0, 1])
        for made, cable in zip(servers, cables, strict=True):
            assert shown[:8] == stopped
            made.register_again()
            made.say({0: b"again"})
            while cable.recv(99) != b"again":
                pass
        while shown[:8] == stopped:
            time.sleep(heartbeat_pacer.TICK_S)
        late_ns = time.monotonic_ns() - int.from_bytes(shown[:8], sys.byteorder)
        assert 0 < late_ns < heartbeat_pacer.MOST_LATE_S * heartbeat_pacer.NS
        os.close(held)
        assert os.waitpid(process, 0)[1] == signal.SIGKILL
    for each in (*cables, *ends):
        each.close()
    for each in maps.values():
        os.close(each.fd)
    os.close(lifeline)


def test_what_it_says_later_is_sent_from_then_on(serve: Serve) -> None:
    server = serve()
    server.heart_beats.say({0: b"first"})
    assert server.cables[0].recv(99) == b"first"
    server.heart_beats.say({0: b"second"})
    while server.cables[0].recv(99) == b"first":
        pass
    assert server.cables[0].recv(99) == b"second"


def test_what_is_new_waits_for_no_interval(serve: Serve) -> None:
    server = serve(0, interval_s=3 * WAIT_S)
    for news in (b"first", b"second", b"third"):
        server.heart_beats.say({0: news})
        assert server.cables[0].recv(99) == news


def test_those_who_hear_each_other_beat_one_after_the_other() -> None:
    cable, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    cable.settimeout(WAIT_S)
    with pacing() as (_, arrivals), cable, ExitStack() as stack:
        for name, segment in ((b"a", 1), (b"b", 2), (b"c", 1)):
            beats = HeartBeats(arrivals, 0, {0: HeartbeatPort(end, segment)}, INTERVAL_S)
            stack.enter_context(closing(beats)).say({0: name})
        while cable.recv(99) != b"c":  # the last of them to begin
            pass
        end.close()
        heard = b"".join(cable.recv(99) for _ in range(30))
    assert heard.count(b"b") in (9, 10, 11)
    assert heard.replace(b"ac", b"").strip(b"ac") == heard.count(b"b") * b"b"


def test_it_shows_up_to_when_it_has_sent_and_stands_still_when_it_does() -> None:
    maps = tables(1)
    clock = mmap.mmap(maps["paced"].fd, mmap.PAGESIZE)
    with pacing() as (process, arrivals), clock as shown:
        heartbeat_pacer.show_tables(arrivals, maps)
        for each in maps.values():
            os.close(each.fd)
        began_ns = time.monotonic_ns()
        with closing(Server(arrivals, (0,))) as server:
            server.heart_beats.say({0: b"here"})
            for _ in range(3):
                assert server.cables[0].recv(99) == b"here"
            first_ns = int.from_bytes(shown[:8], sys.byteorder)
            assert began_ns < first_ns <= time.monotonic_ns()
            os.kill(process, signal.SIGSTOP)
            os.waitid(os.P_PID, process, os.WSTOPPED)
            stopped_ns = int.from_bytes(shown[:8], sys.byteorder)
            assert first_ns <= stopped_ns == int.from_bytes(shown[:8], sys.byteorder)


LINK_BYTES, STATE_AT, SEGMENT_AT = 64, 20, 48  # as liveness.h has a link
ANSWER_BYTES = 256
LATE_NS = 1 << 60


def tables(links: int) -> dict[str, Map]:
    """Return memory in place of the kernel's tables."""
    made = {}
    for name in ("paced", "links", "vouched", "answers"):
        made[name] = Map(os.memfd_create(name), 4, 0, links)
        os.truncate(made[name].fd, -(-links * ANSWER_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE)
    return made


def beats_meanwhile(state: int, heard_ns: int, neighbour: int = 1) -> int:
    """Return how often a server beats while another one, whom nobody is to hear, does so 3 times.

    It hears a third, if `neighbour` is its number. The kernel's table has both their links in that
    state, and says that they were heard then.
    """
    cable, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    cable.settimeout(WAIT_S)
    maps = tables(2)
    for place in range(2):
        os.pwrite(maps["links"].fd, heard_ns.to_bytes(8, sys.byteorder), place * LINK_BYTES)
        os.pwrite(maps["links"].fd, bytes([state]), place * LINK_BYTES + STATE_AT)
    with pacing() as (_, arrivals), cable, end, ExitStack() as stack:
        heartbeat_pacer.show_tables(arrivals, maps)
        hears: list[dict[int, int]] = [{neighbour: 0}, {0: 1}, {}]
        for server, (name, segment) in enumerate(((b"a", 7), (b"b", 7), (b"c", 8))):
            ports = {0: HeartbeatPort(end, segment, hears[server])}
            beats = HeartBeats(arrivals, server, ports, 12 * heartbeat_pacer.TICK_S)
            stack.enter_context(closing(beats)).say({0: name})
        for each in maps.values():
            os.close(each.fd)
        while cable.recv(99) != b"c":  # the last of them to begin
            pass
        heard: list[bytes] = []
        while heard.count(b"c") < 3:
            heard.append(cable.recv(99))
    return heard.count(b"a")


def test_what_was_not_heard_is_sent_again_a_few_times() -> None:
    every = 3 * (1 + heartbeats.MOST_REPEATS)
    assert every - 4 <= beats_meanwhile(state=3, heard_ns=0) <= every + 4


def test_what_was_heard_is_not_sent_again() -> None:
    assert beats_meanwhile(state=3, heard_ns=LATE_NS) in (2, 3, 4)


def test_nothing_is_sent_again_for_a_link_that_is_down() -> None:
    assert beats_meanwhile(state=0, heard_ns=0) in (2, 3, 4)


def test_where_a_neighbour_is_served_elsewhere_heart_beats_are_twice_as_frequent() -> None:
    assert beats_meanwhile(state=3, heard_ns=LATE_NS, neighbour=99) in (5, 6, 7)


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
        heartbeat_pacer.show_tables(arrivals, maps)
        for each in maps.values():
            os.close(each.fd)
        self._arrivals = arrivals
        self._answered = deque[tuple[int, bytes]]()  # by whom, and with what
        self._cables: dict[socket.socket, int] = {}
        self.servers: dict[int, HeartBeats] = {}
        for server in range(self.crowd):
            self.begin(server)

    def begin(self, server: int) -> None:
        cable, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._cables[cable] = server
        hears = {peer: self.place(peer, server) for peer in range(self.crowd) if peer != server}
        with end:
            outlet = HeartbeatPort(end, 7, hears)
            self.servers[server] = HeartBeats(self._arrivals, server, {0: outlet}, PACE_S)
        self.says(server, b"")

    def place(self, sender: int, hearer: int) -> int:
        return hearer * self.crowd + sender

    def says(self, server: int, what: bytes) -> None:
        self.servers[server].say({0: BROADCAST_MAC + mac(server) + what})

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


def test_of_a_heart_beat_that_goes_round_the_pacer_sends_the_first_alone(switch: Switch) -> None:
    began: set[int] = set()
    for _ in range(4 * CROWD):
        is_answer = switch.is_answered
        sender, to = switch.carry()
        if to_one(to) and not is_answer:
            began.add(sender)
    assert began == {0}


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


def test_its_clock_makes_up_for_lost_time_little_by_little() -> None:
    now_s, clock = 5.0, heartbeat_pacer.SendingClock(5.0)
    shown_s = [clock.after_tick(now_s := now_s + heartbeat_pacer.TICK_S) for _ in range(10)]
    assert shown_s[-1] == now_s
    now_s += 1.0
    late = [clock.after_tick(now_s := now_s + heartbeat_pacer.TICK_S) for _ in range(1000)]
    steps_s = [after - before for before, after in itertools.pairwise([shown_s[-1], *late])]
    assert (
        max(steps_s) < 1.6 * heartbeat_pacer.TICK_S and min(steps_s) > 0.9 * heartbeat_pacer.TICK_S
    )
    assert late[-1] == now_s


def test_a_server_that_says_nothing_is_silent_and_others_are_not(serve: Serve) -> None:
    quiet, other = serve(), serve()
    quiet.heart_beats.say({})
    other.heart_beats.say({0: b"here"})
    for _ in range(5):
        assert other.cables[0].recv(99) == b"here"
    quiet.cables[0].setblocking(False)
    with pytest.raises(BlockingIOError):
        quiet.cables[0].recv(99)


def test_nothing_is_sent_for_a_server_whose_process_has_ended() -> None:
    with pacing() as (_, arrivals):
        cable, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        child = os.fork()
        if child == 0:
            beats = HeartBeats(arrivals, 0, {0: HeartbeatPort(end, 0)}, INTERVAL_S)
            beats.say({0: b"alive"})
            signal.pause()
        end.close()
        cable.settimeout(WAIT_S)
        with cable:
            assert cable.recv(99) == b"alive"
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            while cable.recv(99):  # until the pacer's copy is closed: nobody can send any more
                pass


def test_a_cable_that_takes_nothing_holds_nobody_up(serve: Serve) -> None:
    torn, other = serve(), serve()
    torn.cables[0].close()
    torn.heart_beats.say({0: b"lost"})
    other.heart_beats.say({0: b"here"})
    for _ in range(5):
        assert other.cables[0].recv(99) == b"here"


@pytest.mark.root
def test_it_has_a_real_time_priority_and_an_end_to_it() -> None:
    with pacing() as (process, arrivals), closing(Server(arrivals, (0,))) as server:
        server.heart_beats.say({0: b"here"})
        assert server.cables[0].recv(99) == b"here"  # so it runs
        assert os.sched_getscheduler(process) == os.SCHED_RR
        most_us = resource.prlimit(process, heartbeat_pacer.RLIMIT_RTTIME)
        assert most_us == (heartbeat_pacer.MOST_AT_ONCE_US,) * 2


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
