"""A capture at ports: number of frames, frames in a pipe, and ends of pipe and disk."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import pytest

from pillarbox.experiments.cli.commands.capture import _has_no_reader, _open_for_writing
from pillarbox.experiments.lab.observe.lua_dissector import lua_dissector_text
from pillarbox.experiments.lab.observe.pcapng import Reader
from pillarbox.experiments.lab.observe.port_capture import CapturePort, capture
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN
from pillarbox.hosts.wire.messages import Heartbeat
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.lab.observe.tshark import needs_tshark, tshark_of_a_pipe

HEARTBEAT = DcnHeader(1, 1, Protocol.HEARTBEAT).pack(Heartbeat(0, ()).pack())
DEADLINE_S = 20.0  # timeout of a wait for tshark, in seconds


@pytest.mark.root
@pytest.mark.parametrize("frames", [1, 3, 300])
def test_a_capture_has_as_many_frames_as_were_asked_for(frames: int) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    network = os.open("/proc/self/ns/net", os.O_RDONLY)
    file = BytesIO()
    ports = [CapturePort(f"port {number}", "lo", network) for number in range(2)]

    def send_many() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(200):  # each is captured 4 times
                sender.sendto(b"x", ("127.0.0.1", 9))

    counts = capture(ports, file, frames=frames, begun=send_many)
    assert counts.written == frames
    file.seek(0)
    assert len(list(Reader(file))) == frames


def _send_heartbeat(interface: str) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind((interface, 0))
        sender.send(bytes(12) + ETH_DCN.to_bytes(2, "big") + HEARTBEAT)


def _line_within_deadline(stream: IO[bytes]) -> bytes:
    assert select.select([stream], [], [], DEADLINE_S)[0], "tshark showed no frame"
    return stream.readline()


@pytest.mark.root
@needs_tshark
def test_tshark_shows_each_frame_of_a_pipe_when_it_arrives() -> None:
    """The capture ends when tshark does, without an error."""
    # tshark's own programs send on the loopback.
    subprocess.run(["ip", "link", "add", "port0", "type", "veth", "peer", "port1"], check=True)
    for port in ("port0", "port1"):
        subprocess.run(f"ip link set {port} up addrgenmode none".split(), check=True)
    network = os.open("/proc/self/ns/net", os.O_RDONLY)
    ports = [CapturePort("port 0", "port0", network)]
    began, ended = threading.Event(), threading.Event()
    with ThreadPoolExecutor() as pool, tshark_of_a_pipe(lua_dissector_text()) as reader:
        assert reader.stdin and reader.stdout
        options: dict[str, Any] = {"begun": began.set, "stopped": ended.is_set}
        counts = pool.submit(capture, ports, reader.stdin, **options)
        try:
            assert began.wait(DEADLINE_S)
            for _ in range(3):
                _send_heartbeat("port0")
                assert b"heartbeat" in _line_within_deadline(reader.stdout)
            reader.terminate()  # and with it dumpcap, which reads the pipe
            reader.wait()
            _send_heartbeat("port0")
            assert counts.result(DEADLINE_S).written == 4
        finally:
            ended.set()
    os.close(network)


@pytest.mark.root
def test_a_full_pipe_in_non_blocking_mode_ends_a_capture() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    network = os.open("/proc/self/ns/net", os.O_RDONLY)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    ports = [CapturePort("port 0", "lo", network)]
    file = os.fdopen(writing, "wb")

    def send_many() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(50):
                sender.sendto(bytes(4000), ("127.0.0.1", 9))

    assert 0 < capture(ports, file, begun=send_many).written < 100
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        file.close()


@pytest.mark.parametrize("read", [False, True])
def test_a_pipe_without_a_reader_is_noticed(read: bool) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as file:
        assert not _has_no_reader(file)
        if not read:
            os.close(reading)
        assert _has_no_reader(file) is not read
    if read:
        os.close(reading)


def test_a_regular_file_needs_no_reader(tmp_path: Path) -> None:
    with (tmp_path / "lab.pcapng").open("wb") as file:
        assert not _has_no_reader(file)


def test_a_full_disk_is_one_sentence() -> None:
    said = "^/dev/full cannot be written: No space left on device$"
    with pytest.raises(PillarboxError, match=said), _open_for_writing(Path("/dev/full")) as file:
        file.write(bytes(1 << 20))
