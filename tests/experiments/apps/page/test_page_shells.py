"""Shells on servers, over the page's protocol: whose they are, what they may, and how they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.apps.page.shells import CREDIT
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.apps.page.visiting import visited
from tests.harness.page_client import Client, watching

pytestmark = pytest.mark.root
PATIENCE_S = 60.0


def at_lab(folder: Path, visit: Callable[[Any, str], Awaitable[None]]) -> None:
    from pillarbox.experiments.lab.emulation.local_fabric import running

    with running(topos.parse("bcube,2,1"), LabSettings(), folder / "lab") as lab:
        lab.wait_converged()
        visited(lab, visit)


async def printed(page: Client, wanted: str) -> str:
    """Take what shells print until that is there."""
    text = ""
    async for message in page:
        if message["is"] == "shell":
            assert "ended" not in message, text
            text += message["text"]
            await page.do("taken", str(message["shell"]))
            if wanted in text:
                break
    return text


async def shell(page: Client, server: str, line: str) -> str:
    number = str((await page.do("shell", server, "24", "80"))["shell"])
    await page.do("type", number, f"{line}\r")
    return number


def test_a_shell_is_on_its_server_and_has_no_rights(tmp_path: Path) -> None:
    async def visit(_lab: Any, url: str) -> None:
        async with watching(url) as page, watching(url) as other:
            line = "ping -c 1 1.1.bcube >/dev/null; echo code $?; id -u; hostname -I; stty size; "
            rights = "grep -h NoNew /proc/self/status; echo e''nd"
            number = await shell(page, "0.0", line + rights)
            text = await printed(page, "end\r\n")
            said = text[text.index("code 0") :].split("\r\n")
            assert said[0] == "code 0"  # a ping arrives
            assert int(said[1]) > 0
            assert said[2].split() == [topos.parse("bcube,2,1").ip(0)]
            assert said[3] == "24 80"
            assert said[4].split() == ["NoNewPrivs:", "1"]
            for verb, words in (("type", ["x"]), ("resize", ["9", "9"]), ("hang up", [])):
                with pytest.raises(PillarboxError, match="the terminal is closed"):
                    await other.do(verb, number, *words)

    at_lab(tmp_path, visit)


def test_a_shell_ends_with_its_server_and_waits_for_its_page(tmp_path: Path) -> None:
    async def visit(_lab: Any, url: str) -> None:
        async with watching(url) as page:
            await shell(page, "0.1", "yes")
            chunks = samples = 0
            while chunks < CREDIT or samples < 3:  # of which none is taken
                message = await page.__aiter__().__anext__()
                chunks += message["is"] == "shell"
                samples = samples + 1 if message["is"] == "sample" and chunks >= CREDIT else samples
            assert chunks == CREDIT
            await page.do("kill", "0.1")
            while "ended" not in await page.__aiter__().__anext__():
                pass
            with pytest.raises(PillarboxError, match="is dead: revive"):
                await page.do("shell", "0.1", "24", "80")

    at_lab(tmp_path, visit)
