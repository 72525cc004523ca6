"""Cables that are cut and mended, as the servers at them see it."""

from __future__ import annotations

import select
import socket
import struct
import time
from contextlib import suppress
from itertools import accumulate
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.topos.base.errors import PillarboxError

pytestmark = pytest.mark.root
SO_RCVBUFFORCE, SO_TIMESTAMPNS = 33, 35


def lab(spec: str, **options: Any) -> Any:
    from mininet.log import setLogLevel

    from pillarbox.experiments.lab.emulation.lab_network import LabNet

    setLogLevel("critical")
    return LabNet(topos.parse(spec), forwarders=False, **options)


class Listener:
    """What a host's forwarder hears of its cables, by the names of its ports."""

    def __init__(self, host: Any) -> None:
        from pillarbox.hosts.live.devices import CarrierEvents

        with host.namespace:
            self.carriers = CarrierEvents()
        self.names = {intf.ifindex: intf.name for intf in host.intfList()}

    def fileno(self) -> int:
        return self.carriers.socket.fileno()

    def read(self) -> list[tuple[str, bool]]:
        return [(self.names[index], up) for index, up in self.carriers.pending()]


def listen(host: Any) -> Listener:
    return Listener(host)


def next_event(events: Any, name: str, up: bool, limit_s: float = 20.0) -> float:
    """Return when a port's carrier was seen to change."""
    deadline = time.monotonic() + limit_s
    while (left_s := deadline - time.monotonic()) > 0:
        select.select([events], [], [], left_s)
        now = time.monotonic()
        if (name, up) in events.read():
            return now
    raise AssertionError(f"{name} was not seen to go {'up' if up else 'down'}")


def reached(host: Any, ip: str, wait_s: float = 10) -> bool:
    host.cmd("ip neigh flush nud failed; ip neigh flush nud incomplete")  # of the last attempt
    return " 0% packet loss" in host.cmd(f"ping -c2 -i0.1 -W{wait_s} {ip}")


def cut_off(host: Any, ip: str) -> bool:
    return not reached(host, ip, wait_s=0.3)


def direct(net: Any) -> None:
    """Give the two ends of the cable between h0 and h3 of dcell,3,1 addresses."""
    net["h0"].intf("h0-eth1").setIP("10.9.0.1/24")
    net["h3"].intf("h3-eth1").setIP("10.9.0.2/24")


@pytest.mark.parametrize(("other", "port"), [("s0", "h0-eth0"), ("h3", "h0-eth1")])
def test_a_cut_is_seen_at_once_and_so_is_its_repair(other: str, port: str) -> None:
    from pillarbox.experiments.lab.emulation.active_faults import Faults

    with lab("dcell,3,1") as net:
        direct(net)
        h0 = net["h0"]
        h0.cmd(f"ip route add 10.77.0.0/16 dev {port}")
        ip = "10.9.0.2" if other == "h3" else net["h1"].IP()
        assert reached(h0, ip)
        events = listen(h0)
        faults = Faults(net)
        fault = faults.begin("cut", "h0", other)
        assert next_event(events, port, up=False) >= fault.at_s
        assert not h0.intf(port).has_carrier() and h0.intf(port).isUp()
        assert cut_off(h0, ip)
        healed_s = faults.undo(fault)
        assert next_event(events, port, up=True) >= healed_s
        assert reached(h0, ip)
        assert "10.77.0.0/16" in h0.cmd("ip route")  # as a pulled plug leaves it


def test_both_servers_of_a_direct_cable_see_it_cut() -> None:
    from pillarbox.experiments.lab.emulation.active_faults import Faults

    with lab("dcell,3,1") as net:
        events = listen(net["h3"])
        fault = Faults(net).begin("cut", "h0", "h3")
        assert next_event(events, "h3-eth1", up=False) >= fault.at_s


def test_carrier_loss_takes_milliseconds_because_indexes_differ() -> None:
    from pillarbox.experiments.lab.emulation.active_faults import Faults

    with lab("dcell,3,1") as net:
        events = listen(net["h0"])
        faults = Faults(net)
        took = []
        for _ in range(9):
            fault = faults.begin("cut", "h0", "h3")
            took.append(next_event(events, "h0-eth1", up=False) - fault.at_s)
            faults.undo(fault)
            next_event(events, "h0-eth1", up=True)
        # Each would take 0.7 s otherwise; on a busy machine one of nine at least is in time.
        assert min(took) < 0.3, took


@pytest.mark.parametrize(("other", "ip"), [("s0", "10.0.0.2"), ("h3", "10.9.0.2")])
def test_a_silent_cut_changes_no_carrier(other: str, ip: str) -> None:
    from pillarbox.experiments.lab.emulation.active_faults import Faults

    with lab("dcell,3,1") as net:
        direct(net)
        h0 = net["h0"]
        assert reached(h0, ip)
        events = [listen(net[name]) for name in ("h0", "h1", "h3")]
        faults = Faults(net)
        fault = faults.begin("silent cut", "h0", other)
        assert cut_off(h0, ip)
        assert all(intf.has_carrier() for intf in h0.intfList())
        faults.undo(fault)
        assert reached(h0, ip)
        assert [event for listener in events for event in listener.read()] == []


def test_a_silent_cut_stops_both_directions() -> None:
    from pillarbox.experiments.lab.emulation.active_faults import Faults

    with lab("tree,2,1") as net:
        h0, h1 = net["h0"], net["h1"]
        net.staticArp()
        Faults(net).begin("silent cut", "h0", "s0")
        for sender, receiver in ((h0, h1), (h1, h0)):
            seen = receiver.popen(["tcpdump", "-c1", "-lni", "any", "icmp[0]==8"])
            while b"listening on" not in (line := seen.stderr.readline()):
                assert line, "tcpdump has ended"
            assert cut_off(sender, receiver.IP())
            seen.terminate()
            assert b"echo request" not in seen.communicate()[0]


def test_a_stopped_switch_is_dark_and_comes_back() -> None:
    from pillarbox.experiments.lab.emulation.active_faults import Faults

    with lab("bcube,2,1") as net:
        faults = Faults(net)
        known = net["s0"].cmd("bridge fdb show br s0 | grep static")
        assert known.count("static") == 2
        fault = faults.begin("switch", "s0")
        assert not net["h0"].intf("h0-eth0").has_carrier()
        assert not net["h1"].intf("h1-eth0").has_carrier()
        assert net["h0"].intf("h0-eth1").has_carrier()
        faults.undo(fault)
        assert net["h0"].intf("h0-eth0").has_carrier()
        assert reached(net["h0"], net["h1"].IP())
        assert net["s0"].cmd("bridge fdb show br s0 | grep static") == known


def test_a_stopped_rack_is_cut_off_entirely() -> None:
    from pillarbox.experiments.lab.emulation.active_faults import Faults

    with lab("dcell,3,1") as net:
        faults = Faults(net)
        fault = faults.begin("rack", "s0")
        assert fault.what == ("s0", "h0", "h1", "h2")
        dark = {i.name for host in net.hosts for i in host.intfList() if not i.has_carrier()}
        rack = {f"h{server}-eth{port}" for server in range(3) for port in range(2)}
        assert dark == rack | {"h3-eth1", "h6-eth1", "h9-eth1"}
        faults.undo(fault)
        assert all(i.has_carrier() for host in net.hosts for i in host.intfList())


def test_a_cable_works_when_its_last_fault_is_undone() -> None:
    from pillarbox.experiments.lab.emulation.active_faults import Faults

    with lab("bcube,2,1") as net:
        faults, intf = Faults(net), net["h0"].intf("h0-eth0")
        cable, switch = faults.begin("cut", "h0", "s0"), faults.begin("switch", "s0")
        assert faults.active == [cable, switch]
        faults.undo(switch)
        assert not intf.has_carrier() and net["h1"].intf("h1-eth0").has_carrier()
        first, second = (
            faults.begin("silent cut", "h0", "s0"),
            faults.begin("silent cut", "s0", "h0"),
        )
        faults.undo(first)
        faults.undo(cable)
        assert intf.has_carrier()
        assert cut_off(net["h0"], net["h1"].IP())
        faults.undo(second)
        assert reached(net["h0"], net["h1"].IP())
        with pytest.raises(PillarboxError, match="the cut of h0 s0 is already repaired"):
            faults.undo(cable)


def test_what_cannot_be_cut_is_told() -> None:
    from pillarbox.experiments.lab.emulation.active_faults import Faults

    with lab("bcube,2,1") as net:
        faults = Faults(net)
        with pytest.raises(PillarboxError, match="no cable joins h0 and h1: h0's lead to s0, s2"):
            faults.begin("cut", "h0", "h1")
        with pytest.raises(PillarboxError, match="no node 'h9'"):
            faults.begin("cut", "h9", "s0")
        with pytest.raises(PillarboxError, match="no switch 'h0'"):
            faults.begin("switch", "h0")
        assert faults.active == []


def received_of(sender: Any, receiver: Any, count: int, size: int) -> int:
    """Return the number of a host's UDP packets that another host receives, duplicates included."""
    with receiver.namespace:
        arrivals = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender.namespace:
        departures = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with arrivals, departures:
        arrivals.bind((receiver.IP(), 5000))
        arrivals.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
        arrivals.setblocking(False)
        found, waiting = 0, True
        for _ in range(count):
            departures.sendto(bytes(size), (receiver.IP(), 5000))
        while waiting:
            waiting = bool(select.select([arrivals], [], [], 0.3)[0])
            with suppress(BlockingIOError):
                while True:
                    arrivals.recv(1 << 16)
                    found += 1
    return found


def test_frames_are_lost_in_one_direction_only() -> None:
    from pillarbox.experiments.lab.emulation.active_faults import Faults

    with lab("tree,2,1") as net:
        h0, h1 = net["h0"], net["h1"]
        assert reached(h0, h1.IP())
        assert reached(h1, h0.IP())
        faults = Faults(net)
        for ends, lost in ((("h0", "s0"), (0, 50)), (("s0", "h0"), (50, 0))):
            fault = faults.begin("one-way cut", *ends)
            assert (received_of(h0, h1, 50, 100), received_of(h1, h0, 50, 100)) == lost
            faults.undo(fault)
        assert (received_of(h0, h1, 50, 100), received_of(h1, h0, 50, 100)) == (50, 50)


def test_bit_errors_lose_long_frames_and_duplicates_arrive_twice() -> None:
    from pillarbox.experiments.lab.emulation.active_faults import Faults

    with lab("tree,2,1", rate_mbit=None) as net:
        h0, h1, faults = net["h0"], net["h1"], Faults(net)
        assert reached(h0, h1.IP())
        fault = faults.begin("corrupt", "h0", "s0", amounts=(1e-5,))
        # 1 - (1 - 1e-5)^(8 x 1442) = 10.9 % of 2000, and 1.1 %; six standard deviations.
        assert 2000 - received_of(h0, h1, 2000, 1400) == pytest.approx(218, abs=6 * 14)
        assert 2000 - received_of(h0, h1, 2000, 100) == pytest.approx(23, abs=6 * 4.8)
        faults.undo(fault)
        for percent, expected, apart in ((100.0, 2000, 0), (30.0, 1300, 6 * 14.5)):
            fault = faults.begin("duplicate", "s0", "h0", amounts=(percent,))
            assert received_of(h0, h1, 1000, 100) == pytest.approx(expected, abs=apart)
            faults.undo(fault)
        weak = faults.begin("duplicate", "s0", "h0", amounts=(1.0,))
        strong = faults.begin("duplicate", "h0", "s0", amounts=(100.0,))
        cut = faults.begin("silent cut", "h0", "s0")
        assert received_of(h0, h1, 100, 100) == 0
        faults.undo(cut)
        assert received_of(h0, h1, 100, 100) == 200  # the larger amount counts
        faults.undo(strong)
        faults.undo(weak)
        assert received_of(h0, h1, 100, 100) == 100


def test_a_flapping_cable_loses_its_carrier_in_turns_until_it_is_repaired() -> None:
    from pillarbox.experiments.lab.emulation.active_faults import Faults

    with lab("tree,2,1") as net:
        events, faults = listen(net["h0"]), Faults(net)
        fault = faults.begin("flapping", "h0", "s0", amounts=(0.05,))
        for _ in range(2):
            next_event(events, "h0-eth0", False)
            next_event(events, "h0-eth0", True)
        next_event(events, "h0-eth0", False)
        cut = faults.begin("cut", "h0", "s0")
        faults.undo(fault)
        assert faults.active == [cut]
        faults.undo(cut)
        next_event(events, "h0-eth0", True)
        assert not select.select([events], [], [], 0.2)[0]  # it has ended


def arrivals_at(ip: str, sender: Any, receiver: Any, count: int) -> list[tuple[int, float]]:
    """Send numbered UDP packets; return the number and the delay in ms of each that arrives."""
    with receiver.namespace:
        arrivals = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender.namespace:
        departures = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    found: list[tuple[int, float]] = []
    with arrivals, departures:
        arrivals.bind((ip, 5000))
        arrivals.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
        arrivals.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        for number in range(count):
            departures.sendto(struct.pack("=QQ", number, time.time_ns()), (ip, 5000))
        while select.select([arrivals], [], [], 0.5)[0]:
            packet, [(_, _, stamp)], _, _ = arrivals.recvmsg(16, 64)
            number, sent_ns = struct.unpack("=QQ", packet)
            seconds, nanoseconds = struct.unpack("=qq", stamp)
            found.append((number, (seconds * 10**9 + nanoseconds - sent_ns) / 1e6))
    return found


@pytest.mark.parametrize(
    ("spec", "delay", "cable", "ips"),
    [
        ("tree,2,1", None, ("h0", "s0"), {"h0": "10.0.0.1", "h1": "10.0.0.2"}),
        ("tree,2,1", "1ms", ("h0", "s0"), {"h0": "10.0.0.1", "h1": "10.0.0.2"}),
        ("dcell,3,1", None, ("h0", "h3"), {"h0": "10.9.0.1", "h3": "10.9.0.2"}),
    ],
)
def test_late_frames_arrive_once_each_after_frames_sent_later(
    spec: str, delay: str | None, cable: tuple[str, str], ips: dict[str, str]
) -> None:
    from pillarbox.experiments.lab.emulation.active_faults import Faults

    with lab(spec, rate_mbit=None, delay=delay) as net:
        if spec == "dcell,3,1":
            direct(net)
        first, second = ips
        assert reached(net[first], ips[second])
        faults = Faults(net)
        for percent, jitter_ms in ((20.0, 50.0), (2.0, 150.0)):
            fault = faults.begin("reorder", *cable, amounts=(percent, jitter_ms))
            for sender, receiver in ((first, second), (second, first)):
                found = arrivals_at(ips[receiver], net[sender], net[receiver], 2000)
                assert sorted(number for number, _ in found) == list(range(2000))
                newest = accumulate((number for number, _ in found), max)
                late = [one for one, other in zip(found, newest, strict=True) if one[0] < other]
                assert late == sorted(late)  # late frames keep their order
                share, deviation = 20 * percent, (20 * percent * (1 - percent / 100)) ** 0.5
                assert len(late) == pytest.approx(share, abs=6 * deviation)
                assert jitter_ms <= min(ms for _, ms in late) < 2 * jitter_ms
            faults.undo(fault)
        found = arrivals_at(ips[second], net[first], net[second], 200)
        assert [number for number, _ in found] == list(range(200))
