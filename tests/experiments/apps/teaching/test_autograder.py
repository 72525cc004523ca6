"""What others' graders are given: it runs, has no solution in it, and keeps the secret."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from pillarbox.experiments.apps.teaching import grading_engine
from pillarbox.experiments.apps.teaching.release import solutions_in
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from pillarbox.experiments.base.files import CHECKOUT
from pillarbox.experiments.cli.commands.sheets import command
from pillarbox.topos.base.errors import PillarboxError
from tests.vagrant.labs.test_answers import model_of

ANSWERS = CHECKOUT / "tests" / "vagrant" / "labs" / "answers"

pytestmark = pytest.mark.skipif(
    not (CHECKOUT / ".git").exists(), reason="it is made of a git checkout"
)

# A machine on which the seal is not whole.
UNSEALED = """
import functools, sys
from pillarbox.experiments.cli.main import main
from pillarbox.experiments.apps.teaching import child, grading_engine
without = ["landlock", "calls", "user"]
grading_engine.ChildKeeper = functools.partial(child.ChildKeeper, without=without)
main(sys.argv[1:])
"""


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

    def results(program: str = f"{sys.executable} -m pillarbox") -> dict[str, object]:
        environment = {**os.environ, "AUTOGRADER": str(tmp_path), "PILLARBOX": program}
        run = [sys.executable, str(source / "run_autograder")]
        subprocess.run(run, cwd=source / "pillarbox", env=environment, check=True, timeout=200)
        return dict(json.loads((tmp_path / "results" / "results.json").read_text()))

    assert "0 Python files" in str(results()["output"])
    (tmp_path / "submission" / "mine.py").symlink_to(word)
    assert "is a link" in str(results()["output"])
    assert "sesame" not in str(results())
    (tmp_path / "submission" / "mine.py").unlink()
    model = model_of(sheet_of("3", "ada"))
    (tmp_path / "submission" / "mine.py").write_text(model)
    told = results()
    assert told["score"] == 100
    assert "these marks count" in str(told["output"])
    (tmp_path / "unsealed.py").write_text(UNSEALED)
    told = results(f"{sys.executable} {tmp_path}/unsealed.py")
    assert told["score"] == 0
    assert "this machine cannot seal the file" in str(told["output"])


def test_only_gradescopes_zip_holds_the_secret_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    made("gradescope", tmp_path, "--secret", "sesame")
    assert (tmp_path / "lab.zip").stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(tmp_path / "lab.zip") as archive:
        assert archive.getinfo("word").external_attr >> 16 == 0o600
    with pytest.raises(PillarboxError, match="students see all of classroom"):
        made("classroom", tmp_path, "--secret", "sesame")


def test_classroom_is_a_self_check_without_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yaml = pytest.importorskip("yaml")
    monkeypatch.setenv("PILLARBOX_GRADE_SECRET", "sesame")
    source = made("classroom", tmp_path)
    lab = sheet_of("3", "ada").lab
    assert (source / "mine.py").read_text() == grading_engine.skeleton_of(lab)
    text = (source / ".github/workflows/classroom.yml").read_text()
    assert "self-check" in yaml.safe_load(text)["name"]
    assert "secret" not in text.partition("name:")[2].lower()
    assert not [file for file in source.rglob("*") if file.name == "word"]


def test_a_form_that_cannot_be_made_safe_says_what_is_offered(tmp_path: Path) -> None:
    with pytest.raises(PillarboxError, match=r"unsealed in the kernel .* gradescope or classroom"):
        made("nbgrader", tmp_path)
    with pytest.raises(PillarboxError, match="moodle is not known"):
        made("moodle", tmp_path)
