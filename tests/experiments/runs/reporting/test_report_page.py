import json
import re
import shutil
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import pandas
import pytest
from click.testing import CliRunner

from pillarbox.experiments.cli.commands.report import command
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import FaultAt, System
from pillarbox.experiments.runs.reporting import report_page as page_module
from pillarbox.experiments.runs.reporting import style, tables
from pillarbox.experiments.runs.reporting.report_page import write_report
from pillarbox.experiments.runs.reporting.run_reading import read
from pillarbox.experiments.runs.trust.readings import MachineReadings
from pillarbox.topos.base.errors import PillarboxError

VOID = {"meta", "link", "br", "img", "hr", "input"}
FAILED = "connection refused"
HOSTILE = '<script>alert("x")</script>'


class Outline(HTMLParser):
    """Notes what is in a page; fails where its tags do not match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tables, self.ids, self.attributes, self.text = [], [], [], [], ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.attributes += attributes
        self.ids += [value for name, value in attributes if name == "id"]
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.attributes += attributes
        self.ids += [value for name, value in attributes if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data


@pytest.fixture(scope="module")
def page(run_folder, tmp_path_factory):
    file, missing = write_report(run_folder, tmp_path_factory.mktemp("report"))
    assert missing == []
    return file


@pytest.fixture(scope="module")
def outline(page):
    return Outline(page.read_text())


def test_it_holds_every_table(outline):
    by_head = {tuple(table[0][:3]): table[1:] for table in outline.tables}
    results = by_head["system", "valid trials", "goodput, Mbit/s"]
    *results, untrusted = results
    assert [row[:2] for row in results] == [["bcube,2,1 bsr", "2 of 2"], ["tree,2,2", "1 of 2"]]
    assert results[0][2] == "44.0\n44.0-44.0" and [row[-2] for row in results] == ["1", "0"]
    assert untrusted[:3] == ["not valid", "1 trial", "22.0?"]
    assert by_head["system", "network", "routing"][0][:3] == ["bcube,2,1 bsr", "bcube,2,1", "bsr"]
    assert len(by_head["system", "level", "directed links"]) == 4
    assert by_head["system", "event", "count"][0][:4] == [
        "bcube,2,1 bsr",
        "cut",
        "2",
        "50 ms\nat most 50 ms",
    ]
    assert by_head["no.", "system", "at"][0][3:] == ["cut", "0.0-s0", "50 ms", "200 ms", "600 ms"]
    failures = by_head["system", "reason", "flows"]
    assert failures == [["bcube,2,1 bsr", FAILED, "1", "1", "0.1 to 1.1", "0 B"]]
    slow = [table for table in outline.tables if table[0][-1] == "path"]
    assert len(slow[0]) == 1 + 5 + 5


def test_a_fault_has_one_name_in_plan_and_table(run_folder):
    networks = read(run_folder).networks
    both = FaultAt("cut h0-s0 at 0.5")
    bcube = FaultAt("cut 0.0-s0 at 0.5", systems=("bcube,2,1 bsr",))
    gone = FaultAt("cut h9-s0 at 0.5")
    rack = FaultAt("rack s1 at 0.5")
    plan = replace(read(run_folder).plan, faults=(both, bcube, gone, rack))
    told = tables.faults(plan, networks)
    assert [line.partition(" at ")[0] for line in told] == [
        "cut 0.0-s0",
        "cut 0.0-s0",
        "cut h9-s0",
        "rack s1",
    ]


def test_what_is_wider_than_the_page_scrolls_under_a_shade(page):
    text = page.read_text()
    assert text.count("<table") + text.count("<svg") == text.count('<div class="scroll">')
    assert text.count("no-repeat local") == 2  # covers the shade where there is nothing more
    opaque = re.findall(r"^(?:table|tbody|tr|t[dh]) {[^}]*background", text, re.MULTILINE)
    assert not opaque and 'svg [id$="-patch_1"] path { fill: none !important; }' in text
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        assert len(re.findall(r'id="[^"]*-patch_1"', svg)) == 1  # the paper of its figure


def test_it_compares_the_systems_by_trials_that_were_completed(run_folder):
    compared = tables.summary(read(run_folder))
    assert compared.columns[-1] == "completion against bcube,2,1 bsr"
    assert [row.cells[-1] for row in compared.rows] == [
        "",
        "–",
        "",
    ]  # one failed, the other invalid


def test_flows_of_a_duration_are_compared_by_goodput(tmp_path, run_writer, experiment):
    timed = replace(experiment, workload=Workload(duration_s=2.0))
    compared = tables.summary(read(run_writer(tmp_path / "run", timed)))
    assert compared.columns[-1] == "goodput against bcube,2,1 bsr"
    assert [row.cells[-1] for row in compared.rows] == ["", "0.500 times", ""]
    assert not any(column.startswith("completion,") for column in compared.columns)


def test_it_says_what_is_not_to_be_believed(outline):
    assert "1 of 4 trials are not valid and excluded from means. 1 flow failed." in outline.text
    assert "sent only 0.500 of what their rate allows" in outline.text
    assert "Trial 4, tree,2,2, repeat 2: invalid" in outline.text


def test_it_needs_nothing_from_elsewhere(page, outline):
    for name, value in outline.attributes:
        if name in ("src", "href", "xlink:href"):
            assert value.startswith(("#", "data:")), value
    text = page.read_text()
    assert "<script" not in text and "@import" not in text and "url(http" not in text
    assert len(outline.ids) == len(set(outline.ids))


def test_figures_stand_beside_it(page):
    names = {file.stem for file in (page.parent / "figures").iterdir()}
    assert names == {
        *("goodput", "faults", "completion", "throughput", "links", "network-0", "network-1"),
    }
    assert page.read_text().count("<svg") == len(names)


def test_figures_follow_light_and_dark(page):
    text = page.read_text()
    figures = text[text.index("<figure>") :]
    assert "var(--c0)" in figures and "var(--ink)" in figures
    for colour in ("#222222", "#0072b2", "#ffffff"):
        assert colour not in figures


def test_hostile_names_are_shown_and_not_run(tmp_path, run_writer, experiment):
    systems = (System("bcube,2,1", routing="bsr", label=HOSTILE), experiment.systems[1])
    hostile = replace(experiment, name=HOSTILE, about="a & <b>", systems=systems)
    page, _ = write_report(run_writer(tmp_path / "run", hostile))
    text = page.read_text()
    assert "<script" not in text and "a &amp; &lt;b&gt;" in text
    assert HOSTILE in Outline(text).text


@pytest.fixture
def without_pixels(monkeypatch):
    """Draw figures, but do not make them into pixels, which takes longest."""
    monkeypatch.setattr(style, "rendered", lambda *_: b'<svg viewBox="0 0 1 1"></svg>')


@pytest.fixture
def broken(run_folder, tmp_path, without_pixels):
    """A run to be damaged."""
    return Path(shutil.copytree(run_folder, tmp_path / "run"))


def test_what_is_broken_is_named_and_the_rest_is_shown(broken):
    (broken / "trials" / "0000" / "flows.parquet").write_bytes(b"no parquet")
    (broken / "trials" / "0001" / "trial.json").write_text("{")
    (broken / "trials" / "0002" / "trial.json").write_text("[1]")
    page, missing = write_report(broken)
    text = Outline(page.read_text()).text
    assert len(missing) == 4
    assert "0000/flows.parquet" in missing[0] and "0001/trial.json" in missing[1]
    assert "0002/trial.json has no trial, system" in missing[2]
    assert "2 of 4 planned trials have records" in missing[3]
    assert missing[3] in text and "bcube,2,1 bsr" in text


def test_a_trial_over_machines_tells_of_each(broken):
    file = broken / "trials" / "0000" / "trial.json"
    told = json.loads(file.read_text())
    machines = [asdict(MachineReadings(0, card_sent_bytes=10**6)), asdict(MachineReadings(1, "x"))]
    told["readings"] = {"duration_s": 4.0, "machines": machines}
    file.write_text(json.dumps(told))
    outline = Outline(write_report(broken)[0].read_text())
    [table] = (table for table in outline.tables if table[0][0] == "machine")
    assert table[1][:2] == ["0", "2.00 Mbit/s"] and table[2][0] == "1: x"


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("verdict", {"warnings": []}, "its verdict has no reasons"),
        ("verdict", {"reasons": [], "warnings": 0}, "the verdict's warnings are 0, not texts"),
        ("verdict", {"reasons": [1]}, "the verdict's reasons are [1], not texts"),
        ("verdict", {"reasons": [], "figures": 1.5}, "the verdict's figures are 1.5, not numbers"),
        ("verdict", {"reasons": [], "figures": {"a": ""}}, "figures are {'a': ''}, not numbers"),
        ("readings", 1, "its readings are 1"),
        ("readings", {"duration_s": 4.0, "machines": 1}, "its readings of machines are 1"),
        ("readings", {"duration_s": 4.0, "machines": [{}]}, "its readings of machines are [{}]"),
        ("readings", {"machines": [asdict(MachineReadings(0))]}, "no duration_s"),
    ],
)
def test_a_trial_whose_verdict_or_readings_are_damaged_is_left_out(broken, part, value, words):
    file = broken / "trials" / "0000" / "trial.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {part: value}))
    missing = read(broken).missing  # which the report shows
    assert missing[0].startswith(f"{file} is damaged: ") and words in missing[0]
    assert "3 of 4 planned trials have records" in missing[1]


def test_an_ideal_of_zero_has_no_share(broken):
    file = broken / "trials" / "0000" / "trial.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"ideal_bps": 0.0}))
    flows = file.with_name("flows.parquet")
    pandas.read_parquet(flows).assign(ideal_bps=0.0).to_parquet(flows, index=False)
    _, missing = write_report(broken)
    assert missing == []


@pytest.mark.parametrize("table", ["intervals", "links", "events"])
def test_a_table_that_was_cut_off_is_named_and_the_rest_is_shown(broken, table):
    file = broken / "trials" / "0000" / f"{table}.parquet"
    file.write_bytes(file.read_bytes()[:700])
    ran = CliRunner().invoke(command, [str(broken)], catch_exceptions=False)
    assert f"pillarbox: {file} cannot be read: " in ran.stderr
    assert "bcube,2,1 bsr" in Outline((broken / "report.html").read_text()).text


def test_a_report_has_no_recording_beside_it_where_a_trial_says_nothing(broken):
    (broken / "trials" / "0003" / "trial.json").write_text("{}")
    ran = CliRunner().invoke(command, [str(broken)], catch_exceptions=False)
    assert "0003/trial.json has no trial, system" in ran.stderr
    assert not (broken / "page.html").exists()


def test_run_without_manifest_still_shows_its_trials(broken):
    (broken / "manifest.json").unlink()
    page, missing = write_report(broken)
    assert "manifest.json" in missing[0]
    assert "bcube,2,1 bsr" in Outline(page.read_text()).text


@pytest.mark.parametrize(
    "damaged",
    [
        {"systems": -1, "begun": True, "machine": "x"},
        {"systems": {"bcube": 7}, "pillarbox": [], "command_line": [None]},
    ],
)
def test_damaged_parts_of_the_manifest_are_left_out_and_named(broken, damaged):
    file = broken / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | damaged))
    page, missing = write_report(broken)
    assert set(missing) == {f"{file} is damaged: {part} is left out." for part in damaged}
    assert "bcube,2,1 bsr" in Outline(page.read_text()).text


def test_run_of_no_trial_says_so(broken):
    shutil.rmtree(broken / "trials")
    page, _ = write_report(broken)
    assert "No trial of this run has ended." in Outline(page.read_text()).text


def test_command_prints_the_page_and_what_is_missing(broken, tmp_path):
    shutil.rmtree(broken / "trials" / "0003")
    ran = CliRunner().invoke(command, [str(broken), "--out", str(tmp_path / "out")])
    assert ran.exit_code == 0
    assert "3 of 4 planned trials" in ran.stderr
    assert ran.stdout.strip() == str(tmp_path / "out" / "report.html")


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(PillarboxError, match="is not a run"):
        write_report(tmp_path)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_and_lines_stand_out_from_their_background(mode):
    sheet = (Path(page_module.__file__).parent / "templates" / "style.css").read_text()
    light, dark, *_ = sheet.split("@media screen")
    colours = dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6})", light))
    if mode == "dark":
        colours |= dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6})", dark))
    wanted = {"--ink": 7, "--soft": 4.5, "--good": 4.5, "--bad": 4.5, "--careful": 4.5}
    lines = {f"--c{i}": 2.2 for i in range(7)}  # the palest of Okabe and Ito's on white
    for name, least in (wanted | lines).items():
        pair = sorted(luminance(colours[one]) for one in (name, "--paper"))
        contrast = (pair[1] + 0.05) / (pair[0] + 0.05)
        assert contrast >= least, f"{name} has a contrast of {contrast:.1f}"


def test_it_begins_with_what_came_of_the_run(tmp_path, run_writer, experiment, without_pixels):
    known = replace(experiment, name="bcube-tree")
    page, _ = write_report(run_writer(tmp_path / "run", known))
    text = page.read_text()
    headline = text[text.index('<div class="headline">') : text.index("<nav>")]
    assert "Not all flows of bcube,2,1 bsr and tree,2,2 are completed" in headline
    other, _ = write_report(run_writer(tmp_path / "other"))
    assert '<div class="headline">' in other.read_text()


def test_details_are_folded(page):
    text = page.read_text()
    for name in ("faults", "links", "trials", "run", "manifest"):
        assert f'<details id="{name}">' in text
