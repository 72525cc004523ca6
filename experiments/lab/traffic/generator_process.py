"""Parent's side of a generator process, which reads and writes lines of JSON."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import IO, Any

from pillarbox.experiments.base.interpreter import module_command
from pillarbox.experiments.lab.traffic.generator_sockets import MOST_CONNECT_S
from pillarbox.experiments.lab.traffic.generator_worker import GeneratorTask
from pillarbox.hosts.linux.calls import readable
from pillarbox.topos.base.errors import PillarboxError, require

ANSWER_S = 15.0  # seconds that a generator process may answer later than its own time limits


class GeneratorProcess:
    """A child process that generates the traffic of some of a trial's flows."""

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

    def write_message(self, what: object) -> None:
        """Write a line of JSON to the generator process; raise PillarboxError if it has ended."""
        try:
            self._input.write(json.dumps(what).encode() + b"\n")
            self._input.flush()
        except BrokenPipeError:
            ended = f"the traffic generator process has ended: {last_log_line(self._log)}"
            raise PillarboxError(ended) from None

    def read_answer(self) -> dict[str, Any]:
        """Return the generator process's next line of JSON; the first follows the connections."""
        answered = readable([self.output], MOST_CONNECT_S + ANSWER_S)
        line = self.output.readline() if answered else b""
        require(
            bool(line),
            f"the traffic generator process did not connect its flows: {last_log_line(self._log)}",
        )
        return dict(json.loads(line))

    def finish(self) -> None:
        """End now all flows of the generator process that have a duration (SIGUSR1)."""
        self._running.send_signal(signal.SIGUSR1)

    def ended(self) -> int | None:
        """Return the generator process's exit code, or None while it runs."""
        return self._running.poll()

    def remaining_output(self) -> bytes:
        """Return the generator process's output up to its end; kill it if it does not end."""
        try:
            return self._running.communicate(timeout=ANSWER_S)[0]
        except subprocess.TimeoutExpired:
            self._running.kill()
            return b""

    def close(self) -> None:
        """Kill the traffic generator process, and wait for its end."""
        self._running.kill()
        self._input.close()
        self.output.close()
        self._running.wait()


def last_log_line(log: Path) -> str:
    """Return the last line of the generator processes' error log."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else "it reported no error"
