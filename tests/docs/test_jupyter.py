"""The notebooks in a real Jupyter kernel, which is fetched for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox.experiments.lab.linux import sandbox
from tests.experiments.runs.control.test_commands import LABS
from tests.test_pillarbox import own_run

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "notebook"
LONGEST_S = 500
EXECUTE = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(notebook, kernel_name="python3", timeout=200).execute()
nbformat.write(notebook, sys.argv[2])
"""
INTERRUPT = """
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="python3")


def said(code, until=""):
    sent, text, state = client.execute(code), "", ""
    while state != "idle":
        message = client.get_iopub_msg(timeout=120)
        if message["parent_header"].get("msg_id") == sent:
            state = message["content"].get("execution_state", state)
            text += message["content"].get("text", "")
        if until and until in text:
            manager.interrupt_kernel()
            until = ""
    while (reply := client.get_shell_msg(timeout=120))["parent_header"]["msg_id"] != sent:
        pass
    return reply["content"], text


lab = "import pillarbox, time\\nwith pillarbox.lab('dcell,2,1'): print('there'); time.sleep(600)"
assert said(lab, until="there")[0]["ename"] == "KeyboardInterrupt"
assert said("print(6 * 7)")[1] == "42\\n"
client.stop_channels()
manager.shutdown_kernel()
"""


def texts(file: Path) -> list[list[str]]:
    """Return what each cell shows as text; what stands for a figure aside, and blanks."""
    cells = [c for c in json.loads(file.read_text())["cells"] if c["cell_type"] == "code"]
    outputs = [[o for o in c["outputs"] if o["output_type"] != "display_data"] for c in cells]
    words = [["".join(o.get("text") or o["data"]["text/plain"]) for o in each] for each in outputs]
    return [[" ".join(text.split()) for text in each] for each in words]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment in which this Python has a Jupyter kernel."""
    folder = tmp_path_factory.mktemp("jupyter")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder / "kernel"]
    subprocess.run([*pip, "ipykernel", "nbclient"], check=True, timeout=LONGEST_S)
    places = os.pathsep.join([str(folder / "kernel"), str(ROOT / "src")])
    return {**os.environ, "PYTHONPATH": places, "HOME": str(folder)}


def with_own_run_and_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no other lab be seen, and a kernel be spoken to."""
    own_run(monkeypatch)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def run(kernel: dict[str, str], program: str, *words: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=FOLDER,
        env={name: value for name, value in kernel.items() if name != sandbox.INSIDE},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_kernel_shows_what_is_on_file(kernel: dict[str, str], tmp_path: Path) -> None:
    run(kernel, EXECUTE, "cut.ipynb", tmp_path / "done.ipynb")
    assert texts(tmp_path / "done.ipynb") == texts(FOLDER / "cut.ipynb")
    figures = (tmp_path / "done.ipynb").read_text().count('"image/png"')
    assert figures == (FOLDER / "cut.ipynb").read_text().count('"image/png"')


@pytest.mark.long
@pytest.mark.root
def test_a_lab_is_brought_up_in_a_kernel(
    kernel: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_own_run_and_loopback(monkeypatch)
    run(kernel, EXECUTE, "lab.ipynb", tmp_path / "done.ipynb")
    done, on_file = texts(tmp_path / "done.ipynb"), texts(FOLDER / "lab.ipynb")
    assert done[0][0].startswith("0.3-4.0 is cut 0.0 1.0 1.3 4.1 4.3 ")  # and how long, how fast
    assert done[0][-1] == on_file[0][-1]  # all flows are completed
    assert list(LABS.iterdir()) == []


@pytest.mark.long
@pytest.mark.root
def test_an_interrupted_cell_leaves_a_kernel_and_no_lab(
    kernel: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_own_run_and_loopback(monkeypatch)
    run(kernel, INTERRUPT)
    assert list(LABS.iterdir()) == []
