"""Random and damaged frames for all routers: no exception, and no growing state."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from random import Random
from typing import Any, NamedTuple

from pillarbox.hosts.base.actions import Action, Deliver, Drop, Send
from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.hosts.base.ports import arrival_port
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.memory.frame_devices import FrameHop, FrameTap
from pillarbox.hosts.memory.memory_network import MemoryNetwork
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from pillarbox.hosts.wire.header_layout import checksum
from pillarbox.hosts.wire.marks import udp_packet
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology
from tests.benches._frame import Row
from tests.benches.fuzz import MUTATIONS

SPECS = ("dpillar,4,3", "dcell,4,1", "bcube,4,1", "ficonn,4,2", "tree,4,5")
FRAMES, FRAMES_QUICK = 1_000_000, 3_000
SEED = 1
VICTIM = 0
BETWEEN_S = 2e-5  # virtual time between two fuzzed frames, in seconds
# Checksum offsets in a DCN, BCube or IPv4 header, and in a message.
CHECKSUM_AT, BODY_CHECKSUM_AT = 10, 2
# Number of samples of a router's state. Some tables are emptied at times (FiConn's routes after
# link news), so the maxima of both halves are compared. The second maximum may be larger by the
# factor MOST_GROWTH and SLACK entries.
LOOKS = 40
MOST_GROWTH, SLACK = 1.2, 500
NOTES = f"""
One router of a network that has run for some time receives frames: random bytes, and damaged copies
of real frames (bits flipped, cut, extended, spliced), half of them with correct checksums, at any
port and from any neighbour. Every tenth input is a packet of the router's own applications to any
address. The seed is {SEED}. Any exception is a failure. state_first, state_then: maximum number of
entries in all tables in the first and in the second half, of {LOOKS} samples; the growth must have
stopped by the second half (a quick run is too short to decide).
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each router of each network."""
    for spec in SPECS:
        for name, algorithm in algorithms(parse(spec)).items():
            if algorithm.router:
                yield fuzz_router(spec, name, algorithm.router, FRAMES_QUICK if quick else FRAMES)


def fuzz_router(spec: str, name: str, router: type[Router], frames: int) -> Row:
    """Feed mutated frames to one simulated router; return the benchmark row."""
    topology = parse(spec)
    random = Random(f"{SEED} {spec} {name}")
    samples, network = _captured_frames(topology, router)
    victim, now = network.routers[VICTIM], network.now
    counts: Counter[str] = Counter()
    sizes = []
    outcome = "ok"
    start_s = time.perf_counter()
    for i in range(frames):
        now += BETWEEN_S
        frame = b""
        try:
            if i % 10 == 0:
                frame = _random_application_packet(topology, random)
                actions = victim.send(frame, now)
            else:
                sample = random.choice(samples)
                frame = damaged_frame(sample.frame.data, samples, random)
                kind = random.choice((sample.frame.ethertype, ETH_DCN, ETH_IP))
                peer = random.choice((sample.peer, random.randrange(topology.servers)))
                port = random.choice((sample.port, random.randrange(topology.ports)))
                actions = victim.receive(port, peer, Frame(kind, frame), now)
            _count(actions, counts)
            if victim.next_poll <= now:
                _count(victim.poll(now), counts)
        except Exception as error:  # noqa: BLE001
            # Any exception is a defect of the router.
            outcome = f"failed: {error!r} on {frame.hex()}"
            break
        if (i + 1) % (frames // LOOKS) == 0:
            sizes.append(table_entry_count(victim))
    first, then = (max(half, default=None) for half in (sizes[: LOOKS // 2], sizes[LOOKS // 2 :]))
    grows = bool(first and then and then > MOST_GROWTH * first + SLACK)
    if outcome == "ok" and frames >= FRAMES and grows:
        outcome = "failed: the state grows"
    row: Row = {"network": spec, "router": name, "frames": frames}
    row |= {kind: counts[kind] for kind in ("sent", "delivered", "dropped")}
    row |= {"reasons": len(victim.drops), "state_first": first, "state_then": then}
    return row | {"seconds": time.perf_counter() - start_s, "outcome": outcome}


class CapturedFrame(NamedTuple):
    """A frame that a simulated router received, with its port and the sending peer."""

    port: int
    peer: int
    frame: Frame


def _captured_frames(
    topology: Topology, router: type[Router]
) -> tuple[list[CapturedFrame], MemoryNetwork]:
    """Simulate a network with traffic and a failure; return captured frames and the network."""
    seen: list[FrameHop] = []
    network = MemoryNetwork(
        topology,
        lambda net, server: router(net, server, timers=FAST),
        [FrameTap(lambda hop, _: seen.append(hop))],
    )
    servers = range(topology.servers)
    for round_ in range(3):
        for a in servers:
            network.send_udp(a, (a * 7 + 1 + round_) % topology.servers)
            network.send_udp(a, VICTIM, source_port=4000 + round_)
            network.send_udp(VICTIM, a, source_port=4000 + round_)
        network.run(0.5)
        network.kill(topology.servers - 1)
    # Fuzz samples include frames received by neighbours, so that every message type occurs.
    return [
        CapturedFrame(arrival_port(topology, hop.server, hop.step), hop.server, hop.frame)
        for hop in seen
        if hop.peer == VICTIM or hop.server in topology.peers(VICTIM, 0)
    ][:4000], network


def damaged_frame(frame: bytes, samples: list[CapturedFrame], random: Random) -> bytes:
    """Return random bytes, or a mutated copy of a captured frame."""
    if random.random() < 0.2 or not frame:
        return random.randbytes(random.randrange(80))
    others = [random.choice(samples).frame.data or b"\0"]
    changed = random.choice(MUTATIONS)(frame, others, random)
    return _with_checksums(changed) if random.random() < 0.5 else changed


def _with_checksums(frame: bytes) -> bytes:
    """Return a mutated frame with correct checksums of its header and message."""
    length = 4 * (frame[0] & 0xF) if frame else 0
    if not 20 <= length <= len(frame):
        return frame
    body = bytearray(frame[length:])
    if len(body) >= BODY_CHECKSUM_AT + 2:
        _put_checksum(body, BODY_CHECKSUM_AT)
    header = bytearray(frame[:length])
    _put_checksum(header, CHECKSUM_AT)
    return bytes(header + body)


def _put_checksum(data: bytearray, at: int) -> None:
    data[at : at + 2] = bytes(2)
    data[at : at + 2] = checksum(bytes(data)).to_bytes(2, "big")


def _random_application_packet(topology: Topology, random: Random) -> bytes:
    packet = udp_packet(
        topology,
        VICTIM,
        random.randrange(topology.servers),
        source_port=random.randrange(65536),
        destination_port=random.randrange(65536),
    )
    if random.random() < 0.3:
        return random.choice(MUTATIONS)(packet, [packet], random)
    return packet


def _count(actions: list[Action], counts: Counter[str]) -> None:
    for action in actions:
        if isinstance(action, Drop):
            counts["dropped"] += 1
        else:
            counts["sent" if isinstance(action, Send) else "delivered"] += 1
            if isinstance(action, Deliver) and not action.packet:
                raise ValueError("nothing was delivered")


def table_entry_count(router: Router) -> int:
    """Return the number of entries in all tables of a router, to detect unlimited growth."""
    seen: set[int] = set()

    def count(value: Any) -> int:
        if isinstance(value, (Topology, str, bytes, int, float, Random)) or id(value) in seen:
            return 0
        seen.add(id(value))
        if isinstance(value, Mapping):
            return len(value) + sum(map(count, value)) + sum(map(count, value.values()))
        if isinstance(value, (list, tuple, set, frozenset, deque)):
            return len(value) + sum(map(count, value))
        if is_dataclass(value) and not isinstance(value, type):
            return sum(count(getattr(value, field.name)) for field in fields(value))
        return count(vars(value)) if hasattr(value, "__dict__") and not callable(value) else 0

    return count(router)
