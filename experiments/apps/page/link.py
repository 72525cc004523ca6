"""The page server's end of its socket to the lab: asynchronous requests and answers."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from itertools import count
from typing import Any

from pillarbox.topos.base.errors import LabEndedError, PillarboxError

LONGEST_ANSWER = 16 << 20  # maximum length of an answer from the lab, in bytes


class LabConnection:
    """Page server's connection to the lab's gate; several requests may be pending."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = count(1)
        self._pending_answers: dict[int, asyncio.Future[Any]] = {}
        # Callback that receives the output of shells on servers.
        self.heard: Callable[[dict[str, Any]], object] = lambda _: None
        self.ended = asyncio.create_task(self._read_answers())

    @classmethod
    async def over(cls, near: socket.socket) -> LabConnection:
        """Return a connection to the lab over a connected socket."""
        return cls(*await asyncio.open_unix_connection(sock=near, limit=LONGEST_ANSWER))

    async def ask(self, **request: Any) -> Any:
        """Return the lab's answer to a request; raise PillarboxError if it refuses or has ended."""
        if self.ended.done():
            raise LabEndedError("the lab has ended")
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending_answers[number] = answer
        try:
            self._writer.write(json.dumps({"id": number, **request}).encode() + b"\n")
            return await answer
        finally:
            del self._pending_answers[number]

    async def _read_answers(self) -> None:
        try:
            while line := await self._reader.readline():
                message = json.loads(line)
                if "shell" in message:
                    self.heard(message)
                    continue
                answer = self._pending_answers.get(message["id"])
                if answer is None or answer.done():
                    continue
                if "error" in message:
                    answer.set_exception(PillarboxError(message["error"]))
                else:
                    answer.set_result(message["answer"])
        except ConnectionError:
            pass
        finally:
            for answer in self._pending_answers.values():
                if not answer.done():
                    answer.set_exception(LabEndedError("the lab has ended"))
