"""Parent's side of a generator process, which reads and writes lines of JSON."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import IO, Any

from experiments.interpreter import module_command
from experiments.traffic.generator_sockets import ALL_S
from experiments.traffic.generator_worker import GeneratorTask
from hosts.linux.calls import readable
from topos.base.errors import PillarboxError, require

ANSWER_S = 15.0  # extra time to answer beyond the generator process's own limits, in seconds


class Process:
    """A generator process, and the numbers of its flows."""

    def __init__(self, module: str, task: GeneratorTask, log: IO[bytes]) -> None:
        self.flows = [int(number) for number, *_ in task["flows"]]
        self._log = Path(log.name)
        self._running = subprocess.Popen(
            module_command(module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd="/",
            pass_fds=[*task["namespaces"].values(), task["board"]],
        )
        assert self._running.stdin is not None and self._running.stdout is not None
        self._input, self.output = self._running.stdin, self._running.stdout
        self.pid = self._running.pid

    def tell(self, what: object) -> None:
        """Write a JSON line to the generator process; raise PillarboxError if it has ended."""
        try:
            self._input.write(json.dumps(what).encode() + b"\n")
            self._input.flush()
        except BrokenPipeError:
            ended = f"the generator has ended: {last_words(self._log)}"
            raise PillarboxError(ended) from None

    def answer(self) -> dict[str, Any]:
        """Return the generator process's next JSON line; it connects its flows first."""
        answered = readable([self.output], ALL_S + ANSWER_S)
        line = self.output.readline() if answered else b""
        require(bool(line), f"the generator could not connect its flows: {last_words(self._log)}")
        return dict(json.loads(line))

    def finish(self) -> None:
        """End the process' flows that have a duration now."""
        self._running.send_signal(signal.SIGUSR1)

    def ended(self) -> int | None:
        """Return the exit code of the process; None if it still runs."""
        return self._running.poll()

    def rest(self) -> bytes:
        """Return the output of the process until its end; empty if it does not end."""
        try:
            return self._running.communicate(timeout=ANSWER_S)[0]
        except subprocess.TimeoutExpired:
            self._running.kill()
            return b""

    def close(self) -> None:
        """Kill the generator's process at any time."""
        self._running.kill()
        self._input.close()
        self.output.close()
        self._running.wait()


def last_words(log: Path) -> str:
    """Return the last line of a process' error log."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else "it said nothing"
