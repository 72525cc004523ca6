"""Packet loss of other flows during a flood of forged frames or messages."""

from __future__ import annotations

import mmap
import random
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle, permutations, product
from typing import TYPE_CHECKING, NamedTuple

from pillarbox.experiments.base.processes import beside
from pillarbox.experiments.lab.linux.measurement import in_child
from pillarbox.hosts.base.actions import EVERYONE
from pillarbox.hosts.base.algorithms import algorithms, route
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.ports import arrival_port
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.memory.frame_devices import FrameHop, FrameTap
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.wire.frame import ETH_IP
from pillarbox.hosts.wire.ipv4 import IP_IN_IP, Ipv4Header
from pillarbox.hosts.wire.marks import serial_of, udp_packet
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology
from tests.benches._frame import Row
from tests.benches._labs import hindrance, sandboxed

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

NETWORKS = ("dpillar,4,3", "dcell,4,1", "bcube,4,1", "ficonn,4,1")
PLANES = ("ebpf", "python")
FRAMES, MESSAGES = "frames", "messages"
FORGER, PORT = 0, 0  # number and egress port of the server that sends forged frames
RATE_PER_S, TOGETHER = 20_000, 20  # flood rate in frames per second, and frames per burst
MADE_UP = 8192  # number of forged IP-in-IP packets, each needing a routing decision
PACKETS, FLOWS = 1000, 100  # simulated traffic that provides valid headers
PAIRS, EVERY_S = 4, 0.05  # pinging server pairs per place, and ping interval in seconds
SECONDS, QUICK_SECONDS = 10.0, 1.0
TIME_LIMIT_S = 120.0
SEED = 1
AT, BEHIND, BYSTANDERS = "at_switch", "behind_server", "bystanders"
GOALS = {AT: 5.0, BEHIND: 1.0, BYSTANDERS: 1.0}  # maximum ping loss in percent, by place
NOTES = f"""
A server sends {RATE_PER_S} frames per second to a neighbour on its switch. Frames: half are valid
headers of this network with packets between any servers, half are IP in IP between random servers,
for which no decision is cached. Messages: all control messages that the server sent to its
neighbour in a working network, repeatedly. Columns are percentages of unanswered pings
({1 / EVERY_S:.0f} per second for {SECONDS:.0f} s) between {PAIRS} pairs each: pairs with a path in
either direction over the flooded switch (at_switch, goal below {GOALS[AT]:.0f}), over the flooded
server but not this switch (behind_server), and over neither (bystanders, goals below
{GOALS[BYSTANDERS]:.0f}). No path begins at, ends at or passes the forger. before: all pings without
a flood. forged_per_s: frames that the forger sent; dropped: frames that the flooded server counted
as dropped meanwhile. A dash: no pair has such a path.
"""


class FloodPlace(NamedTuple):
    """The flooding server, its victim, and the switch between them."""

    forger: int
    victim: int
    switch: int


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each plane of each network."""
    for spec in NETWORKS[:1] if quick else NETWORKS:
        for plane, flood_of in product(PLANES, (FRAMES, MESSAGES)):
            row: Row = {"network": spec, "plane": plane, "flood_of": flood_of}
            row |= {"forged_per_s": None, "dropped": None, "before": None}
            row |= dict.fromkeys(GOALS)
            if why := hindrance(plane):
                yield row | {"outcome": f"skipped: {why}"}
                continue
            seconds = QUICK_SECONDS if quick else SECONDS
            result = in_child(
                ping_loss_under_flood, spec, plane, flood_of, seconds, time_limit_s=TIME_LIMIT_S
            )
            yield row | (result.value or {"outcome": f"failed: {result.failure}"})


def ping_loss_under_flood(spec: str, plane: str, flood_of: str, seconds: float) -> Row:
    """Flood a lab in a sandbox with forged frames; return the ping loss by place."""
    from pillarbox.experiments.lab.emulation.drops import drops_by_reason

    topology, draw = parse(spec), random.Random(SEED)
    with sandboxed(topology, plane=plane) as lab:
        packets, messages = sent_by_forger(topology, lab.routing, draw)
        place = choose_flood_place(topology, packets)
        pairs = ping_pairs_by_place(topology, lab.routing, place, draw)
        if flood_of == FRAMES:
            frames = forged_frames(topology, place, packets, draw)
        else:
            frames = simulated_frames(topology, place, messages)
        before = [
            one for those in ping_counts_by_place(lab, pairs, seconds).values() for one in those
        ]
        sent = mmap.mmap(-1, 8)
        dropped = sum(drops_by_reason(lab.state(place.victim)).values())
        with beside(lambda: send_flood(lab, place, frames, sent)):
            start = time.monotonic()
            found = ping_counts_by_place(lab, pairs, seconds)
            rate = int.from_bytes(sent[:], "little") / (time.monotonic() - start)
            dropped = sum(drops_by_reason(lab.state(place.victim)).values()) - dropped
    row: Row = {"forged_per_s": round(rate), "dropped": dropped}
    row |= {"before": lost_percent(before)}
    row |= {name: lost_percent(found.get(name, [])) for name in GOALS}
    return row | {"outcome": verdict(row)}


def verdict(row: Row) -> str:
    """Return the outcome of a flood: "ok" if every ping loss is below its goal."""
    if row["forged_per_s"] < RATE_PER_S / 2:
        return "missed: the forger was too slow for a result"
    over = [name for name, goal in GOALS.items() if (row[name] or 0.0) >= goal]
    return f"missed: {', '.join(over)}" if over else "ok"


def choose_flood_place(topology: Topology, sent: Sequence[FrameHop]) -> FloodPlace:
    """Return the forger and its victim: its peer with the most cables, then the most frames."""
    counts = Counter(hop.peer for hop in sent)
    victim = max(counts, key=lambda peer: (len(list(topology.neighbours(peer))), counts[peer]))
    return FloodPlace(FORGER, victim, topology.server_plug(FORGER, PORT).node)


# -- forged frames ------------------------------------------------------------------------------


def forged_frames(
    topology: Topology, place: FloodPlace, sent: Sequence[FrameHop], draw: random.Random
) -> list[bytes]:
    """Return forged Ethernet frames to the victim, with valid and made-up headers in turn."""
    begin = frame_mac_addresses(topology, place) + ETH_IP.to_bytes(2, "big")
    drawn = (draw.choices(range(topology.servers), k=4) for _ in range(MADE_UP))
    made_up = (begin + forged_tunnel_packet(topology, servers) for servers in drawn)
    valid = cycle(simulated_frames(topology, place, sent))
    return [frame for pair in zip(valid, made_up, strict=False) for frame in pair]


def simulated_frames(
    topology: Topology, place: FloodPlace, sent: Sequence[FrameHop]
) -> list[bytes]:
    """Return the forger's simulated frames to its victim, or to all, as Ethernet frames."""
    macs = frame_mac_addresses(topology, place)
    return [
        macs + hop.frame.ethertype.to_bytes(2, "big") + hop.frame.data
        for hop in sent
        if hop.peer in (place.victim, EVERYONE)
    ]


def frame_mac_addresses(topology: Topology, place: FloodPlace) -> bytes:
    """Return the two MAC addresses at the start of a frame from the forger to its victim."""
    arrives_by = arrival_port(topology, place.forger, Step(PORT, place.victim))
    ends = (place.victim, arrives_by), (place.forger, PORT)
    return b"".join(topology.mac_number(*end).to_bytes(6, "big") for end in ends)


def forged_tunnel_packet(topology: Topology, servers: Sequence[int]) -> bytes:
    """Return a forged IP in IP packet, whose inner and outer headers have different servers."""
    near, far, source, destination = servers
    outer = Ipv4Header(topology.ipv4(near), topology.ipv4(far), IP_IN_IP)
    return outer.pack(udp_packet(topology, source, destination))


def sent_by_forger(
    topology: Topology, routing: str, draw: random.Random
) -> tuple[list[FrameHop], list[FrameHop]]:
    """Return the frames that the forging server sends in a simulation with normal traffic."""
    seen: list[FrameHop] = []
    make = algorithms(topology)[routing].router
    if make is None:
        raise PillarboxError(f"{routing} has no router whose headers could be forged")
    network = MemoryNetwork(
        topology,
        lambda net, server: make(net, server, timers=FAST),
        [FrameTap(lambda hop, _: seen.append(hop))],
    )
    for _ in range(PACKETS):
        source, destination = draw.sample(range(topology.servers), 2)
        network.send_udp(source, destination, source_port=4000 + draw.randrange(FLOWS))
        network.run(1e-3)
    by_port = [hop for hop in seen if (hop.server, hop.port) == (FORGER, PORT)]
    found: dict[bool, list[FrameHop]] = {True: [], False: []}
    for hop in by_port:
        found[serial_of(hop.frame.data) is not None].append(hop)
    return found[True], found[False]


def send_flood(lab: Lab, place: FloodPlace, frames: Sequence[bytes], sent: mmap.mmap) -> None:
    """Send forged frames forever at RATE_PER_S, and store their number in shared memory."""
    with lab.host(place.forger).live_namespace():
        cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    cable.bind((lab.topology.interface(place.forger, PORT), 0))
    start, count, turns = time.monotonic(), 0, cycle(frames)
    while True:
        while count < (time.monotonic() - start) * RATE_PER_S:
            for _ in range(TOGETHER):
                cable.send(next(turns))
            count += TOGETHER
            sent[:] = count.to_bytes(8, "little")
        time.sleep(TOGETHER / RATE_PER_S)


# -- losses of others ----------------------------------------------------------------------------

Pairs = dict[str, list[tuple[int, int]]]


def ping_pairs_by_place(
    topology: Topology, routing: str, place: FloodPlace, draw: random.Random
) -> Pairs:
    """Return ping pairs by place: path over the flooded switch, flooded server only, or neither.

    No path passes the forging server.
    """
    found: Pairs = {name: [] for name in GOALS}
    every = list(permutations(range(topology.servers), 2))
    draw.shuffle(every)
    for pair in every:
        passed = {
            node
            for ends in (pair, pair[::-1])
            for path in route(topology, routing, *ends).paths[:1]
            for node in path.nodes(topology)
        }
        if place.forger not in passed:
            at, behind = place.switch in passed, place.victim in passed
            found[AT if at else BEHIND if behind else BYSTANDERS].append(pair)
    return {name: pairs[:PAIRS] for name, pairs in found.items() if pairs}


def ping_counts_by_place(
    lab: Lab, pairs: Pairs, seconds: float
) -> dict[str, list[tuple[int, int]]]:
    """Ping between server pairs during a flood; return answered and sent pings by place."""
    many = str(round(seconds / EVERY_S))
    begun = {
        name: [
            lab.host(a).popen(
                ["ping", "-n", "-q", "-c", many, "-i", str(EVERY_S), "-W1", lab.topology.ip(b)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for a, b in those
        ]
        for name, those in pairs.items()
    }
    return {name: [_ping_counts(one) for one in those] for name, those in begun.items()}


def _ping_counts(ping: subprocess.Popen[str]) -> tuple[int, int]:
    words = ping.communicate(timeout=TIME_LIMIT_S)[0].replace(",", "").split()
    return int(words[words.index("received") - 1]), int(words[words.index("packets") - 1])


def lost_percent(counts: Sequence[tuple[int, int]]) -> float | None:
    """Return the percentage of unanswered pings, None if no ping was sent."""
    got, sent = map(sum, zip(*counts, strict=True)) if counts else (0, 0)
    return 100 * (1 - got / sent) if sent else None
