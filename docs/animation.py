"""Records the README's animation: ``sudo .venv/bin/python docs/animation.py``.

A live BCube of 16 servers carries all-to-all traffic while a cable is cut and repaired. The page's
recording of it is saved, replayed in Chromium at regular moments, and written as docs/demo.webp.
"""

from __future__ import annotations

import asyncio
import base64
import tempfile
import urllib.request
from io import BytesIO
from pathlib import Path

from PIL import Image

from page_lab import page_of
from tests.harness.chromium import Browser, browser
from tests.harness.page_client import watching

FILE = Path(__file__).with_name("demo.webp")
NETWORK, CABLE = "bcube,4,1", "0.0-s0"
RATE_MBIT = 20
TRAFFIC = ("all-to-all", "duration_s=9", "tool=generator")
IDLE_S, CUT_S, HEAL_S, END_S = 1.0, 3.0, 6.0, 3.0  # seconds before each step
FRAME_S, SPEED = 0.2, 1.5
SIZE, SCALE, QUALITY = (1100, 640), 0.7, 45


async def main() -> None:
    """Start a lab with a page, record it, and draw the recording."""
    async with page_of(NETWORK, RATE_MBIT) as url:
        saved = await recorded(url)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Path(folder) / "saved.html"
        page.write_bytes(saved)
        async with browser(Path(folder) / "profile") as tab:
            write(await frames(tab, page.as_uri()))
    print(f"docs/{FILE.name}: {FILE.stat().st_size / 1e6:.1f} MB")


async def recorded(url: str) -> bytes:
    """Send traffic, cut and repair a cable, and return the page as it can be saved."""
    async with watching(url) as page, watching(url) as other:
        await asyncio.sleep(IDLE_S)
        sending = asyncio.create_task(other.do("run", *TRAFFIC))
        await asyncio.sleep(CUT_S)
        await page.do("cut", CABLE)
        await asyncio.sleep(HEAL_S - CUT_S)
        await page.do("heal", CABLE)
        await sending
        await asyncio.sleep(END_S)
        address = url.replace("/?", "/save?")
        return await asyncio.to_thread(lambda: urllib.request.urlopen(address).read())


async def frames(tab: Browser, url: str) -> list[Image.Image]:
    """Return pictures of the recording at regular moments, from the first traffic on."""
    await tab.look(*SIZE, scale=SCALE)
    await tab.open(url)
    moment = "document.getElementById('moment')"
    first, last = [float(await tab.value(f"{moment}.{end}")) for end in ("min", "max")]
    taken = []
    for number in range(int((last - first) / FRAME_S)):
        at = first + number * FRAME_S
        await tab.value(f"{moment}.value = '{at}'; {moment}.dispatchEvent(new Event('input'))")
        shot = await tab.send("Page.captureScreenshot")
        taken.append(Image.open(BytesIO(base64.b64decode(shot["data"]))).convert("RGB"))
    return taken


def write(pictures: list[Image.Image]) -> None:
    """Write the pictures as an animation that repeats."""
    first, *others = pictures
    shown_ms = round(FRAME_S * 1000 / SPEED)
    options = {"duration": shown_ms, "loop": 0, "quality": QUALITY, "method": 6}
    first.save(FILE, save_all=True, append_images=others, **options)


if __name__ == "__main__":
    asyncio.run(main())
