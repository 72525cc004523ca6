"""The page's end of its one socket: questions to the lab, and their answers as they come."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from itertools import count
from typing import Any

from topos.base.errors import PillarboxError

LONGEST_ANSWER = 16 << 20


class LabConnection:
    """Asks a lab through its `gate`; several questions may be under way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.heard: Callable[[dict[str, Any]], object] = lambda _: None  # what shells print
        self.ended = asyncio.create_task(self._read())

    @classmethod
    async def over(cls, near: socket.socket) -> LabConnection:
        """Return the link over a connected socket."""
        return cls(*await asyncio.open_unix_connection(sock=near, limit=LONGEST_ANSWER))

    async def ask(self, **request: Any) -> Any:
        """Return the lab's answer; raise PillarboxError where it refuses or is gone."""
        if self.ended.done():
            raise PillarboxError("the lab has ended")
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._writer.write(json.dumps({"id": number, **request}).encode() + b"\n")
            return await answer
        finally:
            del self._waiting[number]

    async def _read(self) -> None:
        try:
            while line := await self._reader.readline():
                message = json.loads(line)
                if "shell" in message:
                    self.heard(message)
                    continue
                answer = self._waiting.get(message["id"])
                if answer is None or answer.done():
                    continue
                if "error" in message:
                    answer.set_exception(PillarboxError(message["error"]))
                else:
                    answer.set_result(message["answer"])
        except ConnectionError:
            pass
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(PillarboxError("the lab has ended"))
