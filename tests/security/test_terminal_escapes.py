"""Foreign text that would act on a terminal or a browser: it is shown, and nothing comes of it."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from pillarbox.experiments.base.files import CHECKOUT
from pillarbox.experiments.base.output import Output, styled
from pillarbox.experiments.runs.reporting.progress import Live
from pillarbox.experiments.runs.reporting.report_page import rendered

ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202e"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\u202e"
# They write bytes for a program at the other end of a pipe, those of programs on servers, or a
# sentence that they have cleaned themselves.
WRITERS_OF_BYTES = {
    "experiments/lab/linux/unprivileged.py",
    "experiments/runs/control/detached.py",
    "experiments/runs/control/server_ranks.py",
    "experiments/apps/cluster/flow_ends.py",
    "experiments/apps/teaching/control_compiler.py",
    "experiments/apps/cluster/dask_process.py",
    "experiments/apps/cluster/part.py",
    "experiments/apps/cluster/worker_program.py",
    "experiments/lab/traffic/generator_worker.py",
}


def said(*words: str, encoding: str = "utf-8") -> str:
    """Return what a command prints, by both streams."""
    ended = subprocess.run(
        [sys.executable, "-m", "pillarbox", *words],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"PYTHONIOENCODING": encoding, "PYTHONPATH": str(CHECKOUT / "src")},
    )
    return ended.stdout.decode("utf-8")


def experiment(folder: Path, name: str, body: str) -> str:
    file = folder / name
    file.write_text(body, encoding="utf-8")
    return str(file)


def test_a_word_of_the_command_line() -> None:
    assert SHOWN in said("topo", ESCAPE)
    assert SHOWN in said(ESCAPE)
    assert SHOWN in said("path", "bcube,4,1", "0.0", ESCAPE)


def test_a_file_name_and_what_is_in_the_file(tmp_path: Path) -> None:
    body = '[[systems]]\nnetwork = "\\u001b]0;owned\\u0007\\u202e"\n[workload]\nduration_s = 1\n'
    assert SHOWN in said("run", experiment(tmp_path, f"{ESCAPE}.toml", "= 1"))
    told = said("run", experiment(tmp_path, "plain.toml", body))
    assert r"\x1b]0;owned\x07\u202e" in told
    assert "\x1b" not in told and "\u202e" not in told
    key = '["\\u001b[31m"]\nx = 1\n'
    assert r"\x1b[31m" in said("run", experiment(tmp_path, "key.toml", key))


def test_letters_that_the_terminals_encoding_does_not_have() -> None:
    assert r"\udcff" in said("topo", b"\xff".decode(errors="surrogateescape"))
    assert "東" in said("topo", "東", encoding="ascii")
    assert r"\u6771" in said("topo", "東", encoding="latin-1")


def test_a_program_that_forgot_to_ask_for_it() -> None:
    shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    output = Output(shown, needed=True)
    print(f"{ESCAPE}\n\ttable", file=output)
    print("drawn", end="\x1b[0m", file=styled(output), flush=True)
    assert isinstance(shown.buffer, io.BytesIO)
    assert shown.buffer.getvalue().decode() == f"{SHOWN}\n\ttable\ndrawn\x1b[0m"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_line_of_a_run_that_goes_on(terminal: bool) -> None:
    stream = io.StringIO()
    with Live(1, ESCAPE, Console(file=stream, force_terminal=terminal, width=200)) as live:
        live.begin_trial(ESCAPE, [])
        live.event(ESCAPE)
        live.end_trial(ESCAPE)
    assert SHOWN in stream.getvalue()
    assert "\x1b]" not in stream.getvalue() and "\u202e" not in stream.getvalue()


def test_a_page() -> None:
    page = rendered("reproductions.html", reproductions=[], missing=[f"<b>{ESCAPE}</b>"])
    assert f"&lt;b&gt;{SHOWN}&lt;/b&gt;" in page
    assert "\x1b" not in page


def test_nothing_writes_past_the_filter() -> None:
    """Only `experiments/base/output.py` and the writers named here know the streams below it."""
    passed = re.compile(r"sys\.__std|std(out|err)\.buffer|os\.write\([12],|\.unfiltered")
    sources = (
        file for folder in ("experiments", "hosts") for file in CHECKOUT.glob(f"{folder}/**/*.py")
    )
    found = {
        str(file.relative_to(CHECKOUT))
        for file in sources
        if passed.search(file.read_text(encoding="utf-8"))
    }
    assert found - {"experiments/base/output.py"} == WRITERS_OF_BYTES
