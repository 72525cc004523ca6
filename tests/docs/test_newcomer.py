"""A newcomer types what README.md and the first lab sheet say, from the checkout, as written.

What lies before the first command, the installing, is tested where each CI run begins: in a clone
on a bare machine, whose `./pillarbox test` installs all that these commands need.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pillarbox.experiments.apps import papers as reproductions
from pillarbox.experiments.lab.linux import sandbox

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
NETWORKS = (ROOT / "docs" / "networks.md").read_text()
LAB = (ROOT / "vagrant" / "labs" / "1-addresses" / "README.md").read_text()
MODELS = ROOT / "tests" / "vagrant" / "labs" / "answers" / "lab1"
WAIT_S = 150

# Commands that take minutes, and what is done instead.
LEFT_OUT = {
    "sudo ./pillarbox demo": "test_long_commands_are_known, and test_demo.py runs it, smaller",
    "sudo ./pillarbox test": "it is what runs this test",
    "sudo ./pillarbox run bcube-tree --out tree": "test_long_commands_are_known",
    "./pillarbox report tree": "report is made of a shorter run, in test_first_report",
    "sudo ./pillarbox reproduce dcell-fig11": "test_long_commands_are_known",
}


def blocks(page: str, fence: str = "sh") -> list[list[str]]:
    """Return the commands of a page's blocks, without the remarks behind them."""
    found = re.findall(rf"^```{fence}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [[line.partition("  #")[0].strip() for line in text.splitlines()] for text in found]


def inline(page: str) -> list[str]:
    """Return the commands that stand in the lines of a page."""
    prose = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`((?:sudo )?\./pillarbox [a-z][^`]*)`", prose)


WIRESHARK = "wireshark -k -i -"
FIRST, LIVE, OTHER_TERMINAL, LONG, CAPTURE, LABS = blocks(README)
ASKED = dict.fromkeys([*inline(README), *(line for block in blocks(NETWORKS) for line in block)])
# Seconds of computing, which test_gap.py, test_compare.py and test_reproductions.py do in part.
COMPUTED_LONG = {
    "./pillarbox gap dcell,4,1",
    "./pillarbox compare --papers",
    "./pillarbox compare --all",
    "./pillarbox compare --all --csv networks.csv --switch-price 128=4000",
}
ALONE = [command for command in ASKED if re.match(r"\./pillarbox \S+ \S", command)]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that commands take for the checkout, so that they leave nothing in it."""
    ready = ["sh", str(ROOT / "vagrant" / "provision.sh"), "--ready"]
    if subprocess.run(ready, capture_output=True, check=False).returncode:
        pytest.skip("needs the environment that ./pillarbox makes")
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("pillarbox", "vagrant"):  # all that commands name
        (folder / name).symlink_to(ROOT / name)
    if shutil.which("sudo") is None:  # root needs none, and small machines have none
        (folder / "root").mkdir()
        (folder / "root" / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
        (folder / "root" / "sudo").chmod(0o755)
    return folder


def environment(checkout: Path) -> dict[str, str]:
    # As a login has it: not the variables of the sandbox, and none of the tests' own.
    kept = {n: v for n, v in os.environ.items() if n not in (sandbox.INSIDE, "PYTHONPATH")}
    return {**kept, "PATH": f"{kept['PATH']}:{checkout / 'root'}"}


def typed(checkout: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    """Type lines at a shell in the checkout."""
    return subprocess.run(
        ["sh", "-c", "\n".join(lines)],
        cwd=checkout,
        env=environment(checkout),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )


def said(checkout: Path, *lines: str) -> str:
    """Type lines that have to succeed; return what they print."""
    done = typed(checkout, *lines)
    assert done.returncode == 0, (lines, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.parametrize(
    "command",
    [pytest.param(one, marks=[pytest.mark.long] if one in COMPUTED_LONG else []) for one in ALONE],
)
def test_question_is_answered(checkout: Path, command: str) -> None:
    printed = said(checkout, command).strip()
    drawing = re.search(r"--draw (\S+)", command)
    assert (checkout / drawing[1]).stat().st_size if drawing else printed


def test_python_of_the_page_runs(checkout: Path) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", NETWORKS, re.MULTILINE | re.DOTALL)
    (checkout / "program.py").write_text(program)
    python = said(checkout, "sh vagrant/provision.sh --ready").strip() + "/bin/python"
    assert said(checkout, f"{python} program.py").startswith("7 10.0.0.8 02:00:")


def test_every_command_of_the_readme_is_tried_or_its_absence_explained() -> None:
    assert FIRST[0] in LEFT_OUT
    assert set(ALONE) >= COMPUTED_LONG
    assert LIVE == ["sudo ./pillarbox up dcell,4,1"]
    assert set(LONG) <= set(LEFT_OUT)
    tried = {*FIRST, *LIVE, *OTHER_TERMINAL, *CAPTURE, *LABS, *ALONE}
    known = {*tried, *LEFT_OUT}
    for command in inline(README):
        # `./pillarbox grade` and the like only name a command.
        assert command in known or len(command.split()) == 2, command


def test_long_commands_are_known(checkout: Path) -> None:
    (experiment,) = [line.split()[3] for line in LONG if " run " in line]
    (figure,) = [line.split()[3] for line in LONG if " reproduce " in line]
    trials = said(checkout, f"./pillarbox run {experiment} --dry-run")
    assert "bcube,4,1" in trials and "tree,4,4" in trials
    assert figure in reproductions.names()
    assert "4. BCube, cut" in said(checkout, "./pillarbox run demo --dry-run")
    assert "--out" in said(checkout, "./pillarbox demo --help")


@pytest.mark.root
def test_machine_and_experiments_are_told(checkout: Path) -> None:
    _, doctor, listing, _, _ = FIRST
    assert "Labs cannot run here" not in said(checkout, doctor)
    assert "\nquick " in said(checkout, listing)


@pytest.mark.long  # test_demo.py runs and reports something smaller
@pytest.mark.root
def test_first_report(checkout: Path) -> None:
    *_, run, report = FIRST
    ran = typed(checkout, run)
    # On a machine that has other things to do the verdict is honest, and the exit code with it.
    assert ran.returncode == 0 or "not valid" in ran.stdout, (ran.stdout, ran.stderr)
    page = checkout / said(checkout, report).strip()
    assert page == checkout / "first" / "report.html"
    text = page.read_text()
    assert "bcube,2,1" in text and "tree,2,2" in text and "<svg" in text


@contextmanager
def live(checkout: Path) -> Iterator[subprocess.Popen[str]]:
    """Type README's `up`, and give its prompt."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)
    with subprocess.Popen(
        ["sh", "-c", f"exec {LIVE[0]}"],
        cwd=checkout,
        env=environment(checkout),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as prompt:
        try:
            yield prompt
        finally:
            prompt.kill()


def answers(prompt: subprocess.Popen[str], lines: list[str]) -> str:
    """Type lines at the prompt; return all that is said until the last is done."""
    assert prompt.stdin is not None and prompt.stdout is not None
    end = "that was all"
    prompt.stdin.write("".join(f"{line}\n" for line in [*lines, f"0.0 echo {end}"]))
    prompt.stdin.flush()
    told = ""
    for line in prompt.stdout:
        if end in line:
            return told
        told += line
    raise AssertionError(f"the lab ended: {told}")


@pytest.mark.long  # 20 s of waiting; test_commands.py and test_capture.py ask a smaller lab
@pytest.mark.root
def test_live_network_and_the_other_terminal(checkout: Path) -> None:
    lines = re.findall(r"^pillarbox> (.*)$", README, re.MULTILINE)
    assert len(lines) >= 7
    with live(checkout) as prompt:
        told = answers(prompt, lines)
        # Servers of a busy machine may take one another for dead; but they go on.
        assert re.search("3 packets transmitted, [123] received", told), told
        assert re.search(r"computed: 0\.0 .*4\.3\n", told)
        assert "Unknown" not in told and "Error" not in told, told
        server, client, status, trace = OTHER_TERMINAL
        said(checkout, server)
        measured = subprocess.Popen(
            ["sh", "-c", client],
            cwd=checkout,
            env=environment(checkout),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert "0.3" in said(checkout, status)
        while (traced := typed(checkout, trace)).returncode:
            assert measured.poll() is None, (traced.stdout, traced.stderr)
        assert "4.3" in traced.stdout
        out, _ = measured.communicate(timeout=WAIT_S)
        assert re.search(r"Mbits/sec +\d* *receiver", out), out
        stream, capture, follow, dissector = CAPTURE
        bytes_sent = stream.replace("capture", "capture --seconds 1").replace(WIRESHARK, "wc -c")
        assert int(said(checkout, bytes_sent)) > 0
        said(checkout, capture, dissector)
        assert (checkout / "lab.pcapng").stat().st_size > 0
        assert "Proto(" in (checkout / "pillarbox.lua").read_text()
        followed = typed(checkout, follow)
        assert followed.returncode in (0, 1), followed.stderr  # 1: a packet took another way
        assert followed.stdout.strip()


def test_lab_1_from_the_sheet_to_full_marks(checkout: Path) -> None:
    shown = [line for block in blocks(LAB, "console") for line in block if line[:2] == "$ "]
    (copy,) = re.findall(r"`(cp vagrant/\S+ mine.py)`", LAB)
    ((grade,),) = blocks(LAB)
    path, example = LABS
    lines = [line.removeprefix("$ ") for line in shown]
    assert example == lines[0]
    said(checkout, path, *lines, copy)
    assert (checkout / "mine.svg").stat().st_size > 0
    points, *_ = said(checkout, path, grade).split()[-3:]
    assert float(points) < 10  # for leaving the skeleton as it is
    drawn = said(checkout, path, f"{grade.removesuffix(' mine.py')} --show")
    (kind,) = re.findall(r"^ +network +(\w+),", drawn, re.MULTILINE)
    model = MODELS / ("model.py" if kind == "bcube" else f"model_{kind}.py")
    shutil.copy(model, checkout / "mine.py")
    assert said(checkout, path, grade).split()[-3:] == ["100", "of", "100"]
