"""What a page's server gives to whom: hostile requests each get what they should."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from pillarbox.experiments.apps.page import page_sheets, process, server
from pillarbox.experiments.apps.page.gate import Gate
from pillarbox.experiments.apps.page.process import Page
from pillarbox.experiments.apps.page.server import MOST_LETTERS, Mailbox
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.apps.page.protocol import SCHEMA, faults_of
from tests.experiments.apps.page.visiting import run_client
from tests.harness.page_client import watching

SPEC, CABLES, SERVERS = "dcell,4,1", 30, 20
NASTY = "<img src=x onerror=alert(1)></script>"
PATIENCE_S = 60.0


def at(address: str, name: str) -> URL:
    """Return the address of something else that a page serves, with the same token."""
    return URL(address).join(URL(name)).with_query(URL(address).query) if name else URL(address)


def no_entrance(server: str) -> Any:
    raise PillarboxError(f"{server} is dead: revive {server}")


class Lab:
    """A lab that is none: it answers what is asked, and notes what it is to do."""

    def __init__(self) -> None:
        self.done: list[tuple[str, list[str]]] = []
        self.samples = 0
        self.faults: list[list[str]] = []
        self.routing = NASTY

    def ask(self, ask: str, **words: Any) -> Any:
        if ask == "status":
            return {"network": SPEC, "routing": self.routing, "plane": "none", "rate_mbit": 100.0}
        if ask == "sample":
            self.samples += 1
            return {
                "at_s": float(self.samples),
                "network": SPEC,
                "sent_bytes": [125_000 * self.samples] + [0] * (2 * CABLES - 1),
                "waiting_bytes": [0, 1514] + [0] * (2 * CABLES - 2),
                "dropped": [0, 0, 7 * self.samples] + [0] * (2 * CABLES - 3),
                "received_bytes": [250_000 * self.samples] + [0] * (SERVERS - 1),
                "faults": self.faults,
                "dead": [],
                "shapes": [],
                "log": [],
                "log_to": 0,
            }
        if ask == "state":
            return {"server": words["server"], "news": []}
        self.done.append((ask, words["words"]))
        if ask == "cut":
            self.faults = [["cut", *words["words"]]]
        return {"said": f"{ask} done"}


@pytest.fixture
def lab() -> Lab:
    return Lab()


@pytest.fixture
def with_page(lab: Lab, tmp_path: Path) -> Any:
    """Return what runs a coroutine with the page's two addresses: to operate, and to watch."""

    def run(visit: Callable[[str, str], Coroutine[Any, Any, None]]) -> None:
        door = process.opened()
        page = Page(door, lab.ask, tmp_path)
        try:
            addresses = door.url("operate"), door.url("watch")
            run_client(visit(*addresses), PATIENCE_S)
        finally:
            page.close()

    return run


def test_it_shows_a_network_and_does_what_is_asked(with_page: Any, lab: Lab) -> None:
    async def visit(operate: str, _watch: str) -> None:
        async with watching(operate) as page:
            assert page.role == "operate"
            assert page.recording["network"] == SPEC
            assert len(page.recording["picture"]["cables"]) == CABLES
            sample = await page.heard("sample")
            assert sample["sent"] == [0, 1000]  # 125 kB in a second
            assert sample["received"] == 2000
            assert (sample["waiting"], sample["dropped"]) == ([1, 1514], [2, 7])
            assert await page.do("cut", "0.3", "4.0") == {"said": "cut done"}
            state = await page.heard("state")
            while not state["faults"]:
                state = await page.heard("state")
            assert state["faults"] == [["cut", "0.3", "4.0"]]

    with_page(visit)
    assert lab.done == [("cut", ["0.3", "4.0"])]


def test_what_is_told_is_as_the_schema_says(with_page: Any) -> None:
    told: list[dict[str, Any]] = []

    async def visit(operate: str, _watch: str) -> None:
        address = at(operate, "live")
        async with aiohttp.ClientSession() as session, session.ws_connect(address) as channel:
            for asked in ({"id": 1, "do": "cut", "words": ["0.3", "4.0"]}, {"id": 2, "do": "?"}):
                assert faults_of(asked, SCHEMA["$defs"]["asked"]) == []
                await channel.send_json(asked)
            await channel.send_json({"id": 3, "do": "sheet", "words": ["4", "1"]})
            await channel.send_str("")
            wanted = {"recording", "sample", "state", "event", "answer"}
            while wanted > {one["is"] for one in told} or sum("id" in one for one in told) < 4:
                told.append(json.loads((await channel.receive()).data))

    with_page(visit)
    assert [fault for one in told for fault in faults_of(one)] == []
    first = told[0]
    assert faults_of({**first, "role": "root"}) != []
    assert faults_of({**first["recording"], "version": 2}, SCHEMA["$defs"]["recording"]) != []
    assert faults_of({"is": "sample", "sample": {"at_s": "1", "sent": [], "received": 0}}) != []


def test_who_watches_changes_nothing(with_page: Any, lab: Lab) -> None:
    async def visit(_operate: str, watch: str) -> None:
        async with watching(watch) as page:
            assert page.role == "watch"
            for verb in sorted(server.VERBS["operate"] - {"state"}):
                with pytest.raises(PillarboxError, match="only watches"):
                    await page.do(verb, "0.3", "4.0")
            assert (await page.do("state", "0.3"))["server"] == "0.3"

    with_page(visit)
    assert lab.done == []


PATHS = ["", "live", "save", "recording", "app.js", "nothing"]
REFUSED = [
    ("no token", {"Token": ""}),
    ("another's token", {"Token": "x" * 32}),
    ("a rebound name", {"Host": "rebound.example:80"}),
    ("no host", {"Host": ""}),
    ("another site's page", {"Origin": "http://evil.example"}),
    ("a page of no site", {"Origin": "null"}),
    ("another port's page", {"Origin": "http://127.0.0.1:1"}),
    ("another site's request", {"Sec-Fetch-Site": "cross-site"}),
]


def test_who_is_refused(with_page: Any, lab: Lab) -> None:
    async def visit(operate: str, _watch: str) -> None:
        async with aiohttp.ClientSession() as session:
            for path, (why, headers) in product(PATHS, REFUSED):
                token = {"token": headers.get("Token", URL(operate).query["token"])}
                where = at(operate, path).with_query(token)
                async with session.get(where, headers=headers) as answer:
                    assert answer.status in (400, 403), (path, why)
                    assert "picture" not in await answer.text(), (path, why)

    with_page(visit)
    assert lab.done == []


def test_who_may_not_have_a_file_graded(with_page: Any) -> None:
    async def visit(operate: str, watch: str) -> None:
        asked = {"sheet": "1", "student": "ada"}
        tokens = [URL(operate).query["token"], URL(watch).query["token"]]
        cases = [
            (403, {"Origin": "http://evil.example"}, tokens[0], b""),
            (403, {}, tokens[1], b""),
        ]
        cases += [(403, headers, headers.get("Token", tokens[0]), b"") for _, headers in REFUSED]
        cases += [(413, {}, tokens[0], b"#" * (1 << 20))]
        async with aiohttp.ClientSession() as session:
            for status, headers, token, file in cases:
                where = at(operate, "grade").with_query({**asked, "token": token})
                async with session.post(where, headers=headers, data=file) as answer:
                    refused = {status, 400} if "Host" in headers else {status}
                    assert answer.status in refused, (headers, token)

    with_page(visit)


WORK = """
import os, socket
def peers(*given):
    print(open("/etc/passwd").read())
    socket.create_connection(("127.0.0.1", 1))
"""


def test_a_file_is_graded_and_can_do_nothing(with_page: Any) -> None:
    async def visit(operate: str, _watch: str) -> None:
        async with watching(operate) as page:
            marks = await page.grade("1", "ada", WORK)
            assert "0 of 100" in marks and "practice" in marks and "root:" not in marks
            for sheet, student, why in (
                ("1", "--live", "student's name"),
                ("../1", "ada", "does not exist: choose one of"),
                ("9", "ada", "no lab '9' to grade"),
            ):
                with pytest.raises(PillarboxError, match=why):
                    await page.grade(sheet, student, WORK)
            assert "network" in (await page.do("values", "1", "ada"))["values"]

    with_page(visit)


def test_where_grade_may_not_be_started_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(page_sheets, "module_command", lambda *_: [str(tmp_path / "nowhere")])

    async def visit() -> None:
        with pytest.raises(PillarboxError, match="make Pillarbox's folder readable"):
            await page_sheets.Sheets().values("1", "ada")

    asyncio.run(visit())


def test_a_part_of_a_sheet_is_asked_on_all_pages(with_page: Any) -> None:
    async def visit(operate: str, watch: str) -> None:
        async with watching(operate) as teacher, watching(watch) as pupil:
            titles = (await pupil.do("sheet"))["sheets"]
            assert list(titles) == [str(number) for number in range(1, 12)]
            assert "## 1." in (await pupil.do("sheet", "4"))["text"]
            for words, why in ((("4", "1"), "only watches"), (("12",), "sheet 12 does not exist")):
                with pytest.raises(PillarboxError, match=why):
                    await pupil.do("sheet", *words)
            with pytest.raises(PillarboxError, match="has parts 0 to 5"):
                await teacher.do("sheet", "4", "6")
            await teacher.do("sheet", "4", "2")
            told = await pupil.heard("event")
            assert (told["kind"], told["what"]) == ("sheet", ["4", "2"])
            assert told["title"].startswith("2. Link state")

    with_page(visit)


def test_what_is_no_request_is_said_so(with_page: Any, lab: Lab) -> None:
    wrong = ["", "[]", "7", '{"id": 1}', '{"id": "1", "do": "cut"}', "[" * 4000]
    wrong += ['{"id": 1, "do": ["cut"]}', '{"id": 1, "do": "cut", "words": [1]}']
    wrong += [json.dumps({"id": 1, "do": verb}) for verb in ("enter", "down", "sample", NASTY)]

    async def visit(operate: str, _watch: str) -> None:
        address = at(operate, "live")
        async with aiohttp.ClientSession() as session, session.ws_connect(address) as channel:
            for text in wrong:
                await channel.send_str(text)
            answers = 0
            while answers < len(wrong):
                told = json.loads((await channel.receive()).data)
                if told["is"] == "answer":
                    assert "error" in told
                    answers += 1

    with_page(visit)
    assert lab.done == []


def test_floods_and_half_open_sockets_hold_nothing_up(with_page: Any, lab: Lab) -> None:
    async def visit(operate: str, _watch: str) -> None:
        where, address = URL(operate), at(operate, "live")
        assert where.host and where.port
        half_open = [socket.create_connection((where.host, where.port)) for _ in range(50)]
        for one in half_open[::2]:
            one.sendall(b"GET / HTTP/1.1\r\nHost: 127")
        async with aiohttp.ClientSession() as session, session.ws_connect(address) as channel:
            with suppress(
                ConnectionError, aiohttp.ClientError
            ):  # the end may come before it is sent
                await channel.send_str("x" * (100 << 20))
            last = await channel.receive()
            while last.type is aiohttp.WSMsgType.TEXT:
                last = await channel.receive()
            assert last.type in (
                aiohttp.WSMsgType.CLOSE,
                aiohttp.WSMsgType.CLOSED,
                aiohttp.WSMsgType.ERROR,
            )
        before = lab.samples
        async with watching(operate) as page:
            await page.heard("sample")
        assert lab.samples > before
        for one in half_open:
            one.close()

    with_page(visit)


def test_whatever_is_said_is_text(with_page: Any) -> None:
    async def visit(operate: str, _watch: str) -> None:
        async with aiohttp.ClientSession() as session:
            async with session.get(operate) as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert "script-src 'self'" in policy and "unsafe" not in policy
                assert NASTY not in await answer.text()
            async with session.get(at(operate, "save")) as saved:
                text = await saved.text()
        assert NASTY not in text
        assert NASTY.replace("<", "\\u003c").replace('"', '\\"') in text

    with_page(visit)


@pytest.mark.root
def test_the_server_has_no_rights(tmp_path: Path) -> None:
    lab, door = Lab(), process.opened()
    page = Page(door, lab.ask, tmp_path)
    try:
        status = Path(f"/proc/{page.number}/status").read_text()
    finally:
        page.close()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert set(fields["Uid"].split()) & {"0"} == set()
    assert set(fields["Gid"].split()) & {"0"} == set()
    assert fields["Groups"].split() == []
    for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(fields[kind], 16) == 0, kind
    assert fields["NoNewPrivs"] == "1"
    assert not (tmp_path / process.ADDRESS).exists()


def test_the_gate_lets_through_what_a_page_may_ask(lab: Lab) -> None:
    near, far = socket.socketpair()
    gate = Gate(near, lab.ask, no_entrance)
    with far, far.makefile("rwb") as lines:
        for asked in (
            {"id": 1, "ask": "enter", "server": "0.0"},
            {"id": 2, "ask": "down"},
            {"id": 3, "ask": "cut", "words": ["0.3", "4.0"], "folder": "/"},
            {"id": 4, "ask": "run", "words": ["all-to-all", "arrivals=/etc/passwd.csv"]},
            {"id": 5, "ask": "run", "words": ["mine.py", "duration_s=1"]},
            {"id": 6, "ask": "kill", "words": ["0.0"]},
        ):
            lines.write(json.dumps(asked).encode() + b"\n")
        lines.write(b"{" * 9000 + b"\n")
        lines.flush()
        answers = [json.loads(lines.readline()) for _ in range(9)]
    gate.close()
    assert [answer["answer"] for answer in answers if "answer" in answer] == [{"said": "kill done"}]
    assert lab.done == [("kill", ["0.0"])]


def test_a_slow_page_gets_the_newest_sample() -> None:
    async def visit() -> None:
        mailbox = Mailbox("watch")
        mailbox.put_sample("old")
        mailbox.put_sample("new")
        mailbox.put("event")
        assert [await mailbox.next(), await mailbox.next()] == ["event", "new"]
        for number in range(MOST_LETTERS):
            mailbox.put(str(number))
        assert not mailbox.overrun
        mailbox.put("one too many")
        assert mailbox.overrun

    asyncio.run(visit())
