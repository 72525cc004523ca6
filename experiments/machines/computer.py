"""Network namespaces in the place of machines, and a bridge between them: machines on one computer.

Each has one card, ``card``, and an address of 198.18.0.0/15, which is for trying out networks and
nobody's (RFC 2544). The first address is that of the lab itself, which talks to all of them.

Dask's scheduler runs in the lab's own process there, and a worker in each machine's namespace.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from experiments.emulation.crossing import TUNNEL_BYTES
from experiments.emulation.network import HEADER_ROOM
from experiments.linux import netlink
from experiments.linux.namespaces import Namespace, fabric
from experiments.machines.joined import CONFIG
from experiments.machines.started import Started, order_for
from topos.base.errors import PillarboxError, require

CARD, LAB = "card", "198.18.0.1"
MOST = 250
PORT = 8786  # Dask's usual one: the network is the lab's own
JOIN_S = 60.0
LEAST_MTU = 9000  # as cards in a data center have it
PREFIX_LENGTH = 15


def address_of(machine: int) -> str:
    """Return a machine's address.

    >>> address_of(0), address_of(1)
    ('198.18.0.2', '198.18.0.3')
    """
    return f"198.18.0.{machine + 2}"


class Computer:
    """As many machines as are wanted, as long as it is open.

    Parameters
    ----------
    machines : int
        How many.
    mtu : int
        Of a lab's packets, which their network has to carry with all headers.
    card_mtu : int, optional
        Of their cards; else large enough.
    """

    def __init__(self, machines: int, mtu: int, card_mtu: int | None = None) -> None:
        require(1 < machines <= MOST, f"a computer can be 2 to {MOST} machines, not {machines}")
        card_mtu = card_mtu or max(LEAST_MTU, mtu + HEADER_ROOM + TUNNEL_BYTES)
        self.addresses = [address_of(machine) for machine in range(machines)]
        home, bridge = fabric(), fabric().new_index()
        self.namespaces = [Namespace() for _ in range(machines)]
        with home.batch():
            home.send(netlink.bridge("machines", bridge, group=home.group))
            home.send(netlink.change(1, up=True))  # the loopback interface
            home.send(netlink.add_address(bridge, LAB, PREFIX_LENGTH))
            home.send(netlink.change(bridge, up=True))
            for machine, namespace in enumerate(self.namespaces):
                plug = netlink.End(f"machine{machine}", home.new_index(), home.descriptor)
                card = netlink.End(CARD, home.new_index(), namespace.descriptor)
                home.send(
                    netlink.cable(plug, card, mtu=card_mtu, group=home.group, bridge=bridge),
                    netlink.change(plug.ifindex, up=True),
                )
                namespace.send(
                    netlink.change(1, up=True),
                    netlink.add_address(card.ifindex, address_of(machine), PREFIX_LENGTH),
                    netlink.change(card.ifindex, up=True),
                )

    def close(self) -> None:
        """Let go of all machines."""
        for namespace in self.namespaces:
            namespace.close()
        home = fabric()
        home.send(netlink.delete_group(home.group), ignore={errno.ENODEV})


class OneComputer:
    """Machines that are namespaces in this sandbox; a `Ground`.

    Parameters
    ----------
    machines : int
        How many.
    """

    lead = LAB
    weights: tuple[int, ...] = ()
    whole: bool | None = None
    is_here = True

    def __init__(self, machines: int) -> None:
        self.machines = machines
        self.addresses: list[str] = []
        self.computer: Computer | None = None
        self._scheduler: Any = None
        self._workers: list[Started] = []

    def open(self, folder: Path, mtu: int) -> tuple[Any, list[str]]:
        """Make the machines, a scheduler here, and a worker on each."""
        import dask
        from distributed import Client, LocalCluster
        from distributed.security import Security

        dask.config.set(CONFIG)
        self.computer = Computer(self.machines, mtu)
        self.addresses = self.computer.addresses
        security = Security.temporary()
        self._scheduler = LocalCluster(
            n_workers=0,
            host=LAB,
            scheduler_port=PORT,
            protocol="tls://",
            security=security,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        )
        address = self._scheduler.scheduler_address
        command = [sys.executable, "-m", "experiments.machines.joined"]
        places = [str(Path(place).absolute()) for place in sys.path]
        for machine, here in enumerate(self.addresses):
            order = order_for(
                "worker",
                here,
                folder,
                security,
                remove=False,
                scheduler_ip=address,
                name=str(machine),
            )
            log = folder / f"machine{machine}.log"
            with self.computer.namespaces[machine]:
                started = Started(command, order, log, {"PYTHONPATH": os.pathsep.join(places)})
            self._workers.append(started)
        at = self._joined()
        client = Client(address, security=security, timeout=JOIN_S, direct_to_workers=True)
        return client, at

    def _joined(self) -> list[str]:
        deadline, at = time.monotonic() + JOIN_S, []
        for machine, worker in enumerate(self._workers):
            try:
                at.append(worker.address(deadline))
            except PillarboxError as error:
                raise PillarboxError(
                    f"the worker of machine {machine} did not join: {error}"
                ) from None
        return at

    def parts_folder(self, folder: Path, lab: str) -> Path:
        """Return a place in the lab's own folder."""
        return folder / "machine"

    def keys(self) -> Path | None:
        """Return nothing: no other process speaks to the workers."""
        return None

    def pid(self, machine: int) -> int:
        """Return the process of a machine's worker."""
        return self._workers[machine].process.pid

    def last_words(self, machine: int) -> str:
        """Return what a machine's worker said last."""
        return self._workers[machine].last_words()

    def close(self) -> None:
        """End workers and scheduler, and let go of the machines."""
        for worker in self._workers:
            with suppress(ProcessLookupError):
                worker.process.kill()  # parts have ended, and nothing else is there
            worker.end()
        if self._scheduler is not None:
            self._scheduler.close(timeout=JOIN_S)
        if self.computer:
            self.computer.close()
