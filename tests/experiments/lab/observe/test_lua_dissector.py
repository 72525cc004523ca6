"""The dissector sees in every frame what servers see, and calls bad what they refuse."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.observe.lua_dissector import lua_dissector_text
from pillarbox.experiments.lab.observe.pcapng import Interface, Reader, Writer
from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.hosts.base.network import header_of
from pillarbox.hosts.wire import dcn
from pillarbox.hosts.wire.dcn import DCN, DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, Frame
from pillarbox.hosts.wire.header_layout import WireError
from pillarbox.hosts.wire.ipv4 import IP_IN_IP, Ipv4Header, decapsulate
from pillarbox.hosts.wire.messages import BODIES, parse_message
from tests.benches.fuzz_routers import _captured_frames, damaged_frame
from tests.experiments.lab.observe.tshark import needs_tshark, tshark

ROUTERS = [("dcell,2,1", "dfr"), ("bcube,2,1", "bsr"), ("ficonn,4,1", "tar"), ("dpillar,4,2", "mp")]
FRAMES = 80  # live ones
MACS = bytes.fromhex("020000000001 020000000002")


def told_by_tshark(frames: list[Frame], folder: Path, spec: str = "") -> list[dict[str, Any]]:
    """Return the layers that tshark finds in each frame."""
    capture = folder / "frames.pcapng"
    with capture.open("wb") as file:
        writer = Writer(file, [Interface("port", 65535)])
        for number, frame in enumerate(frames):
            data = MACS + frame.ethertype.to_bytes(2, "big") + frame.data
            writer.write(0, number * 1000, data, outgoing=True)
    script = lua_dissector_text(topos.parse(spec) if spec else None)
    said = tshark(capture, script, "-T", "json", "--no-duplicate-keys")
    return [one["_source"]["layers"] for one in json.loads(said)]


def found(layers: Any, name: str) -> list[Any]:
    """Return the values of a field, wherever in the layers it is."""
    if isinstance(layers, list):
        return [value for one in layers for value in found(one, name)]
    if not isinstance(layers, dict):
        return []
    values = []
    for key, value in layers.items():
        if key == name:
            values += value if isinstance(value, list) else [value]
        else:
            values += found(value, name)
    return values


def numbers(layers: Any, name: str) -> list[int]:
    return [int(value, 0) for value in found(layers, name)]


@cache
def recorded(spec: str, name: str) -> list[Any]:
    """Return frames of a network in memory, in which things fail."""
    router = algorithms(topos.parse(spec))[name].router
    assert router is not None
    return _captured_frames(topos.parse(spec), router)[0]


def expected(frame: Frame) -> dict[str, list[int]]:
    """Return what the layouts read from a frame that servers accept, by Wireshark's names."""
    values: dict[str, list[int]] = {}
    data, protocol = frame.data, None
    if frame.ethertype == ETH_DCN:
        known = header_of(data)
        assert known
        header, body = known.parse(data)
        layout = next(form.layout for form in known.forms if form.first == data[0])
        prefix, protocol = known.name, header.protocol
        for field, value in zip(layout.values, layout.unpack(data), strict=True):
            values[f"{prefix}.{field.name}"] = [value]
    else:
        outer, body = Ipv4Header.parse(data)
        protocol = outer.protocol
        if protocol == IP_IN_IP:
            tunnel = decapsulate(data)[0]
            values["dpillar.direction"] = [tunnel.direction]
            inner, body = Ipv4Header.parse(body)
            protocol = inner.protocol
    if protocol in BODIES:
        described = BODIES[protocol]
        prefix = Protocol(protocol).name.lower()
        for field, value in zip(described.head.values, described.head.read(body), strict=True):
            values[f"{prefix}.{field.name}"] = [value]
        if described.each is not None:
            starts = range(described.head.size, len(body), described.each.size)
            rows = [described.each.read(body, start) for start in starts]
            for field, column in zip(described.each.values, zip(*rows, strict=True), strict=False):
                values[f"{prefix}.entry.{field.name}"] = list(column)
    return values


@needs_tshark
@pytest.mark.parametrize(("spec", "name"), ROUTERS)
def test_every_field_of_every_frame_is_seen(spec: str, name: str, tmp_path: Path) -> None:
    sent = recorded(spec, name)
    frames = [one.frame for one in Random(name).sample(sent, min(150, len(sent)))]
    compared = set()
    for frame, layers in zip(frames, told_by_tshark(frames, tmp_path), strict=True):
        assert not found(layers, "pillarbox.bad"), layers
        for field, values in expected(frame).items():
            assert numbers(layers, field) == values, (field, layers)
            compared.add(field.partition(".")[0])
    assert len(compared) >= 3  # a header or tunnel, and several messages


@needs_tshark
@pytest.mark.root
@pytest.mark.parametrize(("spec", "name"), ROUTERS)
def test_live_frames_are_seen_as_they_were_sent(spec: str, name: str, tmp_path: Path) -> None:
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.experiments.lab.observe.port_capture import CapturePort, capture
    from pillarbox.hosts.live.settings import LabSettings

    topology = topos.parse(spec)
    file = io.BytesIO()
    with running(topology, LabSettings(routing=name, rate_mbit=None), tmp_path / "lab") as lab:
        lab.wait_converged()
        server, port = 0, topology.interface(0, 0)
        talking = lab.host(0).popen(["ping", "-i0.02", topology.ip(topology.servers - 1)])
        capture(
            [CapturePort("port", port, lab.namespace_of(server))], file, seconds=60.0, frames=FRAMES
        )
        talking.kill()
        talking.communicate()
    file.seek(0)
    seen = [Frame(int.from_bytes(one.data[12:14], "big"), one.data[14:]) for one in Reader(file)]
    assert len(seen) >= FRAMES
    for frame, layers in zip(seen, told_by_tshark(seen, tmp_path), strict=True):
        assert not found(layers, "pillarbox.bad"), layers
        for field, values in expected(frame).items():
            assert numbers(layers, field) == values, (field, layers)


def refused(frame: Frame) -> bool:
    """Tell whether a server refuses a frame for what it is, whatever is in its IP packet."""
    try:
        header, body = (header_of(frame.data) or DCN).parse(frame.data)
        if header.protocol not in (Protocol.IPV4, Protocol.RETURNED):
            parse_message(header.protocol, body)
    except WireError:
        return True
    return False


@needs_tshark
@pytest.mark.parametrize(("spec", "name"), ROUTERS[:3])
def test_what_servers_refuse_is_called_bad_and_nothing_else(
    spec: str, name: str, tmp_path: Path
) -> None:
    draw = Random(name)
    of_ours = [one for one in recorded(spec, name) if one.frame.ethertype == ETH_DCN]
    frames = [
        Frame(ETH_DCN, damaged_frame(draw.choice(of_ours).frame.data, of_ours, draw)[:1500])
        for _ in range(600)
    ]
    verdicts = [refused(frame) for frame in frames]
    assert 50 < sum(verdicts) < 600
    layers = told_by_tshark(frames, tmp_path)
    for frame, verdict, seen in zip(frames, verdicts, layers, strict=True):
        assert bool(found(seen, "pillarbox.bad")) == verdict, (frame.data.hex(), seen)


def hurt(data: bytes, draw: Random) -> bytes:
    """Return a frame of which some bytes or bits are others, from Ethernet's header on."""
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4))):
        found[draw.randrange(len(found))] = draw.choice((0, 1, 4, 0x45, 0xFF, draw.randrange(256)))
    if draw.random() < 0.3:
        del found[draw.randrange(14, len(found)) :]
    if draw.random() < 0.2:
        found += draw.randbytes(draw.randrange(40))
    return bytes(found)


@needs_tshark
@pytest.mark.parametrize(("spec", "name"), ROUTERS)
def test_no_frame_stops_the_dissector(spec: str, name: str, tmp_path: Path) -> None:
    """Each kind of frame cut off after every byte, and seeded mutations of all of it."""
    draw = Random(f"hurt {name}")
    sent = [
        MACS + one.frame.ethertype.to_bytes(2, "big") + one.frame.data
        for one in recorded(spec, name)
    ]
    kinds = list({(data[12:14], data[14:16], data[23], len(data)): data for data in sent}.values())
    chosen = draw.sample(kinds, min(8, len(kinds)))
    frames = [data[:size] for data in chosen for size in range(14, len(data))]
    frames += [hurt(draw.choice(sent), draw) for _ in range(1500)]
    capture = tmp_path / "frames.pcapng"
    with capture.open("wb") as file:
        writer = Writer(file, [Interface("port", 65535)])
        for number, data in enumerate(frames):
            # Some were longer on the wire than what was captured of them.
            length = len(data) + 100 * (number % 3 == 0)
            writer.write(0, number * 1000, data, outgoing=True, length=length)
    said = tshark(capture, lua_dissector_text(topos.parse(spec)), "-V")
    assert said.count("Frame Number: ") == len(frames)
    errors = [line for line in said.splitlines() if "Lua Error" in line]
    assert errors == []


@needs_tshark
def test_servers_have_their_addresses_where_the_network_is_known(tmp_path: Path) -> None:
    network = topos.parse("bcube,4,1")
    script = lua_dissector_text(network)
    assert '[7] = "1.3"' in script
    frame = Frame(ETH_DCN, DcnHeader(3, dcn.broadcast(1), Protocol.IPV4).pack(b""))
    (layers,) = told_by_tshark([frame], tmp_path, "bcube,4,1")
    assert numbers(layers, "dcn.source") == [3]


def test_layouts_are_written_whole() -> None:
    script = lua_dissector_text()
    assert "--[[" not in script
    for body in BODIES.values():
        for field in body.head.fields:
            assert f'["title"] = "{field.title}"' in script
