"""Run a program on a server of another computer, requested from a server of a part.

    python -m pillarbox.experiments.apps.cluster.remote_programs FOLDER SERVER WORDS...

The process runs on the part's machine. FOLDER is the folder of the requesting part. The request
goes through the part's control socket to the lab, which reaches both machines and starts the
program. This process waits on a Unix socket for the program's exit code and exits with the same
code. The program's output is discarded, except for the end of standard error if the program fails.
Open MPI starts its daemons this way (`pillarbox.experiments.runs.control.mpi`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any

from pillarbox.experiments.base.interpreter import module_command
from pillarbox.experiments.runs.control.client import ask
from pillarbox.experiments.runs.control.server_program import end_as
from pillarbox.topos.base.errors import PillarboxError

ACROSS = "across"  # name of the request and the event that run a program on another machine
LONGEST_ERROR = 4096
LONGEST_END = 1 << 16


def command_for(folder: Path, server: str) -> list[str]:
    """Return the command prefix that runs a program on a server of another computer."""
    return module_command("pillarbox.experiments.apps.cluster.remote_programs", folder, server)


# -- on the part's machine -------------------------------------------------------------------------


def main() -> None:
    """Run a program on a server of another machine; exit with the program's exit code."""
    folder, server, *words = sys.argv[1:]
    place = Path(folder) / f"{ACROSS}-{os.getpid()}"
    with socket(AF_UNIX, SOCK_STREAM) as listening:
        listening.bind(str(place))
        try:
            listening.listen()
            ask(Path(folder), ask=ACROSS, server=server, words=words, to=str(place))
            with listening.accept()[0] as teller, teller.makefile("rb") as lines:
                end = json.loads(lines.readline(LONGEST_END) or "{}")
        except PillarboxError as error:
            sys.exit(f"pillarbox: {error}")
        finally:
            place.unlink()
    sys.stderr.write(end.get("said", ""))
    sys.stderr.flush()
    end_as(end.get("code", 1))


def tell_end(asked: dict[str, Any]) -> None:
    """Send a program's exit code to the process that waits for its end."""
    with socket(AF_UNIX, SOCK_STREAM) as end:
        end.connect(asked["to"])
        end.sendall(json.dumps({"code": asked["code"], "said": asked["said"]}).encode() + b"\n")


# -- in the lab's process --------------------------------------------------------------------------


def run(command: list[str]) -> dict[str, Any]:
    """Run a program to its end; return exit code and, on failure, the last standard error."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    failed = done.returncode != 0
    said = done.stderr[-LONGEST_ERROR:].decode(errors="replace") if failed else ""
    return {"code": done.returncode, "said": said}


if __name__ == "__main__":
    main()
