"""Log of all TCP packets of a lab on this computer, with the times at which they pass each link.

eBPF programs (hosts/live/packet_log.bpf.c) log a packet when a program sends it, and when a server
or switch receives it. They run before all other programs at an interface and change no packet. The
log is memory of fixed size that the kernel fills, so nothing is read while traffic runs.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from mmap import MAP_SHARED, PROT_READ, mmap
from typing import TYPE_CHECKING, NamedTuple

import numpy

from pillarbox.experiments.models.fluid.directed_links import link_at
from pillarbox.experiments.models.packets.packet_log import NO_LINK
from pillarbox.hosts.linux import tcx
from pillarbox.hosts.linux.bpf import (
    MAP_CREATE,
    BpfObject,
    Map,
    call_bpf,
    load_program,
    refusal_error,
)
from pillarbox.hosts.linux.calls import inside
from pillarbox.hosts.linux.entrance import PROG_ARRAY
from pillarbox.hosts.linux.instructions import entry_program
from pillarbox.hosts.live.devices import APPLICATION_INTERFACE
from pillarbox.hosts.live.lab_programs import FORWARD, build
from pillarbox.topos.base.errors import UnsupportedError, require

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pillarbox.experiments.lab.emulation.lab import Lab

SOURCE = FORWARD.with_name("packet_log.bpf.c")
PROGRAMS = ("log_frame", "log_ip")
# `struct sighting` of packet_log.bpf.c; numbers in network byte order are big-endian.
SIGHTING = numpy.dtype(
    [
        ("at_ns", "=u8"),
        ("link", "=i4"),
        ("source", ">u4"),
        ("destination", ">u4"),
        ("source_port", ">u2"),
        ("destination_port", ">u2"),
        ("sequence", ">u4"),
        ("acknowledged", ">u4"),
        ("identification", ">u2"),
        ("payload", "=u2"),
        ("bytes", "=u4"),
    ]
)
LEAST_ENTRIES, MOST_ENTRIES = 1 << 16, 1 << 23
SIGHTINGS_PER_PACKET = 12  # assumed maximum, its acknowledgement included
_NUMBER, _COUNT = struct.Struct("=I"), struct.Struct("=Q")


class Sightings(NamedTuple):
    """Logged packets, an array of SIGHTING, and the number of packets that did not fit."""

    rows: NDArray[numpy.void]
    lost: int


class _Place(NamedTuple):
    """An interface and direction at which packets are logged."""

    namespace: int
    interface: str | int  # name or index
    egress: bool
    link: int
    program: str


class PacketRecorder:
    """Logs all TCP packets of a lab from its start until `close`; a context manager."""

    def __init__(self, lab: Lab, packets: int) -> None:
        """Start the log of a lab whose traffic is about this number of data packets."""
        require(
            tcx.is_supported(),
            "packets are logged by TCX, which Linux has from version 6.6 on: omit --log-packets",
            UnsupportedError,
        )
        self._stack, self._entries = ExitStack(), _log_entries(packets)
        with ExitStack() as stack:
            loaded = BpfObject(build(SOURCE), {"sightings": self._entries})
            stack.callback(loaded.close)
            self._maps = loaded.maps
            table = call_bpf(MAP_CREATE, struct.pack("=5I", PROG_ARRAY, 4, 4, len(PROGRAMS), 0))
            stack.callback(os.close, table)
            entries = Map(table, 4, 4, len(PROGRAMS))
            for index, name in enumerate(PROGRAMS):
                entries[_NUMBER.pack(index)] = _NUMBER.pack(loaded.programs[name])
            for place in _places(lab):
                self._attach(place, table, stack)
            self._stack = stack.pop_all()

    def __enter__(self) -> PacketRecorder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Detach the programs that log packets, and free the log."""
        self._stack.close()

    def sightings(self) -> Sightings:
        """Return the packets logged so far, in order of time."""
        seen = _COUNT.unpack(self._maps["seen"][_NUMBER.pack(0)])[0]
        count = min(seen, self._entries)
        if not count:
            return Sightings(numpy.empty(0, SIGHTING), 0)
        log = self._maps["sightings"].fd
        with mmap(log, count * SIGHTING.itemsize, MAP_SHARED, PROT_READ) as memory:
            rows = numpy.frombuffer(bytes(memory), SIGHTING, count)
        # Processors take their entries of the log concurrently, and write the time later.
        return Sightings(rows[numpy.argsort(rows["at_ns"], kind="stable")], seen - count)

    def _attach(self, place: _Place, table: int, stack: ExitStack) -> None:
        try:
            made = load_program(entry_program((place.link,), table, PROGRAMS.index(place.program)))
            stack.callback(os.close, made)
            with inside(place.namespace):
                index = place.interface
                if isinstance(index, str):
                    index = socket.if_nametoindex(index)
                tcx.attach(made, index, egress=place.egress, before=0)
        except OSError as error:
            raise refusal_error("packets cannot be logged", error.errno or 0) from None
        stack.callback(_detach, made, place._replace(interface=index))


def _detach(program: int, place: _Place) -> None:
    """Detach a program; the interface or its namespace may have been deleted."""
    assert isinstance(place.interface, int)
    with suppress(OSError), inside(place.namespace):
        tcx.detach(program, place.interface, egress=place.egress)


def _log_entries(packets: int) -> int:
    """Return the size of the log for traffic of a number of data packets."""
    return min(MOST_ENTRIES, max(LEAST_ENTRIES, packets * SIGHTINGS_PER_PACKET))


def _places(lab: Lab) -> Iterator[_Place]:
    """Yield the places at which a lab's packets are logged."""
    topology = lab.topology
    for node in range(topology.nodes):
        made = lab.net[topology.node_name(node)]
        namespace = made.live_namespace().descriptor
        is_server = node < topology.servers
        if is_server and lab.relays:
            yield _Place(namespace, APPLICATION_INTERFACE, True, NO_LINK, "log_ip")
        for port, plug in topology.neighbours(node):
            index = made.intfs[port].ifindex
            if is_server and not lab.relays:
                yield _Place(namespace, index, True, NO_LINK, "log_frame")
            link = int(link_at(topology, plug.node, plug.port))
            yield _Place(namespace, index, False, link, "log_frame")
