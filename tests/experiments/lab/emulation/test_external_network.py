"""Clients outside and inside of a live BCube, over its gateways (Guo 2009, section 5.3)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.labs import PLANES, wait_until
from tests.experiments.runs.control.test_commands import pillarbox

pytestmark = [pytest.mark.root, pytest.mark.without_root]

GATEWAYS = ["0.0", "3.0"]
PAGE = "pillarbox " * 20_000  # some hundred packets
FETCHES = 16
# Each on a connection of its own, so that both gateways have some of them.
CLIENT = """
import sys, urllib.request
for _ in range(int(sys.argv[2])):
    with urllib.request.urlopen(sys.argv[1], timeout=30) as answer:
        print(len(answer.read()))
"""


@contextmanager
def web_server(host: Any, folder: Path) -> Iterator[None]:
    """Serve a page at a host."""
    (folder / "page").write_text(PAGE)
    command = [sys.executable, "-m", "http.server", "80", "--directory", str(folder)]
    running = host.popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    listening = ["ss", "-Hltn", "sport", "=", ":80"]
    wait_until(lambda: bool(host.popen(listening).communicate()[0]), "no web server")
    yield
    running.kill()
    running.wait()


def fetched(host: Any, ip: str) -> list[str]:
    """Return the sizes of the pages that a client at a host got."""
    command = [sys.executable, "-c", CLIENT, f"http://{ip}/page", str(FETCHES)]
    said, wrong = host.popen(command).communicate(timeout=120)
    assert not wrong, wrong.decode()
    return said.decode().split()


@pytest.mark.parametrize("plane", PLANES)
def test_clients_outside_and_inside_survive_the_loss_of_a_gateway(
    plane: str, tmp_path: Path
) -> None:
    from pillarbox.experiments.lab.emulation import external_network
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.hosts.live.settings import LabSettings

    bcube = topos.parse("bcube,4,1")
    gateways = [bcube.server(name) for name in GATEWAYS]
    inside = bcube.server("1.2")
    whole = [str(len(PAGE))] * FETCHES
    with running(bcube, LabSettings(plane=plane), tmp_path / "lab", gateways=gateways) as lab:
        lab.wait_converged()
        out, server = lab.net[external_network.OUTSIDE], lab.host(inside)
        # No aggregator takes the place of mini-switches: uplinks are cables beside theirs.
        assert len(lab.net.switches) == bcube.switches
        assert len(lab.net.links) == bcube.cables + len(gateways)
        with web_server(out, tmp_path), web_server(server, tmp_path):

            def passed(gateway: int) -> int:
                """Return how many packets a gateway has let out by its uplink."""
                show = ["ip", "-json", "-stats", "link", "show", f"uplink{gateway}"]
                (uplink,) = json.loads(lab.host(gateway).popen(show).communicate()[0])
                count: int = uplink["stats64"]["tx"]["packets"]
                return count

            def fetch() -> None:
                assert fetched(out, bcube.ip(inside)) == whole
                assert fetched(server, external_network.ADDRESS) == whole

            fetch()
            assert all(map(passed, gateways)), "both gateways are used"
            before = passed(gateways[1])
            lab.kill(gateways[0])
            fetch()
            assert passed(gateways[1]) > before
            lab.revive(gateways[0])
            lab.wait_converged()
            before = passed(gateways[0])
            fetch()
            wait_until(
                lambda: (
                    bool(fetched(server, external_network.ADDRESS)) and passed(gateways[0]) > before
                ),
                "unused",
            )


def test_only_routing_that_knows_gateways_has_them(tmp_path: Path) -> None:
    from pillarbox.experiments.lab.emulation.lab import Lab
    from pillarbox.experiments.lab.emulation.local_fabric import LocalFabric
    from pillarbox.hosts.live.settings import LabSettings

    with pytest.raises(PillarboxError, match="dfr of dcell,4,1 has no gateways: use BCube's bsr"):
        Lab(topos.parse("dcell,4,1"), LabSettings(), tmp_path, gateways=[3], fabric=LocalFabric())


def test_programs_run_outside_from_another_terminal() -> None:
    up = pillarbox("up", "bcube,2,1", "--gateway", "1.0", "--plane", "python", "--detach")
    lab = ("--lab", up.stdout.split()[1].rstrip(":"))
    try:
        pinged = pillarbox("exec", *lab, "outside", "ping", "-c", "1", "0.1")
        assert "1 received" in pinged.stdout, pinged
        refused = pillarbox("ping", *lab, "0.0", "outside")
        assert "outside is not a server: run programs there with `exec outside" in refused.stderr
    finally:
        pillarbox("down", *lab)


def test_the_outside_has_a_prompt_and_gateways_stay(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("outside ping -c 1 10.0.0.2\n0.1 ping -c 1 192.0.2.1\nshrink\n")
    done = pillarbox("up", "bcube,2,1", "--quiet", "--gateway", "1.0", "--exec", str(script))
    assert (done.stdout + done.stderr).count("1 received") == 2
    assert "*** 1.0 cannot leave: it is a gateway" in done.stdout
