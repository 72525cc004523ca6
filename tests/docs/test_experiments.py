"""docs/experiments.md and docs/records.md name what there is, and their example can be run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pillarbox.experiments.apps.page import recording
from pillarbox.experiments.base.arguments import SCHEMA
from pillarbox.experiments.models.workloads.patterns import PATTERNS
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.control.client import PROTOCOL
from pillarbox.experiments.runs.plans.experiment import Experiment, FaultAt, FaultRate, System
from pillarbox.experiments.runs.plans.loading import load
from pillarbox.experiments.runs.plans.values import fields_of
from pillarbox.experiments.runs.trials import schema
from pillarbox.experiments.runs.trials.experiment_run import orders_of
from pillarbox.hosts.base.fault_kinds import BY_WORDS

DOCS = Path(__file__).parents[2] / "docs"
EXPERIMENTS = (DOCS / "experiments.md").read_text()
RECORDS = (DOCS / "records.md").read_text()


def names(cells: list[str]) -> list[str]:
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_the_example_can_be_run(tmp_path: Path):
    (example,) = re.findall(r"```toml\n(.*?)```", EXPERIMENTS, re.DOTALL)
    file = tmp_path / "mine.toml"
    file.write_text(example)
    found = load(str(file))
    assert all(order.flows and order.faults for order in orders_of(found))


@pytest.mark.parametrize(
    ("title", "kind"), [("experiment", Experiment), ("system", System), ("workload", Workload)]
)
def test_every_key_is_there_and_no_other(title: str, kind: type):
    (table,) = re.findall(rf"\| key \| of (?:the|a) {title}.*?\n\n", EXPERIMENTS, re.DOTALL)
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert sorted(names(cells)) == sorted(fields_of(kind))


def test_faults_and_patterns_are_named():
    for name in (*BY_WORDS, *fields_of(FaultAt), *fields_of(FaultRate), *PATTERNS):
        assert f"`{name}`" in EXPERIMENTS, name


def test_pages_name_the_versions_of_all_formats():
    pages = {
        "records.md": f"This is version {schema.VERSION} ",
        "commands.md": f"Its `schema` is {SCHEMA};",
        "emulation.md": f"protocol version {PROTOCOL})",
        "page.md": f"Version {recording.VERSION}: JSON texts over a WebSocket",
        "page.schema.json": f'"version": {{ "const": {recording.VERSION} }}',
    }
    for page, text in pages.items():
        assert text in (DOCS / page).read_text(), page
    assert re.findall(r"^\| (\d+) \|", RECORDS, re.MULTILINE)[-1] == str(schema.VERSION)


@pytest.mark.parametrize("table", ["trials", *schema.TABLES])
def test_every_column_is_there_and_no_other(table: str):
    columns = schema.TRIALS if table == "trials" else schema.TABLES[table]
    (text,) = re.findall(rf"^## {table}\n(.*?)(?=^## )", RECORDS, re.DOTALL | re.MULTILINE)
    rows = re.findall(r"^\| (`.*?) \| (\w+) \|", text, re.MULTILINE)
    told = {name: kind for cell, kind in rows for name in names([cell])}
    assert told == columns
