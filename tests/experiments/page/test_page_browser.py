"""The page in a real browser: a cable of a live network is cut, healed, saved and seen again."""

from __future__ import annotations

import asyncio
import urllib.request
from functools import partial
from pathlib import Path

import pytest

import topos
from experiments.page import process
from hosts.live.settings import LabSettings
from tests.experiments.page.chromium import CHROMIUM, Browser, browser

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not CHROMIUM, reason="there is no chromium: apt-get install chromium"),
]

SPEC, ENDS = "dcell,4,1", ("0.3", "4.0")


def cable_between(a: str, b: str) -> int:
    topology = topos.parse(SPEC)
    ends = {topology.server(a), topology.server(b)}
    return next(i for i, cable in enumerate(topology.links()) if {cable.a, cable.b} == ends)


async def touch(tab: Browser, cable: str, servers: list[str]) -> None:
    """Cut the cable, see a packet go around it, kill and revive a server, heal the cable."""
    await tab.until("document.getElementById('status').textContent === 'live'")
    await tab.click(f"#{cable} .grip")
    await tab.click(".deeds .cut")
    await tab.until(f"document.querySelector('#{cable}').dataset.failed === 'cut'")
    await tab.until("document.querySelectorAll('.mark').length === 1")
    await tab.until("document.getElementById('events').textContent.includes('notices')")
    await tab.click(f"#{servers[0]} .body")
    await tab.click(f"#{servers[1]} .body", shift=True)
    await tab.key("p")
    await tab.until("document.querySelectorAll('.paths .taken').length > 1")  # the way around
    await tab.click(f"#{servers[1]} .body")
    await tab.click(".deeds .kill")
    await tab.until(f"document.querySelector('#{servers[1]}').dataset.failed === 'dead'")
    await tab.click(".deeds .revive")
    await tab.until(f"document.querySelector('#{servers[1]}').dataset.failed === ''")
    await tab.click(f"#{cable} .grip")
    await tab.key("h")
    await tab.until(f"document.querySelector('#{cable}').dataset.failed === ''")


async def send(tab: Browser) -> None:
    """Start a pattern between all servers, see its load, its ideal and its result."""
    await tab.value("document.getElementById('pattern').value = 'permutation'")
    await tab.click("#start")
    await tab.until("document.querySelectorAll('.lane:not([data-level=none])').length > 9")
    await tab.until("document.getElementById('sent').textContent.includes('ideal')")
    await tab.click("#flows summary")
    await tab.until("document.querySelectorAll('#flows tr').length === 20")
    await tab.click("#finish")
    await tab.until("document.getElementById('events').textContent.includes('20 flows, 0 failed')")


async def replay(tab: Browser, cable: str) -> None:
    """See the cut again, and play on until it is healed."""
    await tab.until("document.getElementById('status').textContent === 'recorded'")
    await tab.click("#play")
    await tab.until(f"document.querySelector('#{cable}').dataset.failed === 'cut'")
    await tab.until(f"document.querySelector('#{cable}').dataset.failed === ''")
    await tab.until("document.getElementById('play').textContent === 'Play'")  # at the end
    cut = (
        "[...document.querySelectorAll('#events li')]"
        ".find((li) => li.textContent.includes('is cut'))"
    )
    await tab.value(f"{cut}.querySelector('button').click()")
    await tab.until("document.getElementById('events').firstChild.textContent.includes('is cut')")


def test_a_cable_is_cut_and_healed_by_hand_and_seen_again(tmp_path: Path) -> None:
    from experiments.control.client import ask
    from experiments.control.service import Service
    from experiments.emulation.lab import running

    cable = f"cable-{cable_between(*ENDS)}"
    servers = [f"node-{topos.parse(SPEC).server(end)}" for end in ENDS]
    saved = tmp_path / "saved.html"
    door = process.opened()

    async def visit() -> None:
        async with browser(tmp_path / "chromium") as tab:
            await tab.look(1280, 800)
            await tab.open(door.url("operate"))
            await touch(tab, cable, servers)
            await send(tab)
            address = door.url("operate").replace("/?", "/save?")
            saved.write_bytes(
                await asyncio.to_thread(lambda: urllib.request.urlopen(address).read())
            )
            await tab.send("Network.emulateNetworkConditions", offline=True, latency=0,
                           downloadThroughput=0, uploadThroughput=0)  # fmt: skip
            await tab.open(saved.as_uri())
            await replay(tab, cable)
            assert tab.complaints == []

    settings = LabSettings(rate_mbit=5.0)
    with running(topos.parse(SPEC), settings, tmp_path / "lab") as lab:
        lab.wait_converged()
        service = Service(lab)
        page = process.Page(door, partial(ask, lab.folder), lab.folder)
        try:
            asyncio.run(visit())
            assert [*lab.faults.active, *lab.dead] == []
        finally:
            page.close()
            service.close()
