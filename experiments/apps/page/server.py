"""The page's HTTP and WebSocket server: files, recordings and requests, by role.

`access` determines the role of a request, and `admission` limits the connections. Each open page
has a mailbox that holds only the newest sample, so that a slow page does not slow down the others.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aiohttp import WSMsgType, web
from aiohttp.typedefs import Handler

from pillarbox.experiments.apps.page import shells
from pillarbox.experiments.apps.page.access import HEADERS, PRELOAD, Access, forbidden
from pillarbox.experiments.apps.page.admission import OPERATE, SLOWEST_S, WATCH, Admission
from pillarbox.experiments.apps.page.gate import DEEDS, LOOKS
from pillarbox.experiments.apps.page.link import LabConnection
from pillarbox.experiments.apps.page.page_sheets import LONGEST_FILE, Sheets
from pillarbox.experiments.apps.page.recorder import Recorder
from pillarbox.experiments.apps.page.standalone import CONTENT_TYPES, files, standalone_pieces
from pillarbox.topos.base.errors import NotPermittedError, PillarboxError, require

VERBS = {
    OPERATE: LOOKS - {"sample", "status"} | DEEDS | shells.DEEDS | {"sheet", "values"},
    WATCH: frozenset(["state", "sheet"]),
}
LONGEST_MESSAGE = 4096  # maximum length of a WebSocket message from a page, in bytes
MOST_LETTERS = 512  # maximum number of queued events and answers per page
MOST_ASKED = 16  # maximum number of pending requests per open page
WHOLE_S = 60.0  # timeout to send a whole recording, in seconds
HEARTBEAT_S = 20.0  # WebSocket ping interval in seconds
UPLOAD_S = 30.0  # timeout to receive a student's file, in seconds
TEXT, CONTINUATION, FINAL = 0x1, 0x0, 0x80  # first byte of a WebSocket frame (RFC 6455, 5.2)


@dataclass
class Mailbox:
    """Send queue of one open page: events and answers in order, and the newest sample."""

    role: str
    letters: deque[str] = field(default_factory=deque)
    sample: str = ""
    overrun: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, letter: str) -> None:
        """Queue an event or an answer; a page whose queue overruns is disconnected."""
        self.overrun = self.overrun or len(self.letters) >= MOST_LETTERS
        self.letters.append(letter)
        self.news.set()

    def put_sample(self, letter: str) -> None:
        """Queue a sample for the page; it replaces an unsent sample."""
        self.sample = letter
        self.news.set()

    def clear(self) -> None:
        """Discard all unsent messages of the page."""
        self.letters.clear()
        self.sample = ""

    async def next(self) -> str:
        """Wait for the next message to the page, and remove it from the queue."""
        while not (self.letters or self.sample):
            self.news.clear()
            await self.news.wait()
        if self.letters:
            return self.letters.popleft()
        letter, self.sample = self.sample, ""
        return letter


class PageServer:
    """Serves a lab's recording, and passes the requests of open pages to the lab."""

    def __init__(
        self, access: Access, admission: Admission, link: LabConnection, recorder: Recorder
    ) -> None:
        self._access, self._admission = access, admission
        self._link, self._recorder = link, recorder
        self._files = files()  # the page's HTML and JavaScript, read before rights are dropped
        self._sheets = Sheets()
        self._mailboxes: list[Mailbox] = []
        self._shells: dict[int, Mailbox] = {}  # mailbox of each shell's page, by shell number
        self._numbers = count(1)
        self._hang_up_tasks: set[asyncio.Task[None]] = set()
        link.heard = self._forward_shell_output
        recorder.tell = self._broadcast

    def application(self) -> web.Application:
        """Return the aiohttp application with all routes of the page."""

        @web.middleware
        async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
            request["role"] = role = self._access.role(request)
            with self._admission.serving(request, role):
                return await handler(request)

        made = web.Application(client_max_size=LONGEST_FILE, middlewares=[admit])
        made.router.add_get("/{path}/", self._serve_page)
        made.router.add_get("/{path}/live", self._serve_websocket)
        made.router.add_get("/{path}/save", self._download_page)
        made.router.add_get("/{path}/recording", self._download_recording)
        made.router.add_post("/{path}/grade", self._serve_marks)
        made.router.add_get("/{path}/{file}", self._serve_file)
        return made

    def _broadcast(self, kind: str, text: str) -> None:
        letter = f'{{"is":"{kind}","{kind}":{text}}}'
        for mailbox in self._mailboxes:
            mailbox.put_sample(letter) if kind == "sample" else mailbox.put(letter)

    # -- pages -------------------------------------------------------------------------------------

    async def _serve_page(self, request: web.Request) -> web.Response:
        page = _file_response(self._files["page.html"], "page.html")
        page.headers["Link"] = PRELOAD
        self._access.grant(request, page)
        return page

    async def _serve_file(self, request: web.Request) -> web.Response:
        name = request.match_info["file"]
        if name not in self._files:
            raise web.HTTPNotFound(headers=HEADERS)
        return _file_response(self._files[name], name)

    async def _download_recording(self, request: web.Request) -> web.StreamResponse:
        pieces = self._recorder.recording.pieces()
        return await self._send_recording(request, pieces, "recording.json")

    async def _download_page(self, request: web.Request) -> web.StreamResponse:
        name = f"pillarbox-{self._recorder.topology.spec.replace(',', '-')}.html"
        pieces = standalone_pieces(self._recorder.recording.pieces(), self._files)
        return await self._send_recording(request, pieces, name)

    async def _send_recording(
        self, request: web.Request, pieces: Iterable[str], name: str
    ) -> web.StreamResponse:
        """Send a recording as a download, piece by piece."""
        answer = web.StreamResponse(headers=HEADERS)
        answer.content_type, answer.charset = CONTENT_TYPES[name.rpartition(".")[2]], "utf-8"
        answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'

        async def send() -> None:
            await answer.prepare(request)
            for piece in pieces:
                await answer.write(piece.encode())
            await answer.write_eof()

        await _sent_in_time(request, send(), WHOLE_S)
        return answer

    async def _serve_marks(self, request: web.Request) -> web.Response:
        """Respond to an uploaded student file with its marks, or with the error of grading."""
        if request["role"] != OPERATE:
            raise forbidden("this address is to watch only: use the first printed address")
        try:
            file = await asyncio.wait_for(request.read(), UPLOAD_S)
            sheet, student = (request.query.get(name, "") for name in ("sheet", "student"))
            text, status = await self._sheets.marks(sheet, student, file), 200
        except (TimeoutError, asyncio.TimeoutError):
            raise web.HTTPRequestTimeout(headers=HEADERS) from None
        except PillarboxError as error:
            text, status = str(error), 422
        return web.Response(text=text, status=status, headers=HEADERS)

    # -- live --------------------------------------------------------------------------------------

    async def _serve_websocket(self, request: web.Request) -> web.WebSocketResponse:
        channel = web.WebSocketResponse(
            max_msg_size=LONGEST_MESSAGE, heartbeat=HEARTBEAT_S, compress=False
        )
        mailbox = Mailbox(request["role"])
        with self._admission.page(request) as connection:
            self._mailboxes.append(mailbox)
            sender: asyncio.Task[None] | None = None
            try:
                await channel.prepare(request)
                mailbox.clear()  # the recording already contains the queued messages
                frames = first_message(mailbox.role, self._recorder.recording.pieces())

                async def begin() -> None:
                    for frame in frames:
                        await connection.write(frame)

                if await _sent_in_time(request, begin(), WHOLE_S):
                    sender = asyncio.create_task(self._send_messages(channel, mailbox))
                    await self._receive_requests(channel, mailbox)
            finally:
                self._mailboxes.remove(mailbox)
                self._end_shells(mailbox)
                if sender:
                    sender.cancel()
        return channel

    async def _send_messages(self, channel: web.WebSocketResponse, mailbox: Mailbox) -> None:
        request, taken = channel._req, True
        assert request is not None
        while taken and not mailbox.overrun:
            taken = await _sent_in_time(request, channel.send_str(await mailbox.next()), SLOWEST_S)
        _abort_connection(request)

    async def _receive_requests(self, channel: web.WebSocketResponse, mailbox: Mailbox) -> None:
        pending: set[asyncio.Task[None]] = set()  # a "run" request lasts until its flows end
        try:
            async for message in channel:
                if message.type is not WSMsgType.TEXT:
                    return
                if len(pending) >= MOST_ASKED:
                    await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                task = asyncio.create_task(self._answer_request(mailbox, message.data))
                pending.add(task)
                task.add_done_callback(pending.discard)
        finally:
            for task in pending:
                task.cancel()

    async def _answer_request(self, mailbox: Mailbox, text: str) -> None:
        number, answer = None, {}
        try:
            number, verb, words = checked(text)
            answer = {"answer": await self._execute_request(mailbox, verb, words)}
        except PillarboxError as error:
            answer = {"error": str(error)}
        mailbox.put(json.dumps({"is": "answer", "id": number, **answer}))

    async def _execute_request(self, mailbox: Mailbox, verb: str, words: list[str]) -> Any:
        require(
            verb in VERBS[mailbox.role],
            f"this page may not {verb}: it only watches"
            if verb in VERBS[OPERATE]
            else f"{verb!r} is not a request: docs/page.md lists all requests",
        )
        if verb in ("state", "log"):
            require(len(words) == 1, f"{verb} needs one server: {verb} SERVER")
            return await self._link.ask(ask=verb, server=words[0])
        if verb in shells.DEEDS:
            return await self._shell_request(mailbox, verb, words)
        if verb in ("sheet", "values"):
            return await self._sheet_request(mailbox, verb, words)
        answer = await self._link.ask(ask=verb, words=words)
        if verb in ("path", "ping"):
            kind = "paths" if words[2:] else verb
            self._recorder.add_event(kind, time.monotonic(), words[:2], **answer)
        return answer

    async def _sheet_request(self, mailbox: Mailbox, verb: str, words: list[str]) -> dict[str, Any]:
        """Answer a request for sheets; with a part, show this part as current on all pages."""
        sheets = self._sheets
        if verb == "values":
            require(len(words) == 2, "values needs a sheet and a student: values SHEET STUDENT")
            return {"values": await sheets.values(*words)}
        if not words:
            return {"sheets": sheets.titles()}
        if len(words) == 1:
            return {"sheet": words[0], "text": sheets.text(words[0])}
        require(
            mailbox.role == OPERATE,
            "this page may not select a part: it only watches",
            NotPermittedError,
        )
        title = sheets.part(words[0], words[1])
        self._recorder.add_event("sheet", time.monotonic(), words[:2], title=title)
        return {}

    # -- shells ------------------------------------------------------------------------------------

    async def _shell_request(self, mailbox: Mailbox, verb: str, words: list[str]) -> dict[str, int]:
        first, *more = words or [""]
        request: dict[str, Any]
        if verb == "shell":
            number, request = next(self._numbers), {"server": first, **_terminal_size(more)}
            self._shells[number] = mailbox  # the shell's first output needs the mailbox
        else:
            number = int(first) if first.isdecimal() else 0
            require(self._shells.get(number) is mailbox, "the terminal is closed: open a new one")
            sizes = _terminal_size(more) if verb == "resize" else {}
            request = {"text": "".join(more)} if verb == "type" else sizes
        try:
            await self._link.ask(ask=verb, shell=number, **request)
        except PillarboxError:
            if verb == "shell":
                del self._shells[number]
            raise
        return {"shell": number}

    def _forward_shell_output(self, message: dict[str, Any]) -> None:
        mailbox = self._shells.get(message["shell"])
        if mailbox:
            mailbox.put(json.dumps({"is": "shell", **message}))
        if "ended" in message:
            self._shells.pop(message["shell"], None)

    def _end_shells(self, mailbox: Mailbox) -> None:
        """End the shells of a page that has disconnected."""
        for number in [number for number, whose in self._shells.items() if whose is mailbox]:
            del self._shells[number]
            task = asyncio.create_task(self._hang_up(number))
            self._hang_up_tasks.add(task)
            task.add_done_callback(self._hang_up_tasks.discard)

    async def _hang_up(self, number: int) -> None:
        with suppress(PillarboxError):  # the lab may have been closed
            await self._link.ask(ask="hang up", shell=number)


def _terminal_size(words: list[str]) -> dict[str, int]:
    require(
        len(words) == 2 and all(map(str.isdecimal, words)),
        "the terminal's size is not valid: give rows and columns",
    )
    return {"rows": int(words[0]), "columns": int(words[1])}


def checked(text: str) -> tuple[int, str, list[str]]:
    """Return the number, verb and words of a page's request; raise PillarboxError if malformed.

    >>> checked('{"id": 3, "do": "cut", "words": ["0.3-4.0"]}')
    (3, 'cut', ['0.3-4.0'])
    >>> checked('{"id": 3, "do": ["cut"]}')
    Traceback (most recent call last):
    pillarbox...PillarboxError: malformed request: send {"id": 1, "do": "cut", "words": [...]}
    """
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    fields = parsed if isinstance(parsed, dict) else {}
    number, verb, words = fields.get("id"), fields.get("do"), fields.get("words", [])
    require(
        isinstance(number, int)
        and isinstance(verb, str)
        and isinstance(words, list)
        and all(isinstance(word, str) for word in words),
        'malformed request: send {"id": 1, "do": "cut", "words": [...]}',
    )
    return int(number), str(verb), words  # type: ignore[arg-type]


def first_message(role: str, recording: Iterable[str]) -> Iterator[bytes]:
    """Yield a page's first message as WebSocket frames, one for each piece of the recording.

    aiohttp would send the message as one frame, and hold this frame in memory for each slow page.
    """
    yield _websocket_frame(TEXT, f'{{"is":"recording","role":"{role}","recording":')
    for piece in recording:
        yield _websocket_frame(CONTINUATION, piece)
    yield _websocket_frame(CONTINUATION | FINAL, "}")


def _websocket_frame(first: int, text: str) -> bytes:
    """Return an unmasked WebSocket frame, as servers send it.

    >>> _websocket_frame(TEXT | FINAL, "hello")
    b'\\x81\\x05hello'
    """
    content = text.encode()
    if len(content) < 126:
        return bytes([first, len(content)]) + content
    if len(content) < 1 << 16:
        return bytes([first, 126]) + len(content).to_bytes(2, "big") + content
    return bytes([first, 127]) + len(content).to_bytes(8, "big") + content


async def _sent_in_time(
    request: web.BaseRequest, send_operation: Coroutine[Any, Any, None], s: float
) -> bool:
    """Return True if data was sent before the timeout; abort the connection otherwise."""
    try:
        await asyncio.wait_for(send_operation, s)
    except (TimeoutError, asyncio.TimeoutError, ConnectionError):
        _abort_connection(request)
        return False
    return True


def _abort_connection(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()  # a WebSocket close would wait for the client to read


def _file_response(text: str, name: str) -> web.Response:
    kind = CONTENT_TYPES[name.rpartition(".")[2]]
    return web.Response(text=text, content_type=kind, charset="utf-8", headers=HEADERS)
