"""Machines as network namespaces of one computer, with a bridge between them.

Each machine has one network card, ``card``, with an address of 198.18.0.0/15, the block reserved
for benchmarks (RFC 2544). The first address belongs to the lab itself, which talks to all machines.
Frames between machines are switched by eBPF before they reach the bridge, which saves a queue.

Dask's scheduler runs in the lab's own process, and a worker in each machine's namespace.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pillarbox.experiments.apps.cluster.dask_process import CONFIG
from pillarbox.experiments.apps.cluster.dask_processes import DaskChildProcess, order_for
from pillarbox.experiments.base.interpreter import module_command
from pillarbox.experiments.lab.emulation.underlay import TUNNEL_BYTES
from pillarbox.experiments.lab.linux import cable_programs, link_requests, offloads
from pillarbox.experiments.lab.linux.namespaces import Namespace, fabric
from pillarbox.experiments.lab.linux.shaping import HEADER_ROOM
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.topos.base.errors import PillarboxError, require

CARD, LAB = "card", "198.18.0.1"
MOST = 250
PORT = 8786  # TCP port of Dask's scheduler, in the lab's own network
JOIN_S = 60.0
LEAST_MTU = 9000  # MTU of the machines' cards in bytes: jumbo frames
PREFIX_LENGTH = 15


def address_of(machine: int) -> str:
    """Return the IP address of an emulated machine, by its number.

    >>> address_of(0), address_of(1)
    ('198.18.0.2', '198.18.0.3')
    """
    return f"198.18.0.{machine + 2}"


class EmulatedMachines:
    """Emulates several machines on this computer, as connected network namespaces.

    Parameters
    ----------
    machines : int
        Number of machines.
    mtu : int
        MTU of a lab's packets; the machines' network carries them with all headers.
    card_mtu : int, optional
        MTU of the machines' cards (default: large enough for `mtu`).
    cuts_tunnels : bool
        Whether the cards segment super-packets in tunnels; many real cards do not.
    """

    def __init__(
        self, machines: int, mtu: int, card_mtu: int | None = None, *, cuts_tunnels: bool = True
    ) -> None:
        require(1 < machines <= MOST, f"a computer can be 2 to {MOST} machines, not {machines}")
        self._card_mtu = card_mtu or max(LEAST_MTU, mtu + HEADER_ROOM + TUNNEL_BYTES)
        self._cuts_tunnels = cuts_tunnels
        home, self._bridge = fabric(), fabric().new_index()
        self.namespaces: list[Namespace] = []
        self._switch = cable_programs.load(cable_programs.hand_to_named_peer())
        with home.batch():
            home.send(link_requests.bridge("machines", self._bridge, group=home.group))
            home.send(link_requests.change(1, up=True))  # the loopback interface
            home.send(link_requests.add_address(self._bridge, LAB, PREFIX_LENGTH))
            home.send(link_requests.change(self._bridge, up=True))
        for _ in range(machines):
            self.add()

    @property
    def addresses(self) -> list[str]:
        """IP addresses of the emulated machines."""
        return [address_of(machine) for machine in range(len(self.namespaces))]

    def add(self) -> int:
        """Create another machine as a network namespace; return its number."""
        home, machine, namespace = fabric(), len(self.namespaces), Namespace()
        self.namespaces.append(namespace)
        plug = link_requests.End(f"machine{machine}", home.new_index(), home.descriptor)
        named = cable_programs.mac_of_peer(plug.ifindex)
        card = link_requests.End(CARD, home.new_index(), namespace.descriptor, named)
        how = {"mtu": self._card_mtu, "group": home.group, "bridge": self._bridge}
        home.send(
            link_requests.cable(plug, card, **how), link_requests.change(plug.ifindex, up=True)
        )
        tap, deed = (
            cable_programs.CableTap(plug.ifindex, nl.CLSACT_INGRESS),
            f"switch frames from {plug.name}",
        )
        home.send(
            cable_programs.hook(tap),
            cable_programs.attach(tap, cable_programs.PATCH, self._switch, deed),
        )
        namespace.send(
            link_requests.change(1, up=True),
            link_requests.add_address(card.ifindex, address_of(machine), PREFIX_LENGTH),
            link_requests.change(card.ifindex, up=True),
        )
        if not self._cuts_tunnels:
            with namespace:
                offloads.switch_off(CARD, [offloads.TUNNEL_SEGMENTS])
        return machine

    def close(self) -> None:
        """Remove the namespaces of all emulated machines and their network cards."""
        os.close(self._switch)
        for namespace in self.namespaces:
            namespace.close()
        fabric().delete_links()


class OneComputer:
    """Machine provider whose machines are namespaces in this sandbox; a `MachineProvider`.

    Parameters
    ----------
    machines : int
        Number of machines.
    cuts_tunnels : bool
        Whether the machines' cards segment super-packets in tunnels.
    """

    lead = LAB
    weights: tuple[int, ...] = ()
    lossy: tuple[str, ...] = ()
    is_here = True

    def __init__(self, machines: int, *, cuts_tunnels: bool = True) -> None:
        self.machines, self._cuts_tunnels = machines, cuts_tunnels
        self.addresses: list[str] = []
        self.computer: EmulatedMachines | None = None
        self._scheduler: Any = None
        self._started: list[
            DaskChildProcess
        ] = []  # Dask workers of all machines, also of lost ones

    def open(self, folder: Path, mtu: int) -> tuple[Any, list[str]]:
        """Create the emulated machines, start Dask's scheduler and a worker on each machine."""
        import dask
        from distributed import Client, LocalCluster
        from distributed.security import Security

        dask.config.set(CONFIG)
        self.computer = EmulatedMachines(self.machines, mtu, cuts_tunnels=self._cuts_tunnels)
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
        self._folder, self._security = folder, security
        for machine in range(self.machines):
            self._start(machine)
        self.workers = [self._worker_address(machine) for machine in range(self.machines)]
        address = self._scheduler.scheduler_address
        client = Client(address, security=security, timeout=JOIN_S, direct_to_workers=True)
        return client, self.workers

    def _start(self, machine: int) -> None:
        """Start a machine's Dask worker."""
        assert self.computer
        command = module_command("pillarbox.experiments.apps.cluster.dask_process")
        here, named = address_of(machine), {"name": str(machine)}
        named["scheduler_ip"] = self._scheduler.scheduler_address
        order = order_for("worker", here, self._folder, self._security, remove=False, **named)
        log = self._folder / f"machine{machine}.log"
        with self.computer.namespaces[machine]:
            started = DaskChildProcess(command, order, log)
        self._started.append(started)

    def _worker_address(self, machine: int) -> str:
        """Return the address of a machine's Dask worker, or raise PillarboxError without one."""
        try:
            return self._started[machine].address(time.monotonic() + JOIN_S)
        except PillarboxError as error:
            raise PillarboxError(f"the worker of machine {machine} did not join: {error}") from None

    def unused_machines(self, used: Collection[str]) -> Iterator[tuple[str, str]]:
        """Create another machine; yield its worker's address and its IP address."""
        assert self.computer
        machine = self.computer.add()
        self._start(machine)
        yield self._worker_address(machine), address_of(machine)

    def parts_folder(self, folder: Path, lab: str) -> Path:
        """Return the path prefix of the parts' folders, inside the lab's folder."""
        return folder / "machine"

    def keys(self) -> Path | None:
        """Return None: no other process connects to the workers, so that they need no TLS keys."""
        return None

    def started(self, machine: int) -> DaskChildProcess:
        """Return the process of the Dask worker of an emulated machine."""
        assert self.computer
        return self._started[self.computer.addresses.index(self.addresses[machine])]

    def last_words(self, machine: int) -> str:
        """Return the last line that a machine's Dask worker logged."""
        return self.started(machine).last_words()

    def close(self) -> None:
        """End the Dask workers and scheduler, and remove the emulated machines."""
        for worker in self._started:
            with suppress(ProcessLookupError):
                # the machine's namespace has no other process now
                worker.process.kill()
            worker.end()
        if self._scheduler is not None:
            self._scheduler.close(timeout=JOIN_S)
        if self.computer:
            self.computer.close()
