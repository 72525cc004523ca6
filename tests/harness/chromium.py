"""Headless Chromium, driven over the Chrome DevTools Protocol: clicks, keys and screenshots.

Used by tests, the pictures of the guide and `pillarbox bench page`; the page does not need it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium")  # path of Debian's Chromium, None if it is not installed
OPTIONS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
OPTIONS += ["--disable-background-networking", "--remote-debugging-port=0"]
WAIT_S = 60.0  # timeout of every wait for the browser, in seconds


class Browser:
    """A browser tab, driven over the Chrome DevTools Protocol."""

    def __init__(self, channel: aiohttp.ClientWebSocketResponse) -> None:
        self._channel = channel
        self._numbers = count(1)
        # JavaScript exceptions and Content-Security-Policy violations of the page under test.
        self.complaints: list[str] = []

    async def send(self, method: str, **parameters: Any) -> Any:
        """Call a method of the DevTools protocol, and return its result."""
        number = next(self._numbers)
        await self._channel.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = json.loads((await self._channel.receive(WAIT_S)).data)
            if message.get("id") == number:
                assert "error" not in message, message["error"]
                return message["result"]
            if message["method"] == "Runtime.exceptionThrown":
                self.complaints.append(
                    message["params"]["exceptionDetails"]["exception"]["description"]
                )
            elif (
                message["method"] == "Log.entryAdded"
                and message["params"]["entry"]["level"] == "error"
            ):
                self.complaints.append(message["params"]["entry"]["text"])

    async def open(self, url: str) -> None:
        """Open an address in the tab, and wait until the page has drawn the network."""
        for domain in ("Runtime", "Log", "Page", "Network"):
            await self.send(f"{domain}.enable")
        await self.send("Page.navigate", url=url)
        await self.until("document.querySelectorAll('.node').length > 0")

    async def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page; a promise is awaited."""
        how = {"returnByValue": True, "awaitPromise": True}
        found = await self.send("Runtime.evaluate", expression=expression, **how)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until a JavaScript expression is true in the page."""
        deadline = time.monotonic() + WAIT_S
        while not await self.value(f"Boolean({expression})"):
            assert time.monotonic() < deadline, f"timeout: {expression} is false: {self.complaints}"
            await asyncio.sleep(0.05)

    async def click(self, selector: str, *, shift: bool = False) -> None:
        """Click the middle of a page element; of an SVG line, the middle of the line.

        A live page may move a text element away before the click: then the click is repeated.
        """
        await self.until(f"document.querySelector({json.dumps(selector)})")
        deadline = time.monotonic() + WAIT_S
        while not await self._click_once(selector, shift):
            assert time.monotonic() < deadline, f"timeout: {selector} keeps moving"

    async def _click_once(self, selector: str, shift: bool) -> bool:
        """Click a page element once; return False if the click hit another element."""
        x, y = await self.value(
            f"""(() => {{
              const selector = {json.dumps(selector)};
              const found = document.querySelector(selector);
              window.missed = false;
              if (found.getPointAtLength) {{
                const {{ x, y }} = found.getPointAtLength(found.getTotalLength() / 2)
                  .matrixTransform(found.getScreenCTM());
                return [x, y];
              }}
              if (found instanceof HTMLElement) {{
                const look = (event) => {{ window.missed = !event.target.closest(selector); }};
                window.missed = true;
                document.addEventListener("mousedown", look, {{ capture: true, once: true }});
              }}
              found.scrollIntoView({{ block: "center" }});
              const {{ x, y, width, height }} = found.getBoundingClientRect();
              return [x + width / 2, y + height / 2];
            }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.send(
                "Input.dispatchMouseEvent",
                type=kind, x=x, y=y, button="left", clickCount=1, modifiers=8 if shift else 0,
            )  # fmt: skip
        return not await self.value("window.missed")

    async def key(self, key: str) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, **text)

    async def look(self, width: int, height: int, scheme: str = "light", scale: float = 1) -> None:
        """Set the window size in pixels and the preferred color scheme, light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        await self.send("Emulation.setDeviceMetricsOverride", **size)
        wish = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.send("Emulation.setEmulatedMedia", features=wish)

    async def picture(self, file: Path, *, whole: bool = False) -> None:
        """Write a screenshot of the page to a PNG file."""
        shot = await self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))


@asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Browser]:
    """Run a headless Chromium with the given profile folder, and yield its tab."""
    assert CHROMIUM
    words = [CHROMIUM, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
    null = asyncio.subprocess.DEVNULL
    # Folder for the files that a killed Chromium leaves. It is outside the profile, as the path of
    # a Unix socket has to be short.
    temporary_folder = tempfile.TemporaryDirectory(prefix="pillarbox-", ignore_cleanup_errors=True)
    where = os.environ | {"TMPDIR": temporary_folder.name}
    process = await asyncio.create_subprocess_exec(*words, stdout=null, stderr=null, env=where)
    try:
        port_file = profile / "DevToolsActivePort"
        deadline = time.monotonic() + WAIT_S
        while not (port_file.exists() and port_file.read_text().count("\n")):
            assert time.monotonic() < deadline, "timeout: Chromium did not start"
            await asyncio.sleep(0.05)
        port = port_file.read_text().split()[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                [tab] = [one for one in await answer.json() if one["type"] == "page"]
            address = tab["webSocketDebuggerUrl"]
            async with session.ws_connect(address, max_msg_size=0) as channel:
                yield Browser(channel)
    finally:
        process.kill()
        await process.wait()
        temporary_folder.cleanup()
