"""Random and damaged frames for all parsers: a refusal, or an exact parse."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, NamedTuple

from pillarbox.hosts.wire import bcube, dcn, ipv4, source_route
from pillarbox.hosts.wire.bcube import BCubeHeader, Hop
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.ficonn import BYONE, BYZERO, PathProbe
from pillarbox.hosts.wire.header_layout import CHECKSUM, REASONS, HeaderLayout, WireError, checksum
from pillarbox.hosts.wire.ipv4 import FlowKey, Ipv4Header, Tunnel
from pillarbox.hosts.wire.messages import (
    BODIES,
    MESSAGES,
    CableCut,
    Heartbeat,
    LinkState,
    Message,
    PathFailure,
    Probe,
    ProbeResponse,
    Unreachable,
    Unreached,
)
from pillarbox.hosts.wire.source_route import SourceRouteHeader
from tests.benches._frame import Row

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
    yield from fuzz_parsers(FRAMES_QUICK if quick else FRAMES)


# -- headers and messages ----------------------------------------------------------------------


class ParserTarget(NamedTuple):
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


def fuzz_parsers(frames: int) -> Iterator[Row]:
    """Yield a row for each header and message parser, after a number of mutated frames."""
    for target in parser_targets():
        yield fuzz_parser(target, frames)


def fuzz_parser(target: ParserTarget, frames: int) -> Row:
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


def _mutated_frame(target: ParserTarget, valid: list[bytes], random: Random) -> bytes:
    if random.random() < 0.5:
        return random.randbytes(random.randrange(MOST_RANDOM))
    frame = random.choice(MUTATIONS)(random.choice(valid), valid, random)
    return _with_checksum(target, frame) if random.random() < 0.5 else frame


def _with_checksum(target: ParserTarget, frame: bytes) -> bytes:
    """Return a mutated frame with a correct checksum if it is long enough to contain one."""
    at = target.layout.byte(CHECKSUM)
    before, behind = frame[:at], frame[at + 2 : target.covered(frame)]
    if len(frame) < at + 2:
        return frame
    right = checksum(before + bytes(2) + behind).to_bytes(2, "big")
    return before + right + frame[at + 2 :]


def _with_flipped_bits(frame: bytes, _: list[bytes], random: Random) -> bytes:
    number = int.from_bytes(frame, "big")
    for _bit in range(random.randint(1, 3)):
        number ^= 1 << random.randrange(8 * len(frame))
    return number.to_bytes(len(frame), "big")


def _truncated_frame(frame: bytes, _: list[bytes], random: Random) -> bytes:
    return frame[: random.randrange(len(frame))]


def _extended_frame(frame: bytes, _: list[bytes], random: Random) -> bytes:
    return frame + random.randbytes(random.randint(1, MOST_PADDING))


def _spliced_frame(frame: bytes, valid: list[bytes], random: Random) -> bytes:
    other = random.choice(valid)
    return frame[: random.randrange(len(frame))] + other[random.randrange(len(other)) :]


MUTATIONS = (_with_flipped_bits, _truncated_frame, _extended_frame, _spliced_frame)


# -- parsers and frames ----------------------------------------------------------------------------


def parser_targets() -> list[ParserTarget]:
    """Return all header and message parsers of pillarbox.hosts.wire, with their generators."""
    found = [
        ParserTarget(
            "dcn", DcnHeader.parse, _repacked_header, _random_dcn_header, dcn.PLAIN, _header_bytes
        ),
        ParserTarget(
            "bcube",
            BCubeHeader.parse,
            _repacked_header,
            _random_bcube_header,
            bcube.LAYOUT,
            _header_bytes,
        ),
        ParserTarget(
            "source route",
            SourceRouteHeader.parse,
            _repacked_header,
            _random_source_route_header,
            source_route.LAYOUT,
            _header_bytes,
        ),
        ParserTarget(
            "ipv4",
            Ipv4Header.parse,
            _repacked_header,
            _random_ipv4_header,
            ipv4.LAYOUT,
            _header_bytes,
        ),
        ParserTarget(
            "tunnel",
            ipv4.decapsulate,
            _repacked_tunnel,
            _random_tunnel_header,
            ipv4.LAYOUT,
            _header_bytes,
        ),
        # Flow keys cannot be packed again; only their parser's exceptions are checked.
        ParserTarget(
            "flow", ipv4.flow_key, lambda _: b"", _random_ipv4_header, ipv4.LAYOUT, _header_bytes
        ),
    ]
    for protocol, message in MESSAGES.items():
        name = Protocol(protocol).name.lower().replace("_", " ")
        sample = partial(_message_or_payload, protocol)
        layout = BODIES[protocol].head
        found.append(ParserTarget(name, message.parse, message.pack, sample, layout, len))
    return found


def _header_bytes(frame: bytes) -> int:
    """Return the header length in bytes of a DCN (field DHL) or IPv4 packet (field IHL)."""
    return 4 * (frame[0] & 0xF) if frame else 0


def _repacked_header(parsed: tuple[Any, bytes]) -> bytes:
    header, payload = parsed
    return bytes(header.pack(payload))


def _repacked_tunnel(parsed: tuple[Tunnel, Ipv4Header, bytes]) -> bytes:
    _, header, packet = parsed
    return header.pack(packet)


def _random_dcn_header(random: Random) -> bytes:
    proxy = _random_uid(random) if random.random() < 0.5 else None
    header = DcnHeader(
        _random_uid(random), random.getrandbits(32), random.getrandbits(8), proxy=proxy
    )
    return header.pack(_random_payload(random))


def _random_bcube_header(random: Random) -> bytes:
    path = tuple(Hop.of(random.getrandbits(8)) for _ in range(random.randint(0, 8)))
    header = BCubeHeader(_random_uid(random), _random_uid(random), Protocol.IPV4, path)
    return header._replace(next_hop=random.randint(0, len(path))).pack(_random_payload(random))


def _random_source_route_header(random: Random) -> bytes:
    path = tuple(random.randbytes(random.randint(0, source_route.MOST_HOPS)))
    ends = _random_uid(random), _random_uid(random)
    header = SourceRouteHeader(*ends, Protocol.IPV4, path)
    return header._replace(next_hop=random.randint(0, len(path))).pack(_random_payload(random))


def _random_ipv4_header(random: Random) -> bytes:
    protocol = random.choice((ipv4.ICMP, ipv4.TCP, ipv4.UDP))
    header = Ipv4Header(random.getrandbits(32), random.getrandbits(32), protocol)
    return header._replace(options=bytes(4 * random.randint(0, 2))).pack(_random_payload(random))


def _random_tunnel_header(random: Random) -> bytes:
    tunnel = Tunnel(2 * _random_uid(random), 2 * _random_uid(random), random.getrandbits(1))
    return ipv4.encapsulate(
        _random_ipv4_header(random), tunnel, random.getrandbits(8), random.getrandbits(16)
    )


def _message_or_payload(protocol: int, random: Random) -> bytes:
    uids = [_random_uid(random) for _ in range(random.randint(0, 5))]
    flow = FlowKey(_random_uid(random), _random_uid(random), ipv4.TCP, random.getrandbits(16), 80)
    number = random.getrandbits(32)
    messages: dict[int, Message] = {
        Protocol.HEARTBEAT: Heartbeat(0, tuple(uids)),
        Protocol.LINK_STATE: LinkState(number, tuple(enumerate(uids))),
        Protocol.PROBE: Probe(number, 1, random.getrandbits(64)),
        Protocol.PROBE_RESPONSE: ProbeResponse(number, 1, random.getrandbits(64)),
        Protocol.PATH_FAILURE: PathFailure(1, 2, number >> 1, flow if number % 2 else None),
        Protocol.UNREACHABLE: Unreachable(number, random.choice(list(Unreached))),
        Protocol.PATH_PROBE: PathProbe(flow, number, True, 7, (BYZERO, BYONE, *uids)),
        Protocol.CABLE_CUT: CableCut(number % 2),
    }
    return messages[protocol].pack()


def _random_uid(random: Random) -> int:
    return random.getrandbits(31)


def _random_payload(random: Random) -> bytes:
    return random.randbytes(random.randrange(MOST_PADDING))
