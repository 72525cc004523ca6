"""Takes the guide's pictures of the live page: ``sudo .venv/bin/python docs/page_pictures.py``.

Of each of six networks: at rest, under load, and with a cable cut and a server dead under load;
one of a packet's path, and one of a lab sheet. It takes Chromium, and some two minutes; names of
networks choose some of them.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import tempfile
from pathlib import Path

from page_lab import page_of
from tests.harness.chromium import Browser, browser

NETWORKS = ("dpillar,4,2", "dcell,4,1", "bcube,4,1", "ficonn,4,1", "tree,4,2", "fattree,4")
SHEET, SHEETS_NETWORK, STUDENT = "4", "dcell,2,2", "ada"  # whose values are of that network
RATE_MBIT = 5
SIZE = 1100, 700
SCALE, QUALITY = 0.65, 55


async def main(networks: list[str]) -> None:
    """Take them all."""
    for network in networks:
        async with page_of(network, RATE_MBIT) as url:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
                async with browser(Path(profile)) as tab:
                    await tab.look(*SIZE, scale=SCALE)
                    await tab.open(url)
                    folder = Path(__file__).parent / "page"
                    if network == SHEETS_NETWORK:
                        await sheet(tab, folder)
                    else:
                        await pictures(tab, folder / network.split(",")[0])
                    assert tab.complaints == []
        print(network)


async def pictures(tab: Browser, name: Path) -> None:
    """Take the three of one network."""
    name.parent.mkdir(exist_ok=True)
    await tab.until("document.getElementById('status').textContent === 'live'")
    await later(tab, 1)
    await shot(tab, f"{name}-rest")
    await tab.value("document.getElementById('pattern').value = 'all-to-all'")
    await tab.click("#start")
    await tab.until("document.getElementById('sent').textContent.includes('ideal')")
    await later(tab, 3)
    await shot(tab, f"{name}-load")
    await tab.click(".cable:last-of-type .grip")
    await tab.key("c")
    await tab.until("document.querySelector('.cable[data-failed=cut]')")
    await tab.click("#node-1 .body")
    await tab.key("k")
    await tab.until("document.querySelector('.node[data-failed=dead]')")
    await later(tab, 4)
    await shot(tab, f"{name}-failure")
    if name.name == "dcell":
        await tab.click("#node-3 .body")
        await tab.click("#node-19 .body", shift=True)
        await tab.key("p")
        await tab.until("document.querySelector('.paths .taken')")
        await tab.look(*SIZE)
        await later(tab, 1)
        await tab.value("document.activeElement.blur()")
        await tab.picture(name.parents[1] / "page.png")


async def sheet(tab: Browser, folder: Path) -> None:
    """Take the picture of a sheet, with what is a student's own selected."""
    await tab.click("#sheets")
    for field, value in (("sheet-number", SHEET), ("part", "1")):
        found = f"document.getElementById('{field}')"
        await tab.until(f"[...{found}.options].some((one) => one.value === '{value}')")
        await tab.value(f"{found}.value = '{value}'; {found}.dispatchEvent(new Event('change'))")
    await tab.until("document.getElementById('events').textContent.includes('1. See it')")
    await tab.value(f"document.getElementById('student').value = '{STUDENT}'")
    await tab.click("#values")
    await tab.until("document.querySelectorAll('#marks button').length === 3")
    await tab.click("#marks button:last-of-type")  # the link that fails
    await shot(tab, f"{folder}/sheet")


async def later(tab: Browser, seconds: float) -> None:
    """Wait until the recording is so much longer."""
    clock = "parseFloat(document.getElementById('clock').textContent)"
    await tab.until(f"{clock} > {await tab.value(clock) + seconds}")


async def shot(tab: Browser, name: str) -> None:
    """Write a picture."""
    await tab.value("document.activeElement.blur()")
    options = {"format": "webp", "quality": QUALITY}
    taken = await tab.send("Page.captureScreenshot", **options)
    Path(f"{name}.webp").write_bytes(base64.b64decode(taken["data"]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or [*NETWORKS, SHEETS_NETWORK]))
