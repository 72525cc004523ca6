"""The page's HTTP server: what it serves to which role, and what it refuses.

`access` decides the role of a request, and `admission` which connections there are. Each open page
has a mailbox with room for the newest sample only, so that a slow page does not slow down others.
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

from experiments.page import shells
from experiments.page.access import HEADERS, PRELOAD, Access, refused
from experiments.page.admission import OPERATE, SLOWEST_S, WATCH, Admission
from experiments.page.gate import DEEDS, LOOKS
from experiments.page.link import LabConnection
from experiments.page.page_sheets import LONGEST_FILE, Sheets
from experiments.page.recorder import Recorder
from experiments.page.standalone import CONTENT_TYPES, files, standalone_pieces
from topos.base.errors import PillarboxError, require

VERBS = {
    OPERATE: LOOKS - {"sample", "status"} | DEEDS | shells.DEEDS | {"sheet", "values"},
    WATCH: frozenset(["state", "sheet"]),
}
LONGEST_MESSAGE = 4096
MOST_LETTERS = 512  # events and answers that wait for a page
MOST_ASKED = 16  # by a page, and not answered yet
WHOLE_S = 60.0  # for a peer to take a whole recording
HEARTBEAT_S = 20.0
UPLOAD_S = 30.0  # for a student's file
TEXT, CONTINUATION, FINAL = 0x1, 0x0, 0x80  # first byte of a WebSocket's frame (RFC 6455, 5.2)


@dataclass
class Mailbox:
    """What waits for one page: events and answers in order, and of samples the newest."""

    role: str
    letters: deque[str] = field(default_factory=deque)
    sample: str = ""
    overrun: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, letter: str) -> None:
        """Put in what must not be lost; a page that leaves too much lying has to begin anew."""
        self.overrun = self.overrun or len(self.letters) >= MOST_LETTERS
        self.letters.append(letter)
        self.news.set()

    def put_sample(self, letter: str) -> None:
        """Put in a sample, in the place of one that was not taken."""
        self.sample = letter
        self.news.set()

    def clear(self) -> None:
        """Throw away what has not been taken."""
        self.letters.clear()
        self.sample = ""

    async def next(self) -> str:
        """Wait for the next letter, and take it."""
        while not (self.letters or self.sample):
            self.news.clear()
            await self.news.wait()
        if self.letters:
            return self.letters.popleft()
        letter, self.sample = self.sample, ""
        return letter


class PageServer:
    """Serves a recording, and a lab where there is one."""

    def __init__(
        self, access: Access, admission: Admission, link: LabConnection, recorder: Recorder
    ) -> None:
        self._access, self._admission = access, admission
        self._link, self._recorder = link, recorder
        self._files = files()  # read before this process gives up what it may
        self._sheets = Sheets()
        self._mailboxes: list[Mailbox] = []
        self._shells: dict[int, Mailbox] = {}  # whose they are
        self._numbers = count(1)
        self._ending: set[asyncio.Task[None]] = set()
        link.heard = self._hear_shell
        recorder.tell = self._tell

    def application(self) -> web.Application:
        """Return the application."""

        @web.middleware
        async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
            request["role"] = role = self._access.role(request)
            with self._admission.serving(request, role):
                return await handler(request)

        made = web.Application(client_max_size=LONGEST_FILE, middlewares=[admit])
        made.router.add_get("/{path}/", self._page)
        made.router.add_get("/{path}/live", self._live)
        made.router.add_get("/{path}/save", self._save)
        made.router.add_get("/{path}/recording", self._recorded)
        made.router.add_post("/{path}/grade", self._grade)
        made.router.add_get("/{path}/{file}", self._file)
        return made

    def _tell(self, kind: str, text: str) -> None:
        letter = f'{{"is":"{kind}","{kind}":{text}}}'
        for mailbox in self._mailboxes:
            mailbox.put_sample(letter) if kind == "sample" else mailbox.put(letter)

    # -- pages -------------------------------------------------------------------------------------

    async def _page(self, request: web.Request) -> web.Response:
        page = _response(self._files["page.html"], "page.html")
        page.headers["Link"] = PRELOAD
        self._access.grant(request, page)
        return page

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info["file"]
        if name not in self._files:
            raise web.HTTPNotFound(headers=HEADERS)
        return _response(self._files[name], name)

    async def _recorded(self, request: web.Request) -> web.StreamResponse:
        pieces = self._recorder.recording.pieces()
        return await self._whole(request, pieces, "recording.json")

    async def _save(self, request: web.Request) -> web.StreamResponse:
        name = f"pillarbox-{self._recorder.topology.spec.replace(',', '-')}.html"
        pieces = standalone_pieces(self._recorder.recording.pieces(), self._files)
        return await self._whole(request, pieces, name)

    async def _whole(
        self, request: web.Request, pieces: Iterable[str], name: str
    ) -> web.StreamResponse:
        """Answer with a recording, piece by piece."""
        answer = web.StreamResponse(headers=HEADERS)
        answer.content_type, answer.charset = CONTENT_TYPES[name.rpartition(".")[2]], "utf-8"
        answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'

        async def send() -> None:
            await answer.prepare(request)
            for piece in pieces:
                await answer.write(piece.encode())
            await answer.write_eof()

        await _in_time(request, send(), WHOLE_S)
        return answer

    async def _grade(self, request: web.Request) -> web.Response:
        """Answer with the marks of the file that is sent, or in a sentence why there are none."""
        if request["role"] != OPERATE:
            raise refused("this address only watches")
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

    async def _live(self, request: web.Request) -> web.WebSocketResponse:
        channel = web.WebSocketResponse(
            max_msg_size=LONGEST_MESSAGE, heartbeat=HEARTBEAT_S, compress=False
        )
        mailbox = Mailbox(request["role"])
        with self._admission.page(request) as connection:
            self._mailboxes.append(mailbox)
            sender: asyncio.Task[None] | None = None
            try:
                await channel.prepare(request)
                mailbox.clear()  # the recording has it
                frames = first_message(mailbox.role, self._recorder.recording.pieces())

                async def begin() -> None:
                    for frame in frames:
                        await connection.write(frame)

                if await _in_time(request, begin(), WHOLE_S):
                    sender = asyncio.create_task(self._send(channel, mailbox))
                    await self._receive(channel, mailbox)
            finally:
                self._mailboxes.remove(mailbox)
                self._leave_shells(mailbox)
                if sender:
                    sender.cancel()
        return channel

    async def _send(self, channel: web.WebSocketResponse, mailbox: Mailbox) -> None:
        request, taken = channel._req, True
        assert request is not None
        while taken and not mailbox.overrun:
            taken = await _in_time(request, channel.send_str(await mailbox.next()), SLOWEST_S)
        _cut_off(request)

    async def _receive(self, channel: web.WebSocketResponse, mailbox: Mailbox) -> None:
        under_way: set[asyncio.Task[None]] = set()  # some take as long as flows do
        try:
            async for message in channel:
                if message.type is not WSMsgType.TEXT:
                    return
                if len(under_way) >= MOST_ASKED:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                task = asyncio.create_task(self._answer(mailbox, message.data))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
        finally:
            for task in under_way:
                task.cancel()

    async def _answer(self, mailbox: Mailbox, text: str) -> None:
        number, answer = None, {}
        try:
            number, verb, words = checked(text)
            answer = {"answer": await self._done(mailbox, verb, words)}
        except PillarboxError as error:
            answer = {"error": str(error)}
        mailbox.put(json.dumps({"is": "answer", "id": number, **answer}))

    async def _done(self, mailbox: Mailbox, verb: str, words: list[str]) -> Any:
        require(
            verb in VERBS[mailbox.role],
            f"this page may not {verb}: it only watches"
            if verb in VERBS[OPERATE]
            else f"there is no {verb!r}",
        )
        if verb in ("state", "log"):
            require(len(words) == 1, f"{verb} takes one server")
            return await self._link.ask(ask=verb, server=words[0])
        if verb in shells.DEEDS:
            return await self._shell(mailbox, verb, words)
        if verb in ("sheet", "values"):
            return await self._sheet(mailbox, verb, words)
        answer = await self._link.ask(ask=verb, words=words)
        if verb in ("path", "ping"):
            kind = "paths" if words[2:] else verb
            self._recorder.add_event(kind, time.monotonic(), words[:2], **answer)
        return answer

    async def _sheet(self, mailbox: Mailbox, verb: str, words: list[str]) -> dict[str, Any]:
        """Tell of sheets; with a part, all pages are told that it is what is asked now."""
        sheets = self._sheets
        if verb == "values":
            require(len(words) == 2, "values takes a sheet and a student")
            return {"values": await sheets.values(*words)}
        if not words:
            return {"sheets": sheets.titles()}
        if len(words) == 1:
            return {"sheet": words[0], "text": sheets.text(words[0])}
        require(mailbox.role == OPERATE, "this page may not turn to a part: it only watches")
        title = sheets.part(words[0], words[1])
        self._recorder.add_event("sheet", time.monotonic(), words[:2], title=title)
        return {}

    # -- shells ------------------------------------------------------------------------------------

    async def _shell(self, mailbox: Mailbox, verb: str, words: list[str]) -> dict[str, int]:
        first, *more = words or [""]
        request: dict[str, Any]
        if verb == "shell":
            number, request = next(self._numbers), {"server": first, **_size(more)}
            self._shells[number] = mailbox  # before it prints anything
        else:
            number = int(first) if first.isdecimal() else 0
            require(self._shells.get(number) is mailbox, "this page has no such terminal")
            sizes = _size(more) if verb == "resize" else {}
            request = {"text": "".join(more)} if verb == "type" else sizes
        try:
            await self._link.ask(ask=verb, shell=number, **request)
        except PillarboxError:
            if verb == "shell":
                del self._shells[number]
            raise
        return {"shell": number}

    def _hear_shell(self, message: dict[str, Any]) -> None:
        mailbox = self._shells.get(message["shell"])
        if mailbox:
            mailbox.put(json.dumps({"is": "shell", **message}))
        if "ended" in message:
            self._shells.pop(message["shell"], None)

    def _leave_shells(self, mailbox: Mailbox) -> None:
        """End the shells of a page that has gone."""
        for number in [number for number, whose in self._shells.items() if whose is mailbox]:
            del self._shells[number]
            task = asyncio.create_task(self._hang_up(number))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _hang_up(self, number: int) -> None:
        with suppress(PillarboxError):  # the lab has ended
            await self._link.ask(ask="hang up", shell=number)


def _size(words: list[str]) -> dict[str, int]:
    require(len(words) == 2 and all(map(str.isdecimal, words)), "give rows and columns")
    return {"rows": int(words[0]), "columns": int(words[1])}


def checked(text: str) -> tuple[int, str, list[str]]:
    """Return a page's request, its number first; raise PillarboxError for what is none.

    >>> checked('{"id": 3, "do": "cut", "words": ["0.3-4.0"]}')
    (3, 'cut', ['0.3-4.0'])
    >>> checked('{"id": 3, "do": ["cut"]}')
    Traceback (most recent call last):
    topos.base.errors.PillarboxError: ask with {"id": 1, "do": "cut", "words": ["0.3-4.0"]}
    """
    try:
        asked = json.loads(text)
    except (ValueError, RecursionError):
        asked = None
    given = asked if isinstance(asked, dict) else {}
    number, verb, words = given.get("id"), given.get("do"), given.get("words", [])
    require(
        isinstance(number, int)
        and isinstance(verb, str)
        and isinstance(words, list)
        and all(isinstance(word, str) for word in words),
        'ask with {"id": 1, "do": "cut", "words": ["0.3-4.0"]}',
    )
    return int(number), str(verb), words  # type: ignore[arg-type]


def first_message(role: str, recording: Iterable[str]) -> Iterator[bytes]:
    """Yield a page's first message as a WebSocket's frames, one for each piece of the recording.

    aiohttp sends a message as one frame, which would be held in memory for each slow page.
    """
    yield _frame(TEXT, f'{{"is":"recording","role":"{role}","recording":')
    for piece in recording:
        yield _frame(CONTINUATION, piece)
    yield _frame(CONTINUATION | FINAL, "}")


def _frame(first: int, text: str) -> bytes:
    """Return a frame of a server, which is not masked.

    >>> _frame(TEXT | FINAL, "hello")
    b'\\x81\\x05hello'
    """
    content = text.encode()
    if len(content) < 126:
        return bytes([first, len(content)]) + content
    if len(content) < 1 << 16:
        return bytes([first, 126]) + len(content).to_bytes(2, "big") + content
    return bytes([first, 127]) + len(content).to_bytes(8, "big") + content


async def _in_time(request: web.BaseRequest, sending: Coroutine[Any, Any, None], s: float) -> bool:
    """Tell whether something was taken in time; who does not take it is cut off."""
    try:
        await asyncio.wait_for(sending, s)
    except (TimeoutError, asyncio.TimeoutError, ConnectionError):
        _cut_off(request)
        return False
    return True


def _cut_off(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()  # a farewell would wait behind what it does not take


def _response(text: str, name: str) -> web.Response:
    kind = CONTENT_TYPES[name.rpartition(".")[2]]
    return web.Response(text=text, content_type=kind, charset="utf-8", headers=HEADERS)
