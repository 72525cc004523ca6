"""Settings of a live lab, passed from an experiment's plan to every forwarder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

UNLIMITED_BPS = 10e9  # port rate in bit/s that routers assume in a lab without a rate limit
TCP, MPTCP = "tcp", "mptcp"  # transport protocols
MOST_AT_ONCE = 64  # maximum number of servers started with one message to the nursery


@dataclass(frozen=True, kw_only=True)
class LabSettings:
    """Settings of an emulated network (lab), except its topology and its seed."""

    routing: str = ""  # name of the routing algorithm; "" for the network's default
    plane: str = "auto"
    # kind of switches: "bridges" if servers relay; learning, static or vlan on Open vSwitch
    switches: str = "bridges"
    kit: str = ""  # framework of OpenFlow controllers: ryu or os-ken; "" for the first installed
    controller: tuple[str, ...] = ()  # users' OpenFlow applications (FILE.py) for all switches
    timers: str = "fast"
    rate_mbit: float | None = 100.0  # rate of every cable in Mbit/s; None for no limit
    delay: str | None = None  # one-way delay of every cable, such as "1ms"; None for no delay
    loss: float | None = None  # random packet loss of every cable, in percent
    mtu: int = 1500
    # TCP congestion control of all programs on the servers: one of the kernel's, a shipped one, or
    # a file NAME.bpf.c; "" for the kernel's default
    tcp: str = ""
    # Addresses of servers' ports, next to the servers' own (`pillarbox.hosts.base.pinned_paths`)
    port_addresses: bool = False
    # transport protocol of traffic tools: tcp, or mptcp (Multipath TCP), which gives servers an
    # address for each port, and a connection a subflow by each port
    transport: str = TCP
    # subflows of a Multipath TCP connection, the first included; None for one by each port
    subflows: int | None = None
    queue: str = "droptail"  # queueing of every port: droptail, codel, fq_codel or ecn
    # queue length of every port in packets, bytes or time: "100 packets", "150 kB", "10ms"
    queue_length: str = ""
    # Maximum burst of a port, as a time at its rate: an idle port sends it immediately, and a
    # small flow may finish before a cable would have carried it. A port's timer may be late by half
    # of this time before the rate suffers.
    catch_up: str = "3ms"
    # Time dilation: seconds of the lab per second of the network that it stands for. In a running
    # lab the other settings are in seconds of the lab, in an experiment's system in the network's.
    dilation: float = 1.0
    # options of the routing algorithm by name, passed to the router
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rate_bps(self) -> float:
        """Rate of every port that routers assume, in bit/s."""
        return UNLIMITED_BPS if self.rate_mbit is None else self.rate_mbit * 1e6

    @property
    def multipath(self) -> bool:
        """True if traffic tools send with Multipath TCP."""
        return self.transport == MPTCP

    def plain(self) -> dict[str, Any]:
        """Return the lab settings by name, without those that a subclass adds."""
        return {one.name: getattr(self, one.name) for one in fields(LabSettings)}
