"""Client of a running lab's control socket (`service`), for other processes."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any, NamedTuple

from pillarbox.hosts.linux import user_namespace
from pillarbox.topos.base.errors import LabEndedError, reported_error, require

NAME = "lab.sock"
PROTOCOL = 1  # version of the control socket's protocol, increased by incompatible changes
NAMESPACES = ("mnt", "pid")  # kinds of the lab's Linux namespaces, sent as open files in an answer
MOST_FILES = 2 + len(NAMESPACES)  # number of files of a server's namespaces
CONNECT_S = 5.0


class LabEntrance(NamedTuple):
    """A server's network and host name, and the lab's mounts and processes, as open files.

    A server on another computer has no files: there `reach` is the command prefix that runs
    programs on it. `group` is the control group that programs on servers join
    (`pillarbox.experiments.lab.linux.cgroups`). `prompt` is the prompt of a shell on the server
    (PS1).
    """

    network: str
    files: list[int]
    reach: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    prompt: str = ""
    port_addresses: bool = False


def ask(folder: Path, **request: Any) -> Any:
    """Send a request to a running lab's control socket; return the answer or raise its error."""
    answer, files = _answer_and_files(folder, request)
    for descriptor in files:
        os.close(descriptor)
    return answer


def entrance(folder: Path, server: str) -> LabEntrance:
    """Return a live server's namespaces as open files, to run a program on the server."""
    found = entrance_anywhere(folder, server)
    require(
        not found.reach,
        f"{server} is on another computer: programs run there by `exec` and at the prompt; "
        "tools on this computer cannot look into its network",
    )
    return found


def entrance_anywhere(folder: Path, server: str) -> LabEntrance:
    """Return a live server's namespaces, or the command that starts programs on its computer.

    If the lab has a user namespace, this process joins it, since only then may it enter the others.
    """
    answer, files = _answer_and_files(folder, {"ask": "enter", "server": server})
    for descriptor in files[MOST_FILES:]:
        user_namespace.join(descriptor)
        os.close(descriptor)
    files = files[:MOST_FILES]
    reach, group = (tuple(answer.get(what, ())) for what in ("reach", "group"))
    names = answer["network"], files, reach, group, answer["prompt"]
    return LabEntrance(*names, answer["port_addresses"])


def live_hosts(folder: Path, chosen: str | None) -> list[dict[str, Any]]:
    """Return the servers that the option --on names, in that order, or all live servers."""
    hosts = ask(folder, ask="hosts")["hosts"]
    require(bool(hosts), "all servers of the lab are dead: revive one first")
    if chosen is None:
        return list(hosts)
    known = {one[key]: one for one in hosts for key in ("server", "name")}
    wanted = list(dict.fromkeys(chosen.split(",")))
    for address in wanted:
        require(
            address in known,
            f"server {address!r} is dead or not in the lab: choose other servers with --on",
        )
    return [known[address] for address in wanted]


def _answer_and_files(folder: Path, request: dict[str, Any]) -> tuple[Any, list[int]]:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(CONNECT_S)
            client.connect(str(folder / NAME))
            # no timeout for the answer; a lab that ends closes its control socket
            client.settimeout(None)
            client.sendall(json.dumps(request).encode() + b"\n")
            data, files, _, _ = socket.recv_fds(client, 1 << 16, MOST_FILES + 1)
            while not data.endswith(b"\n"):
                more = client.recv(1 << 16)
                if not more:
                    break
                data += more
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise LabEndedError("the lab is starting or ending: try the command again") from error
    except OSError as error:
        raise LabEndedError(f"the lab does not answer: {error.strerror or error}") from error
    if not data:
        raise LabEndedError("the lab ended before it answered the command")
    answer = json.loads(data)
    if isinstance(answer, dict) and "error" in answer:
        raise reported_error(answer.get("kind", ""), answer["error"])
    return answer, list(files)
