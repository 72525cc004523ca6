"""Random and damaged frames for all parsers: a refusal, or an exact parse."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, NamedTuple

from experiments.benches._frame import Row
from hosts.wire import bcube, dcn, ipv4
from hosts.wire.bcube import BCubeHeader, Hop
from hosts.wire.dcn import DcnHeader, Protocol
from hosts.wire.ficonn import BYONE, BYZERO, PathProbe
from hosts.wire.header_layout import CHECKSUM, REASONS, HeaderLayout, WireError, checksum
from hosts.wire.ipv4 import FlowKey, Ipv4Header, Tunnel
from hosts.wire.messages import (
    BODIES,
    MESSAGES,
    CableCut,
    HeartBeat,
    LinkState,
    Message,
    PathFailure,
    Probe,
    ProbeResponse,
    Unreachable,
    Unreached,
)

FRAMES, FRAMES_QUICK = 1_000_000, 5_000
SEED = 1
SAMPLES = 500  # number of valid frames to mutate, for each header type
MOST_RANDOM = 80  # maximum size of a random frame in bytes
MOST_PADDING = 46  # upper bound for Ethernet's padding in bytes
NOTES = f"""
Half of the frames are random bytes, half are damaged valid frames: bits flipped, cut, extended, or
spliced with another frame; half of the damaged frames get a correct checksum. The seed is {SEED}.
accepted: frames that were parsed, and packed again to the same bytes (except padding). The columns
after it count refusals by reason. Any other result is a failure.
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each header and message."""
    yield from headers(FRAMES_QUICK if quick else FRAMES)


# -- headers and messages ----------------------------------------------------------------------


class Target(NamedTuple):
    """A header or message parser to fuzz, with functions that generate and check its input.

    `repack` returns the bytes with which a parsed frame must begin, `covered` the number of bytes
    that the checksum of a frame covers.
    """

    name: str
    parse: Callable[[bytes], Any]
    repack: Callable[[Any], bytes]
    sample: Callable[[Random], bytes]
    layout: HeaderLayout
    covered: Callable[[bytes], int]


def headers(frames: int) -> Iterator[Row]:
    """Yield a row for each header and message parser, after a number of mutated frames."""
    for target in targets():
        yield fed(target, frames)


def fed(target: Target, frames: int) -> Row:
    """Feed mutated frames to a header parser; return the benchmark row."""
    random = Random(f"{SEED} {target.name}")
    valid = [target.sample(random) for _ in range(SAMPLES)]
    counts: Counter[str] = Counter()
    outcome = "ok"
    start_s = time.perf_counter()
    for _ in range(frames):
        frame = _mutated_frame(target, valid, random)
        try:
            parsed = target.parse(frame)
            if not frame.startswith(target.repack(parsed)):
                raise ValueError("the frame differs after it is packed again")
        except WireError as error:
            counts[error.reason] += 1
        except Exception as error:  # noqa: BLE001
            # Any other exception is a defect of the parser.
            outcome = f"failed: {error!r} on {frame.hex()}"
            break
        else:
            counts["accepted"] += 1
    row: Row = {"header": target.name, "frames": counts.total(), "accepted": counts["accepted"]}
    row |= {reason.replace(" ", "_"): counts[reason] for reason in REASONS}
    return row | {"seconds": time.perf_counter() - start_s, "outcome": outcome}


def _mutated_frame(target: Target, valid: list[bytes], random: Random) -> bytes:
    if random.random() < 0.5:
        return random.randbytes(random.randrange(MOST_RANDOM))
    frame = random.choice(MUTATIONS)(random.choice(valid), valid, random)
    return _with_checksum(target, frame) if random.random() < 0.5 else frame


def _with_checksum(target: Target, frame: bytes) -> bytes:
    """Return a mutated frame with a correct checksum if it is long enough to contain one."""
    at = target.layout.byte(CHECKSUM)
    before, behind = frame[:at], frame[at + 2 : target.covered(frame)]
    if len(frame) < at + 2:
        return frame
    right = checksum(before + bytes(2) + behind).to_bytes(2, "big")
    return before + right + frame[at + 2 :]


def _flipped(frame: bytes, _: list[bytes], random: Random) -> bytes:
    number = int.from_bytes(frame, "big")
    for _bit in range(random.randint(1, 3)):
        number ^= 1 << random.randrange(8 * len(frame))
    return number.to_bytes(len(frame), "big")


def _cut(frame: bytes, _: list[bytes], random: Random) -> bytes:
    return frame[: random.randrange(len(frame))]


def _extended(frame: bytes, _: list[bytes], random: Random) -> bytes:
    return frame + random.randbytes(random.randint(1, MOST_PADDING))


def _spliced(frame: bytes, valid: list[bytes], random: Random) -> bytes:
    other = random.choice(valid)
    return frame[: random.randrange(len(frame))] + other[random.randrange(len(other)) :]


MUTATIONS = (_flipped, _cut, _extended, _spliced)


# -- parsers and frames ----------------------------------------------------------------------------


def targets() -> list[Target]:
    """Return all header and message parsers of hosts.wire, with their generators."""
    found = [
        Target("dcn", DcnHeader.parse, _packed, _dcn, dcn.PLAIN, _header_bytes),
        Target("bcube", BCubeHeader.parse, _packed, _bcube, bcube.LAYOUT, _header_bytes),
        Target("ipv4", Ipv4Header.parse, _packed, _ipv4, ipv4.LAYOUT, _header_bytes),
        Target("tunnel", ipv4.decapsulate, _outer, _tunnel, ipv4.LAYOUT, _header_bytes),
        # Flow keys cannot be packed again; only their parser's exceptions are checked.
        Target("flow", ipv4.flow_key, lambda _: b"", _ipv4, ipv4.LAYOUT, _header_bytes),
    ]
    for protocol, message in MESSAGES.items():
        name = Protocol(protocol).name.lower().replace("_", " ")
        sample = partial(_message_or_payload, protocol)
        layout = BODIES[protocol].head
        found.append(Target(name, message.parse, message.pack, sample, layout, len))
    return found


def _header_bytes(frame: bytes) -> int:
    """Return a frame's header length in bytes, which the fields DHL and IHL encode alike."""
    return 4 * (frame[0] & 0xF) if frame else 0


def _packed(parsed: tuple[Any, bytes]) -> bytes:
    header, payload = parsed
    return bytes(header.pack(payload))


def _outer(parsed: tuple[Tunnel, Ipv4Header, bytes]) -> bytes:
    _, header, packet = parsed
    return header.pack(packet)


def _dcn(random: Random) -> bytes:
    proxy = _uid(random) if random.random() < 0.5 else None
    header = DcnHeader(_uid(random), random.getrandbits(32), random.getrandbits(8), proxy=proxy)
    return header.pack(_payload(random))


def _bcube(random: Random) -> bytes:
    path = tuple(Hop.of(random.getrandbits(8)) for _ in range(random.randint(0, 8)))
    header = BCubeHeader(_uid(random), _uid(random), Protocol.IPV4, path)
    return header._replace(next_hop=random.randint(0, len(path))).pack(_payload(random))


def _ipv4(random: Random) -> bytes:
    protocol = random.choice((ipv4.ICMP, ipv4.TCP, ipv4.UDP))
    header = Ipv4Header(random.getrandbits(32), random.getrandbits(32), protocol)
    return header._replace(options=bytes(4 * random.randint(0, 2))).pack(_payload(random))


def _tunnel(random: Random) -> bytes:
    tunnel = Tunnel(2 * _uid(random), 2 * _uid(random), random.getrandbits(1))
    return ipv4.encapsulate(_ipv4(random), tunnel, random.getrandbits(8), random.getrandbits(16))


def _message_or_payload(protocol: int, random: Random) -> bytes:
    uids = [_uid(random) for _ in range(random.randint(0, 5))]
    flow = FlowKey(_uid(random), _uid(random), ipv4.TCP, random.getrandbits(16), 80)
    number = random.getrandbits(32)
    messages: dict[int, Message] = {
        Protocol.HEART_BEAT: HeartBeat(0, tuple(uids)),
        Protocol.LINK_STATE: LinkState(number, tuple(enumerate(uids))),
        Protocol.PROBE: Probe(number, 1, random.getrandbits(64)),
        Protocol.PROBE_RESPONSE: ProbeResponse(number, 1, random.getrandbits(64)),
        Protocol.PATH_FAILURE: PathFailure(1, 2, number >> 1, flow if number % 2 else None),
        Protocol.UNREACHABLE: Unreachable(number, random.choice(list(Unreached))),
        Protocol.PATH_PROBE: PathProbe(flow, number, True, 7, (BYZERO, BYONE, *uids)),
        Protocol.CABLE_CUT: CableCut(number % 2),
    }
    return messages[protocol].pack()


def _uid(random: Random) -> int:
    return random.getrandbits(31)


def _payload(random: Random) -> bytes:
    return random.randbytes(random.randrange(MOST_PADDING))
