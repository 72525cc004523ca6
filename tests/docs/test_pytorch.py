"""Programs of docs/pytorch.md on a lab's servers: DistributedDataParallel over Gloo, and Dask."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.experiments.runs.control.test_commands import (
    PILLARBOX,
    environment,
    own_run,
    pillarbox,
    up,
)

pytestmark = [pytest.mark.root, pytest.mark.long]
__all__ = ["own_run"]  # a fixture

ROOT = Path(__file__).parents[2]
EXAMPLE = "docs/pytorch/ddp.py"
PYTHON_VARIABLE = "PILLARBOX_TORCH"  # names a Python interpreter that has PyTorch
STEPS = 60
CUT_AT = "step   5"  # line of rank 0 after which the cable is cut
LEAST_BYTES = 1e6  # the gradients of a few steps; a cut cable carries nothing
LOSS = re.compile(r"^(?:\[0\.0\] )?step +\d+  loss ([\d.]+) ", re.MULTILINE)
SENT = ("awk", '$1 == "h0-eth0:" {print $10}', "/proc/net/dev")
WORKERS = ("0.1", "1.0", "3.3")
CLIENT = """
import socket, time
from distributed import Client

def host_name(number):
    time.sleep(0.1)
    return socket.gethostname()

client = Client("tcp://h0:8786")
client.wait_for_workers(3)
workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
print(*(worker.rpartition(":")[0] for worker in workers))
print(*sorted(set(client.gather(client.map(host_name, range(12))))))
"""


@cache
def torch_python() -> str:
    """Return an interpreter that has PyTorch, or skip the test."""
    for python in filter(None, (os.environ.get(PYTHON_VARIABLE), sys.executable, "python3")):
        words = [python, "-c", "import torch"]
        if subprocess.run(words, capture_output=True, check=False).returncode == 0:
            return python
    pytest.skip(f"there is no PyTorch: name an interpreter that has it in {PYTHON_VARIABLE}")


def sent_bytes() -> int:
    """Return the bytes that server 0.0 has sent over its cable to switch s0."""
    return int(pillarbox("exec", "0.0", *SENT).stdout)


def losses(output: str) -> list[float]:
    """Return the loss of each step, then the final loss of the trained model."""
    final = json.loads(output.splitlines()[-1].removeprefix("[0.0] "))["final_loss"]
    return [*map(float, LOSS.findall(output)), final]


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command of Pillarbox; at the end of the block, end it and wait for its end."""
    with subprocess.Popen(
        [*PILLARBOX, *words], cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            yield running
        finally:
            running.terminate()


@pytest.mark.parametrize("with_cut", [False, True])
def test_losses_are_those_of_one_process(own_run: Callable[[], None], with_cut: bool) -> None:
    program = ["--python", torch_python(), "--", EXAMPLE, "--steps", str(STEPS)]
    own_run()
    with up("bcube,4,1", "--rate-mbit", "100"):
        with started("torchrun", "--ranks", "1", *program) as running:
            expected = losses(running.communicate()[0])
        with started("torchrun", "--ranks", "8", *program) as running:
            assert running.stdout is not None
            told = ""
            while CUT_AT not in told:
                line = running.stdout.readline()
                assert line, told
                told += line
            if with_cut:
                assert sent_bytes() > LEAST_BYTES, "the cable carries no gradients"
                assert pillarbox("cut", "0.0-s0").returncode == 0
                assert running.poll() is None, "the training ended before the cut"
                before = sent_bytes()
            told += running.communicate()[0]
            assert running.returncode == 0
        if with_cut:
            assert sent_bytes() - before < LEAST_BYTES, "the cable still carries gradients"
    assert len(expected) == STEPS + 1
    assert losses(told) == pytest.approx(expected, abs=1e-5)


@pytest.mark.skipif(not importlib.util.find_spec("distributed"), reason="there is no Dask")
def test_dask_workers_announce_the_addresses_of_their_servers(own_run: Callable[[], None]) -> None:
    dask = shutil.which("dask", path=Path(sys.executable).parent)
    assert dask is not None
    own_run()
    with up("bcube,4,1"):
        programs = [("0.0", "scheduler")] + [(server, "worker", "h0:8786") for server in WORKERS]
        with ExitStack() as stack:
            for server, *words in programs:
                stack.enter_context(started("exec", server, dask, *words, "--no-dashboard"))
            done = pillarbox("exec", "2.0", sys.executable, "-c", CLIENT)
        assert done.stdout.splitlines() == [
            "tcp://10.0.0.16 tcp://10.0.0.2 tcp://10.0.0.5",
            "h1 h15 h4",
        ], done.stderr
