"""The live page: cost for a network's flows, CPU load of its server, and drawing speed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.base.interpreter import code_command
from pillarbox.experiments.lab.linux.measurement import in_child
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.spec import parse
from tests.benches._frame import Row, from_child
from tests.benches._labs import sandboxed

if TYPE_CHECKING:
    from tests.harness.page_client import Client

NETWORK, QUICK_NETWORK = "bcube,4,1", "bcube,2,1"
TURNS, QUICK_TURNS = 12, 1
SECONDS, QUICK_SECONDS = 2.0, 0.6
RATE_MBIT, MTU = 50.0, 9000  # slow cables, so that the machine does not limit the flows
ALONE, AGAIN, CLIENT, BROWSER = "no page", "no page again", "a client", "a browser"
LEAST_GOODPUT = 0.99

MANY, QUICK_MANY = "bcube,8,2", "bcube,4,1"
HZ, SERVER_S, QUICK_SERVER_S = 10, 8.0, 0.5
MOST_SERVER = 0.05

SMALL, LARGE = "bcube,4,1", "bcube,10,2"
# Networks to draw, and True if the page shows their groups opened.
DRAWN = ((SMALL, False), (LARGE, False), (LARGE, True))
QUICK_DRAWN = (("bcube,2,1", False),)
LEAST_FRAMES, MOST_FIRST_S = 30.0, 1.0
PLAYED_S, QUICK_PLAYED_S, SAMPLES_A_SECOND = 3.0, 0.5, 60
WINDOW = 1280, 800

TIME_LIMIT_S = 240.0
BESIDE_S = 60.0  # timeout for a page's watcher to receive the first sample, in seconds
NOTES = f"""
goodput: all-to-all over one lab of {NETWORK}, cables of {RATE_MBIT:g} Mbit/s with an MTU of {MTU},
{SECONDS:.0f} s each, in turns: without a page, a second time without a page (random variation),
with the page open and watched by its protocol's Python client, and by a headless Chromium on the
same machine. ratio: goodput relative to that without a page, the mean over turns, with its 95 %
interval; the goal is {LEAST_GOODPUT}.
server_percent: load of one processor by the page's server at {HZ} samples per second, for a stub of
a lab in which every cable carries traffic, with one client watching; the goal is at most
{MOST_SERVER:.0%}.
first_picture_s: time from the request until the network is painted, at most {MOST_FIRST_S:g} s.
frames_a_second: a recording of {SAMPLES_A_SECOND} samples per second, each of which changes every
cable, is played for {PLAYED_S:.0f} s in a window of {WINDOW[0]} by {WINDOW[1]}, without a graphics
card. The goal is {LEAST_FRAMES:g}, except for a large network with all groups opened, which is too
detailed for users: that row shows the limit of a browser.
"""
# JavaScript that stores the time at which the network is first painted.
FIRST = """
new MutationObserver((_, observer) => {
  if (!document.querySelector(".node")) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.firstPictureMs = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""
OPEN = """
while (document.querySelector(".group")) {
  document.querySelector(".group").dispatchEvent(new MouseEvent("click"));
}
"""
# JavaScript that counts drawn frames: the page's slider moves with each sample.
FRAMES = """
new Promise((done) => {
  let [changed, drawn] = [false, 0];
  const slider = document.getElementById("moment");
  new MutationObserver(() => { changed = true; }).observe(slider, { attributes: true });
  const begun = performance.now();
  const tick = () => {
    drawn += changed;
    changed = false;
    const seconds = (performance.now() - begun) / 1e3;
    if (seconds < %s) requestAnimationFrame(tick);
    else done(drawn / seconds);
  };
  document.getElementById("play").click();
  requestAnimationFrame(tick);
})
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield rows of the live page: goodput of a watched lab, server load, browser speed."""
    yield from _goodput(quick)
    yield _server_row(quick)
    for network, opened in QUICK_DRAWN if quick else DRAWN:
        yield _drawn(network, opened, quick)


def _has_browser() -> bool:
    from tests.harness.chromium import CHROMIUM

    return CHROMIUM is not None


# -- goodput of flows -----------------------------------------------------------------------------


def _goodput(quick: bool) -> Iterator[Row]:
    network = QUICK_NETWORK if quick else NETWORK
    turns, seconds = (QUICK_TURNS, QUICK_SECONDS) if quick else (TURNS, SECONDS)
    cases = [ALONE, AGAIN, CLIENT, BROWSER]
    if os.geteuid():
        yield _goodput_row(network, AGAIN, {}, "skipped: network namespaces need root")
        return
    if not _has_browser():
        cases.remove(BROWSER)
        yield _goodput_row(network, BROWSER, {}, "skipped: apt-get install chromium")
    arguments = network, turns, seconds, cases
    result = in_child(goodputs_by_case, *arguments, time_limit_s=TIME_LIMIT_S)
    for case in cases[1:]:
        if result.failure:
            yield _goodput_row(network, case, {}, f"failed: {result.failure}")
        else:
            yield _goodput_row(network, case, result.value, "ok", judged=not quick)


def _goodput_row(
    network: str, case: str, found: dict[str, list[float]], outcome: str, *, judged: bool = False
) -> Row:
    from pillarbox.experiments.runs.trials.statistics import compare

    row: Row = {"network": network, "watched_by": case}
    row |= dict.fromkeys(("turns", "goodput_mbit", "ratio", "low", "high"))
    if found:
        ratio = compare(dict(enumerate(found[case])), dict(enumerate(found[ALONE]))).ratio
        row |= {
            "turns": len(found[case]),
            "goodput_mbit": sum(found[case]) / len(found[case]) / 1e6,
        }
        row["ratio"] = ratio.value
        if ratio.repeats > 1:
            row |= {"low": ratio.low, "high": ratio.high}
        if judged and case == AGAIN and abs(ratio.value - 1) > 1 - LEAST_GOODPUT:
            outcome = "missed: random variation on this machine exceeds the tolerated loss"
        elif judged and ratio.value < LEAST_GOODPUT:
            outcome = f"missed: {LEAST_GOODPUT} wanted"
    return row | {"outcome": outcome}


def goodputs_by_case(
    network: str, turns: int, seconds: float, cases: list[str]
) -> dict[str, list[float]]:
    """Return the flows' goodput in bit/s with and without a watched page, in one lab."""
    found: dict[str, list[float]] = {case: [] for case in cases}
    words = ["all-to-all", f"duration_s={seconds}", "tool=generator"]
    with sandboxed(parse(network), rate_mbit=RATE_MBIT, mtu=MTU) as lab:
        from pillarbox.experiments.runs.control.client import ask
        from pillarbox.experiments.runs.control.service import Service
        from pillarbox.experiments.runs.control.workload_run import run as send

        service = Service(lab)
        try:
            send(lab, words)  # untimed first run, which fills caches and imports modules
            for turn in range(turns):
                for case in cases[turn % len(cases) :] + cases[: turn % len(cases)]:
                    page = _watched(partial(ask, lab.folder), lab.folder, case == BROWSER)
                    with page if case in (CLIENT, BROWSER) else nullcontext():
                        found[case].append(send(lab, words)["goodput_bps"])
        finally:
            service.close()
    return found


@contextmanager
def _watched(ask: Any, folder: Path, browser: bool, period_s: float | None = None) -> Iterator[Any]:
    """Serve a lab's page to a watcher in another process for a `with` block."""
    from pillarbox.experiments.apps.page import process

    door = process.opened()
    page = process.Page(door, ask, folder, period_s)
    words = [door.url("watch"), *["browser"] * browser]
    command = code_command(f"from {__name__} import watch; watch()", *words)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as watching:
        assert watching.stdin and watching.stdout
        try:
            if not watching.stdout.readline():
                raise PillarboxError(
                    "no browser or client watches the live page: see the messages above"
                )
            yield page
        finally:
            watching.stdin.close()
            watching.wait()
            page.close()


def watch() -> None:
    """Watch the page at the URL in the command line until standard input ends."""
    url, *browser = sys.argv[1:]
    asyncio.run(_watch_in_browser(url) if browser else _watch(url))


async def _watch(url: str) -> None:
    from tests.harness.page_client import watching

    async with watching(url) as page:
        await asyncio.wait_for(page.heard("sample"), BESIDE_S)
        hearing = asyncio.create_task(_receive_samples(page))
        await _report_watching()
        hearing.cancel()


async def _receive_samples(page: Client) -> None:
    async for _ in page:
        pass


async def _watch_in_browser(url: str) -> None:
    from tests.harness.chromium import browser

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        async with browser(Path(profile)) as tab:
            await tab.look(*WINDOW)
            await tab.open(url)
            await tab.until("document.getElementById('status').textContent.startsWith('live')")
            await _report_watching()


def _report_watching() -> asyncio.Future[bytes]:
    """Print that the live page is watched; return a future that ends at standard input's end."""
    sys.stdout.write("watching\n")
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    return loop.run_in_executor(None, sys.stdin.buffer.read)


# -- load of the server -----------------------------------------------------------------------


def _server_row(quick: bool) -> Row:
    network = QUICK_MANY if quick else MANY
    row: Row = {"network": network, "servers": parse(network).servers}

    def judge(row: Row) -> str:
        small = row["server_percent"] <= MOST_SERVER * 100
        return "ok" if small or quick else f"missed: {MOST_SERVER:.0%} wanted"

    columns = "samples_a_second", "server_percent"
    call = server_load, network, QUICK_SERVER_S if quick else SERVER_S
    return from_child(row, columns, judge, *call, time_limit_s=TIME_LIMIT_S)


def server_load(network: str, seconds: float) -> Row:
    """Return the CPU load and sample rate of the live page's web server with a stub of a lab."""
    from pillarbox.experiments.base.processes import processor_s

    lab = SimulatedPageLab(network)
    with (
        tempfile.TemporaryDirectory() as folder,
        _watched(lab.ask, Path(folder), browser=False, period_s=1 / HZ) as page,
    ):
        samples, before_s, start_s = lab.samples, processor_s(page.number), time.monotonic()
        time.sleep(seconds)
        passed_s = time.monotonic() - start_s
        taken_s = processor_s(page.number) - before_s
        return {
            "samples_a_second": (lab.samples - samples) / passed_s,
            "server_percent": taken_s / passed_s * 100,
        }


class SimulatedPageLab:
    """Stub of a lab whose cable loads all change with each sample."""

    def __init__(self, network: str) -> None:
        self.network, self.samples = network, 0
        topology = parse(network)
        self._sent = [0] * (2 * topology.cables)
        self._received = [0] * topology.servers
        self._dropped = [0] * (2 * topology.cables)

    def ask(self, ask: str, **_words: Any) -> Any:
        """Answer the periodic requests of a page's server."""
        if ask != "sample":
            about = {"routing": "", "plane": "", "timers": "", "rate_mbit": 100.0}
            return {"network": self.network, **about}
        self.samples += 1
        for i in range(len(self._sent)):
            self._sent[i] += pretended_load_kbit(i, self.samples) * 125
            self._dropped[i] += i % 2
        for i in range(len(self._received)):
            self._received[i] += 10**5
        return {
            "at_s": time.monotonic(),
            "network": self.network,
            "sent_bytes": self._sent,
            "received_bytes": self._received,
            "waiting_bytes": [pretended_load_kbit(i, self.samples) for i in range(len(self._sent))],
            "dropped": self._dropped,
            "faults": [],
            "dead": [],
            "shapes": [],
            "log": [],
            "log_to": 0,
        }


def pretended_load_kbit(direction: int, sample: int) -> int:
    """Return the pretended load of a cable's direction in a sample, in kbit/s."""
    return 1000 * (1 + (7 * direction + 11 * sample) % 100)


# -- drawing in a browser ------------------------------------------------------------------------


def _drawn(network: str, opened: bool, quick: bool) -> Row:
    topology = parse(network)
    row: Row = {"network": network, "servers": topology.servers, "cables": topology.cables}
    row["groups"] = "opened" if opened else "folded"
    columns = "first_picture_s", "frames_a_second"
    if not _has_browser():
        return row | dict.fromkeys(columns) | {"outcome": "skipped: apt-get install chromium"}

    def judge(row: Row) -> str:
        missed = []
        if row["first_picture_s"] > MOST_FIRST_S:
            missed.append(f"a first picture within {MOST_FIRST_S:g} s wanted")
        if row["frames_a_second"] < LEAST_FRAMES and not opened:
            missed.append(f"{LEAST_FRAMES:g} frames a second wanted")
        return f"missed: {'; '.join(missed)}" if missed and not quick else "ok"

    call = drawing_speed, network, opened, QUICK_PLAYED_S if quick else PLAYED_S
    return from_child(row, columns, judge, *call, time_limit_s=TIME_LIMIT_S)


def drawing_speed(network: str, opened: bool, seconds: float) -> Row:
    """Return a browser's time to draw a page's network first, and the frames drawn per second."""
    return asyncio.run(_drawing(network, opened, seconds))


async def _drawing(network: str, opened: bool, seconds: float) -> Row:
    from pillarbox.experiments.apps.page import process
    from tests.harness.chromium import browser

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        played = Path(scratch) / "played.html"
        played.write_text(_recorded_page_html(network, seconds + 1))
        door = process.opened()
        page = process.Page(door, SimulatedPageLab(network).ask, Path(scratch))
        try:
            async with browser(Path(scratch) / "profile") as tab:
                await tab.look(*WINDOW)
                await tab.send("Page.enable")
                await tab.send("Page.addScriptToEvaluateOnNewDocument", source=FIRST)
                await tab.open(door.url("watch"))
                await tab.until("window.firstPictureMs")
                first_ms = await tab.value("window.firstPictureMs")
                await tab.open(played.as_uri())
                await tab.until("window.firstPictureMs")
                if opened:
                    await tab.value(OPEN)
                frames = await tab.value(FRAMES % seconds)
        finally:
            page.close()
    return {"first_picture_s": first_ms / 1e3, "frames_a_second": frames}


def _recorded_page_html(network: str, seconds: float) -> str:
    """Return the HTML of a saved page, with a recording whose cable loads change constantly."""
    from pillarbox.experiments.apps.page.picture import recording_head
    from pillarbox.experiments.apps.page.recording import Recording
    from pillarbox.experiments.apps.page.standalone import files, standalone

    topology = parse(network)
    rest = {"about": [], "rate_mbit": 100.0, "begun_s": 0.0}
    recording = Recording(recording_head(topology) | rest)
    for sample in range(int(seconds * SAMPLES_A_SECOND)):
        turns = [[i, pretended_load_kbit(i, sample)] for i in range(2 * topology.cables)]
        sent = [number for turn in turns for number in turn]
        at_s = round(sample / SAMPLES_A_SECOND, 4)
        recording.add_sample({"at_s": at_s, "sent": sent, "received": 0})
    return standalone(recording.text(), files())
