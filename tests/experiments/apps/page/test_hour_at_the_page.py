"""A stranger's first visit to the live page, opened from the prompt, and to a run's report."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.experiments.apps.page.visiting import run_client
from tests.experiments.runs.control import test_commands
from tests.experiments.runs.control.stranger import Prompt, prompt_of
from tests.experiments.runs.control.test_commands import own_run, pillarbox
from tests.harness.chromium import CHROMIUM, Browser, browser

pytestmark = [
    pytest.mark.root,
    pytest.mark.long,
    pytest.mark.skipif(not CHROMIUM, reason="there is no chromium: apt-get install chromium"),
]
__all__ = ["own_run"]  # a fixture

SPEC = "bcube,4,1"
VISIT_S = 200.0
EVENTS = "document.getElementById('events').textContent"
PANEL = "document.getElementById('panel').textContent"
LOADED = "document.querySelectorAll('.lane:not([data-level=none])').length > 4"
LIVE = "document.getElementById('status').textContent === 'live'"
NO_OVERFLOW = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


async def use(tab: Browser, prompt: Prompt, address: str) -> None:
    """Look at a server, cut and repair a cable, and watch the load of a workload."""
    await tab.look(1280, 800)
    await tab.open(address)
    await tab.until(LIVE)
    await tab.click("#node-0 .body")
    await tab.until(f"{PANEL}.includes('0.0')")
    await tab.click("#cable-0 .grip")
    await tab.click(".deeds .cut")
    await tab.until("document.querySelector('#cable-0').dataset.failed === 'cut'")
    await asyncio.to_thread(prompt.check, "links", r"A-s0 +cut")
    await asyncio.to_thread(prompt.check, "heal all", "A-s0 repaired")
    await tab.until("document.querySelector('#cable-0').dataset.failed === ''")
    sending = asyncio.create_task(
        asyncio.to_thread(prompt.check, "run permutation duration_s=5", r"16 flows, \d+ failed")
    )
    await tab.until(LOADED)
    await sending
    await tab.until(f"{EVENTS}.includes('16 flows, ')")
    assert tab.complaints == []


async def read(tab: Browser, report: Path) -> None:
    """Read a run's report on a wide and on a narrow screen, and play its recording."""
    for width in (1280, 420):
        await tab.look(width, 800)
        await tab.send("Page.navigate", url=report.as_uri())
        await tab.until("location.protocol === 'file:' && document.readyState === 'complete'")
        # The headline is there if a trial is valid; the verdict always.
        assert await tab.value("document.querySelector('.verdict').textContent.trim().length > 20")
        assert await tab.value("document.querySelectorAll('svg').length > 0")
        assert await tab.value(NO_OVERFLOW), width
    await tab.open(report.with_name("page.html").as_uri())
    await tab.until("document.getElementById('status').textContent === 'recorded'")
    assert tab.complaints == []


def test_a_first_visit(
    own_run: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_commands, "WAIT_S", VISIT_S)
    own_run()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    run = tmp_path / "first"
    ran = pillarbox("run", "quick", "--out", str(run))
    # 1: a trial is not valid, as on a busy machine
    assert ran.returncode in (0, 1), ran.stderr
    assert "of ideal" in ran.stdout.replace("\xa0", " "), ran.stdout + ran.stderr
    for words in (("page", str(run)), ("report", str(run), "--no-open")):
        made = pillarbox(*words)
        assert made.returncode == 0, made.stderr

    async def visit(prompt: Prompt, address: str) -> None:
        async with browser(tmp_path / "chromium") as tab:
            await use(tab, prompt, address)
            await read(tab, run / "report.html")

    with prompt_of(SPEC, tmp_path) as prompt:
        found = re.search(r"page: (http://\S+)", prompt.answer("page\n"))
        assert found
        run_client(visit(prompt, found[1]), VISIT_S)
