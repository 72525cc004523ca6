"""The page's protocol from Python, for tests and notebooks: docs/page.md has its messages.

>>> async with watching("http://127.0.0.1:8080/operate-.../?token=...") as page:  # doctest: +SKIP
...     await page.do("cut", "0.3-4.0")
...     async for message in page:
...         print(message)
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import aiohttp
from yarl import URL

from experiments.page.recording import VERSION
from topos.base.errors import PillarboxError, require


class Client:
    """One page's connection; `recording` is what was there when it was opened."""

    def __init__(
        self,
        channel: aiohttp.ClientWebSocketResponse,
        session: aiohttp.ClientSession,
        where: URL,
        trusted: aiohttp.Fingerprint | bool,
    ) -> None:
        self._channel, self._session, self._where = channel, session, where
        self._trusted = trusted
        self._numbers = count(1)
        self._heard: deque[dict[str, Any]] = deque()
        self.role = ""
        self.recording: dict[str, Any] = {}

    async def begin(self) -> None:
        """Take the first message."""
        first = await self._next()
        self.role, self.recording = first["role"], first["recording"]
        version = self.recording["version"]
        require(version == VERSION, f"the page speaks version {version}, and this is {VERSION}")

    async def do(self, verb: str, *words: str) -> Any:
        """Ask for something, and return the answer; raise PillarboxError where it is refused."""
        number = next(self._numbers)
        await self._channel.send_str(json.dumps({"id": number, "do": verb, "words": words}))
        while True:
            message = await self._next()
            if message["is"] != "answer" or message["id"] != number:
                self._heard.append(message)
            elif "error" in message:
                raise PillarboxError(message["error"])
            else:
                return message["answer"]

    async def grade(self, sheet: str, student: str, source: str) -> str:
        """Return the marks of a student's file; raise PillarboxError where there are none."""
        asked = {**self._where.query, "sheet": sheet, "student": student}
        address = self._where.join(URL("grade")).with_query(asked)
        file = source.encode()
        async with self._session.post(address, data=file, ssl=self._trusted) as answer:
            text = await answer.text()
            if answer.status != 200:
                raise PillarboxError(text.strip())
            return text

    async def heard(self, kind: str) -> dict[str, Any]:
        """Return the next message of a kind: ``sample``, ``event``, ``state`` or ``recording``."""
        async for message in self:
            if message["is"] == kind:
                found: dict[str, Any] = message[kind]
                return found
        raise PillarboxError("the page has ended")

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what the page tells."""
        while True:
            yield self._heard.popleft() if self._heard else await self._next()

    async def _next(self) -> dict[str, Any]:
        message = await self._channel.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise PillarboxError("the page has ended")
        content: dict[str, Any] = json.loads(message.data)
        return content


@asynccontextmanager
async def watching(url: str, fingerprint: str = "") -> AsyncIterator[Client]:
    """Open a page by the address that Pillarbox printed.

    Parameters
    ----------
    url : str
        The address.
    fingerprint : str
        The SHA-256 of the page's certificate, as printed. Without it a self-signed one is refused.
    """
    where = URL(url)
    scheme = "wss" if where.scheme == "https" else "ws"
    live = where.join(URL("live")).with_scheme(scheme).with_query(where.query)
    try:
        octets = bytes.fromhex(fingerprint.replace(":", ""))
        trusted = aiohttp.Fingerprint(octets) if fingerprint else True
    except ValueError as error:
        raise PillarboxError(f"{fingerprint!r} is no SHA-256 fingerprint: {error}") from None
    async with aiohttp.ClientSession() as session:
        try:
            channel = await session.ws_connect(
                live, max_msg_size=0, timeout=aiohttp.ClientWSTimeout(), ssl=trusted
            )
        except (aiohttp.ClientError, aiohttp.ServerFingerprintMismatch) as error:
            raise PillarboxError(f"{where.origin()} does not let in: {error}") from error
        async with channel:
            page = Client(channel, session, where, trusted)
            await page.begin()
            yield page
