"""Export of a lab for other graders: Gradescope's zip, and a template for GitHub Classroom.

Both contain Pillarbox as released to students (release.py), and run `pillarbox grade`. Only
Gradescope's zip stays with the teacher and runs in a container in which the grader seals the
student's file, so only it contains the secret. A GitHub Classroom repository belongs to the
student, including its workflow: it is a self-check without a secret. Forms in which a student's
code runs unsealed next to the grader are not offered (NOT_OFFERED).
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pillarbox.experiments.apps.teaching import grading_engine
from pillarbox.experiments.apps.teaching.release import tracked_for_students
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from pillarbox.experiments.base.files import CHECKOUT, SHEETS
from pillarbox.topos.base.errors import PillarboxError, require

EXECUTABLE, READABLE, PRIVATE = 0o755, 0o644, 0o600
# timestamp of all files in the autograder's zip, fixed for reproducible zips
MOMENT = (2026, 1, 1, 0, 0, 0)
# Pillarbox's folders that `pillarbox grade` needs
NEEDED = ("src/", "topos/", "hosts/", "experiments/", "vagrant/labs/")
ALSO = ("setup.py", "pyproject.toml", "README.md", "LICENSE")
IN_ZIP = "pillarbox"
NOT_OFFERED = {
    "nbgrader": "nbgrader runs the student's cells unsealed in the kernel that grades, where they "
    "can read the secret and write the marks: collect the files (`nbgrader zip_collect`) and grade "
    "them by `pillarbox grade-all`",
}

SETUP = """#!/usr/bin/env bash
set -e
here=$(dirname "$0")
[ ! -e "$here/word" ] || chmod 600 "$here/word"
apt-get update
apt-get install -y python3 python3-pip python3-venv
python3 -m venv /opt/pillarbox
/opt/pillarbox/bin/pip install "$here/pillarbox"
"""
# Script run_autograder; Gradescope's folders are source, submission and results.
RUN = '''#!/usr/bin/python3 -I
"""Grades one submission; Gradescope runs this file.

Without a seal around the student's file `pillarbox grade` refuses, and there are no marks.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

TOP = Path(os.environ.get("AUTOGRADER", "/autograder"))
PROGRAM = os.environ.get("PILLARBOX", "/opt/pillarbox/bin/pillarbox").split()

told = json.loads((TOP / "submission_metadata.json").read_text())
user = told["users"][0]
student = str(user.get("sid") or user["email"].partition("@")[0])
submission = str((TOP / "submission").resolve())  # folder from Gradescope
command = ["grade", "{lab}", submission, f"--student={{student}}", "--json"]
word = TOP / "source" / "word"
secret = ["--secret-file", str(word)] if word.exists() else []
done = subprocess.run([*PROGRAM, *command, *secret], capture_output=True, text=True)
sys.stderr.write(done.stderr)  # the teacher sees it, students see the results only
answer = done.stdout
if done.returncode:
    *_, why = done.stderr.strip().rpartition("\\n")
    known = why.startswith("pillarbox: ")
    output = why.removeprefix("pillarbox: ") if known else "the grader failed: ask your teacher"
    answer = json.dumps({{"score": 0, "output": f"not graded: {{output}}"}})
(TOP / "results" / "results.json").write_text(answer)
'''
WORKFLOW = """# A self-check: this repository is the student's, and so is this file. The marks that
# count are those of `pillarbox grade-all`, which the teacher runs elsewhere with a secret.
name: Lab {lab}, self-check
on: [push, workflow_dispatch]
permissions:
  contents: read
jobs:
  self-check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: pip install ./pillarbox
      - run: pillarbox grade {lab} mine.py --student "$STUDENT" | tee -a "$GITHUB_STEP_SUMMARY"
        shell: bash
        env:
          STUDENT: ${{{{ github.actor }}}}
"""

# name, content and permission bits of a file in the autograder's zip
Entry = tuple[str, str | bytes, int]


def write_autograder(form: str, lab: str, out: Path, secret: str) -> None:
    """Write a lab's autograder for Gradescope (with the secret) or GitHub Classroom."""
    offered = " or ".join(FORMS)
    if form not in FORMS:
        why = NOT_OFFERED.get(form, f"{form} is not known")
        raise PillarboxError(f"{why}; the forms of an autograder are {offered}")
    sheet = sheet_of(lab, "class")
    require(
        form == "gradescope" or not secret,
        f"students see all of {form}, which is a self-check: leave the secret out",
    )
    require(
        not grading_engine.is_control(sheet.lab),
        f"lab {sheet.number} is measured on a live network, which needs root and the machine's "
        "kernel: grade it by `pillarbox grade-all`",
    )
    made = {name: (content, mode) for name, content, mode in FORMS[form](sheet, secret)}
    with (
        open(out, "wb", opener=_open_private if secret else None) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, (content, mode) in sorted(made.items()):
            info = zipfile.ZipInfo(name, MOMENT)
            info.external_attr, info.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(info, content)


def _open_private(path: str, flags: int) -> int:
    """Open the autograder's zip file, which only its owner may read; return its descriptor."""
    descriptor = os.open(path, flags, PRIVATE)
    os.fchmod(descriptor, PRIVATE)
    return descriptor


def gradescope_files(sheet: grading_engine.Sheet, secret: str) -> Iterator[Entry]:
    """Yield the files of the autograder zip for Gradescope: setup.sh, run_autograder, Pillarbox."""
    yield "setup.sh", SETUP, EXECUTABLE
    yield "run_autograder", RUN.format(lab=sheet.number), EXECUTABLE
    if secret:
        yield "word", secret + "\n", PRIVATE
    yield from _pillarbox_files()


def classroom_files(sheet: grading_engine.Sheet, _: str) -> Iterator[Entry]:
    """Yield the files of a GitHub Classroom template: lab sheet, skeleton and grading workflow."""
    workflow = WORKFLOW.format(lab=sheet.number)
    yield ".github/workflows/classroom.yml", workflow, READABLE
    yield "mine.py", grading_engine.skeleton_of(sheet.lab), READABLE
    yield "README.md", _sheet_text(sheet), READABLE
    yield from _pillarbox_files()


def _sheet_text(sheet: grading_engine.Sheet) -> str:
    return (SHEETS / sheet.lab.FOLDER / "README.md").read_text(encoding="utf-8")


def _pillarbox_files() -> Iterator[Entry]:
    """Yield the files of Pillarbox that the autograder's zip needs; none of them is a solution."""
    for name in tracked_for_students(CHECKOUT):
        file = CHECKOUT / name
        if (name.startswith(NEEDED) or name in ALSO) and file.is_file() and not file.is_symlink():
            yield f"{IN_ZIP}/{name}", file.read_bytes(), READABLE


FORMS: dict[str, Callable[[grading_engine.Sheet, str], Iterator[Entry]]] = {
    "gradescope": gradescope_files,
    "classroom": classroom_files,
}
