"""What others' graders are given: it runs, has no solution in it, and keeps the secret."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.commands.labs import command
from experiments.files import CHECKOUT
from experiments.grading import engine
from experiments.grading.release import solutions_in
from experiments.grading.sheets import sheet_of
from tests.vagrant.labs.test_answers import model_of
from topos.base.errors import PillarboxError

ANSWERS = CHECKOUT / "tests" / "vagrant" / "labs" / "answers"

pytestmark = pytest.mark.skipif(
    not (CHECKOUT / ".git").exists(), reason="it is made of a git checkout"
)


def made(form: str, folder: Path, *options: str) -> Path:
    """Unpack what the command makes."""
    out = folder / "lab.zip"
    arguments = ["autograder", "3", "--form", form, "--out", str(out), *options]
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    with zipfile.ZipFile(out) as archive:
        archive.extractall(folder / "source")
        assert [*solutions_in(folder / "source", ANSWERS)] == []
    return folder / "source"


def test_gradescope_grades_a_submission(tmp_path: Path) -> None:
    word = tmp_path / "word"
    word.write_text("sesame")
    source = made("gradescope", tmp_path, "--secret-file", str(word))
    assert "pip install" in (source / "setup.sh").read_text()
    for name in ("submission", "results"):
        (tmp_path / name).mkdir()
    user = {"email": "ada@example.org", "name": "Ada", "sid": None}
    (tmp_path / "submission_metadata.json").write_text(json.dumps({"users": [user]}))

    def results() -> dict[str, object]:
        program = f"{sys.executable} -m experiments"
        environment = {**os.environ, "AUTOGRADER": str(tmp_path), "PILLARBOX": program}
        run = [sys.executable, str(source / "run_autograder")]
        subprocess.run(run, cwd=source / "pillarbox", env=environment, check=True, timeout=200)
        return dict(json.loads((tmp_path / "results" / "results.json").read_text()))

    assert "there are 0" in str(results()["output"])
    model = model_of(sheet_of("3", "ada"))
    (tmp_path / "submission" / "mine.py").write_text(model)
    told = results()
    assert told["score"] == 100
    assert "these marks count" in str(told["output"])


def test_classroom_has_a_part_for_each_check_and_no_secret(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    source = made("classroom", tmp_path)
    lab = sheet_of("3", "ada").lab
    assert (source / "mine.py").read_text() == engine.skeleton_of(lab)
    steps = yaml.safe_load((source / ".github/workflows/classroom.yml").read_text())["jobs"]
    steps = steps["grade"]["steps"]
    parts = [step["with"] for step in steps if "command-grader" in step.get("uses", "")]
    assert [part["test-name"] for part in parts] == [check.name for check in lab.CHECKS]
    assert sum(part["max-score"] for part in parts) == engine.WHOLE
    assert steps[-1]["with"]["runners"].split(",") == [
        step["id"] for step in steps if step.get("id")
    ]
    with pytest.raises(PillarboxError, match="students see all of classroom"):
        made("classroom", tmp_path, "--secret", "sesame")


def test_nbgrader_has_a_cell_for_each_check(tmp_path: Path) -> None:
    source = made("nbgrader", tmp_path)
    notebook = json.loads((source / "source/lab3/lab3.ipynb").read_text())
    cells = [cell["metadata"]["nbgrader"] for cell in notebook["cells"]]
    assert sum(cell.get("points", 0) for cell in cells) == engine.WHOLE
    assert len({cell["grade_id"] for cell in cells}) == len(cells)
    assert [cell["solution"] for cell in cells].count(True) == 2


def test_nbgrader_notebook_grades_what_is_written_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cells are run in turn, as a kernel would; what a cell writes to a file is written."""
    source = made("nbgrader", tmp_path)
    notebook = json.loads((source / "source/lab3/lab3.ipynb").read_text())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(model_of(sheet_of("3", "ID")))
    (tmp_path / "pillarbox").write_text(f'#!/bin/sh\nexec {sys.executable} -m experiments "$@"\n')
    (tmp_path / "pillarbox").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    code = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    known: dict[str, object] = {}
    for cell in code:
        if not cell.startswith(("%%writefile", "points[")):
            exec(cell, known)
    assert sum(eval(cell, known) for cell in code if cell.startswith("points[")) == 100
