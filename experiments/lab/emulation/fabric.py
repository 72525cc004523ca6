"""Interface of a lab's fabric: everything that depends on where the servers and cables are.

`Lab` has the settings, names, faults and events of a network. Its fabric makes the nodes and cables
and acts on them: `local_fabric.LocalFabric` on this machine, and
`experiments.apps.cluster.cluster_fabric.ClusterFabric` on several machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from experiments.lab.emulation.cable_shapes import CableShapes
from experiments.lab.emulation.meter import MeterReading
from hosts.base.failures import Failures

if TYPE_CHECKING:
    from experiments.lab.emulation.active_faults import Faults
    from experiments.lab.emulation.lab import Lab
    from experiments.lab.emulation.packet_tracing import PacketTracer


class Nodes(Protocol):
    """The servers, switches and cables of a lab; nodes are given by their Mininet names."""

    @property
    def shapes(self) -> CableShapes:
        """Rate, delay and loss of each cable."""

    @property
    def queue_bytes(self) -> int | None:
        """Queue limit of every port in bytes; None without a rate limit."""

    def __getitem__(self, name: str, /) -> Any: ...

    def __contains__(self, name: object, /) -> bool: ...


class ForwarderQueries(Protocol):
    """Queries of the forwarders of a lab."""

    @property
    def pids(self) -> Mapping[int, int]:
        """Process ids of the forwarders that this process started, by server; 0 if ended."""

    def ask(self, server: int, what: str, **details: str) -> Any:
        """Return a forwarder's answer to ``state`` or another query, None if it is dead."""

    def last_words(self, server: int) -> str:
        """Return the last line of a forwarder's log."""

    def last_lines(self, server: int, longest: int) -> str:
        """Return the last lines of a forwarder's log, at most `longest` bytes."""


class Fabric(Protocol):
    """The nodes and cables of one lab, and the actions on them; `attach` makes most attributes."""

    machines: int  # number of machines
    ahead_s: float  # lead time of a fault request before the fault takes effect, in seconds
    trial_backend: Any  # backend of trials (`experiments.runs.trials`); None: the default

    @property
    def net(self) -> Nodes:
        """All servers, switches and cables."""

    @property
    def faults(self) -> Faults:
        """Faults of cables, switches and racks."""

    @property
    def forwarders(self) -> ForwarderQueries | None:
        """Forwarders of the servers; None if servers do not relay."""

    @property
    def tracer(self) -> PacketTracer:
        """Tracer of marked packets."""

    def attach(self, lab: Lab) -> None:
        """Set the lab of this fabric, and prepare its nodes and cables."""

    def start(self) -> None:
        """Start all nodes, and wait until every forwarder is ready."""

    def stop(self) -> None:
        """End all programs, forwarders, nodes and cables."""

    def kill(self, server: int) -> None:
        """End a server's forwarder and all its programs."""

    def revive(self, server: int) -> None:
        """Restart a dead server, without its former programs."""

    def resize(self, servers: int) -> None:
        """Add or remove servers; raise PillarboxError if this is impossible."""

    def set_failures(self, failures: Failures) -> None:
        """Report failures that change a carrier to switches that route."""

    def reach(self, server: int) -> list[str]:
        """Return the command prefix that starts programs on a server of another computer."""

    def echoes(
        self, source: int, destinations: Sequence[int], wait_s: float
    ) -> dict[int, float | None]:
        """Ping each destination once; return RTTs in ms by destination, None after a timeout."""

    def bytes_sent(self) -> dict[str, int]:
        """Return the number of bytes sent by each port of each server, by interface name."""

    def counters(self) -> MeterReading:
        """Return the current byte counters of all cables and servers; thread-safe."""

    def status(self) -> dict[str, Any]:
        """Return the entries of the lab's status that only this kind of fabric has."""
