"""Debian's Chromium, driven over its own protocol: real clicks, keys and pictures, headless.

For tests, the guide's pictures and `pillarbox bench page`; the page itself has no use for it.
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

CHROMIUM = shutil.which("chromium")
OPTIONS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
OPTIONS += ["--disable-background-networking", "--remote-debugging-port=0"]
WAIT_S = 60.0


class Browser:
    """One tab."""

    def __init__(self, channel: aiohttp.ClientWebSocketResponse) -> None:
        self._channel = channel
        self._numbers = count(1)
        self.complaints: list[str] = []  # of the page: exceptions, and what its policy refused

    async def send(self, method: str, **parameters: Any) -> Any:
        """Ask for something of Chromium's protocol, and return the answer."""
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
        """Go to an address, and wait for the network's picture."""
        for domain in ("Runtime", "Log", "Page", "Network"):
            await self.send(f"{domain}.enable")
        await self.send("Page.navigate", url=url)
        await self.until("document.querySelectorAll('.node').length > 0")

    async def value(self, expression: str) -> Any:
        """Return what JavaScript says in the page, or promises."""
        how = {"returnByValue": True, "awaitPromise": True}
        found = await self.send("Runtime.evaluate", expression=expression, **how)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until that is true in the page."""
        deadline = time.monotonic() + WAIT_S
        while not await self.value(f"Boolean({expression})"):
            assert time.monotonic() < deadline, f"{expression} never came true: {self.complaints}"
            await asyncio.sleep(0.05)

    async def click(self, selector: str, *, shift: bool = False) -> None:
        """Press the mouse where the middle of an element is; of a line, the middle of the line.

        A live page may move an element of its text under the mouse: then it is pressed again.
        """
        await self.until(f"document.querySelector({json.dumps(selector)})")
        deadline = time.monotonic() + WAIT_S
        while not await self._press(selector, shift):
            assert time.monotonic() < deadline, f"{selector} does not stand still"

    async def _press(self, selector: str, shift: bool) -> bool:
        """Press the mouse once; tell whether it met the element, as far as that is known."""
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
        """Press a key, and let it go."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, **text)

    async def look(self, width: int, height: int, scheme: str = "light", scale: float = 1) -> None:
        """Set the size of the window, and whether the machine is set to light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        await self.send("Emulation.setDeviceMetricsOverride", **size)
        wish = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.send("Emulation.setEmulatedMedia", features=wish)

    async def picture(self, file: Path, *, whole: bool = False) -> None:
        """Write a picture of the page as PNG."""
        shot = await self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))


@asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Browser]:
    """Run a Chromium with a profile of its own."""
    assert CHROMIUM
    words = [CHROMIUM, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
    null = asyncio.subprocess.DEVNULL
    # What it leaves there when it is killed. Not in the profile: the name of a socket is short.
    beside = tempfile.TemporaryDirectory(prefix="pillarbox-", ignore_cleanup_errors=True)
    where = os.environ | {"TMPDIR": beside.name}
    process = await asyncio.create_subprocess_exec(*words, stdout=null, stderr=null, env=where)
    try:
        port_file = profile / "DevToolsActivePort"
        deadline = time.monotonic() + WAIT_S
        while not (port_file.exists() and port_file.read_text().count("\n")):
            assert time.monotonic() < deadline, "Chromium does not start"
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
        beside.cleanup()
