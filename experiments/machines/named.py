"""Clusters that are up, by their names: where each one's scheduler is, and the keys to it.

/run/pillarbox/clusters/NAME/     which only root may read
cluster.json                  the scheduler's address; what `cluster check` found
*.pem                         keys of TLS, if it has been started by `cluster up`
lock                          held by the process that keeps it up, if there is one
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from experiments.analysis.simulator.sweeps import security_for
from experiments.files import private_folder
from experiments.machines.joined import CONFIG, security_of
from topos.base.errors import PillarboxError, require

CLUSTERS = Path("/run/pillarbox/clusters")
ABOUT, LOCK = "cluster.json", "lock"
CONNECT_S = 10.0
FAR_PARTS = Path("/run/pillarbox/parts")


def folder_of(name: str) -> Path:
    """Return a cluster's folder, whether it is there or not."""
    require(
        bool(name) and all(one.isalnum() or one in "-_" for one in name),
        f"{name!r} is no name of a cluster: letters, digits, - and _",
    )
    require(os.geteuid() == 0, "only root can reach a cluster: use sudo")
    return CLUSTERS / name


def names() -> list[str]:
    """Return the clusters that are up."""
    if not CLUSTERS.is_dir():
        return []
    return sorted(one.name for one in CLUSTERS.iterdir() if is_up(one.name))


def is_up(name: str) -> bool:
    """Tell whether a cluster is up, as far as is known here; a dead one's folder goes."""
    folder = folder_of(name)
    try:
        keeper = about(name)["keeper"]
    except PillarboxError:
        return False
    if not keeper or _is_held(folder):
        return True
    shutil.rmtree(folder, ignore_errors=True)
    return False


def about(name: str) -> dict[str, Any]:
    """Return what is known of a cluster, or raise PillarboxError where there is none."""
    try:
        return dict(json.loads((folder_of(name) / ABOUT).read_text()))
    except FileNotFoundError:
        known = ", ".join(one.name for one in CLUSTERS.glob("*")) or "none is"
        raise PillarboxError(
            f"no cluster {name!r} is up ({known}): start it with `cluster up HOSTS.toml`"
        ) from None


def write_about(name: str, **known: Any) -> None:
    """Keep what is known of a cluster, beside what was."""
    with suppress(PillarboxError):
        known = {**about(name), **known}
    folder = folder_of(name)
    beside = folder / f"{ABOUT}.new"
    beside.write_text(json.dumps(known))
    beside.rename(folder / ABOUT)


def take(name: str) -> IO[str]:
    """Make a new cluster's folder; return its lock, which its keeper holds."""
    require(
        not is_up(name),
        f"a cluster {name!r} is up already: end it (`cluster down --name {name}`), or give this "
        "one another --name",
    )
    folder = folder_of(name)
    for place in (CLUSTERS.parent, CLUSTERS, folder):
        private_folder(place)
    lock = (folder / LOCK).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PillarboxError(f"another `cluster up` is starting {name!r}: wait for it") from None
    return lock


def wait_for_end(name: str) -> None:
    """Wait until the process that keeps a cluster up is gone."""
    with suppress(FileNotFoundError), (folder_of(name) / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)


def _is_held(folder: Path) -> bool:
    try:
        with (folder / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def write_keys(folder: Path, keys: dict[str, str]) -> None:
    """Write keys where only root reads them, each by the name that Dask's `Security` has for it."""
    for name, content in keys.items():
        file = folder / f"{name}.pem"
        file.touch(0o600)
        file.write_text(content)


def security_in(folder: Path) -> Any:
    """Return Dask's security by the keys in a folder; None where there are none."""
    return security_of({file.stem: str(file) for file in folder.glob("*.pem")})


def scheduler_of(name: str) -> str:
    """Return where a cluster's scheduler is; its keys are then Dask's own, for all who ask it."""
    import dask

    require(is_up(name), f"no cluster {name!r} is up: start it with `cluster up HOSTS.toml`")
    keys = folder_of(name)
    if any(keys.glob("*.pem")):
        tls = "distributed.comm.tls"
        own = {one: str(keys / f"tls_client_{one}.pem") for one in ("cert", "key")}
        known = {f"{tls}.client.{one}": file for one, file in own.items()}
        dask.config.set({f"{tls}.ca-file": str(keys / "tls_ca_file.pem"), **known})
    return str(about(name)["scheduler"])


class NamedCluster:
    """A cluster that is up, whoever started it; a `Ground`.

    Parameters
    ----------
    name : str
        Its name.
    machines : int, optional
        How many of its machines are wanted; else all.
    only : sequence of str, optional
        Which workers are wanted, by where they listen.
    partly : bool
        Whether it is all the same how many there are.
    """

    is_here = False

    def __init__(
        self,
        name: str,
        machines: int | None = None,
        only: Sequence[str] = (),
        *,
        partly: bool = False,
    ) -> None:
        require(is_up(name), f"no cluster {name!r} is up: start it with `cluster up HOSTS.toml`")
        self.name, self._about = name, about(name)
        self.lossy = tuple(self._about.get("lossy", ()))
        self._partly = partly
        self._client = self._connected()
        self.workers = list(only) or self._found(machines)
        self.machines = len(self.workers)
        known = tuple(self._about.get("weights", ()))
        self.weights: tuple[int, ...] = () if only else known[: self.machines]
        self.addresses = [_host_of(worker) for worker in self.workers]
        self.lead = _own_address(_host_of(self.scheduler))

    @property
    def scheduler(self) -> str:
        """Where its scheduler listens."""
        return str(self._about["scheduler"])

    def _connected(self) -> Any:
        import logging

        import dask
        from distributed import Client

        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        dask.config.set(CONFIG)
        folder = folder_of(self.name)
        security = security_in(folder) or security_for(self.scheduler)
        try:
            return Client(
                self.scheduler,
                security=security,
                timeout=CONNECT_S,
                direct_to_workers=True,
            )
        except (OSError, ValueError) as error:
            raise PillarboxError(
                f"the scheduler of cluster {self.name!r} does not answer at {self.scheduler}: "
                f"start it anew with `cluster up` ({type(error).__name__}: {error})"
            ) from None

    def _found(self, machines: int | None) -> list[str]:
        """Return one worker of each machine, as they are numbered."""
        by_host = self._by_host()
        if self._partly:
            return list(by_host.values())
        wanted = machines or self._about.get("machines") or len(by_host)
        if len(by_host) < max(2, wanted):
            self.close()
            raise PillarboxError(
                f"cluster {self.name!r} has workers on {len(by_host)} machines, not on "
                f"{max(2, wanted)}: `cluster status` tells which; a lab needs 2 or more"
            )
        return list(by_host.values())[:wanted]

    def _by_host(self) -> dict[str, str]:
        """Return one worker of each machine that has some."""
        known = self._client.scheduler_info(n_workers=-1)["workers"]
        found: dict[str, str] = {}
        for worker in sorted(known, key=lambda one: (_number(known[one]["name"]), one)):
            found.setdefault(_host_of(worker), worker)
        return found

    def open(self, folder: Path, mtu: int) -> tuple[Any, list[str]]:
        """Return the client, and where the workers are."""
        return self._client, self.workers

    def spares(self, used: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield the workers of machines that are not in use, and where they are."""
        yield from ((one, host) for host, one in self._by_host().items() if host not in used)

    def parts_folder(self, folder: Path, lab: str) -> Path:
        """Return a place on the machines, which has nothing to do with the lab's folder here."""
        return FAR_PARTS / f"{lab}-"

    def keys(self) -> Path | None:
        """Return the cluster's folder, if keys are in it."""
        folder = folder_of(self.name)
        return folder if any(folder.glob("*.pem")) else None

    def last_words(self, machine: int) -> str:
        """Return where more is to be found."""
        return f"see {folder_of(self.name)} for what its worker said"

    def close(self) -> None:
        """Let go of it."""
        self._client.close(timeout=CONNECT_S)


def _host_of(address: str) -> str:
    return str(urlsplit(address).hostname)


def _number(name: Any) -> tuple[int, str]:
    return (int(name), "") if str(name).isdecimal() else (1 << 30, str(name))


def _own_address(other: str) -> str:
    """Return by which address this machine speaks to another."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect((other, 9))
        return str(asking.getsockname()[0])
