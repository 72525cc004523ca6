"""Rates, queues, delays and losses of cables, measured through them.

Delays are told from twice as much only, which holds on a machine that has no time; rates are exact.
"""

from __future__ import annotations

import json
import re
import socket
import statistics
import struct
import time
from typing import Any

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.runs.trust.canary_pacer import MOMENT, SO_TIMESTAMPNS
from pillarbox.experiments.runs.trust.machine import between, machine
from pillarbox.topos.base.errors import PillarboxError

root = pytest.mark.root
WAIT_S = 20.0
# What this machine's host takes of its processors while figures are those of the cables.
LITTLE, MOST_TRIES = 0.01, 5


def lab(spec: str = "tree,2,1", **options: Any) -> Any:
    from mininet.log import setLogLevel

    from pillarbox.experiments.lab.emulation.lab_network import LabNet

    setLogLevel("critical")
    return LabNet(topos.parse(spec), forwarders=False, autoStaticArp=True, **options)


def goodput_mbit(sender: Any, receiver: Any, seconds: float = 2, ip: str = "") -> float:
    """Return what TCP gets; the most of some tries where this machine's host takes its time."""
    found = []
    while len(found) < MOST_TRIES:
        before = machine()
        found.append(goodput_once_mbit(sender, receiver, seconds, ip or receiver.IP()))
        if between(before, machine()).steal < LITTLE:
            return found[-1]
    return max(found)


def goodput_once_mbit(sender: Any, receiver: Any, seconds: float, ip: str) -> float:
    server = receiver.popen("iperf3 -s -1 --forceflush")
    # The server says so when it listens; connecting before that is refused.
    assert b"-----" in server.stdout.readline()
    # Without TCP's start, in which it may overrun a queue and wait for a time-out of 0.2 s.
    command = f"iperf3 -c {ip} -t {seconds} -O 1 -J -C cubic"
    said = sender.popen(command).communicate()[0]
    server.wait()
    return float(json.loads(said)["end"]["sum_received"]["bits_per_second"]) / 1e6


def of_its_rate(goodput_mbit: float, rate_mbit: float) -> bool:
    """Tell whether TCP got what a cable of that rate gives it."""
    # Frames count with their 14-byte headers: 1448 of 1514 bytes are TCP's payload.
    return 0.95 < goodput_mbit / (rate_mbit * 1448 / 1514) < 1.05


def round_trips_ms(
    host: Any, ip: str, count: int = 20, interval_s: float = 0.02, wait_s: float = 10
) -> list[float]:
    said = host.cmd(f"ping -n -c{count} -i{interval_s} -W{wait_s} {ip}")
    return [float(word) for word in re.findall(r"time=([\d.]+)", said)]


def wait_until_answered(host: Any, ip: str) -> None:
    """Ping until an answer comes: a port sends some time after its carrier has come back."""
    said = host.cmd(f"ping -n -c1 -i0.02 -w30 {ip}")  # sends until one answer, or 30 s
    assert " 1 received" in said, said


@root
@pytest.mark.alone  # a port that has to wait for a processor loses a part of its rate
@pytest.mark.parametrize("rate_mbit", [pytest.param(10, marks=pytest.mark.long), 100])
def test_a_rate_is_what_tcp_gets(rate_mbit: int) -> None:
    with lab(rate_mbit=rate_mbit) as net:
        assert of_its_rate(goodput_mbit(net["h0"], net["h1"]), rate_mbit)


@root
@pytest.mark.alone  # likewise
def test_levels_of_cables_have_their_own_rates_and_delays() -> None:
    with lab("dcell,2,1,rates=5:1", rate_mbit=10) as net:
        h0, h1, h2 = net["h0"], net["h1"], net["h2"]
        h0.intf("h0-eth1").setIP("10.9.0.1/24")
        h2.intf("h2-eth1").setIP("10.9.0.2/24")
        fast = goodput_mbit(h0, h1)
        slow = goodput_mbit(h0, h2, ip="10.9.0.2")
        assert 4 < fast / slow < 6
        assert slow < 10
        assert net.shapes.usual("h0", "s0").rate_mbit == 50
        assert net.shapes.of("h0", "h2").rate_mbit == 10
        net.shapes.change("h0", "s0", net.shapes.of("h0", "s0")._replace(rate_mbit=10))
        assert net.shapes.of("s0", "h0").rate_mbit == 10
        net.shapes.change("h0", "s0", net.shapes.usual("h0", "s0"))
        assert not net.shapes.changed


@root
@pytest.mark.alone  # likewise
def test_a_direct_cable_has_its_rate_too() -> None:
    with lab("dcell,2,1", rate_mbit=50) as net:
        h0, h2 = net["h0"], net["h2"]
        h0.intf("h0-eth1").setIP("10.9.0.1/24")
        h2.intf("h2-eth1").setIP("10.9.0.2/24")
        assert of_its_rate(goodput_mbit(h0, h2, ip="10.9.0.2"), 50)


@pytest.mark.alone  # a late timer adds to the next burst
@root
def test_what_waits_leaves_in_bursts_and_no_more_at_once_than_from_a_port_at_rest() -> None:
    from pillarbox.experiments.lab.linux import shaping

    queue = shaping.DROPTAIL._replace(at_once_s=0.1)  # a frame takes 12 ms
    with lab(rate_mbit=1, queue=queue) as net:
        sender, receiver = net["h0"], net["h1"]
        with receiver.live_namespace():
            hearer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with sender.live_namespace():
            talker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with hearer, talker:
            hearer.bind(("", 4000))
            hearer.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            hearer.settimeout(WAIT_S)
            for _ in range(19):
                talker.sendto(bytes(1472), (receiver.IP(), 4000))
            moments_s = [_moment_s(hearer) for _ in range(19)]
        in_bursts = shaping.in_bursts()
    pauses = [i for i, pause in enumerate(numpy.diff(moments_s), 1) if pause > 0.006]
    first, *others, _ = numpy.diff([0, *pauses, 19])
    assert first == 9
    assert all(4 <= burst <= first if in_bursts else burst == 1 for burst in others)


def _moment_s(hearer: socket.socket) -> float:
    _, ((_, _, moment), *_), _, _ = hearer.recvmsg(2048, 64)
    seconds, nanoseconds = MOMENT.unpack(moment)
    return float(seconds + nanoseconds * 1e-9)


@root
def test_a_full_queue_stays_short_at_a_low_rate() -> None:
    with lab(rate_mbit=10) as net:
        h0, h1 = net["h0"], net["h1"]
        server = h1.popen("iperf3 -s -1 --forceflush")
        assert b"-----" in server.stdout.readline()
        load = h0.popen(f"iperf3 -c {h1.IP()} -t 2 -C cubic")
        waits = round_trips_ms(h0, h1.IP(), count=15, interval_s=0.1)
        load.wait()
        server.wait()
        # A full queue is 121 ms; stock Mininet's 1,000 packets without a bound on super-packets
        # are 464 ms.
        assert statistics.median(waits[5:]) < 130


@root
def test_a_rate_changes_while_the_network_runs() -> None:
    with lab(rate_mbit=10) as net:
        h0 = net["h0"]
        shown = h0.cmd("tc class show dev h0-eth0")
        assert "rate 10Mbit" in shown
        h0.intf("h0-eth0").config(bw=20)
        assert "rate 20Mbit" in h0.cmd("tc class show dev h0-eth0")
        assert "limit 151400b" in h0.cmd("tc qdisc show dev h0-eth0")
        h0.intf("h0-eth0").config()
        assert h0.cmd("tc class show dev h0-eth0").strip() == ""
        assert "rate 10Mbit" in net["s0"].cmd("tc class show dev s0-eth0")


@pytest.mark.alone  # for its last answer ping waits no longer than two round trips
@root
@pytest.mark.parametrize("spec", ["tree,2,1", "dcell,2,1"])
def test_a_delay_is_kept(spec: str) -> None:
    with lab(spec, delay="5ms") as net:
        h0 = net["h0"]
        if spec == "tree,2,1":
            ip, ideal = net["h1"].IP(), 20.0  # two cables, there and back
        else:
            h0.intf("h0-eth1").setIP("10.9.0.1/24")
            net["h2"].intf("h2-eth1").setIP("10.9.0.2/24")
            ip, ideal = "10.9.0.2", 10.0
        round_trips_ms(h0, ip, count=2)  # ARP
        waits = round_trips_ms(h0, ip)
        assert len(waits) in (19, 20)  # ping does not wait long for the last answer
        assert ideal <= min(waits) < 1.5 * ideal, waits


@pytest.mark.alone  # figures that a busy machine changes
@root
def test_tcp_runs_at_its_rate_over_a_delay() -> None:
    with lab(rate_mbit=20, delay="2ms") as net:
        assert of_its_rate(goodput_mbit(net["h0"], net["h1"]), 20)


@root
def test_jitter_spreads_delays_within_its_bounds() -> None:
    with lab("dcell,2,1", delay="10ms", jitter="5ms") as net:
        h0 = net["h0"]
        h0.intf("h0-eth1").setIP("10.9.0.1/24")
        net["h2"].intf("h2-eth1").setIP("10.9.0.2/24")
        waits = round_trips_ms(h0, "10.9.0.2", count=40, interval_s=0.04)[1:]
        assert 10 <= min(waits) < 30
        assert statistics.pstdev(waits) > 1


@root
def test_losses_are_as_many_as_asked_for() -> None:
    with lab(loss=20) as net:
        said = net["h0"].cmd(f"ping -n -c400 -i0.002 -W1 {net['h1'].IP()}")
        received = int(re.search(r"(\d+) received", said)[1])  # type: ignore[index]
        # Four crossings of a cable: 0.8 ** 4 = 41 % come back; 5 standard deviations.
        assert received == pytest.approx(0.8**4 * 400, abs=50)
        net["h0"].intf("h0-eth0").config(loss=0)
        for name in ("s0-eth0", "s0-eth1"):
            net["s0"].intf(name).config(loss=0)
        net["h1"].intf("h1-eth0").config(loss=0)
        said = net["h0"].cmd(f"ping -n -c50 -i0.002 -W10 {net['h1'].IP()}")
        assert " 0% packet loss" in said


@root
def test_a_delayed_cable_is_cut_and_mended_like_any_other() -> None:
    from pillarbox.experiments.lab.emulation.active_faults import Faults

    with lab(delay="1ms") as net:
        h0, faults = net["h0"], Faults(net)
        for kind in ("cut", "silent cut"):
            fault = faults.begin(kind, "h0", "s0")
            assert round_trips_ms(h0, net["h1"].IP(), count=2, wait_s=1) == []
            faults.undo(fault)
            wait_until_answered(h0, net["h1"].IP())


@root
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rate_mbit": -1}, "above 0 and at most"),
        ({"rate_mbit": 10, "queue_packets": 0}, "at least one packet"),
        ({"delay": "5"}, "'5' is no delay of a link"),
        ({"delay": "1ms", "jitter": "2ms"}, "no more than its delay"),
        ({"loss": 101}, "0 to 100 percent"),
    ],
)
def test_what_no_cable_has_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(PillarboxError, match=says):
        lab(**options)


@root
def test_a_delay_cannot_come_later_without_netem() -> None:
    from pillarbox.experiments.lab.linux import shaping

    if shaping.kernel_has_netem():
        pytest.skip("this kernel has netem")
    with lab() as net, pytest.raises(PillarboxError, match="this kernel has no netem"):
        net["h0"].intf("h0-eth0").config(delay="1ms")


@root
@pytest.mark.parametrize(("rate_mbit", "packets", "least"), [(10, 100, 100e3), (200, 1000, 1e6)])
def test_the_queue_of_a_switch_fills_although_senders_are_behind_it(
    rate_mbit: int, packets: int, least: float
) -> None:
    with lab("tree,3,1", rate_mbit=rate_mbit, queue_packets=packets) as net:
        *senders, receiver = net.hosts
        for sender in senders:
            sender.defaultIntf().config(bw=2 * rate_mbit)
        servers = [receiver.popen(f"iperf3 -s -1 --forceflush -p {port}") for port in (1, 2)]
        for server in servers:
            assert b"-----" in server.stdout.readline()
        loads = [
            sender.popen(f"iperf3 -c {receiver.IP()} -p {port} -t 2 -C cubic")
            for sender, port in zip(senders, (1, 2), strict=True)
        ]
        waiting = 0
        while loads[0].poll() is None:
            said = net["s0"].popen("tc -s -j qdisc show dev s0-eth2").communicate()[0]
            (backlog,) = (one["backlog"] for one in json.loads(said) if one["kind"] == "bfifo")
            waiting = max(waiting, backlog)
        # 14 KB and 330 KB where each sender is stopped by its own account of what is under way.
        assert waiting > least


def test_netem_is_asked_for_as_tc_asks_for_it() -> None:
    from pillarbox.experiments.lab.linux.shaping import LinkDelay, limited

    # What "tc qdisc add dev lo parent 6:1 handle 10: netem delay 5ms 1ms limit 116" sends.
    fixed = bytes.fromhex("00000000 01000000 00001000 01000600 00000000")
    kind = bytes.fromhex("0a000100 6e6574656d00 0000")
    options = bytes.fromhex("1c000200 2d310100 74000000" + 3 * "00000000" + "093d0000")
    request = limited(1, 32, LinkDelay(5e-3, 1e-3))[-1]
    assert request.body == fixed + kind + options


@root
def test_where_the_kernel_has_netem_it_does_the_delaying(monkeypatch: pytest.MonkeyPatch) -> None:
    from pillarbox.experiments.lab.linux import shaping

    had = shaping.kernel_has_netem()
    monkeypatch.setattr(shaping, "kernel_has_netem", lambda: True)
    if had:
        with lab(rate_mbit=10, delay="5ms") as net:
            assert "netem" in net["h0"].cmd("tc qdisc show dev h0-eth0")
    else:
        with pytest.raises(
            PillarboxError, match=r"refused to delay what interface \d+ sends by 5 ms"
        ):
            lab(rate_mbit=10, delay="5ms")


@root
def test_heartbeats_go_by_the_shapers_and_other_messages_do_not() -> None:
    from pillarbox.hosts.live.devices import BROADCAST_MAC, heartbeat_socket
    from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
    from pillarbox.hosts.wire.frame import ETH_DCN

    def frame(protocol: int) -> bytes:
        front = BROADCAST_MAC + bytes([2, 0, 0, 0, 0, 1]) + ETH_DCN.to_bytes(2, "big")
        return front + DcnHeader(0, 0, protocol).pack(bytes(64))

    def counted(place: tuple[str, str]) -> tuple[int, int]:
        where, name = place
        told = net[where].cmd(f"tc -s qdisc show dev {name} root")
        found = re.search(r"direct_packets_stat (\d+) .*\n Sent \d+ bytes (\d+) pkt", told)
        assert found, told
        return int(found[1]), int(found[2])

    places = [("h0", "h0-eth0"), ("s0", "s0-eth1"), ("s0", "s0-eth2")]
    with lab("tree,3,1", rate_mbit=10) as net:
        for other in ("h1", "h2"):
            wait_until_answered(net["h0"], net[other].IP())
        before = [sent for _, sent in map(counted, places)]
        with net["h0"].live_namespace():
            ports = heartbeat_socket("h0-eth0"), heartbeat_socket("h0-eth0")
        ports[1].setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 0)
        for port, protocol in zip(ports, (Protocol.HEARTBEAT, Protocol.LINK_STATE), strict=True):
            with port:
                for _ in range(3):
                    port.send(frame(protocol))
        for place, had in zip(places, before, strict=True):
            deadline = time.monotonic() + WAIT_S
            while (now := counted(place))[1] < had + 6:
                assert time.monotonic() < deadline, (place, had, now)
            assert now[0] == 3


def test_a_delay_is_for_heartbeats_as_well() -> None:
    from pillarbox.experiments.lab.linux.shaping import DELAYED_HANDLE, LinkDelay, limited
    from pillarbox.hosts.live.devices import PAST_SHAPERS

    def handle(delay: LinkDelay | None) -> int:
        return int(struct.unpack_from("=I", limited(1, 10.0, delay)[0].body, 8)[0])

    assert handle(None) == PAST_SHAPERS
    assert handle(LinkDelay(5e-3)) == DELAYED_HANDLE != PAST_SHAPERS
