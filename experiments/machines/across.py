"""A program on another computer's server, begun from one: by the lab, which reaches both.

    python -m experiments.machines.across FOLDER SERVER WORDS...     there: with the part's folder

It waits where it can be told of the end, and ends so. What the program prints is lost, but for what
it says of a failure. Open MPI starts its daemons so (`experiments.control.mpi`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any

from experiments.control.client import ask
from experiments.control.entering import end_as
from experiments.interpreter import module_command
from topos.base.errors import PillarboxError

ACROSS = "across"  # what is asked of a part, and what it passes on
LONGEST_ERROR = 4096
LONGEST_END = 1 << 16


def command_for(folder: Path, server: str) -> list[str]:
    """Return the command that runs another on a server that is not on this computer."""
    return module_command("experiments.machines.across", folder, server)


# -- there ---------------------------------------------------------------------------------------


def main() -> None:
    """Have a program begun, wait for its end, and end as it does."""
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
    """Tell who waits that its program has ended."""
    with socket(AF_UNIX, SOCK_STREAM) as end:
        end.connect(asked["to"])
        end.sendall(json.dumps({"code": asked["code"], "said": asked["said"]}).encode() + b"\n")


# -- where the lab is led from -------------------------------------------------------------------


def run(command: list[str]) -> dict[str, Any]:
    """Run a program to its end; return its code, and what it said where it failed."""
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
