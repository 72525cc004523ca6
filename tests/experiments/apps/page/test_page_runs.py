"""A finished run as a recording, and as one file."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from pillarbox.experiments.apps.page.recording import MOST_BYTES, Recording
from pillarbox.experiments.apps.page.runs import recording_of, save_beside
from pillarbox.experiments.apps.page.standalone import MODULES, files, standalone
from pillarbox.experiments.runs.reporting.report_page import write_report
from pillarbox.experiments.runs.reporting.slow_flows import simulated_trial
from pillarbox.experiments.runs.trials import records
from pillarbox.experiments.runs.trials.packet_records import FILE, write_packets
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.apps.page.protocol import SCHEMA, faults_of
from tests.experiments.runs.reporting.conftest import write_run
from tests.experiments.runs.reporting.test_overlay import written


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = write_run(tmp_path_factory.mktemp("runs") / "small")
    return folder


def test_a_trial_is_told_as_its_records_have_it(run: Path) -> None:
    told = json.loads(recording_of(run).text())
    assert told["network"] == "bcube,2,1"
    assert faults_of(told, SCHEMA["$defs"]["recording"]) == []
    kinds = [(event["at_s"], event["kind"]) for event in told["events"]]
    after = [(0.55, "noticed"), (0.7, "rerouted"), (1.1, "recovered")]
    assert kinds == [(0.5, "cut"), *after, (1.5, "healed")]
    assert [state["faults"] for state in told["states"]] == [[["cut", "0.0", "s0"]], []]
    # 11 of the 12 flows of 1 MB came through.
    seconds = told["samples"][1]["at_s"] - told["samples"][0]["at_s"]
    received = sum(sample["received"] for sample in told["samples"]) * seconds
    assert received == pytest.approx(11 * 8000, rel=0.02)
    assert len(told["samples"][0]["sent"]) == 2 * 2 * len(told["picture"]["cables"])


def test_a_recording_keeps_so_many_bytes_and_the_newest() -> None:
    recording = Recording({"network": "none"})
    for at_s in range(3000):
        recording.add_sample({"at_s": at_s, "sent": [10**6] * 4096, "received": 0})
    for at_s in range(20_000):
        for add in (recording.add_event, recording.add_state, recording.add_traffic):
            add({"at_s": at_s, "what": ["x" * 500]})
    text = recording.text()
    assert len(text) < sum(MOST_BYTES.values()) + (1 << 20)
    told = json.loads(text)
    assert [told[name][-1]["at_s"] for name in MOST_BYTES] == [2999, 19_999, 19_999, 19_999]
    assert all(told[name][0]["at_s"] > 0 for name in MOST_BYTES)


def test_a_trial_may_be_chosen(run: Path) -> None:
    assert json.loads(recording_of(run, 2).text())["network"] == "tree,2,2"
    with pytest.raises(PillarboxError, match="no completed trial 7: use 1, 2, 3, 4"):
        recording_of(run, 7)


def test_slow_flows_are_explained_at_their_ends(tmp_path: Path) -> None:
    folder = written(tmp_path / "run")
    assert json.loads(recording_of(folder).text())["events"] == []
    log = simulated_trial(records.load(folder), 0).log
    write_packets(records.trial_folder(folder, 0) / FILE, log)
    told = json.loads(recording_of(folder).text())
    assert faults_of(told, SCHEMA["$defs"]["recording"]) == []
    ends = [(event["kind"], event["at_s"], event["flow"]) for event in told["events"]]
    assert sorted(ends) == [("slow flow", 2.5, 0), ("slow flow", 2.6, 1), ("slow flow", 3.1, 2)]
    assert all(event["said"].startswith(("2.50 s", "2.10 s", "1.20 s")) for event in told["events"])


def test_a_saved_page_needs_no_other_file(run: Path) -> None:
    page = standalone(recording_of(run).text(), files())
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert not re.search(r"^(import|export) ", page, re.MULTILINE)
    assert "default-src 'none'" in page


def test_a_report_links_the_recording(run: Path, tmp_path: Path) -> None:
    page, missing = write_report(run, tmp_path, save_beside)
    assert missing == []
    assert '<a href="page.html">' in page.read_text()
    assert '"network":"bcube,2,1"' in (tmp_path / "page.html").read_text()


def test_a_report_of_nothing_links_none(run: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(run, tmp_path / "run")
    for trial in broken.glob("trials/*"):
        shutil.rmtree(trial) if trial.is_dir() else trial.unlink()
    page, missing = write_report(broken, record=save_beside)
    assert missing and "page.html" not in page.read_text()


def test_modules_agree_on_all_names() -> None:
    parts = files()
    declared = re.compile(r"^(?:export )?(?:const|let|function|class) (\w+)", re.MULTILINE)
    names = [name for module in MODULES for name in declared.findall(parts[module])]
    assert sorted(names) == sorted(set(names))
