"""Running clusters by name: each cluster's scheduler address and TLS keys on this computer.

/run/pillarbox/clusters/NAME/     readable by root only
    cluster.json                  the scheduler's address; results of `cluster check`
    *.pem                         TLS keys, if `cluster up` started the cluster
    lock                          held by the process that keeps the cluster up, if any
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

from pillarbox.experiments.apps.cluster.dask_process import CONFIG, security_of
from pillarbox.experiments.base.files import private_folder
from pillarbox.experiments.models.simulator.sweeps import dask_tls_settings
from pillarbox.topos.base.errors import PillarboxError, require

CLUSTERS = Path("/run/pillarbox/clusters")
ABOUT, LOCK = "cluster.json", "lock"
CONNECT_S = 10.0
FAR_PARTS = Path("/run/pillarbox/parts")


def folder_of(name: str) -> Path:
    """Return the path of a cluster's folder, which may not exist."""
    require(
        bool(name) and all(one.isalnum() or one in "-_" for one in name),
        f"{name!r} is not a valid cluster name: use letters, digits, - and _",
    )
    require(
        os.geteuid() == 0, "only root can use a cluster of computers: run the command with sudo"
    )
    return CLUSTERS / name


def running_clusters() -> list[str]:
    """Return the names of all running clusters of computers."""
    if not CLUSTERS.is_dir():
        return []
    return sorted(one.name for one in CLUSTERS.iterdir() if is_up(one.name))


def is_up(name: str) -> bool:
    """Return True if a cluster of computers is up; remove the folder of a dead cluster."""
    folder = folder_of(name)
    try:
        keeper = stored_facts(name)["keeper"]
    except PillarboxError:
        return False
    if not keeper or _is_held(folder):
        return True
    shutil.rmtree(folder, ignore_errors=True)
    return False


def stored_facts(name: str) -> dict[str, Any]:
    """Return a cluster's stored facts (such as its scheduler); raise PillarboxError if unknown."""
    try:
        return dict(json.loads((folder_of(name) / ABOUT).read_text()))
    except FileNotFoundError:
        known = ", ".join(one.name for one in CLUSTERS.glob("*")) or "none is"
        raise PillarboxError(
            f"no cluster {name!r} is up ({known}): start it with `cluster up HOSTS.toml`"
        ) from None


def write_about(name: str, **known: object) -> None:
    """Add facts of a cluster, such as its scheduler's address, to the cluster's file."""
    with suppress(PillarboxError):
        known = {**stored_facts(name), **known}
    folder = folder_of(name)
    new_file = folder / f"{ABOUT}.new"
    new_file.write_text(json.dumps(known))
    new_file.rename(folder / ABOUT)


def lock_new_cluster(name: str) -> IO[str]:
    """Create the folder of a new cluster of computers; return its lock file, locked."""
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
    """Wait for the end of the process that keeps a cluster up."""
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
    """Write TLS keys to a folder as files for root only, named as in Dask's `Security`."""
    for name, content in keys.items():
        file = folder / f"{name}.pem"
        file.touch(0o600)
        file.write_text(content)


def security_in(folder: Path) -> Any:
    """Return Dask's TLS settings (`Security`) with the keys in a folder, None without keys."""
    return security_of({file.stem: str(file) for file in folder.glob("*.pem")})


def scheduler_of(name: str) -> str:
    """Return a cluster's Dask scheduler address; make its TLS keys this process's default."""
    import dask

    require(is_up(name), f"no cluster {name!r} is up: start it with `cluster up HOSTS.toml`")
    keys = folder_of(name)
    if any(keys.glob("*.pem")):
        tls = "distributed.comm.tls"
        own = {one: str(keys / f"tls_client_{one}.pem") for one in ("cert", "key")}
        known = {f"{tls}.client.{one}": file for one, file in own.items()}
        dask.config.set({f"{tls}.ca-file": str(keys / "tls_ca_file.pem"), **known})
    return str(stored_facts(name)["scheduler"])


class NamedCluster:
    """A running cluster, started by `cluster up` or otherwise; a `MachineProvider`.

    Parameters
    ----------
    name : str
        Name of the cluster.
    machines : int, optional
        Number of machines to use (default: all).
    only : sequence of str, optional
        Addresses of the workers to use (default: one worker per machine).
    partly : bool
        Whether any number of machines is accepted.
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
        self.name, self._about = name, stored_facts(name)
        self.lossy = tuple(self._about.get("lossy", ()))
        self._partly = partly
        self._client = self._new_client()
        self.workers = list(only) or self._workers_of(machines)
        self.machines = len(self.workers)
        known = tuple(self._about.get("weights", ()))
        self.weights: tuple[int, ...] = () if only else known[: self.machines]
        self.addresses = [_host_of(worker) for worker in self.workers]
        self.lead = _own_address(_host_of(self.scheduler))

    @property
    def scheduler(self) -> str:
        """Address on which the cluster's scheduler listens."""
        return str(self._about["scheduler"])

    def _new_client(self) -> Any:
        import logging

        import dask
        from distributed import Client

        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        dask.config.set(CONFIG)
        folder = folder_of(self.name)
        security = security_in(folder) or dask_tls_settings(self.scheduler)
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

    def _workers_of(self, machines: int | None) -> list[str]:
        """Return the address of a Dask worker of each machine, in the order of machine numbers."""
        by_host = self._by_host()
        if self._partly:
            return list(by_host.values())
        wanted = machines or self._about.get("machines") or len(by_host)
        if len(by_host) < max(2, wanted):
            self.close()
            raise PillarboxError(
                f"cluster {self.name!r} has workers on {len(by_host)} machines, not on "
                f"{max(2, wanted)}: see `cluster status`; a lab needs 2 or more"
            )
        return list(by_host.values())[:wanted]

    def _by_host(self) -> dict[str, str]:
        """Return the address of one worker per machine, by the machine's IP address."""
        known = self._client.scheduler_info(n_workers=-1)["workers"]
        found: dict[str, str] = {}
        for worker in sorted(known, key=lambda one: (_sort_key_of_worker(known[one]["name"]), one)):
            found.setdefault(_host_of(worker), worker)
        return found

    def open(self, folder: Path, mtu: int) -> tuple[Any, list[str]]:
        """Return the Dask client of a cluster and the addresses of its Dask workers."""
        return self._client, self.workers

    def unused_machines(self, used: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield Dask worker address and IP address of each machine that the lab does not use."""
        yield from ((one, host) for host, one in self._by_host().items() if host not in used)

    def parts_folder(self, folder: Path, lab: str) -> Path:
        """Return the path prefix of the folders of a lab's files on each machine."""
        return FAR_PARTS / f"{lab}-"

    def keys(self) -> Path | None:
        """Return the cluster's folder if it has TLS keys."""
        folder = folder_of(self.name)
        return folder if any(folder.glob("*.pem")) else None

    def last_words(self, machine: int) -> str:
        """Return a text that names the folder with the logs of a cluster's Dask workers."""
        return f"see {folder_of(self.name)} for what its worker said"

    def close(self) -> None:
        """Close the connection to the cluster's Dask scheduler."""
        self._client.close(timeout=CONNECT_S)


def _host_of(address: str) -> str:
    return str(urlsplit(address).hostname)


def _sort_key_of_worker(name: Any) -> tuple[int, str]:
    return (int(name), "") if str(name).isdecimal() else (1 << 30, str(name))


def _own_address(other: str) -> str:
    """Return the local address with which this machine reaches another."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect((other, 9))
        return str(asking.getsockname()[0])
