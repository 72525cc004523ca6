"""The process that forwarders are forked from: what it has loaded, and what it tells."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pillarbox.hosts.live.settings import LabSettings

LOADED = "import sys, pillarbox.hosts.live.nursery; print(*sys.modules)"


def test_what_is_forked_does_not_begin_with_what_threads_need() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "pillarbox.hosts.live.forwarder" in loaded
    assert not {"threading", "subprocess", "tempfile"} & set(loaded)


@pytest.mark.root
def test_servers_of_one_message_are_forked_and_each_tells_what_is_wrong(tmp_path: Path) -> None:
    """What the nursery itself ran into when it prepared does not end it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    lifeline, held = os.pipe()
    passed = theirs.fileno(), lifeline
    command = [sys.executable, "-m", "pillarbox.hosts.live.nursery", *map(str, passed)]
    nursery = subprocess.Popen(command, pass_fds=passed)
    settings = LabSettings(routing="dfr", plane="python", options={"nonsense": 1}).plain()
    request = {"network": "dcell,4,1", "settings": settings, "folder": str(tmp_path), "seed": 0}
    request["waits"] = False
    here = os.open("/proc/self/ns/net", os.O_RDONLY)
    theirs.close()
    ours.settimeout(60)
    for servers in ([], [0, 7]):
        message = json.dumps(request | {"servers": servers}).encode()
        socket.send_fds(ours, [message], [here] * len(servers))
    told: list[dict[str, Any]] = []
    while len(told) < 4:
        news = json.loads(ours.recv(1 << 16))
        told += [news] if "server" in news else []
    os.close(here)
    ours.close()
    assert nursery.wait(60) == 0
    os.close(held)
    os.close(lifeline)
    assert {(one["server"], one["event"]) for one in told} == {
        (server, event) for server in (0, 7) for event in ("started", "ended")
    }
    for name in ("h0", "h7"):
        *_, last = (tmp_path / f"{name}.log").read_text().strip().splitlines()
        assert last.startswith("TypeError: ") and "nonsense" in last
