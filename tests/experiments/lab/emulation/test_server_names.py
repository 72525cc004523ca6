"""Names of servers, wherever a program or a user writes one; and what none has."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from pillarbox import topos
from tests.experiments.labs import PLANES

LIMIT = struct.pack("ll", 30, 0)  # a guard only: seconds and microseconds


@pytest.mark.root
@pytest.mark.without_root
@pytest.mark.parametrize("plane", PLANES)
def test_an_address_that_no_server_has_is_refused_at_once(plane: str, tmp_path: Path) -> None:
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.hosts.live.settings import LabSettings

    with running(topos.parse("dcell,2,1"), LabSettings(plane=plane), tmp_path / "lab") as lab:
        for address in ("4.0.0.3", "10.0.0.99"):
            with lab.host(0).live_namespace():
                client = socket.socket()
            with client:
                # The kernel waits, not Python: of 200,000 sockets that do not block, and whose
                # answer is there within 0.1 ms, 56 said neither error nor connection.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, LIMIT)
                with pytest.raises(OSError, match="No route to host"):
                    client.connect((address, 80))
