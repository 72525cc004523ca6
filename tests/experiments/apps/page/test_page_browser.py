"""The page in a real browser: a cable of a live network is cut, healed, saved and seen again."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.apps.page import process
from pillarbox.hosts.live.settings import LabSettings
from tests.experiments.apps.page.protocol import SCHEMA, faults_of
from tests.experiments.apps.page.test_page_server import NASTY, Lab
from tests.experiments.apps.page.visiting import run_client
from tests.harness.chromium import CHROMIUM, Browser, browser

pytestmark = pytest.mark.skipif(
    not CHROMIUM, reason="there is no chromium: apt-get install chromium"
)

BROWSER_S = 300.0
SPEC, ENDS = "dcell,4,1", ("0.3", "4.0")

SCREENS = [  # what is printed on 4 lines of 8 letters; what is seen then, and what is answered
    ("one\r\ntwo\tx", "one|two    x|||"),
    ("123456789", "12345678|9|||"),
    ("a\r\nb\r\nc\r\nd\r\ne", "b|c|d|e|"),
    ("abcdef\x1b[3D\x1b[K!", "abc!||||"),
    ("abcdef\x1b[1;3H\x1b[2P\x1b[@_", "ab_ef||||"),
    ("1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\n5", "1|3|5|4|"),
    ("1\r\n2\r\n3\x1b[2;1H\x1b[L\x1b[Mx", "1|x|3||"),
    ("x\x1b[?1049h\x1b[Hy\x1b[?1049l", "x||||"),
    ("\x1b]0;title\x07\x1b(B\x1b[1;31mred\x1b[0m\x1b[38;5;9m.", "red.||||"),
    ("\x1b[2J\x1b[2;4H\x1b[6n", "||||\x1b[2;4R"),
    ("\x1b[9;9HZ\x1bM\x1b7\x1b[Ha\x1b8b", "a|||b      Z|"),
]


def cable_between(a: str, b: str) -> int:
    topology = topos.parse(SPEC)
    ends = {topology.server(a), topology.server(b)}
    return next(i for i, cable in enumerate(topology.links()) if {cable.a, cable.b} == ends)


async def touch(tab: Browser, cable: str, servers: list[str]) -> None:
    """Cut the cable, see a packet go around it, kill and revive a server, heal the cable."""
    await tab.until("document.getElementById('status').textContent === 'live'")
    await tab.click(f"#{cable} .grip")
    await tab.click(".deeds .cut")
    await tab.until(f"document.querySelector('#{cable}').dataset.failed === 'cut'")
    await tab.until("document.querySelectorAll('.mark').length === 1")
    await tab.until("document.getElementById('events').textContent.includes('detects')")
    await tab.click(f"#{servers[0]} .body")
    await tab.click(f"#{servers[1]} .body", shift=True)
    await tab.key("p")
    await tab.until("document.querySelectorAll('.paths .taken').length > 1")  # the way around
    await tab.key("d")
    await tab.until("document.querySelectorAll('.paths .mark').length === 1")  # dcell's other way
    await tab.until("document.getElementById('events').textContent.includes('disjoint, by')")
    await tab.click(f"#{servers[1]} .body")
    await tab.click("#panel details + details summary")
    await tab.until("document.querySelector('#panel details + details pre').textContent")
    await tab.click(".deeds .kill")
    await tab.until(f"document.querySelector('#{servers[1]}').dataset.failed === 'dead'")
    await tab.until("document.querySelector('#panel details + details').open")  # still
    await tab.click(".deeds .revive")
    await tab.until(f"document.querySelector('#{servers[1]}').dataset.failed === ''")
    await tab.click(f"#{cable} .grip")
    await tab.key("h")
    await tab.until(f"document.querySelector('#{cable}').dataset.failed === ''")
    await tab.click(".deeds .reorder")
    await tab.until(f"document.querySelector('#{cable}').dataset.failed === 'reorder'")
    late = "delivers some frames late (1 %, jitter 5 ms)"
    await tab.until(f"document.getElementById('events').textContent.includes('{late}')")
    await tab.key("h")
    await tab.until(f"document.querySelector('#{cable}').dataset.failed === ''")


async def type_at(tab: Browser, server: str) -> None:
    """Type at a terminal on a server, and leave it."""
    await tab.click(f"#{server} .body")
    await tab.key("t")
    await tab.until("document.getElementById('screen').textContent.includes('$ ')")
    for letter in "echo $((6*7))":
        await tab.key(letter)
    await tab.key("Enter")
    await tab.until(
        "[...document.querySelectorAll('#screen div')].some((line) => line.textContent === '42')"
    )
    await tab.click("#hang-up")
    await tab.until("document.getElementById('terminal').hidden")


async def choose(tab: Browser, selector: str, value: str) -> None:
    """Choose what a list offers, as by hand."""
    found = f"document.getElementById({selector!r})"
    await tab.until(f"[...{found}.options].some((one) => one.value === {value!r})")
    await tab.value(f"{found}.value = {value!r}; {found}.dispatchEvent(new Event('change'))")


async def teach(tab: Browser, work: Path) -> None:
    """Turn to a part of a sheet, draw a student's values, and have a file graded."""
    await tab.click("#sheets")
    await choose(tab, "sheet-number", "4")
    await choose(tab, "part", "2")
    await tab.until("document.getElementById('part-text').textContent.includes('is_news')")
    await tab.until("document.getElementById('events').textContent.includes('sheet 4: 2. Link')")
    await tab.value("document.getElementById('student').value = 'ada'")
    await tab.click("#values")
    await tab.until("document.getElementById('marks').textContent.includes('failed link')")
    work.write_text("def is_news(*given): return '<img src=x onerror=alert(1)>'\n")
    page = await tab.send("DOM.getDocument")
    field = await tab.send("DOM.querySelector", nodeId=page["root"]["nodeId"], selector="#work")
    await tab.send("DOM.setFileInputFiles", nodeId=field["nodeId"], files=[str(work)])
    await tab.click("#grade button[type=submit]")
    await tab.until("document.getElementById('marks').textContent.includes('0 of 100')")
    await tab.click("#sheets")
    await tab.until("document.getElementById('sheet').hidden")


async def draw_screens(tab: Browser) -> None:
    """See that a screen does with controls what Linux's console does."""
    await tab.value("import('./screen.js').then((made) => { window.Made = made.Screen; })")
    await tab.until("window.Made")
    for text, lines in SCREENS:
        found = await tab.value(
            f"""(() => {{
              const screen = new Made(4, 8, (said) => {{ screen.said = said; }});
              for (const letter of {json.dumps(text)}) screen.feed(letter);
              const lines = screen.lines.map((line) => line.map(([one]) => one).join("").trimEnd());
              return [...lines, screen.said ?? ""].join("|");
            }})()"""
        )
        assert found == lines, text


async def fold(tab: Browser) -> None:
    """See that large networks are folded by the first part of addresses, and small ones are not."""
    await tab.value("import('./folds.js').then((made) => { window.Folds = made.Folds; })")
    found = await tab.value(
        """((each) => {
          const [nodes, cables] = [[], []];
          for (let i = 0; i < 2 * each; i += 1) {
            nodes.push({ name: `${Math.floor(i / each)}.${i}`, x: i, y: 0 });
          }
          for (let s = 0; s < 5; s += 1) {
            nodes.push({ name: `s${s}`, x: s, y: 5 });
            for (const side of s < 2 ? [s] : [0, 1]) {
              cables.push({ a: side * each + s, b: 2 * each + s });
            }
          }
          const folds = new window.Folds({ picture: { nodes, cables, servers: 2 * each } });
          const hidden = () => nodes.filter((_, node) => folds.hiding(node) >= 0).length;
          const counts = [hidden(), folds.reveal([0]), hidden(), folds.reveal([1]), hidden()];
          folds.foldAll();
          return [folds.groups.map(({ name }) => name), [...counts, hidden()]];
        })"""
        + "(100)"
    )
    assert found == [["0.*", "1.*", "3 switches"], [205, True, 104, False, 104, 205]]


async def send(tab: Browser) -> None:
    """Start a pattern between all servers, see its load, its ideal and its result."""
    await tab.value("document.getElementById('pattern').value = 'permutation'")
    await tab.click("#start")
    await tab.until("document.querySelectorAll('.lane:not([data-level=none])').length > 9")
    await tab.until("document.getElementById('sent').textContent.includes('ideal')")
    await tab.click("#flows summary")
    await tab.until("document.querySelectorAll('#flows tr').length === 20")
    await tab.click("#finish")
    await tab.until("document.getElementById('events').textContent.includes('20 flows, 0 failed')")


async def forget(tab: Browser) -> None:
    """See that a page keeps so much of what it is told, and the newest of it."""
    await tab.value("import('./time.js').then((made) => { window.Kept = made.Recording; })")
    found = await tab.value(
        """(() => {
          const lists = { samples: [], events: [], states: [], traffic: [] };
          const picture = { nodes: [], cables: [] };
          const kept = new window.Kept({ picture, fault_kinds: {}, ...lists });
          for (let at_s = 0; at_s < 1000; at_s += 1) {
            kept.add({ at_s, sent: new Array(20000).fill(1), received: 0 });
          }
          for (let at_s = 0; at_s < 50000; at_s += 1) {
            for (const kind of ["events", "states", "traffic"]) kept.note(kind, { at_s });
          }
          const numbers = kept.samples.reduce((sum, one) => sum + one.sent.length, 0);
          const last = Object.keys(lists).map((kind) => kept[kind].at(-1).at_s);
          const most = Math.max(kept.events.length, kept.states.length, kept.traffic.length);
          return [numbers <= 8e6 && numbers > 6e6, last, most <= 20000];
        })()"""
    )
    assert found == [True, [999, 49999, 49999, 49999], True]


async def load(tab: Browser, recording: str) -> None:
    """See load on the cables that the recording names, and on no others."""
    await tab.value("document.getElementById('pattern').value = 'all-to-all'")
    await tab.click("#start")
    await tab.until("document.querySelectorAll('.lane:not([data-level=none])').length > 50")
    await tab.until("document.getElementById('sent').textContent.includes('ideal')")
    await tab.click("#play")
    await tab.until("document.getElementById('status').dataset.kind === 'past'")
    at_s = float(await tab.value("document.getElementById('moment').value"))
    seen = await tab.value(
        """[...document.querySelectorAll('.cable')].flatMap((cable) =>
          [...cable.querySelectorAll('.lane')].flatMap((lane, side) =>
            lane.dataset.level === 'none' ? [] : [2 * Number(cable.id.slice(6)) + side]))"""
    )
    told = json.loads(await asyncio.to_thread(lambda: urllib.request.urlopen(recording).read()))
    assert faults_of(told, SCHEMA["$defs"]["recording"]) == []
    near = [one["sent"] for one in told["samples"] if abs(one["at_s"] - at_s) < 1.0]
    loads = [dict(zip(sent[::2], sent[1::2], strict=True)) for sent in near]
    least = told["rate_mbit"] * 1e3 * 0.005
    assert set(seen) <= {way for one in loads for way, kbit in one.items() if kbit >= least}
    always = [{way for way, kbit in one.items() if kbit >= least} for one in loads]
    assert set.intersection(*always) <= set(seen)
    await tab.click("#live")
    await tab.until("!document.getElementById('finish').hidden")
    await tab.click("#finish")
    await tab.until("document.getElementById('events').textContent.includes('380 flows')")


async def replay(tab: Browser, cable: str) -> None:
    """See the cut again, and play on until it is healed."""
    await tab.until("document.getElementById('status').textContent === 'recorded'")
    await tab.value("document.getElementById('speed').value = '4'")
    await tab.click("#play")
    await tab.until(f"document.querySelector('#{cable}').dataset.failed === 'cut'")
    await tab.until(f"document.querySelector('#{cable}').dataset.failed === ''")
    await tab.until("document.getElementById('play').textContent === 'Play'")  # at the end
    cut = (
        "[...document.querySelectorAll('#events li')]"
        ".find((li) => li.textContent.includes('is cut'))"
    )
    await tab.value(f"{cut}.querySelector('button').click()")
    await tab.until("document.getElementById('events').firstChild.textContent.includes('is cut')")


@pytest.mark.root
def test_a_cable_is_cut_and_healed_by_hand_and_seen_again(tmp_path: Path) -> None:
    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.experiments.runs.control.client import ask
    from pillarbox.experiments.runs.control.service import Service

    cable = f"cable-{cable_between(*ENDS)}"
    servers = [f"node-{topos.parse(SPEC).server(end)}" for end in ENDS]
    saved = tmp_path / "saved.html"
    listening = process.opened()

    async def visit() -> None:
        async with browser(tmp_path / "chromium") as tab:
            await tab.look(1280, 800)
            await tab.open(listening.url("operate"))
            await touch(tab, cable, servers)
            await load(tab, listening.url("watch").replace("/?", "/recording?"))
            await send(tab)
            await type_at(tab, servers[0])
            await teach(tab, tmp_path / "work.py")
            await draw_screens(tab)
            await fold(tab)
            await forget(tab)
            address = listening.url("operate").replace("/?", "/save?")
            saved.write_bytes(
                await asyncio.to_thread(lambda: urllib.request.urlopen(address).read())
            )
            await tab.send("Network.emulateNetworkConditions", offline=True, latency=0,
                           downloadThroughput=0, uploadThroughput=0)  # fmt: skip
            await tab.open(saved.as_uri())
            await replay(tab, cable)
            assert tab.complaints == []

    settings = LabSettings(rate_mbit=5.0)
    with running(topos.parse(SPEC), settings, tmp_path / "lab") as lab:
        lab.wait_converged()
        service = Service(lab)
        page = process.Page(listening, partial(ask, lab.folder), lab.folder)
        try:
            run_client(visit(), BROWSER_S)
            assert [*lab.faults.active, *lab.dead] == []
        finally:
            page.close()
            service.close()


class Hostile(Lab):
    """A lab in which whatever is text is markup."""

    def ask(self, ask: str, **words: Any) -> Any:
        if ask in ("log", "why"):
            return {"log": NASTY, "said": NASTY}
        told = super().ask(ask, **words)
        if ask == "state":
            told |= {"links": [{"up": False, "peer": NASTY}], "drops": {NASTY: 1}}
        elif ask == "sample" and self.samples == 2:
            line = {"at_s": time.monotonic(), "wall_s": 0.0, "event": NASTY, "what": [NASTY]}
            told["log"] = [json.dumps(line)]
        return told


def test_markup_from_a_lab_is_text(tmp_path: Path) -> None:
    listening = process.opened()
    saved = tmp_path / "saved.html"

    async def visit() -> None:
        async with browser(tmp_path / "chromium") as tab:
            await tab.look(1280, 800)
            await tab.open(listening.url("operate"))
            await tab.until("document.getElementById('events').textContent.includes('<img')")
            await tab.click("#node-0 .body")
            await tab.until(
                "document.querySelector('#panel .neighbours + dl')?.textContent.includes('<img')"
            )
            await tab.click("#panel details + details summary")
            await tab.until(
                "document.querySelector('#panel details + details').textContent.includes('<img')"
            )
            await tab.click("#node-1 .body", shift=True)
            await tab.key("w")
            await tab.until("document.querySelector('.said').textContent.includes('<img')")
            assert await tab.value("document.images.length") == 0
            address = listening.url("watch").replace("/?", "/save?")
            saved.write_bytes(
                await asyncio.to_thread(lambda: urllib.request.urlopen(address).read())
            )
            await tab.open(saved.as_uri())
            await tab.until("document.getElementById('about').textContent.includes('<img')")
            assert await tab.value("document.images.length") == 0
            assert tab.complaints == []

    page = process.Page(listening, Hostile().ask, tmp_path)
    try:
        run_client(visit(), BROWSER_S)
    finally:
        page.close()
