"""Records the networks of the guide's gallery: ``sudo .venv/bin/python docs/gallery.py``.

Each scene is a live lab with traffic, a fault and a repair. Its recording is written to
docs/gallery/NAME.json.gz, which docs/site.py converts to a page that plays it, and a picture of the
moment after the fault to docs/gallery/NAME.webp. A scene takes 30 seconds and Chromium; names of
scenes choose some of them.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pillarbox
from pillarbox.experiments.apps.page.standalone import files, standalone
from page_lab import ROOT
from page_pictures import shot
from tests.harness.chromium import browser
from tests.harness.page_client import Client, watching

FOLDER = Path(__file__).with_name("gallery")
PAGE = Path(__file__).with_name("gallery.md")
HEAD = """# Gallery

Recordings of live networks that play in the browser. Each has traffic, a fault and a repair.

- Click a picture: the [page](page.md#display) of the network opens, and plays.
- Space pauses. The slider and the times in the event list go to a moment; *0.1×* shows a fault in slow motion.
- Select a cable or a server with the mouse, or with the arrow keys and Enter, for its load and its queue.

The site plays the recordings. In a checkout, `.venv/bin/python docs/site.py` writes them as pages, `build/docs/gallery/NAME.html`.
Made by `sudo .venv/bin/python docs/gallery.py`."""
# Time of each step in a recording, in seconds: first goodput, fault, repair.
BEGIN_S, FAULT_S, REPAIR_S = 1.0, 4.0, 8.0
END_S = 2.0  # duration of a recording after the result of its traffic, in seconds
PICTURE_S = 6.5  # time that the picture shows, in seconds
LONGEST_S = 120.0  # timeout of a scene, in seconds
TEN_SECONDS = "duration_s=10 tool=generator"
SIZE, SCALE = (1100, 700), 0.5
LISTS = ("samples", "events", "states", "traffic")


class Scene(NamedTuple):
    """A lab, its traffic, and a fault with its repair, as words of the lab's prompt."""

    network: str
    traffic: str
    fault: str
    repair: str
    text: str  # description of the scene; {fault} and {repair} are replaced by their seconds
    rate_mbit: float = 10


SCENES = {
    "dpillar": Scene(
        *("dpillar,4,3", f"permutation {TEN_SECONDS}", "stop s0", "heal s0"),
        "Every server sends to another one. Switch s0 is powered off at {fault} s and on at "
        "{repair} s: flows take paths around it.",
    ),
    "dcell": Scene(
        *("dcell,4,1", f"permutation {TEN_SECONDS}", "cut 0.3-4.0", "heal 0.3-4.0"),
        "Every server sends to another one. The cable between 0.3 and 4.0 is cut at {fault} s and "
        "repaired at {repair} s: its flows take a detour over a third DCell.",
    ),
    "bcube": Scene(
        *("bcube,4,1", f"all-to-all {TEN_SECONDS}", "cut 0.0-s0", "heal 0.0-s0"),
        "Every server sends to all others. The cable between 0.0 and switch s0 is cut at {fault} s "
        "and repaired at {repair} s: its flows leave 0.0 by the other port.",
        rate_mbit=5,
    ),
    "ficonn": Scene(
        *("ficonn,4,1", f"permutation {TEN_SECONDS}", "cut 0.0-1.0", "heal 0.0-1.0"),
        "Every server sends to another one. The cable between 0.0 and 1.0 is cut at {fault} s and "
        "repaired at {repair} s: its flows take the two other cables of level 1.",
    ),
    "fattree": Scene(
        *("fattree,4", f"permutation {TEN_SECONDS}", "stop s16", "heal s16"),
        "Every server sends to another one. Core switch s16 is powered off at {fault} s and on at "
        "{repair} s: flows share the other core switches.",
    ),
    "rail": Scene(
        *("rail,4,4", f"permutation {TEN_SECONDS}", "cut 0.0-s0 silent", "heal 0.0-s0"),
        "Every server sends to another one. The cable between 0.0 and switch s0 fails silently at "
        "{fault} s, and servers detect it by missing heartbeats; it is repaired at {repair} s.",
    ),
    "torus": Scene(
        *("torus,4,4", f"permutation {TEN_SECONDS}", "kill 1.1", "revive 1.1"),
        "Every server sends to another one. Server 1.1 dies at {fault} s, with the two flows that "
        "it sends and receives, and starts again at {repair} s: the flows that it relayed take "
        "other paths.",
    ),
    "training": Scene(
        *("bcube,4,1", "training tp=4 pp=2", "cut 0.0-s0", "heal 0.0-s0"),
        "A training iteration of a transformer on 16 servers. The cable between 0.0 and switch s0 "
        "is cut at {fault} s and repaired at {repair} s: the iteration continues over other paths.",
    ),
}


async def main(names: list[str]) -> None:
    """Record scenes."""
    FOLDER.mkdir(exist_ok=True)
    for name in names:
        recording = await asyncio.wait_for(recorded(SCENES[name]), LONGEST_S)
        text = json.dumps(recording, separators=(",", ":"))
        (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        page = standalone(text, files())
        await take_picture(page, FOLDER / name)
        print(f"{name}: page of {len(page) / 1e3:.0f} kB. {recording['description']}")
    PAGE.write_text(page_text(), encoding="utf-8")


def page_text() -> str:
    """Return the text of docs/gallery.md, from the recordings."""
    parts = [HEAD]
    for name in SCENES:
        recording = recording_of(FOLDER / f"{name}.json.gz")
        picture = f"![{recording['title']} under load, with a fault](gallery/{name}.webp)"
        parts += [
            f"## {recording['title']}{' under a training job' if name == 'training' else ''}",
            f"[{picture}](gallery/{name}.json.gz)",
            recording["description"],
        ]
    return "\n\n".join(parts) + "\n"


def recording_of(file: Path) -> dict[str, Any]:
    """Return the recording in a file of the gallery."""
    content: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return content


async def recorded(scene: Scene) -> dict[str, Any]:
    """Return the recording of a scene."""
    with pillarbox.lab(scene.network, rate_mbit=scene.rate_mbit) as lab:
        async with page_of(lab) as url, watching(url) as page:
            sending = asyncio.create_task(run(lab, f"run {scene.traffic}"))
            zero_s = await sample_time(page, least_kbit=scene.rate_mbit * 1000) - BEGIN_S
            await sample_time(page, zero_s + FAULT_S)
            await run(lab, scene.fault)
            await sample_time(page, zero_s + REPAIR_S)
            await run(lab, scene.repair)
            print((await sending)["said"])
            async with watching(url) as later:
                await sample_time(later, later.recording["samples"][-1]["at_s"] + END_S)
            async with watching(url) as later:
                recording = moved(later.recording, -zero_s)
    _, fault, repair = recording["states"]
    text = scene.text.format(fault=int(fault["at_s"]), repair=int(repair["at_s"]))
    return recording | {"description": text, "autoplay": True}


@asynccontextmanager
async def page_of(lab: pillarbox.Lab) -> AsyncIterator[str]:
    """Serve the page of a lab; yield the page's URL."""
    program = Path(sys.executable).with_name("pillarbox")
    words = [sys.executable, str(program), "page", f"--lab={lab.number}"]
    page = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    assert page.stdout
    try:
        url = re.search(r"http\S+", (await page.stdout.readline()).decode())
        assert url, "the page did not start: its reason is above"
        yield url[0]
    finally:
        page.terminate()
        await page.wait()


async def run(lab: pillarbox.Lab, words: str) -> dict[str, Any]:
    """Run a command of a lab's prompt."""
    return await asyncio.to_thread(lab.ask, *words.split())


async def sample_time(page: Client, from_s: float = 0, least_kbit: float = 0) -> float:
    """Wait for a sample at a time or later with this rate or more; return the sample's time."""
    while True:
        sample = await page.heard("sample")
        if sample["at_s"] >= from_s and sample["received"] >= least_kbit:
            return float(sample["at_s"])


def moved(recording: dict[str, Any], by_s: float) -> dict[str, Any]:
    """Return a recording with later times, without the samples before 0."""
    lists = {
        name: [{**entry, "at_s": round(entry["at_s"] + by_s, 4)} for entry in recording[name]]
        for name in LISTS
    }
    lists["samples"] = [sample for sample in lists["samples"] if sample["at_s"] >= 0]
    return {**recording, **lists, "begun_s": recording["begun_s"] - by_s}


async def take_picture(page: str, name: Path) -> None:
    """Write a picture of a recording's page."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "page.html"
        file.write_text(page, encoding="utf-8")
        async with browser(Path(folder) / "profile") as tab:
            await tab.look(*SIZE, scale=SCALE)
            await tab.open(file.as_uri())
            slider = "document.getElementById('moment')"
            await tab.value(
                f"{slider}.value = '{PICTURE_S}'; {slider}.dispatchEvent(new Event('input'))"
            )
            await shot(tab, str(name))
            assert tab.complaints == []


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or [*SCENES]))
