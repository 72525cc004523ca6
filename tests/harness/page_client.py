"""A Python client of the live page, for tests and notebooks. docs/page.md lists the messages.

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

from pillarbox.experiments.apps.page.recording import VERSION
from pillarbox.topos.base.errors import LabEndedError, PillarboxError, require


class Client:
    """A client's connection to a live page; `recording` is the state when it was opened."""

    def __init__(
        self,
        channel: aiohttp.ClientWebSocketResponse,
        session: aiohttp.ClientSession,
        address_url: URL,
        trusted: aiohttp.Fingerprint | bool,
    ) -> None:
        self._channel, self._session, self._address = channel, session, address_url
        self._trusted = trusted
        self._numbers = count(1)
        self._received: deque[dict[str, Any]] = deque()
        self.role = ""
        self.recording: dict[str, Any] = {}

    async def begin(self) -> None:
        """Receive the first message: the client's role and the recording."""
        first = await self._next_message()
        self.role, self.recording = first["role"], first["recording"]
        version = self.recording["version"]
        require(
            version == VERSION,
            f"the page's protocol has version {version}, this client {VERSION}: "
            "use the same Pillarbox on both sides",
        )

    async def do(self, verb: str, *words: str) -> Any:
        """Send a request, and return the answer; raise PillarboxError if it is refused."""
        number = next(self._numbers)
        await self._channel.send_str(json.dumps({"id": number, "do": verb, "words": words}))
        while True:
            message = await self._next_message()
            if message["is"] != "answer" or message["id"] != number:
                self._received.append(message)
            elif "error" in message:
                raise PillarboxError(message["error"])
            else:
                return message["answer"]

    async def grade(self, sheet: str, student: str, source: str) -> str:
        """Return the marks of a student's file; raise PillarboxError if grading fails."""
        asked = {**self._address.query, "sheet": sheet, "student": student}
        address = self._address.join(URL("grade")).with_query(asked)
        file = source.encode()
        async with self._session.post(address, data=file, ssl=self._trusted) as answer:
            text = await answer.text()
            if answer.status != 200:
                raise PillarboxError(text.strip())
            return text

    async def heard(self, kind: str) -> dict[str, Any]:
        """Return the content of the page's next message of a kind.

        The kinds are ``sample``, ``event``, ``state`` and ``recording``.
        """
        async for message in self:
            if message["is"] == kind:
                found: dict[str, Any] = message[kind]
                return found
        raise LabEndedError("the page has ended")

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the page's messages."""
        while True:
            yield self._received.popleft() if self._received else await self._next_message()

    async def _next_message(self) -> dict[str, Any]:
        message = await self._channel.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise LabEndedError("the page has ended")
        content: dict[str, Any] = json.loads(message.data)
        return content


@asynccontextmanager
async def watching(url: str, fingerprint: str = "") -> AsyncIterator[Client]:
    """Connect to a live page, and yield the `Client`.

    Parameters
    ----------
    url : str
        Address of the page, as Pillarbox printed it.
    fingerprint : str
        SHA-256 fingerprint of the page's certificate, as Pillarbox printed it. Without a
        fingerprint, self-signed certificates are refused.
    """
    address_url = URL(url)
    scheme = "wss" if address_url.scheme == "https" else "ws"
    live = address_url.join(URL("live")).with_scheme(scheme).with_query(address_url.query)
    try:
        octets = bytes.fromhex(fingerprint.replace(":", ""))
        trusted = aiohttp.Fingerprint(octets) if fingerprint else True
    except ValueError as error:
        raise PillarboxError(f"{fingerprint!r} is not a SHA-256 fingerprint: {error}") from None
    async with aiohttp.ClientSession() as session:
        try:
            channel = await session.ws_connect(
                live, max_msg_size=0, timeout=aiohttp.ClientWSTimeout(), ssl=trusted
            )
        except (aiohttp.ClientError, aiohttp.ServerFingerprintMismatch) as error:
            raise PillarboxError(
                f"{address_url.origin()} refuses the connection: {error}"
            ) from error
        async with channel:
            page = Client(channel, session, address_url, trusted)
            await page.begin()
            yield page
