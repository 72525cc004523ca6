"""What students get has all that a lab needs, and no solution."""

import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox.experiments.apps.teaching.grading_engine import suffix_of
from pillarbox.experiments.apps.teaching.release import solutions_in, write_release
from pillarbox.experiments.apps.teaching.sheet_catalogue import numbers, sheet_of
from pillarbox.experiments.base.files import CHECKOUT
from pillarbox.topos.base.errors import PillarboxError

ANSWERS = CHECKOUT / "tests" / "vagrant" / "labs" / "answers"

pytestmark = pytest.mark.skipif(
    not (CHECKOUT / ".git").exists(), reason="a release is made of a git checkout"
)


def test_a_release_has_the_labs_and_no_solution(tmp_path: Path) -> None:
    files = write_release(tmp_path / "students")
    assert not [name for name in files if "answers" in Path(name).parts]
    for number in numbers():
        lab = sheet_of(str(number), "ada").lab
        folder, skeleton = f"vagrant/labs/{lab.FOLDER}", f"skeleton{suffix_of(lab)}"
        assert {f"{folder}/README.md", f"{folder}/{skeleton}"} <= {*files}
    shown = subprocess.run(
        [sys.executable, "-m", "pillarbox", "grade", "2", "--student", "ada", "--show"],
        cwd=tmp_path / "students",
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "direction" in shown.stdout
    with pytest.raises(PillarboxError, match="is not empty"):
        write_release(tmp_path / "students")


@pytest.mark.parametrize("lab", ["lab1", "lab3", "lab5", "lab8", "lab11"])
def test_a_solution_that_was_left_lying_about_is_found(tmp_path: Path, lab: str) -> None:
    (model,) = (ANSWERS / lab).glob("model.*")
    suffix = "".join(model.suffixes)
    source = model.read_text().replace("number", "count").replace("latest_us", "newest")
    (tmp_path / f"notes{suffix}").write_text(source)
    assert [*solutions_in(tmp_path, ANSWERS)] == [f"notes{suffix}"]
