"""Connections that ask for nothing, for too much, or read nothing, do not lock the operator out."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pillarbox.experiments.apps.page import admission, bounded_log
from pillarbox.experiments.apps.page.admission import MOST_CONNECTIONS, MOST_PAGES, Admission
from pillarbox.experiments.apps.page.process import Page, PageSocket
from pillarbox.experiments.apps.page.server import first_message
from pillarbox.experiments.runs.control.visitor import MOST_OPEN_FILES
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.apps.page.test_page_server import Lab
from tests.experiments.apps.page.visiting import run_client
from tests.harness.page_client import watching
from tests.security.pages import (
    DEADLINE_S,
    MOST_SAMPLES,
    SENTENCE,
    attacked,
    connected,
    flood,
    request_for,
    sentences,
)

LITTLE = 4096  # bytes of a receive buffer
UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


class Eventful(Lab):
    """A lab whose recording is large."""

    def ask(self, ask: str, **words: Any) -> Any:
        told = super().ask(ask, **words)
        if ask == "sample" and self.samples == 1:
            event = {"at_s": time.monotonic(), "wall_s": 0.0, "event": "note", "what": ["x" * 4000]}
            told["log"] = [json.dumps(event)] * 2000
        return told


@pytest.fixture
def complaints(capfd: pytest.CaptureFixture[str]) -> Callable[[], str]:
    return lambda: capfd.readouterr().err


async def enters(door: PageSocket, lab: Lab) -> None:
    """Open an operator's page, while the page's server takes few samples of its lab."""
    before = lab.samples
    async with watching(door.url("operate")) as page:
        assert page.role == "operate"
        assert lab.samples - before < MOST_SAMPLES
        await page.heard("sample")


@pytest.mark.parametrize("request_", ["", "GET / HTTP/1.1\r\nHost: 127"])
def test_600_strangers_that_ask_for_nothing(
    request_: str, tmp_path: Path, complaints: Callable[[], str]
) -> None:
    lab = Lab()

    async def attack(door: PageSocket, page: Page) -> None:
        with flood(door, 600, request_):
            await enters(door, lab)
            async with watching(door.url("operate")) as operator:
                said = await sentences(operator, complaints)
        [sentence] = said
        assert sentence.startswith(f"{SENTENCE}connections without a token were closed")

    attacked(attack, tmp_path, lab)
    assert complaints() == ""


def test_requests_that_are_nonsense(tmp_path: Path, complaints: Callable[[], str]) -> None:
    lab = Lab()

    async def attack(door: PageSocket, page: Page) -> None:
        path = door.paths["operate"]
        for request in (
            b"\0" * 100,
            b"\x16\x03\x01\x02\x00\x01\x00" * 50,
            b"GET " + b"/" * 20000 + b" HTTP/1.1\r\n\r\n",
            b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            f"GET /{path}/?token=%ED%A0%80%00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode(),
            f"GET /{path}/ HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: ".encode()
            + b"pillarbox=\xff\xfe; \x01=\x1b[31m\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: [::1\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
            b"GET / HTTP/1.1\r\nHost: \xe2\x80\xae\r\nContent-Length: -1\r\n\r\n",
        ):
            with connected(door) as one:
                one.sendall(request)
                one.shutdown(socket.SHUT_WR)
                answer = b""
                with suppress(ConnectionResetError):
                    while more := await asyncio.to_thread(one.recv, 4096):
                        answer += more
                assert answer.partition(b"\r\n")[0][9:12] in (b"400", b"403", b""), request
        await enters(door, lab)

    attacked(attack, tmp_path, lab)
    assert "Traceback" not in (said := complaints()) and len(said.splitlines()) <= 1, said


def test_watchers_take_no_place_of_an_operator(tmp_path: Path) -> None:
    lab = Lab()

    async def attack(door: PageSocket, page: Page) -> None:
        async with AsyncExitStack() as stack:
            for _ in range(MOST_PAGES["watch"]):
                await stack.enter_async_context(watching(door.url("watch")))
            with pytest.raises(PillarboxError, match="503"):
                await stack.enter_async_context(watching(door.url("watch")))
            with flood(door, 200, request_for(door, "watch", "app.js")):
                await enters(door, lab)
        assert sum(MOST_CONNECTIONS.values()) < MOST_OPEN_FILES - 64

    attacked(attack, tmp_path, lab)


def test_a_class_behind_one_address_watches_beside_strangers(tmp_path: Path) -> None:
    async def attack(door: PageSocket, page: Page) -> None:
        async with AsyncExitStack() as stack:
            with flood(door, 300):
                for _ in range(60):
                    pupil = await stack.enter_async_context(watching(door.url("watch")))
                    assert pupil.role == "watch"
            await pupil.heard("sample")

    attacked(attack, tmp_path)


@pytest.mark.parametrize(("name", "headers"), [("recording", ""), ("save", ""), ("live", UPGRADE)])
def test_slow_readers_of_recordings(
    name: str, headers: str, tmp_path: Path, complaints: Callable[[], str]
) -> None:
    lab = Eventful()

    async def attack(door: PageSocket, page: Page) -> None:
        events = 0
        while events < 1000:
            async with watching(door.url("operate")) as first:
                events = len(first.recording["events"])
        with flood(door, 16, request_for(door, "watch", name, headers), LITTLE):
            await enters(door, lab)
            async with watching(door.url("watch")) as pupil:  # nor are others held up
                assert len(pupil.recording["events"]) > 1000
            status = Path(f"/proc/{page.number}/status").read_text()
        most_kb = int(status.partition("VmHWM:")[2].split()[0])
        assert most_kb < 256 << 10

    attacked(attack, tmp_path, lab)
    assert complaints() == ""


# -- in this process -------------------------------------------------------------------------------


@contextmanager
def served(
    handler: Callable[[web.Request, Admission], Any], kind: type[socket.socket] = socket.socket
) -> Iterator[int]:
    """Serve with an `Admission` in this event loop; yield the port."""
    listening = kind(fileno=socket.create_server(("127.0.0.1", 0)).detach())
    admitting = Admission(listening)
    loop = asyncio.get_running_loop()

    async def handle(asked: web.BaseRequest) -> web.StreamResponse:
        answer: web.StreamResponse = await handler(asked, admitting)  # type: ignore[arg-type]
        return answer

    admitting.begin(web.Server(handle, access_log=None))
    try:
        yield listening.getsockname()[1]
    finally:
        loop.remove_reader(listening)
        listening.close()
        for one in list(admitting.connections.values()):
            one.close()


def request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def asking(port: int, text: bytes, address: str = "127.0.0.1") -> socket.socket:
    """Return a connection from an address of the loopback that has sent a request."""
    made = socket.create_connection(("127.0.0.1", port), source_address=(address, 0))
    made.sendall(text)
    made.setblocking(False)
    return made


async def received(connection: socket.socket) -> bytes:
    """Return what comes next; nothing where the connection has ended."""
    try:
        return await asyncio.get_running_loop().sock_recv(connection, 1 << 18)
    except ConnectionResetError:
        return b""


def test_addresses_share_the_places_of_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "source_of", lambda address: address)
    monkeypatch.setitem(admission.MOST_PAGES, "watch", 4)

    async def watch(asked: web.Request, admitting: Admission) -> web.StreamResponse:
        answer = web.StreamResponse()
        with admitting.serving(asked, "watch"), admitting.page(asked):
            await answer.prepare(asked)
            await asyncio.Event().wait()
        return answer

    async def visit() -> None:
        with served(watch) as port, ExitStack() as stack:

            async def status_of(address: str) -> tuple[bytes, socket.socket]:
                one = stack.enter_context(asking(port, request("/"), address))
                return (await received(one)).split()[1], one

            crowd = [await status_of("127.0.0.2") for _ in range(4)]
            assert {status for status, _ in crowd} == {b"200"}
            assert (await status_of("127.0.0.2"))[0] == b"503"
            for _ in range(2):
                assert (await status_of("127.0.0.3"))[0] == b"200"
            assert (await status_of("127.0.0.3"))[0] == b"503"
            for _, one in crowd[2:]:  # the newest two of four have made room
                assert await received(one) == b""
            for _, one in crowd[:2]:
                with pytest.raises(BlockingIOError):
                    one.recv(1)

    run_client(visit(), DEADLINE_S)


def test_who_takes_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "SLOWEST_S", 1.0)
    ended: list[str] = []

    async def stream(asked: web.Request, admitting: Admission) -> web.StreamResponse:
        answer = web.StreamResponse()
        with admitting.serving(asked, "watch") as connection:
            await answer.prepare(asked)
            try:
                while True:
                    await connection.write(b"x" * (1 << 20))
            except ConnectionError:
                ended.append(asked.path)
                raise

    async def visit() -> None:
        requests = [
            f"GET /{name} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for name in ("slow", "steady")
        ]
        with served(stream) as port, asking(port, requests[0]), asking(port, requests[1]) as steady:
            while not ended:
                assert await received(steady)
            assert ended == ["/slow"]

    run_client(visit(), DEADLINE_S)


class WithoutDescriptors(socket.socket):
    """A listening socket in a process that has no descriptors left, for a while."""

    failures = 3

    def accept(self) -> Any:
        self.failures -= 1
        if self.failures >= 0:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_where_there_are_no_descriptors_left_connections_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(admission, "PAUSE_S", 0.01)

    async def answer(asked: web.Request, admitting: Admission) -> web.StreamResponse:
        return web.Response(text="here")

    async def visit() -> None:
        with served(answer, WithoutDescriptors) as port, asking(port, request("/")) as one:
            assert b"here" in await received(one)

    run_client(visit(), DEADLINE_S)
    assert [one.message for one in caplog.records] == 3 * [
        "no connection could be accepted: Too many open files"
    ]


def test_who_shows_no_token_in_time_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "FIRST_REQUEST_S", 0.2)

    async def nothing(asked: web.Request, admitting: Admission) -> web.StreamResponse:
        return web.Response(status=403)

    async def visit() -> None:
        with served(nothing) as port:
            for begun in (b"", request("/")[:20], request("/")):
                with asking(port, begun) as one:
                    while await received(one):
                        pass

    run_client(visit(), DEADLINE_S)


def test_the_log_is_a_sentence_a_minute_and_has_no_foreign_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = 0.0

    async def visit() -> None:
        nonlocal now_s
        loop = asyncio.get_running_loop()
        timers: list[Any] = []

        def call_at(due_s: float, call: Any) -> str:
            timers.append((due_s, call))
            return "a timer"

        monkeypatch.setattr(loop, "time", lambda: now_s)
        monkeypatch.setattr(loop, "call_at", call_at)
        log = bounded_log.BoundedLog(loop)
        for number in range(1000):
            try:
                raise KeyError(f"\x1b[31m{number}")
            except KeyError as error:
                found = (KeyError, error, error.__traceback__)
                record = bounded_log.LOG.makeRecord("x", 40, "f", 1, "it broke", (), found, "visit")
                log.handle(record)
        [(due_s, write)] = timers
        now_s = due_s
        write()
        said = capsys.readouterr().err
        assert said.startswith("pillarbox: page: it broke: KeyError at test_page_connections.py:")
        assert said.endswith("(1000 times)\n")
        for number in range(100):
            log.handle(bounded_log.LOG.makeRecord("x", 40, "f", 1, f"kind {number}", (), None))
        [_, (due_s, write)] = timers
        assert due_s == now_s + bounded_log.PERIOD_S
        write()
        assert capsys.readouterr().err.count("\n") == 1

    asyncio.run(visit())


def test_the_first_message_is_whole() -> None:
    pieces = ["é" * 40, "x" * 126, "y" * (1 << 16), ""]
    data = b"".join(first_message("watch", pieces))
    text, kinds = b"", []
    while data:
        kinds.append(data[0])
        length, begin = data[1], 2
        if length >= 126:
            begin = 4 if length == 126 else 10
            length = int.from_bytes(data[2:begin], "big")
        text, data = text + data[begin : begin + length], data[begin + length :]
    assert kinds == [0x01, *[0x00] * len(pieces), 0x80]
    begun = '{"is":"recording","role":"watch","recording":'
    assert text.decode() == begun + "".join(pieces) + "}"
