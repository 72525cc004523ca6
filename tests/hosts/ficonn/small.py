"""The small network of tests of TAR's flows: its servers, its two paths, and what a packet took."""

from __future__ import annotations

from pillarbox.hosts.ficonn.router import Tar
from pillarbox.hosts.memory.memory_network import MemoryNetwork, Trip
from pillarbox.topos.ficonn import FiConn

SMALL = FiConn(4, 1)
A, B, BUSY = SMALL.server("2.1"), SMALL.server("0.1"), SMALL.server("2.0")  # of Fig. 5
TOR_PATH, OTHER_PATH = "2.1 2.0 0.2 0.1", "2.1 2.2 1.2 1.0 0.0 0.1"


def tar_router(net: MemoryNetwork, server: int) -> Tar:
    found = net.routers[server]
    assert isinstance(found, Tar)
    return found


def path_taken(trip: Trip) -> str:
    assert len(trip.arrived_s) == 1, trip
    return " ".join(map(SMALL.address, trip.path.servers))
