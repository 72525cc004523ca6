"""Timers, bounded tables, neighbours and bandwidth: what every router is built from."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.hosts.base.agenda import Agenda
from pillarbox.hosts.base.bandwidth import Bandwidth, Direction
from pillarbox.hosts.base.bounded import Bounded
from pillarbox.hosts.base.neighbours import Neighbours
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.timers import (
    FAST,
    PAPER,
    heartbeat_load,
    probe_round_cost_s,
    timers_for,
    where_processes_watch,
)
from pillarbox.hosts.dcell.plain import DCellRouting
from pillarbox.hosts.live.heartbeat_pacer import HEARD_WITHIN, TICK_S
from pillarbox.hosts.live.heartbeats import MOST_REPEATS

NAMES = st.sampled_from("abcd")
TIMES = st.integers(0, 20).map(float)


@given(st.lists(st.tuples(st.sampled_from(["set", "cancel", "due"]), NAMES, TIMES)))
def test_agenda_does_each_thing_once_in_order(calls: list[tuple[str, str, float]]) -> None:
    agenda, model, done = Agenda(), dict[str, float](), list[str]()
    for call, name, when in calls:
        if call == "set":
            agenda.set(name, when, lambda now, name=name: done.append(name) or [])  # type: ignore[misc]
            model[name] = when
        elif call == "cancel":
            agenda.cancel(name)
            model.pop(name, None)
        else:
            done.clear()
            for deed in agenda.due(when):
                deed(when)
            expected = [key for key in model if model[key] <= when]
            assert sorted(done) == sorted(expected)
            assert [model[key] for key in done] == sorted(model[key] for key in expected)
            for key in expected:
                del model[key]
        assert len(agenda) == len(model)
        assert agenda.next_at == min(model.values(), default=math.inf)


def test_agenda_forgets_what_was_moved_or_cancelled() -> None:
    agenda = Agenda()
    for i in range(10_000):
        agenda.set("probe", float(i), lambda _: [])
        agenda.set(i, float(i), lambda _: [])
        agenda.cancel(i)
    assert len(agenda) == 1
    assert len(agenda._heap) < 200  # the bound is what is tested


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60), st.integers(1, 5))
def test_bounded_forgets_what_was_not_used_for_longest(
    calls: list[tuple[bool, int]], limit: int
) -> None:
    table, order = Bounded[int, int](limit), list[int]()
    for now, (put, key) in enumerate(calls):
        if put:
            gone = table.put(key, key * 10, now)
            order = [other for other in order if other != key] + [key]
            assert gone == (order.pop(0) if len(order) > limit else None)
        else:
            assert table.use(key, now) == (key * 10 if key in order else None)
            if key in order:
                order = [other for other in order if other != key] + [key]
        assert list(table) == order
        assert table.values() == [key * 10 for key in order]


def test_bounded_forgets_what_is_idle() -> None:
    table = Bounded[str, int](limit=9, idle_s=5.0)
    table.put("old", 1, now=0.0)
    table.put("new", 2, now=3.0)
    assert table.expire(4.0) == []
    assert table.expire(6.0) == [("old", 1)]
    assert list(table) == ["new"]


def test_fast_timers_notice_silence_in_tenths_of_a_second_in_networks_of_any_size() -> None:
    for spec in ("dcell,4,1", "bcube,4,2", "bcube,8,1", "ficonn,4,2"):
        assert timers_for(topos.parse(spec)).neighbour_timeout_s <= 0.2
    large = topos.parse("bcube,8,2")
    assert timers_for(large).neighbour_timeout_s < 0.3


def test_a_lost_heartbeat_is_no_silence() -> None:
    for spec in ("bcube,4,1", "bcube,8,2"):
        for name in ("fast", "paper"):
            timers = timers_for(topos.parse(spec), name)
            assert timers.neighbour_timeout_s > 2 * timers.heartbeat_s
            repeats_s = MOST_REPEATS * HEARD_WITHIN * TICK_S
            assert timers.neighbour_timeout_s > timers.confirmed_heartbeat_s + repeats_s


def test_fast_timers_look_for_better_paths_as_rarely_as_the_papers() -> None:
    for spec in ("bcube,4,1", "bcube,8,2"):
        fast, paper = (timers_for(topos.parse(spec), name) for name in ("fast", "paper"))
        assert fast.probe_interval_s >= paper.probe_interval_s
        assert fast.probe_jitter_s >= paper.probe_jitter_s
        assert fast.link_state_refresh_s >= paper.link_state_refresh_s


def test_where_each_heartbeat_wakes_a_process_they_are_rarer() -> None:
    small, large = topos.parse("bcube,8,1"), topos.parse("bcube,8,2")
    timers = timers_for(large)
    rarer = where_processes_watch(timers, large)
    assert heartbeat_load(large) / rarer.heartbeat_s <= 0.1 * 2 + 1e-9
    assert rarer.neighbour_timeout_s > 2 * rarer.heartbeat_s
    assert rarer.probe_interval_s == timers.probe_interval_s
    rarer = where_processes_watch(timers_for(small), small)
    assert (rarer.heartbeat_s, rarer.neighbour_timeout_s) == (0.08, 0.18)
    assert replace(rarer, heartbeat_s=0.035, neighbour_timeout_s=0.12) == timers_for(small)
    slow = timers_for(small, "paper")
    assert where_processes_watch(slow, small) == slow
    late = where_processes_watch(timers_for(small), small, prioritised=False)
    assert late == replace(rarer, neighbour_timeout_s=0.54)
    assert where_processes_watch(slow, small, prioritised=False) == slow


def test_timers_of_papers_and_of_probes() -> None:
    large = topos.parse("bcube,8,2")
    for spec in ("dcell,4,1", "tree,4,4"):
        paper = timers_for(topos.parse(spec), "paper")
        assert paper == replace(PAPER, probe_spacing_s=paper.probe_spacing_s)
    # All servers' rounds of probes together take a tenth of the machine, however many flows.
    crowded = topos.parse("ficonn,4,2")
    for name in ("fast", "paper"):
        spacing_s = timers_for(crowded, name).probe_spacing_s
        share = crowded.servers * probe_round_cost_s(crowded) / spacing_s
        assert share == pytest.approx(0.1 * 2)
    assert timers_for(large, "paper").neighbour_timeout_s == 3.0  # Guo 2009, section 7.5
    # Li 2009, section V: every 30 seconds. A flow between two probes is not idle.
    ficonn = timers_for(crowded, "paper")
    assert (ficonn.probe_interval_s, ficonn.probe_jitter_s) == (30.0, 0.0)
    assert ficonn.flow_idle_s > ficonn.probe_interval_s
    assert (PAPER.heartbeat_s, PAPER.neighbour_timeout_s) == (1.0, 5.0)  # Guo 2008, section 7.1
    with pytest.raises(topos.PillarboxError, match="choose fast or paper"):
        timers_for(large, "slow")


def neighbours() -> Neighbours:
    return Neighbours(topos.parse("dcell,4,1"), 0, FAST, now=0.0)


A, B = Step(0, 1), Step(1, 4)  # [0,1] over the switch, [1,0] by cable


def test_all_neighbours_work_at_first_and_time_out_without_heartbeats() -> None:
    known = neighbours()
    assert known.works(A)
    assert known.works(B)
    assert known.next_timeout == FAST.neighbour_timeout_s
    assert known.time_out(FAST.neighbour_timeout_s * 0.99) == []
    assert set(known.time_out(FAST.neighbour_timeout_s)) == {*(Step(0, i) for i in (1, 2, 3)), B}
    assert known.up == frozenset()
    assert known.next_timeout == math.inf


def test_heartbeat_keeps_its_own_link_up() -> None:
    known = neighbours()
    known.hear(Step(0, 1), hears_me=True, now=0.1)
    known.time_out(FAST.neighbour_timeout_s)
    assert known.up == frozenset([A])


def test_link_that_works_one_way_only_is_down() -> None:
    known = neighbours()
    assert known.hear(A, hears_me=False, now=0.1) == A
    assert not known.works(A)
    assert known.hear(A, hears_me=True, now=0.2) == A
    assert known.works(A)


def test_carrier_takes_down_all_of_a_port_and_a_heartbeat_brings_it_back() -> None:
    known = neighbours()
    assert set(known.set_carrier(0, False, now=0.1)) == {Step(0, i) for i in (1, 2, 3)}
    assert known.heartbeat(0) is None
    assert known.hear(Step(0, 1), hears_me=True, now=0.1) is None
    assert known.set_carrier(0, True, now=0.2) == []
    assert known.hear(Step(0, 1), hears_me=True, now=0.2) == A
    beat = known.heartbeat(0)
    assert beat is not None
    assert beat.heard == (1,)


def test_strangers_are_no_neighbours() -> None:
    known = neighbours()
    assert known.hear(Step(0, 7), hears_me=True, now=0.1) is None
    assert known.hear(Step(1, 2**30), hears_me=True, now=0.1) is None
    assert known.fault(Step(0, 7)) == "next hop is no neighbour"


def test_bandwidth_never_exceeds_the_rate_nor_goes_below_nothing() -> None:
    bandwidth = Bandwidth(1, rate_bps=8e6)
    for now, count in enumerate([0, 500_000, 3_000_000, 3_000_000, 3_000_000]):
        bandwidth.observe(0, count, 0, float(now))
    assert 0 < bandwidth.available_bps(0, Direction.IN) < 8e6
    assert bandwidth.available_bps(0, Direction.OUT) == 8e6
    bandwidth.observe(0, 2**40, 0, 5.0)
    assert bandwidth.available_bps(0, Direction.IN) == 0.0
    bandwidth.observe(0, 0, 0, 6.0)  # a counter that went back: the port was made anew
    assert bandwidth.used_bps(0, Direction.IN) >= 0.0


def test_who_is_told_of_neighbours_does_not_listen_to_frames() -> None:
    """A heartbeat that whoever watches has refused must not change what it does not know of."""
    network = topos.parse("dcell,4,1")
    here, there = (DCellRouting(network, server, timers=FAST) for server in (0, 1))
    here.leave_heartbeats_to_others()
    here.leave_silence_to_others()
    assert here.next_poll == math.inf
    assert there.silence(Step(0, 0), 0.0) == []
    (deaf, *_) = there.heartbeats()
    here.receive(0, 1, deaf.frame, 0.1)
    assert here.neighbours.works(A)
    assert here.drops["heartbeat of no neighbour"] == 1
    here.heard(A, hears_me=False, now=0.2)
    assert not here.neighbours.works(A)
    here.heard(A, hears_me=True, now=0.3)
    assert here.neighbours.works(A)
    here.silence(A, 0.4)
    assert not here.neighbours.works(A)
    assert not here.neighbours.hears(A)
