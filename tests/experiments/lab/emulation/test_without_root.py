"""Labs of an ordinary user, in a user namespace: the four networks, a run, and a live grade."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from tests.experiments.users import ROOT, as_ordinary_user
from tests.vagrant.labs.test_answers import model_of

PILLARBOX = ("-m", "pillarbox")
NETWORKS = {
    "bcube,2,1": "cut 0.0-s0",
    "dcell,2,1": "cut 0.0-1.0 silent",
    "dpillar,4,2": "kill 0.0.0",
    "ficonn,4,1": "cut 0.0-1.0",
}


@pytest.mark.parametrize("spec", NETWORKS)
def test_every_network_comes_up_and_survives_a_fault(spec: str, tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    # On a busy machine packets are lost until all routes are found.
    script.write_text("\n".join([*["pingall"] * 3, NETWORKS[spec], *["pingall"] * 3]))
    done = as_ordinary_user(*PILLARBOX, "up", spec, "--exec", script)
    assert done.returncode == 0, done.stderr
    assert "without root: every packet passes through Python" in done.stdout
    dropped = [float(one) for one in re.findall(r"([\d.]+)% dropped", done.stdout)]
    before, after = dropped[:3], dropped[3:]
    assert min(before) == 0.0
    # Only a dead server is unreachable: all its pairs, of n (n - 1).
    servers = int(re.search(r"(\d+) servers", done.stdout)[1])  # type: ignore[index]
    dead = 200 / servers if "kill" in NETWORKS[spec] else 0.0
    assert min(after) == pytest.approx(dead, abs=0.1)


def test_what_needs_root_says_so() -> None:
    for option in (["--no-sandbox"], ["--machines", "2"], ["--queue", "ecn"], ["--plane", "ebpf"]):
        done = as_ordinary_user(*PILLARBOX, "up", "bcube,2,1", *option)
        assert done.returncode == 2 and "use sudo" in done.stderr, option
        assert len(done.stderr.splitlines()) == 1


LAB_OF_THE_LIBRARY = """
import os, pillarbox
with pillarbox.lab("dcell,2,1") as lab:
    assert lab.path("0.0", "1.1").delivered
    print(os.getuid(), lab["0.0"].run("id -u").stdout)
    with lab.capture("x.pcapng", seconds=0.2) as capture:
        pass
print(os.path.getsize("x.pcapng") > 100, os.stat("x.pcapng").st_uid == os.getuid())
"""


@pytest.mark.long
def test_the_contract_of_labs_holds() -> None:
    """The tests marked `without_root`, by an ordinary user."""
    folder = str(Path(__file__).parent)
    options = ["-q", "-p", "no:cacheprovider", "-m", "without_root and not long", "-c"]
    done = as_ordinary_user("-m", "pytest", *options, str(ROOT / "pyproject.toml"), folder)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d\d passed", done.stdout)


@pytest.mark.long
def test_the_library_runs_labs() -> None:
    done = as_ordinary_user("-c", LAB_OF_THE_LIBRARY)
    assert done.returncode == 0, done.stderr
    user, root, *size = done.stdout.split()
    assert (user != "0", root, size) == (True, "0", ["True", "True"])


@pytest.mark.long
def test_an_experiment_runs() -> None:
    options = ["--repeats", "1", "--duration", "1", "--json"]
    done = as_ordinary_user(*PILLARBOX, "run", "quick", *options)
    trials = json.loads(done.stdout)["trials"]
    assert len(trials) == 2
    assert all(one["plane"] in ("python", "bridges") for one in trials), done.stderr
    assert not any(one["failed_flows"] for one in trials)


@pytest.mark.long
def test_a_live_grade_is_sealed(tmp_path: Path) -> None:
    router = tmp_path / "router.py"
    router.write_text(model_of(sheet_of("2", "ada")))
    done = as_ordinary_user(*PILLARBOX, "grade", "2", "--student", "ada", "--live", router)
    assert done.returncode == 0, done.stderr
    assert "40 of  40  next hops" in done.stdout and "10 of  10  live: pings" in done.stdout
    assert "unsealed" not in done.stdout
