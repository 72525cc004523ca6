"""Sweeps: the same results wherever they are computed, kept, and never computed twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pillarbox.experiments.base import source_code
from pillarbox.experiments.models.simulator import sweeps
from pillarbox.experiments.models.simulator.sweeps import (
    result_code_hash,
    run_task,
    run_task_with_same_code,
    sweep,
)
from pillarbox.topos.base.errors import PillarboxError

# Another process has to find these, and in a test's own module it would not.
MEASURES = """
import os
import time
import numpy

def draw(task):
    return {"mean": numpy.random.default_rng(task).random(1000).mean(), "task": tuple(task)}

def die(task):
    os._exit(1) if task else None

def wait(task):
    time.sleep(task)

def large(mebibytes):
    return int(numpy.ones(mebibytes << 20, numpy.int8).sum()) >> 20
"""
ROOT = Path(__file__).parents[4]
TASKS = [(1, run) for run in range(6)]


@pytest.fixture(scope="module")
def measures(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("measures")
    (folder / "measures_of_sweeps.py").write_text(MEASURES)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        import measures_of_sweeps

        yield measures_of_sweeps
        del sys.modules["measures_of_sweeps"]


@pytest.fixture
def said() -> list[str]:
    return []


def test_results_do_not_depend_on_the_workers(measures: Any, tmp_path: Path) -> None:
    one = sweep(measures.draw, TASKS, tmp_path / "one", workers=1, say=str)
    two = sweep(measures.draw, TASKS, tmp_path / "two", workers=2, say=str)
    assert one == two == [json.loads(json.dumps(measures.draw(task))) for task in TASKS]
    assert [found["task"] for found in one] == list(map(list, TASKS))
    names = [sorted(file.name for file in folder.iterdir()) for folder in tmp_path.iterdir()]
    assert names[0] == names[1] and len(names[0]) == len(TASKS)


def test_what_is_done_is_taken(measures: Any, tmp_path: Path, said: list[str]) -> None:
    sweep(measures.draw, TASKS[:4], tmp_path, workers=1, say=str)
    files = sorted(tmp_path.iterdir())
    mark = json.loads(files[0].read_text()) | {"found": "taken"}
    files[0].write_text(json.dumps(mark))
    files[1].write_text(files[1].read_text()[:20])  # as after a full disk
    found = sweep(measures.draw, TASKS, tmp_path, workers=1, say=said.append)
    assert found.count("taken") == 1
    assert said[0].startswith("3 of 6 tasks were done before")
    assert said[1].startswith("3 tasks took")
    expected = [measures.draw(task)["mean"] for task in TASKS]
    assert sum(one != "taken" and one["mean"] in expected for one in found) == 5


def test_another_code_is_another_task(
    measures: Any, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(measures.draw, TASKS[:1], tmp_path, workers=1, say=str)
    monkeypatch.setattr(sweeps, "result_code_hash", lambda module: "changed")
    sweep(measures.draw, TASKS[:1], tmp_path, workers=1, say=said.append)
    assert not any("before" in one for one in said)
    with pytest.raises(PillarboxError, match="a Dask worker runs different code"):
        run_task_with_same_code(measures.draw, TASKS[0], "mine")


def test_the_code_is_that_of_the_networks_and_of_the_measure(measures: Any) -> None:
    def now() -> str:
        source_code.code_digest.cache_clear()
        return result_code_hash("measures_of_sweeps")

    first = now()
    file = Path(measures.__file__)
    file.write_text(MEASURES + "\nCHANGED = True\n")
    assert now() != first
    file.write_text(MEASURES)
    assert now() == first


def test_a_process_that_dies_is_told(measures: Any, tmp_path: Path) -> None:
    sweep(measures.die, [0], tmp_path, workers=1, say=str)
    with pytest.raises(PillarboxError, match="fewer --workers; finished tasks are stored"):
        sweep(measures.die, [0, 1, 2], tmp_path, workers=2, say=str)
    assert [json.loads(file.read_text())["task"] for file in tmp_path.iterdir()] == [0]


def test_no_worker_outlives_a_killed_sweep(measures: Any, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    folders = [str(Path(measures.__file__).parent), str(ROOT / "src")]
    program.write_text(
        f"import sys, pathlib\nsys.path[:0] = {folders}\n"
        "import measures_of_sweeps\n"
        "from pillarbox.experiments.models.simulator.sweeps import sweep\n"
        "if __name__ == '__main__':\n"
        "    sweep(measures_of_sweeps.wait, [0, 60, 61], pathlib.Path('done'), workers=2)\n"
    )
    with subprocess.Popen(
        [sys.executable, str(program)], cwd=tmp_path, start_new_session=True
    ) as running:
        until(lambda: any((tmp_path / "done").glob("*.json")))
        running.kill()
    until(lambda: not exists(running.pid))


def exists(group: int) -> bool:
    """Tell whether a group still has processes."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def until(condition: Callable[[], bool]) -> None:
    """Wait for it, for a minute at most."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_error_is_that_of_the_task(tmp_path: Path) -> None:
    from pillarbox.experiments.apps.papers.dpillar.paths import measure

    tasks = [("dpillar,3,2", 0, 0, 1, run) for run in range(2)]
    with pytest.raises(PillarboxError, match="even number n >= 4"):
        sweep(measure, tasks, tmp_path, workers=2, say=str)


def test_the_peak_is_that_of_the_task(measures: Any, tmp_path: Path, said: list[str]) -> None:
    large, small = run_task(measures.large, 200), run_task(measures.large, 1)
    assert (large.found, small.found) == (200, 1)
    assert large.peak_mib - small.peak_mib > 150  # on Linux, though it was the same process
    # Far more than what other tests have left, and may give back in between.
    sweep(measures.large, [1, 400], tmp_path, workers=1, say=said.append)
    assert said[-1].endswith("MiB, of 400")


# -- Dask ----------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Any:
    distributed = pytest.importorskip("distributed", reason="pip install 'dask[distributed]'")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,  # they start at once; the way to them is TCP all the same
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address=None,
    ) as cluster:
        yield cluster


def test_dask_computes_the_same(measures: Any, tmp_path: Path, cluster: Any) -> None:
    address = cluster.scheduler_address
    there = sweep(measures.draw, TASKS, tmp_path / "dask", scheduler=address, say=str)
    assert there == sweep(measures.draw, TASKS, tmp_path / "here", workers=1, say=str)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nonsense"])
def test_no_scheduler(
    address: str, measures: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="pip install 'dask[distributed]'")
    monkeypatch.setattr(sweeps, "CONNECT_S", 0.2)
    with pytest.raises(PillarboxError, match="no scheduler of Dask answers"):
        sweep(measures.draw, TASKS, tmp_path, scheduler=address, say=str)


def test_a_scheduler_with_keys_that_nobody_named(measures: Any, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="pip install 'dask[distributed]'")
    with pytest.raises(PillarboxError, match="tls:// needs keys"):
        sweep(measures.draw, TASKS, tmp_path, scheduler="tls://127.0.0.1:9", say=str)


def test_workers_that_have_gone(
    measures: Any, tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "LOOK_S", 0.02)
    monkeypatch.setattr(sweeps, "ALONE_S", 0.2)
    tasks = [0.05 + number / 1000 for number in range(20)]
    keep = sweeps._store

    def last(*result: Any) -> None:
        keep(*result)
        cluster.scale(0)

    monkeypatch.setattr(sweeps, "_store", last)
    with pytest.raises(PillarboxError, match="all its workers have been unreachable"):
        sweep(measures.wait, tasks, tmp_path, scheduler=cluster.scheduler_address, say=str)


def test_without_dask(measures: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(PillarboxError, match="needs Dask, which is not installed"):
        sweep(measures.draw, TASKS, tmp_path, scheduler="tcp://127.0.0.1:8786", say=str)
