"""A capture at ports ends with exactly the number of frames that was asked for."""

from __future__ import annotations

import os
import socket
import subprocess
from io import BytesIO

import pytest

from experiments.lab.observe.pcapng import Reader
from experiments.lab.observe.port_capture import CapturePort, capture


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
