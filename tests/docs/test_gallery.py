"""The gallery: its page is the recordings' own, and each recording has a fault, and plays."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from pillarbox.experiments.apps.page.standalone import files, standalone
from tests.experiments.apps.page.protocol import SCHEMA, faults_of
from tests.experiments.apps.page.visiting import run_client
from tests.harness.chromium import CHROMIUM, browser

DOCS = Path(__file__).parents[2] / "docs"
RECORDINGS = sorted(DOCS.glob("gallery/*.json.gz"))
MOST_BYTES = 400_000  # maximum size of a recording's page
PHONE = 390, 844  # width and height of the window, in pixels
BROWSER_S = 300.0  # timeout of the visit, in seconds


@pytest.fixture
def gallery(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("gallery")


def test_the_page_shows_every_recording(gallery: ModuleType) -> None:
    assert {file.name.removesuffix(".json.gz") for file in RECORDINGS} == set(gallery.SCENES)
    assert (DOCS / "gallery.md").read_text() == gallery.page_text()


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.name)
def test_a_recording_has_traffic_a_fault_and_a_repair(file: Path, gallery: ModuleType) -> None:
    recording = gallery.recording_of(file)
    assert faults_of(recording, SCHEMA["$defs"]["recording"]) == []
    begin, fault, repair = recording["states"]
    assert fault["faults"] or fault["dead"]
    assert not any([begin["faults"], begin["dead"], repair["faults"], repair["dead"]])
    said = [int(second) for second in re.findall(r"at (\d+) s", recording["description"])]
    assert said == [int(fault["at_s"]), int(repair["at_s"])]
    busy = [sample["at_s"] for sample in recording["samples"] if sample.get("goodput")]
    assert 0 < min(busy) < fault["at_s"] < repair["at_s"] < max(busy)
    text = gallery.gzip.decompress(file.read_bytes()).decode()
    assert len(standalone(text, files()).encode()) <= MOST_BYTES


@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium: apt-get install chromium")
def test_a_recording_plays_when_it_is_opened_and_space_pauses(
    tmp_path: Path, gallery: ModuleType
) -> None:
    page = tmp_path / "page.html"
    text = gallery.gzip.decompress(RECORDINGS[0].read_bytes()).decode()
    page.write_text(standalone(text, files()))

    async def visit() -> None:
        async with browser(tmp_path / "chromium") as tab:
            await tab.look(*PHONE)
            await tab.open(page.as_uri())
            await tab.until("parseFloat(document.getElementById('clock').textContent) > 1")
            assert await tab.value("document.documentElement.scrollWidth") <= PHONE[0]
            await tab.key(" ")
            await tab.until("document.getElementById('play').textContent === 'Play'")
            assert tab.complaints == []

    run_client(visit(), BROWSER_S)
