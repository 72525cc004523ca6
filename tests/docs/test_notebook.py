"""The notebook's cells run in order, and say what is on file."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from pillarbox.experiments import load
from pillarbox.experiments.runs.plans.loading import experiment_of
from pillarbox.experiments.runs.plans.loading import load as plan_of

FOLDER = Path(__file__).parents[2] / "docs" / "notebook"
NOTEBOOK = json.loads((FOLDER / "cut.ipynb").read_text())
LONGEST_RUN_BYTES = LONGEST_NOTEBOOK_BYTES = 200_000


def execute(notebook: dict[str, Any]) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    executed: dict[str, Any] = module.executed(notebook)
    return executed


def shown(notebook: dict[str, Any]) -> list[list[str]]:
    """Return what each cell shows, as text; blanks aside, which versions of pandas set anew."""
    outputs = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    texts = [[o.get("text") or o["data"]["text/plain"] for o in cell] for cell in outputs]
    return [[" ".join("".join(text).split()) for text in cell] for cell in texts]


def test_cells_run_in_order_and_show_what_is_on_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    empty = [{**cell, "outputs": []} for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    done = execute({"cells": empty})
    assert shown(done) == shown(NOTEBOOK)
    figures = [
        o for cell in done["cells"] for o in cell["outputs"] if "image/png" in o.get("data", ())
    ]
    assert len(figures) >= 3


def test_cells_on_file_were_run_once_from_the_top() -> None:
    counts = [cell["execution_count"] for cell in NOTEBOOK["cells"] if "execution_count" in cell]
    assert counts == list(range(1, len(counts) + 1))


def test_run_is_the_one_that_the_notebook_names() -> None:
    text = "".join("".join(cell["source"]) for cell in NOTEBOOK["cells"])
    (plan,) = re.findall(r"pillarbox run (\S+) --out docs/notebook/run$", text, re.MULTILINE)
    run = load(FOLDER / "run")
    assert experiment_of(run.manifest["plan"]) == plan_of(str(FOLDER.parents[1] / plan))
    assert set(run.trials["status"]) == {"completed"}
    assert run.trials["valid"].all()


def test_lab_on_file_was_valid() -> None:
    notebook = json.loads((FOLDER / "lab.ipynb").read_text())
    assert "380" in shown(notebook)[0][1]  # flows, all completed
    assert shown(notebook)[1] == ["(True, [])"]  # the verdict, and no reason against it


def test_recorded_files_are_small() -> None:
    files = [file for file in (FOLDER / "run").glob("**/*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < LONGEST_RUN_BYTES
    assert (FOLDER / "cut.ipynb").stat().st_size < LONGEST_NOTEBOOK_BYTES
