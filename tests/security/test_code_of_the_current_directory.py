"""Code that a stranger plants in the directory from which root calls a command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox.experiments.base import interpreter
from pillarbox.experiments.base.files import CHECKOUT
from pillarbox.experiments.lab.linux import sandbox

WAIT_S = 280  # only a guard
MODULES = (
    *("numpy", "json", "click", "runpy", "topos", "hosts", "pillarbox", "multiprocessing"),
    *("sitecustomize", "usercustomize", "pillarbox.experiments.runs.trials.trial_worker"),
    *(
        "pillarbox.experiments.lab.linux.delays",
        "pillarbox.hosts.live.nursery",
        "pillarbox.experiments.lab.traffic.generator_worker",
    ),
)
# What the console script does, whose directory comes first on the import path, as for any script.
MAIN = "from pillarbox.experiments.cli.main import main\nmain()\n"
PLAN = """
repeats = 1
[workload]
pattern = "one-to-one"
duration_s = 0.2
[[systems]]
network = "bcube,2,1"
plane = "python"
timers = "paper"
"""
SWEEP = """
from pathlib import Path
from pillarbox.experiments.models.simulator.sweeps import sweep
from pillarbox.experiments.base.units import size
if __name__ == "__main__":
    print(sweep(size, [1000, 2000], Path(sys.argv[1]), workers=2, say=str))
"""
LIBRARY_SETTINGS = {
    "matplotlibrc": "text.usetex: True\n",
    ".numba_config.yaml": "cache_dir: {planted}\n",
}


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Return a directory full of modules that leave a mark when they run."""
    folder = tmp_path / "planted"
    (folder / "marks").mkdir(parents=True)
    for module in MODULES:
        parts = module.split(".")
        for depth in range(1, len(parts)):
            package = folder.joinpath(*parts[:depth])
            package.mkdir(exist_ok=True)
            (package / "__init__.py").write_text(mark(folder, ".".join(parts[:depth])))
        folder.joinpath(*parts).with_suffix(".py").write_text(mark(folder, module))
    for name, text in LIBRARY_SETTINGS.items():
        (folder / name).write_text(text.format(planted=folder))
    return folder


def mark(folder: Path, module: str) -> str:
    return f"import os\nos.close(os.open({str(folder / 'marks' / module)!r}, os.O_CREAT))\n"


def marks(folder: Path) -> set[str]:
    return set(os.listdir(folder / "marks"))  # noqa: PTH208


def pillarbox(
    script: Path, cwd: Path, *words: str, code: str = MAIN, **variables: str
) -> tuple[int, str]:
    """Run a command as its console script does; return its exit code and what it printed."""
    script.write_text(f"import sys\nsys.path[:] = {interpreter.import_path()!r}\n{code}")
    done = subprocess.run(
        [sys.executable, str(script), *words],
        cwd=cwd,
        env={**os.environ, sandbox.INSIDE: "", **variables},
        input="",
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.root
def test_run_starts_its_workers_without_it(planted: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    words = "run", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "out")
    code, shown = pillarbox(tmp_path / "command.py", planted, *words)
    assert code in (0, 1), shown  # 1: so short a trial cannot be judged
    assert "Mbit/s" in shown
    assert not marks(planted)


@pytest.mark.root
def test_up_with_a_delay_starts_its_processes_without_it(planted: Path, tmp_path: Path) -> None:
    words = "up", "bcube,2,1", "--plane", "python", "--delay", "1ms", "--page", "--hold"
    code, shown = pillarbox(tmp_path / "command.py", planted, *words)
    assert code == 0 and "lab " in shown, shown
    assert not marks(planted)


def test_simulate_loads_no_compiled_code_from_it(planted: Path, tmp_path: Path) -> None:
    """Without a home numba chooses where compiled code is kept, by its settings."""
    words = "simulate", "bcube,4,1", "--load", "0.3", "--count", "1000"
    none = str(tmp_path / "none")
    code, shown = pillarbox(tmp_path / "command.py", planted, *words, HOME=none)
    assert code == 0, shown
    assert not marks(planted)
    assert not list(planted.glob("**/*.nbi"))


def test_processes_of_a_sweep_start_without_it(planted: Path, tmp_path: Path) -> None:
    code, shown = pillarbox(tmp_path / "sweep.py", planted, str(tmp_path / "o"), code=SWEEP)
    assert code == 0 and "1.00 kB" in shown, shown
    assert not marks(planted)


def test_a_module_command_runs_neither_it_nor_what_variables_name(planted: Path) -> None:
    """PYTHONPATH, PYTHONSTARTUP and PYTHONUSERBASE of somebody else have no effect."""
    site = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    (planted / site).mkdir(parents=True)
    (planted / site / "planted.pth").write_text(mark(planted, "pth").replace("\n", ";"))
    done = subprocess.run(
        interpreter.module_command("pillarbox", "topo", "bcube,4,1"),
        cwd=planted,
        env={
            "HOME": str(planted),
            "PYTHONPATH": str(planted),
            "PYTHONSTARTUP": str(planted / "numpy.py"),
            "PYTHONUSERBASE": str(planted),
            "PYTHONINSPECT": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "BCube" in done.stdout
    assert not marks(planted)


def test_the_checkouts_script_starts_python_isolated(planted: Path) -> None:
    """PYTHONPATH, and a user's site-packages, would be read before any code of Pillarbox."""
    starts = re.findall(r"\bexec (\".*)", (CHECKOUT / "pillarbox").read_text())
    assert len(starts) == 2
    for start in starts:
        assert re.fullmatch(r'"\$venv/bin/python" -I( -B)? "\$venv/bin/pillarbox" "\$@"', start)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to mistrust a home")
def test_root_reads_no_settings_of_libraries_in_others_homes(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sudo -E` keeps HOME: numba would load compiled code from there."""
    os.chown(planted, 61_001, 61_001)
    monkeypatch.setenv("HOME", str(planted))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(planted))
    monkeypatch.setenv("XDG_CACHE_HOME", str(planted.parent))
    interpreter.use_own_home()
    assert os.environ["HOME"] == "/root"
    assert "NUMBA_CACHE_DIR" not in os.environ
    assert os.environ["XDG_CACHE_HOME"] == str(planted.parent)  # which is root's
