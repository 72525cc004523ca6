"""Asking a running lab, from another process: by its control socket (`service`)."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any, NamedTuple

from topos.base.errors import PillarboxError, require

NAME = "lab.sock"
PROTOCOL = 1  # raised when what was understood is not understood any more
NAMESPACES = ("mnt", "pid")  # of the lab
MOST_FILES = 2 + len(NAMESPACES)  # of an answer: the server's network and UTS namespace come first
CONNECT_S = 5.0


class LabEntrance(NamedTuple):
    """A server's network and host name, and the lab's mounts and processes, as open files.

    A server of another computer has none: there `reach` is the command that runs another on it.
    `group` is the control group that programs on servers join (`experiments.linux.cgroups`).
    `prompt` is what a shell on the server shows as its prompt (PS1).
    """

    network: str
    files: list[int]
    reach: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    prompt: str = ""


def ask(folder: Path, **request: Any) -> Any:
    """Return a running lab's answer; raise PillarboxError where it refuses or is gone."""
    answer, files = _asked(folder, request)
    for descriptor in files:
        os.close(descriptor)
    return answer


def entrance(folder: Path, server: str) -> LabEntrance:
    """Return the way into a server of this computer that lives."""
    found = entrance_anywhere(folder, server)
    require(
        not found.reach,
        f"{server} is on another computer: programs run there by `exec` and at the prompt, and "
        "what looks into its network from here does not",
    )
    return found


def entrance_anywhere(folder: Path, server: str) -> LabEntrance:
    """Return the way into a server that lives, wherever it is."""
    answer, files = _asked(folder, {"ask": "enter", "server": server})
    reach, group = (tuple(answer.get(what, ())) for what in ("reach", "group"))
    return LabEntrance(answer["network"], files, reach, group, answer["prompt"])


def _asked(folder: Path, request: dict[str, Any]) -> tuple[Any, list[int]]:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(CONNECT_S)
            client.connect(str(folder / NAME))
            client.settimeout(None)  # an answer takes as long as it takes, or the lab ends
            client.sendall(json.dumps(request).encode() + b"\n")
            data, files, _, _ = socket.recv_fds(client, 1 << 16, MOST_FILES)
            while not data.endswith(b"\n"):
                more = client.recv(1 << 16)
                if not more:
                    break
                data += more
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise PillarboxError("the lab is starting, or ending: ask again in a moment") from error
    except OSError as error:
        raise PillarboxError(f"the lab does not answer: {error.strerror or error}") from error
    if not data:
        raise PillarboxError("the lab ended before it answered")
    answer = json.loads(data)
    if isinstance(answer, dict) and "error" in answer:
        raise PillarboxError(answer["error"])
    return answer, list(files)
