"""Start a cluster on hosts that ssh reaches, and keep the cluster up (`cluster up`).

HOSTS.toml has ::

    hosts = ["10.0.0.2", "10.0.0.3"]      # names or addresses, as ssh takes them
    user = "root"                         # optional, as all keys below
    key = "/root/.ssh/id_ed25519"
    port = 22
    pillarbox = "/opt/pillarbox/pillarbox"
    weights = [2, 1]                      # relative capacities of the hosts
    addresses = ["10.1.0.2", "10.1.0.3"]  # in the machines' own network, if ssh uses another

All other options of ssh belong into ~/.ssh/config.
"""

from __future__ import annotations

import shlex
import shutil
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pillarbox.experiments.apps.cluster.cluster_registry import write_keys
from pillarbox.experiments.apps.cluster.dask_processes import DaskChildProcess, keys_for, order_for
from pillarbox.experiments.base.files import CHECKOUT, toml_in
from pillarbox.topos.base.errors import PillarboxError, UnknownNameError, require

PORT = 8786  # TCP port of Dask's scheduler on the first host
START_S, CONNECT_S, ALIVE_S, MOST_ALIVE = 60.0, 10, 5, 3
FOLDER = Path("/run/pillarbox/dask")  # folder of Dask processes on each host
# exit codes of failures of the shell, of ssh and of Pillarbox
NO_PROGRAM, BY_SSH, UNKNOWN = (126, 127), 255, 2
KEYS = {"hosts", "user", "key", "port", "pillarbox", "addresses", "weights"}
SSH = ["ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}"]
SSH += ["-o", f"ServerAliveInterval={ALIVE_S}", "-o", f"ServerAliveCountMax={MOST_ALIVE}"]


@dataclass(frozen=True)
class Hosts:
    """Contents of HOSTS.toml: hosts of a cluster and how ssh reaches them."""

    hosts: tuple[str, ...]
    addresses: tuple[str, ...] = ()
    user: str = ""
    key: str = ""
    port: int = 0
    pillarbox: str = ""
    weights: tuple[int, ...] = ()

    def ssh(self, host: str) -> list[str]:
        """Return the ssh command that starts a Dask process of a cluster on a host."""
        words = [*SSH]
        words += ["-l", self.user] if self.user else []
        words += ["-p", str(self.port)] if self.port else []
        words += ["-i", self._key_file] if self.key else []
        return [*words, "--", host, f"exec {shlex.quote(self.program)} cluster join"]

    @property
    def _key_file(self) -> str:
        return str(Path(self.key).expanduser()) if self.key.startswith("~/") else self.key

    @property
    def program(self) -> str:
        """Path of Pillarbox on the hosts (default: its path on this computer)."""
        here = CHECKOUT / "pillarbox"
        return self.pillarbox or (str(here) if here.is_file() else "pillarbox")


def read(file: Path) -> Hosts:
    """Read HOSTS.toml, or raise PillarboxError for an invalid file."""
    require(
        file.is_file(),
        f'there is no {file}: write hosts = ["10.0.0.2", "10.0.0.3"] into it, or name a scheduler '
        "that runs, as tcp://HOST:8786",
        UnknownNameError,
    )
    said = toml_in(file)
    unknown = sorted(set(said) - KEYS)
    require(
        not unknown,
        f"{file} has {', '.join(unknown)}, but may only have the keys {', '.join(sorted(KEYS))}",
    )
    hosts, addresses = _strings(file, said, "hosts"), _strings(file, said, "addresses")
    require(len(hosts) > 1, f"{file} names {len(hosts)} hosts: hosts = [...] needs 2 or more")
    require(len(set(hosts)) == len(hosts), f"{file} names a host twice")
    require(
        len(addresses) in (0, len(hosts)),
        f"{file} has {len(addresses)} addresses for {len(hosts)} hosts",
    )
    weights = said.get("weights", [])
    numbers = isinstance(weights, list) and all(type(one) is int and one > 0 for one in weights)
    example = [2, *[1] * (len(hosts) - 1)]
    require(
        numbers and len(weights) in (0, len(hosts)),
        f"{file}: weights are whole numbers above 0, one a host, such as {example}",
    )
    rest = {name: said[name] for name in ("user", "key", "port", "pillarbox") if name in said}
    for name, value in rest.items():
        kind = int if name == "port" else str
        require(isinstance(value, kind), f"{file}: {value!r} is not valid for the key {name}")
    return Hosts(hosts, addresses, **rest, weights=tuple(weights))


def _strings(file: Path, said: dict[str, Any], name: str) -> tuple[str, ...]:
    found = said.get(name, [])
    plain = isinstance(found, list) and all(isinstance(one, str) and one for one in found)
    require(plain, f'{file}: {name} is a list of text, such as ["10.0.0.2", "10.0.0.3"]')
    odd = next((one for one in found if one.startswith("-")), None)
    require(odd is None, f"{file}: {odd!r} is not a valid host name")
    return tuple(found)


class SshDaskCluster:
    """Dask's scheduler and workers on hosts over ssh, which run until this process ends.

    Parameters
    ----------
    hosts : Hosts
        Hosts of the cluster.
    folder : Path
        The cluster's folder, for TLS keys and the hosts' logs.
    """

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self._hosts, self._folder = hosts, folder
        self.workers: list[DaskChildProcess] = []
        self._scheduler: DaskChildProcess | None = None

    def start(self) -> str:
        """Start Dask's scheduler and workers on the hosts; return the scheduler's address."""
        from distributed.security import Security

        require(
            shutil.which("ssh") is not None,
            "this computer has no ssh client: apt install openssh-client",
        )
        security = Security.temporary()
        write_keys(self._folder, keys_for(security, "client"))
        addresses = self._hosts.addresses or [_address_of(host) for host in self._hosts.hosts]
        asked = {"port": PORT, "protocol": "tls://", "dashboard": False}
        self._scheduler = self._started("scheduler", 0, addresses[0], security, asked)
        scheduler = self._awaited_address(0, self._scheduler)
        for number, address in enumerate(addresses):
            asked = {"scheduler_ip": scheduler, "name": str(number)}
            self.workers.append(self._started("worker", number, address, security, asked))
        for number, worker in enumerate(self.workers):
            self._awaited_address(number, worker)
        return scheduler

    def _started(
        self, role: str, number: int, address: str, security: Any, asked: dict[str, Any]
    ) -> DaskChildProcess:
        order = order_for(role, address, FOLDER / role, security, remove=True, **asked)
        command = self._hosts.ssh(self._hosts.hosts[number])
        return DaskChildProcess(command, order, self._folder / f"{role}{number}.log")

    def _awaited_address(self, number: int, started: DaskChildProcess) -> str:
        try:
            return started.address(time.monotonic() + START_S)
        except PillarboxError as error:
            code = started.process.poll()
            if code is None:  # the Dask process has reported an error and is about to end
                started.close_input()
                code = _exit_code(started)
            host = self._hosts.hosts[number]
            raise PillarboxError(why(host, self._hosts.program, code, str(error))) from None

    def wait(self) -> None:
        """Wait for the end of the cluster's Dask scheduler."""
        assert self._scheduler
        self._scheduler.process.wait()

    def close(self) -> None:
        """End the Dask workers and the scheduler on all hosts."""
        started = [*self.workers, *filter(None, [self._scheduler])]
        for one in started:
            one.close_input()
        for one in started:
            one.end()


def _exit_code(started: DaskChildProcess) -> int | None:
    deadline = time.monotonic() + 1.0
    while started.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return started.process.poll()


def _address_of(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        raise UnknownNameError(
            f"there is no host {host}: write names or addresses that are known here, or its "
            "address into `addresses` where only ssh knows the name"
        ) from None


def why(host: str, program: str, code: int | None, said: str) -> str:
    """Return a sentence that says why a host did not join the cluster.

    >>> why("a", "/opt/pillarbox", 127, "sh: 1: exec: /opt/pillarbox: not found")
    'a has no Pillarbox at /opt/pillarbox: install the same there, or say where it is with pillarbox = "..."'
    """  # noqa: E501
    words: Sequence[tuple[str, str]] = (
        ("Could not resolve", f"there is no host {host}: write a name or an address"),
        (
            "Host key verification",
            f"ssh does not know {host} yet: look at its key with `ssh {host}`, as root, once",
        ),
        (
            "Permission denied",
            f"{host} refuses the keys that ssh has here as root: `ssh-copy-id`, or "
            'name one with key = "..."',
        ),
    )
    if code == BY_SSH:
        known = next((sentence for word, sentence in words if word in said), "")
        return known or f"{host} does not answer to ssh: {said}"
    if code in NO_PROGRAM:
        return (
            f"{host} has no Pillarbox at {program}: install the same there, or say where it is "
            'with pillarbox = "..."'
        )
    if code == UNKNOWN:
        return f"{host} has another version of Pillarbox, which joins no cluster: {said}"
    if code is None:
        return f"{host} did not join within {START_S:.0f} s: run {program} --version there"
    return f"{host} did not join: {said}"
