"""A lab for others' graders: Gradescope's zip, nbgrader's notebook, a GitHub Classroom template.

They hold Pillarbox as students get it (release.py), and run `pillarbox grade`. Only Gradescope's
zip stays with the teacher: only it may hold the secret. The others take it from their environment,
where there is one.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from experiments.files import CHECKOUT, SHEETS
from experiments.grading import engine
from experiments.grading.release import tracked_for_students
from experiments.grading.sheets import sheet_of
from topos.base.errors import require

EXECUTABLE, READABLE = 0o755, 0o644
MOMENT = (2026, 1, 1, 0, 0, 0)  # of all files: the same lab gives the same zip
NEEDED = ("topos/", "hosts/", "experiments/", "vagrant/labs/")  # by `grade`
ALSO = ("setup.py", "pyproject.toml", "pillarbox.py", "README.md", "LICENSE")
SECRET = "PILLARBOX_GRADE_SECRET"
IN_ZIP = "pillarbox"

SETUP = """#!/usr/bin/env bash
set -e
apt-get update
apt-get install -y python3 python3-pip python3-venv
python3 -m venv /opt/pillarbox
/opt/pillarbox/bin/pip install "$(dirname "$0")/pillarbox"
"""
# Gradescope's folders: source, submission, results, submission_metadata.json.
RUN = '''#!/usr/bin/env python3
"""Grades one submission; Gradescope runs this file."""

import json
import os
import subprocess
from pathlib import Path

TOP = Path(os.environ.get("AUTOGRADER", "/autograder"))
PROGRAM = os.environ.get("PILLARBOX", "/opt/pillarbox/bin/pillarbox").split()

told = json.loads((TOP / "submission_metadata.json").read_text())
user = told["users"][0]
student = str(user.get("sid") or user["email"].partition("@")[0])
results = TOP / "results" / "results.json"
files = sorted((TOP / "submission").glob("*.py"))
if len(files) == 1:
    command = ["grade", "{lab}", str(files[0]), "--student", student, "--json"]
    word = TOP / "source" / "word"
    secret = ["--secret-file", str(word)] if word.exists() else []
    done = subprocess.run([*PROGRAM, *command, *secret], capture_output=True, text=True)
    answer = done.stdout or json.dumps({{"score": 0, "output": done.stderr[-2000:]}})
else:
    output = f"hand in one Python file: there are {{len(files)}}"
    answer = json.dumps({{"score": 0, "output": output}})
results.write_text(answer)
'''
WORKFLOW = """name: Lab {lab}
on: [push, workflow_dispatch]
permissions:
  contents: read
  actions: read
  checks: write
jobs:
  grade:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: pip install ./pillarbox
      - run: pillarbox grade {lab} mine.py --student "$STUDENT" --json > results.json
        env:
          STUDENT: ${{{{ github.actor }}}}
          {secret}: ${{{{ secrets.{secret} }}}}
{parts}
      - uses: classroom-resources/autograding-grading-reporter@v1
        env:
{results}
        with:
          runners: {runners}
"""
PART = """      - id: {part}
        uses: classroom-resources/autograding-command-grader@v1
        with:
          test-name: "{name}"
          command: jq -e '.tests[{at}] | .score == .max_score' results.json
          timeout: 1
          max-score: {points:g}"""

Entry = tuple[str, str | bytes, int]  # name, content, mode


def make(form: str, lab: str, out: Path, secret: str) -> None:
    """Write a lab in one of FORMS, with the secret where students cannot see it."""
    sheet = sheet_of(lab, "class")
    require(form == "gradescope" or not secret, f"students see all of {form}: leave the secret out")
    made = {name: (content, mode) for name, content, mode in FORMS[form](sheet, secret)}
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (content, mode) in sorted(made.items()):
            info = zipfile.ZipInfo(name, MOMENT)
            info.external_attr, info.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(info, content)


def gradescope(sheet: engine.Sheet, secret: str) -> Iterator[Entry]:
    """Yield what Gradescope takes: setup.sh, run_autograder, and what they need."""
    yield "setup.sh", SETUP, EXECUTABLE
    yield "run_autograder", RUN.format(lab=sheet.number), EXECUTABLE
    if secret:
        yield "word", secret + "\n", READABLE
    yield from _pillarbox()


def classroom(sheet: engine.Sheet, _: str) -> Iterator[Entry]:
    """Yield a template repository: the sheet, the skeleton, and the workflow that grades."""
    checks = [(f"part{at}", check) for at, check in enumerate(sheet.lab.CHECKS)]
    parts = "\n".join(
        PART.format(part=part, name=check.name, at=at, points=check.points)
        for at, (part, check) in enumerate(checks)
    )
    results = "\n".join(
        f"          {part.upper()}_RESULTS: ${{{{ steps.{part}.outputs.result }}}}"
        for part, _ in checks
    )
    runners = ",".join(part for part, _ in checks)
    given = {"lab": sheet.number, "parts": parts, "results": results, "runners": runners}
    yield ".github/workflows/classroom.yml", WORKFLOW.format(secret=SECRET, **given), READABLE
    yield "mine.py", engine.skeleton_of(sheet.lab), READABLE
    yield "README.md", _sheet_text(sheet), READABLE
    yield from _pillarbox()


def nbgrader(sheet: engine.Sheet, _: str) -> Iterator[Entry]:
    """Yield a source notebook: a cell to fill in, and one of partial credit for each part."""
    name = f"lab{sheet.number}"
    skeleton = engine.skeleton_of(sheet.lab)
    cells = [
        _cell("markdown", _sheet_text(sheet), f"{name}-sheet", locked=True),
        _cell("code", 'STUDENT = "ID"', f"{name}-student", solution=True),
        _cell("code", f"%%writefile mine.py\n{skeleton}", f"{name}-mine", solution=True),
        _cell("code", GRADED.format(lab=sheet.number), f"{name}-graded", locked=True),
        *(
            _cell("code", f"points[{check.name!r}]", f"{name}-part{at}", points=check.points)
            for at, check in enumerate(sheet.lab.CHECKS)
        ),
    ]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    whole = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    yield f"source/{name}/{name}.ipynb", json.dumps(whole, indent=1) + "\n", READABLE


GRADED = '''"""Grades mine.py; each part's points stand in a cell below, for nbgrader to count."""
import json
import subprocess

command = ["pillarbox", "grade", "{lab}", "mine.py", "--student", STUDENT, "--json"]
found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
points = {{test["name"]: test["score"] for test in found["tests"]}}
for test in found["tests"]:
    print(test["score"], "of", test["max_score"], " ", test["name"], test["output"])'''


def _cell(
    kind: str,
    text: str,
    identity: str,
    *,
    solution: bool = False,
    locked: bool = False,
    points: float | None = None,
) -> dict[str, Any]:
    """Return a cell with nbgrader's marks on it (its schema, version 3)."""
    graded = points is not None
    marks: dict[str, Any] = {
        "grade": graded,
        "grade_id": identity,
        "locked": locked or graded,
        "schema_version": 3,
        "solution": solution,
        "task": False,
    }
    marks |= {"points": points} if graded else {}
    cell = {"cell_type": kind, "id": identity, "metadata": {"nbgrader": marks}, "source": text}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def _sheet_text(sheet: engine.Sheet) -> str:
    return (SHEETS / sheet.lab.FOLDER / "README.md").read_text(encoding="utf-8")


def _pillarbox() -> Iterator[Entry]:
    """Yield the files of Pillarbox that grading needs; none of them is a solution."""
    for name in tracked_for_students(CHECKOUT):
        file = CHECKOUT / name
        if (name.startswith(NEEDED) or name in ALSO) and file.is_file() and not file.is_symlink():
            yield f"{IN_ZIP}/{name}", file.read_bytes(), READABLE


FORMS: dict[str, Callable[[engine.Sheet, str], Iterator[Entry]]] = {
    "gradescope": gradescope,
    "nbgrader": nbgrader,
    "classroom": classroom,
}
