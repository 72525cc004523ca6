"""The process that sends the heartbeats of many servers: in time, and none for the dead."""

from __future__ import annotations

import itertools
import mmap
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import TypeAlias

import pytest

from pillarbox.hosts.linux.calls import readable
from pillarbox.hosts.live import heartbeat_pacer, heartbeats
from pillarbox.hosts.live.heartbeat_pacer import HeartbeatPort, PacerConnection
from tests.hosts.live.pacers import (
    INTERVAL_S,
    LINK_BYTES,
    STATE_AT,
    WAIT_S,
    Server,
    pacing,
    started,
    tables,
)

Serve: TypeAlias = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Give what makes servers of one pacer."""
    with pacing() as (_, arrivals), ExitStack() as stack:
        yield lambda *ports, **how: stack.enter_context(
            closing(Server(arrivals, ports or (0,), **how))
        )


def test_what_a_server_says_is_sent_again_and_again_by_its_port(serve: Serve) -> None:
    server = serve(0, 3)
    server.heartbeats.set_frames({0: b"up", 3: b"down"})
    for _ in range(3):
        assert server.cables[0].recv(99) == b"up"
        assert server.cables[3].recv(99) == b"down"


def test_it_ends_with_the_last_server_once_nobody_can_start_another(
    capfd: pytest.CaptureFixture[str],
) -> None:
    lifeline, held = os.pipe()
    process, arrivals = started(lifeline)
    with closing(Server(arrivals, (0,))) as server:
        server.heartbeats.set_frames({0: b"up"})
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
        server.heartbeats.set_frames({0: b"up"})
        assert server.cables[0].recv(99) == b"up"
        os.close(held)
        assert os.waitpid(process, 0)[1] == signal.SIGKILL
    os.close(lifeline)


def test_another_one_continues_the_clock_once_all_have_registered_again() -> None:
    """What a lab's kernel goes by stands still between the two, so that nobody is silent."""
    maps = tables(1)
    lifeline, held = os.pipe()
    arrivals, theirs = heartbeat_pacer.registration_sockets()
    cables, ends = zip(
        *(socket.socketpair(type=socket.SOCK_SEQPACKET) for _ in range(2)), strict=True
    )
    clock = mmap.mmap(maps["paced"].fd, mmap.PAGESIZE)
    with arrivals, theirs, clock as shown, ExitStack() as stack:
        process = heartbeat_pacer.fork_pacer(theirs, lifeline)
        heartbeat_pacer.send_kernel_tables(arrivals, maps)
        servers = []
        for number, (cable, end) in enumerate(zip(cables, ends, strict=True)):
            cable.settimeout(WAIT_S)
            made = PacerConnection(arrivals, number, {0: HeartbeatPort(end, number)}, INTERVAL_S)
            servers.append(stack.enter_context(closing(made)))
            made.set_frames({0: b"here"})
            assert cable.recv(99) == b"here"
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        for made in servers:
            assert readable([made], WAIT_S)  # so a forwarder notices
        stopped, began_ns = shown[:8], time.monotonic_ns()
        process = heartbeat_pacer.fork_pacer(theirs, lifeline)
        heartbeat_pacer.send_kernel_tables(arrivals, maps, running=[0, 1])
        for made, cable in zip(servers, cables, strict=True):
            waited_s = (time.monotonic_ns() - began_ns) / heartbeat_pacer.NS
            assert shown[:8] == stopped or waited_s > heartbeat_pacer.REGISTERED_S
            made.register_again()
            made.set_frames({0: b"again"})
            while cable.recv(99) != b"again":
                pass
        while shown[:8] == stopped:
            time.sleep(heartbeat_pacer.TICK_S)
        now_ns = time.monotonic_ns()
        late_ns = now_ns - int.from_bytes(shown[:8], sys.byteorder)
        most_ns = heartbeat_pacer.MOST_LATE_S * heartbeat_pacer.NS
        assert 0 < late_ns < most_ns + now_ns - began_ns
        os.close(held)
        assert os.waitpid(process, 0)[1] == signal.SIGKILL
    for each in (*cables, *ends):
        each.close()
    for each in maps.values():
        os.close(each.fd)
    os.close(lifeline)


def test_what_it_says_later_is_sent_from_then_on(serve: Serve) -> None:
    server = serve()
    server.heartbeats.set_frames({0: b"first"})
    assert server.cables[0].recv(99) == b"first"
    server.heartbeats.set_frames({0: b"second"})
    while server.cables[0].recv(99) == b"first":
        pass
    assert server.cables[0].recv(99) == b"second"


def test_what_is_new_waits_for_no_interval(serve: Serve) -> None:
    server = serve(0, interval_s=3 * WAIT_S)
    for news in (b"first", b"second", b"third"):
        server.heartbeats.set_frames({0: news})
        assert server.cables[0].recv(99) == news


def test_those_who_hear_each_other_beat_one_after_the_other() -> None:
    cable, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    cable.settimeout(WAIT_S)
    with pacing() as (_, arrivals), cable, ExitStack() as stack:
        for name, segment in ((b"a", 1), (b"b", 2), (b"c", 1)):
            beats = PacerConnection(arrivals, 0, {0: HeartbeatPort(end, segment)}, INTERVAL_S)
            stack.enter_context(closing(beats)).set_frames({0: name})
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
        heartbeat_pacer.send_kernel_tables(arrivals, maps)
        for each in maps.values():
            os.close(each.fd)
        began_ns = time.monotonic_ns()
        with closing(Server(arrivals, (0,))) as server:
            server.heartbeats.set_frames({0: b"here"})
            for _ in range(3):
                assert server.cables[0].recv(99) == b"here"
            first_ns = int.from_bytes(shown[:8], sys.byteorder)
            assert began_ns < first_ns <= time.monotonic_ns()
            os.kill(process, signal.SIGSTOP)
            os.waitid(os.P_PID, process, os.WSTOPPED)
            stopped_ns = int.from_bytes(shown[:8], sys.byteorder)
            assert first_ns <= stopped_ns == int.from_bytes(shown[:8], sys.byteorder)


LATE_NS = 1 << 60


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
        heartbeat_pacer.send_kernel_tables(arrivals, maps)
        hears: list[dict[int, int]] = [{neighbour: 0}, {0: 1}, {}]
        for server, (name, segment) in enumerate(((b"a", 7), (b"b", 7), (b"c", 8))):
            ports = {0: HeartbeatPort(end, segment, hears[server])}
            beats = PacerConnection(arrivals, server, ports, 12 * heartbeat_pacer.TICK_S)
            stack.enter_context(closing(beats)).set_frames({0: name})
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


def test_where_a_neighbour_is_served_elsewhere_heartbeats_are_twice_as_frequent() -> None:
    assert beats_meanwhile(state=3, heard_ns=LATE_NS, neighbour=99) in (5, 6, 7)


@pytest.mark.parametrize("ends", ["other starts", "all started", "time is over"])
def test_a_new_segment_waits_for_servers_that_start(
    monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    # Seconds without a registration after which segments wait no longer.
    quiet_s = 0.2 if ends == "time is over" else 2 * WAIT_S
    monkeypatch.setattr(heartbeat_pacer, "REGISTERED_S", quiet_s)
    cable, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    cable.settimeout(WAIT_S)
    maps = tables(2)
    links = mmap.mmap(maps["links"].fd, 2 * LINK_BYTES)
    for place in range(2):
        links[place * LINK_BYTES : place * LINK_BYTES + 8] = LATE_NS.to_bytes(8, sys.byteorder)
    with pacing() as (_, arrivals), cable, end, ExitStack() as stack:
        heartbeat_pacer.send_kernel_tables(arrivals, maps)

        def start(server: int, segment: int, hears: dict[int, int], start_s: float) -> None:
            ports = {0: HeartbeatPort(end, segment, hears)}
            beats = PacerConnection(arrivals, server, ports, INTERVAL_S, start_s)
            stack.enter_context(closing(beats)).set_frames({0: b"%d" % server})

        start(0, 7, {1: 0}, start_s=4 * WAIT_S)
        start(2, 8, {}, start_s=0.0)
        if ends != "time is over":
            assert {cable.recv(99) for _ in range(5)} == {b"2"}
        if ends == "other starts":
            start(1, 7, {0: 1}, start_s=4 * WAIT_S)
        elif ends == "all started":
            heartbeat_pacer.report_all_started(arrivals)
        while cable.recv(99) != b"0":
            pass
        heard_ns = [int.from_bytes(links[at : at + 8], sys.byteorder) for at in (0, LINK_BYTES)]
        excused = [each == LATE_NS for each in heard_ns]
    for each in maps.values():
        os.close(each.fd)
    # Link 1 belongs to server 1, which has not registered.
    assert excused == [ends == "time is over", ends != "other starts"]


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
    quiet.heartbeats.set_frames({})
    other.heartbeats.set_frames({0: b"here"})
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
            beats = PacerConnection(arrivals, 0, {0: HeartbeatPort(end, 0)}, INTERVAL_S)
            beats.set_frames({0: b"alive"})
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
    torn.heartbeats.set_frames({0: b"lost"})
    other.heartbeats.set_frames({0: b"here"})
    for _ in range(5):
        assert other.cables[0].recv(99) == b"here"


@pytest.mark.root
def test_it_has_a_real_time_priority_and_an_end_to_it() -> None:
    with pacing() as (process, arrivals), closing(Server(arrivals, (0,))) as server:
        server.heartbeats.set_frames({0: b"here"})
        assert server.cables[0].recv(99) == b"here"  # so it runs
        assert os.sched_getscheduler(process) == os.SCHED_RR
        most_us = resource.prlimit(process, heartbeat_pacer.RLIMIT_RTTIME)
        assert most_us == (heartbeat_pacer.MOST_AT_ONCE_US,) * 2
