"""Programs that the servers of a lab share, and what each has for itself."""

from __future__ import annotations

import select
import socket
import struct
import time

import pytest

from pillarbox.hosts.base.path import Step
from pillarbox.hosts.linux.bpf import Map
from pillarbox.hosts.live.kernel_table import KernelTable
from pillarbox.hosts.live.lab_programs import FORWARD, LIVENESS, LabPrograms
from pillarbox.hosts.live.liveness import Liveness, NeighbourLink
from pillarbox.topos.base.errors import PillarboxError
from tests.benches._three_servers import (
    RELAY,
    A,
    B,
    ThreeServers,
    encapsulations,
    install_encapsulation,
    mac,
)

pytestmark = pytest.mark.root
WAIT_S = 20.0


def tables_of(lab: ThreeServers) -> list[KernelTable]:
    """Let all three servers forward by programs that they share."""
    shared = LabPrograms(FORWARD, servers=3)
    for server in (A, B):
        lab.add_applications(server)
    tables = [lab.add_table(server, programs=shared.view_of(server)) for server in (A, RELAY, B)]
    install_encapsulation(tables, encapsulations()["DCN"])
    return tables


def test_servers_share_programs_and_no_decision() -> None:
    with ThreeServers() as lab:
        tables = tables_of(lab)
        assert lab.goodput_bps(0.1) > 0
        done = [
            {name for name, count in table.counters().items() if count and name[:4] == "done"}
            for table in tables
        ]
        assert done == [{"done pushed", "done delivered"}, {"done relayed"}, done[0]]
        before = [table.counters()["slow outdated"] for table in tables]
        tables[RELAY].flush()
        with pytest.raises(TimeoutError):
            lab.connect(seconds=0.1)
        after = [table.counters()["slow outdated"] for table in tables]
        assert (after[A], after[B]) == (before[A], before[B])
        assert after[RELAY] > before[RELAY]


def test_what_a_server_that_ended_leaves_is_taken_out() -> None:
    shared = LabPrograms(LIVENESS, servers=2, links=1)
    with ThreeServers() as lab, lab.servers[RELAY].entered():
        index = socket.if_nametoindex("eth0")
        link = NeighbourLink(Step(0, A), A, index, mac(A, 0))
        watches = [
            Liveness(shared.view_of(server), [link], RELAY, time.monotonic()) for server in (0, 1)
        ]
        links, answers = (shared.loaded.maps[name] for name in ("links", "answers"))

        def taken(table: Map) -> list[int]:
            every = range(table.entries)
            return [place for place in every if any(table[struct.pack("=I", place)])]

        for place in taken(links):
            answers[struct.pack("=I", place)] = b"\1" * answers.value_size
        assert len(taken(answers)) == 2
        shared.forget_servers([0])
        (left,) = taken(links)
        assert taken(answers) == [left]
        assert left in shared.links_of(1)
        assert not watches[0].hears(link.step)
        assert watches[1].hears(link.step)
        revived = Liveness(shared.view_of(0), [link._replace(ifindex=index + 1)], RELAY, 0.0)
        assert revived.hears(link.step)


def test_more_servers_than_there_is_room_for_are_refused() -> None:
    with pytest.raises(PillarboxError, match="2 servers at most can run here"):
        LabPrograms(LIVENESS, servers=2).view_of(2)


def test_a_server_at_rest_is_told_of_the_first_packet_that_is_forwarded() -> None:
    with ThreeServers() as lab:
        tables = tables_of(lab)
        relay = tables[RELAY]
        watch = Liveness(relay.programs, [], RELAY, time.monotonic())

        def rings() -> bool:
            rang = bool(select.select([watch.bell], [], [], 0)[0])
            watch.disable_events()
            return rang

        lab.connect(seconds=WAIT_S)
        forwarded = relay.forwarded_packets()
        assert forwarded
        assert not rings()
        relay.set_rest(True)
        relay.flush(relays=False)  # what else is written down changes nothing
        lab.connect(seconds=WAIT_S)
        assert relay.forwarded_packets() > forwarded
        assert rings()
        lab.connect(seconds=WAIT_S)
        assert not rings()
        relay.set_rest(True)
        relay.set_rest(False)
        lab.connect(seconds=WAIT_S)
        assert not rings()
