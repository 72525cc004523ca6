"""Tokens, cookies, foreign names and foreign sites: who gets at a page, and who does not."""

from __future__ import annotations

from http.cookies import SimpleCookie
from itertools import product
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from pillarbox.experiments.apps.page.access import COOKIE
from pillarbox.experiments.apps.page.process import Page, PageSocket
from tests.experiments.apps.page.test_page_server import Lab
from tests.harness.chromium import CHROMIUM, browser
from tests.security.pages import attacked

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


def place(door: PageSocket, role: str, name: str = "") -> URL:
    """Return an address without a token."""
    return URL(door.url(role)).join(URL(name or ".")).with_query(None)


def test_a_page_sets_a_cookie_that_scripts_and_other_sites_do_not_have(tmp_path: Path) -> None:
    async def attack(door: PageSocket, page: Page) -> None:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            for role in door.tokens:
                async with session.get(door.url(role)) as answer:
                    found = SimpleCookie(answer.headers["Set-Cookie"])[COOKIE]
                assert found.value == door.tokens[role]
                assert found["httponly"] and found["samesite"] == "Strict"
                assert found["path"] == f"/{door.paths[role]}/"
                assert not (found["secure"] or found["domain"] or found["max-age"])

    attacked(attack, tmp_path)


def test_a_cookie_is_good_for_its_own_path_only(tmp_path: Path) -> None:
    async def attack(door: PageSocket, page: Page) -> None:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            for role, given in product(door.tokens, door.tokens):
                cookie = {"Cookie": f"{COOKIE}={door.tokens[given]}"}
                for name in ("", "recording", "app.js"):
                    async with session.get(place(door, role, name), headers=cookie) as answer:
                        assert (answer.status == 200) == (role == given)
            outside = URL(door.url("operate")).with_path("/")
            async with session.get(outside) as answer:
                assert answer.status == 403

    attacked(attack, tmp_path)


def test_another_sites_page_uses_no_cookie(tmp_path: Path) -> None:
    """What a browser sends for a page of another site, or of another port of the same host."""
    lab = Lab()
    cases = [
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "rebound.example"},
        {"Host": "rebound.example", "Origin": "http://rebound.example"},
        {},  # an Origin is missing: browsers always send it with these
    ]

    async def attack(door: PageSocket, page: Page) -> None:
        cookie = {"Cookie": f"{COOKIE}={door.tokens['operate']}"}
        live, grade = place(door, "operate", "live"), place(door, "operate", "grade")
        own = {"Origin": str(live.origin()), "Sec-Fetch-Site": "same-origin"}
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            for headers in cases:
                async with session.get(live, headers=cookie | UPGRADE | headers) as answer:
                    assert answer.status == 403, headers
                async with session.post(grade, headers=cookie | headers, data=b"") as answer:
                    assert answer.status == 403, headers
            async with session.ws_connect(live, headers=cookie | own) as channel:
                assert (await channel.receive_json())["role"] == "operate"
            async with session.post(grade, headers=cookie | own, data=b"") as answer:
                assert answer.status == 422  # no student is named

    attacked(attack, tmp_path, lab)
    assert lab.done == []


@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium: apt-get install chromium")
def test_a_browser_hides_the_token_and_loads_again(tmp_path: Path) -> None:
    live = "document.getElementById('status').textContent.startsWith('live')"

    async def attack(door: PageSocket, page: Page) -> None:
        async with browser(tmp_path / "chromium") as tab:
            await tab.open(door.url("operate"))
            await tab.until(live)
            assert await tab.value("location.href") == str(place(door, "operate"))
            assert await tab.value("document.cookie") == ""
            saved = "fetch('save').then((answer) => answer.status)"
            assert await tab.value(saved) == 200
            await tab.open(door.url("watch"))  # beside it, in the same browser
            await tab.until(f"{live} && document.title.includes('dcell')")
            assert (await tab.value("document.getElementById('status').textContent")).endswith(
                "watching"
            )
            await tab.open(str(place(door, "operate")))  # a bookmark, or the page loaded again
            await tab.until(f"{live} && !document.getElementById('finish').disabled")
            assert await tab.value("document.getElementById('status').textContent") == "live"
            assert tab.complaints == []

    attacked(attack, tmp_path)
