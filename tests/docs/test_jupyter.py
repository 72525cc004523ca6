"""The notebook in a real Jupyter kernel, which is fetched for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebook"
LONGEST_S = 500
EXECUTE = """
import sys, nbclient, nbformat
notebook = nbformat.read("cut.ipynb", 4)
nbclient.NotebookClient(notebook, kernel_name="python3", timeout=200).execute()
nbformat.write(notebook, sys.argv[1])
"""


def texts(file: Path) -> list[list[str]]:
    """Return what each cell shows as text; what stands for a figure aside, and blanks."""
    cells = [c for c in json.loads(file.read_text())["cells"] if c["cell_type"] == "code"]
    outputs = [[o for o in c["outputs"] if o["output_type"] != "display_data"] for c in cells]
    words = [["".join(o.get("text") or o["data"]["text/plain"]) for o in each] for each in outputs]
    return [[" ".join(text.split()) for text in each] for each in words]


@pytest.mark.long
def test_kernel_shows_what_is_on_file(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", tmp_path / "kernel"]
    subprocess.run([*pip, "ipykernel", "nbclient"], check=True, timeout=LONGEST_S)
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, tmp_path / "done.ipynb"],
        cwd=FOLDER,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "kernel"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert texts(tmp_path / "done.ipynb") == texts(FOLDER / "cut.ipynb")
    figures = (tmp_path / "done.ipynb").read_text().count('"image/png"')
    assert figures == (FOLDER / "cut.ipynb").read_text().count('"image/png"')
