"""`pillarbox torchrun` by programs without PyTorch: environment, output, and a common end."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.experiments.labs import WAIT_S, wait_until
from tests.experiments.runs.control.test_commands import (
    PILLARBOX,
    ROOT,
    Terminal,
    environment,
    own_run,
    pillarbox,
    processes,
    up,
)

pytestmark = pytest.mark.root
__all__ = ["own_run"]  # a fixture

ENVIRONMENT = """
import json, os, socket, sys
name = socket.gethostname()
facts = {"name": name, "ip": socket.gethostbyname(name), "user": os.getuid(), "words": sys.argv[1:]}
print(json.dumps({**os.environ, **facts}))
print("to standard error", file=sys.stderr)
"""
# Rank 2 leaves a process in another session and fails, after rank 1 has opened the file. Rank 1
# ignores SIGTERM if the file is a FIFO.
DYING = """
import os, signal, subprocess, sys
if os.environ["RANK"] == "2":
    open(sys.argv[1]).close()
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    sys.exit("unfinished line\\nrank 2 ends")
if os.environ["RANK"] == "1":
    if sys.argv[1] != os.devnull:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(sys.argv[1], "w").close()
signal.pause()
"""
OWN_PYTHON = ["--python", sys.executable]
WAITING = "import signal; print('ready'); signal.pause()"


def lines_by_server(text: str) -> dict[str, str]:
    """Return the single line of each server, without its prefix."""
    found = dict(line.removeprefix("[").split("] ", 1) for line in text.splitlines())
    assert len(found) == len(text.splitlines())
    return found


@pytest.mark.parametrize(
    ("spec", "interface"), [("bcube,2,1", "dcn0"), ("tree,2,2", "h{rank}-eth0")]
)
def test_ranks_have_the_environment_of_torchrun(
    own_run: Callable[[], None], tmp_path: Path, spec: str, interface: str
) -> None:
    own_run()
    script = tmp_path / "environment.py"
    script.write_text(ENVIRONMENT)
    with up(spec):
        done = pillarbox("torchrun", *OWN_PYTHON, "--", str(script), "--lr", "0.1")
        assert done.returncode == 0, done.stderr
        told = lines_by_server(done.stdout)
        assert lines_by_server(done.stderr) == dict.fromkeys(told, "to standard error")
        assert sorted(told) == ["0.0", "0.1", "1.0", "1.1"]
        for rank, address in enumerate(sorted(told)):
            expected = {
                "RANK": str(rank),
                "WORLD_SIZE": "4",
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": "10.0.0.1",
                "MASTER_PORT": "29500",
                "GLOO_SOCKET_IFNAME": interface.format(rank=rank),
                "name": f"h{rank}",
                "ip": f"10.0.0.{rank + 1}",
                "user": 0,
                "words": ["--lr", "0.1"],
            }
            facts = json.loads(told[address])
            assert {name: facts[name] for name in expected} == expected
        options = ["--on", "1.1,h0,0.1", "--ranks", "2", "--user", "nobody", "--master-port", "7"]
        done = pillarbox("torchrun", *options, "--", "-c", ENVIRONMENT)
        assert done.returncode == 0, done.stderr
        told = lines_by_server(done.stdout)
        assert sorted(told) == ["0.0", "1.1"]
        facts = json.loads(told["0.0"])
        assert (facts["RANK"], facts["WORLD_SIZE"]) == ("1", "2")
        assert (facts["MASTER_ADDR"], facts["MASTER_PORT"]) == ("10.0.0.4", "7")
        assert facts["user"] > 0


def test_all_ranks_end_together(own_run: Callable[[], None], tmp_path: Path) -> None:
    own_run()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with up("bcube,2,1"):
        before = processes()
        for user, file in ((OWN_PYTHON, fifo), (["--user", "nobody"], os.devnull)):
            done = pillarbox("torchrun", *user, "--", "-c", DYING, str(file))
            assert done.returncode == 1
            failed = (
                "pillarbox: rank 2 on server 1.0 failed with exit code 1: all ranks were stopped"
            )
            said = ["[1.0] unfinished line", "[1.0] rank 2 ends", failed]
            assert done.stderr.splitlines() == said
            assert processes() <= before
        killed = Terminal("torchrun", *OWN_PYTHON, "--", "-c", WAITING, ready="[1.0] ready")
        assert pillarbox("kill", "1.0").returncode == 0
        killed.shows("rank 2 on server 1.0 was ended by signal 9 (Killed): all ranks were stopped")
        assert killed.ended() == 2  # three servers are left
        interrupted = Terminal("torchrun", *OWN_PYTHON, "--", "-c", WAITING, ready="[1.1] ready")
        interrupted.type("\x03")
        interrupted.shows("pillarbox: stopped")
        assert interrupted.ended() == 2
        assert processes() <= before
        for number, code in ((signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)):
            with subprocess.Popen(
                [*PILLARBOX, "torchrun", *OWN_PYTHON, "--", "-c", WAITING],
                cwd=ROOT,
                env=environment(),
                stdout=subprocess.PIPE,
            ) as running:
                try:
                    assert running.stdout is not None
                    assert all(b"ready" in running.stdout.readline() for _ in range(3))
                    running.send_signal(number)
                    assert running.wait(WAIT_S) == code
                finally:
                    running.kill()
            wait_until(lambda: processes() <= before, "a process of a rank is left")


def test_a_wrong_word_is_a_sentence(own_run: Callable[[], None]) -> None:
    own_run()
    with up("tree,2,2"):
        for words, sentence in (
            (["--ranks", "5", "--", "-c", ""], "--ranks 5 needs as many servers: 4 are there"),
            (["--on", "9.9", "--", "-c", ""], "'9.9' is dead or not in the lab"),
            (["--python", "/no/python", "--", "-c", ""], "there is no program /no/python"),
            (["--user", "unknown", "--", "-c", ""], "there is no user unknown"),
            (["--", "no.py"], "there is no file no.py: name a script"),
        ):
            done = pillarbox("torchrun", *words)
            assert (done.returncode, done.stdout) == (2, "")
            assert sentence in done.stderr
            assert done.stderr.count("\n") == 1
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (75, most))
        done = pillarbox("torchrun", "--", "-c", "")
        assert "4 ranks need 76 open files, and 75 are allowed" in done.stderr
        resource.setrlimit(resource.RLIMIT_NOFILE, (76, most))
        assert pillarbox("torchrun", *OWN_PYTHON, "--", "-c", "").returncode == 0
