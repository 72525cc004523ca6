"""Checks of a lab's settings, made before the lab is created.

The checks depend only on the network and the settings. Requirements on this machine (kernel support
of eBPF, netem or a queueing discipline) are checked when a lab is created.
"""

from __future__ import annotations

from collections.abc import Callable

from pillarbox.experiments.lab.emulation.defaults import usual_routing
from pillarbox.experiments.lab.emulation.kits import check_kit
from pillarbox.experiments.lab.linux import congestion, shaping
from pillarbox.experiments.lab.linux.queueing import Queue
from pillarbox.hosts.base.load import router_for
from pillarbox.hosts.base.timers import timers_for
from pillarbox.hosts.linux.multipath import MOST_SUBFLOWS
from pillarbox.hosts.live.settings import MPTCP, TCP, LabSettings
from pillarbox.topos.base.errors import (
    InvalidValueError,
    PillarboxError,
    UnknownNameError,
    meant,
    require,
)
from pillarbox.topos.base.topology import Topology

PLANES = ("auto", "python", "ebpf", "ovs")
# Largest time dilation of a lab: TCP's minimum retransmission timeout is then 40 s, and the kernel
# limits every timeout to 120 s.
MOST_DILATION = 200
LEAST_MTU, MOST_MTU = 576, 65000  # bytes; RFC 791's minimum, and 64 KiB minus headers


def check_settings(topology: Topology, settings: LabSettings) -> None:
    """Raise InvalidValueError, which names the setting, if a setting is invalid for the network.

    >>> from pillarbox import topos
    >>> check_settings(topos.parse("bcube,4,1"), LabSettings(rate_mbit=-5))
    Traceback (most recent call last):
    pillarbox...InvalidValueError: a cable's rate is above 0 and at most 1e+06 Mbit/s, not -5
    """
    for key, check in _CHECKS.items():
        try:
            check(topology, settings)
        except PillarboxError as error:
            raise InvalidValueError(str(error), key) from None


def _check_plane(topology: Topology, settings: LabSettings) -> None:
    planes = PLANES[:-1] if topology.ports > 1 and settings.switches == "bridges" else PLANES
    require(
        settings.plane in planes,
        f"there is no plane {settings.plane!r} for {topology.spec}: {', '.join(planes)}",
        UnknownNameError,
    )


def _check_kit(_topology: Topology, settings: LabSettings) -> None:
    check_kit(settings.kit)


def _check_controller(topology: Topology, settings: LabSettings) -> None:
    if not settings.controller:
        return
    require(
        settings.switches == "bridges",
        f"a controller of your own replaces the {settings.switches} switches: choose one of both",
    )
    planes = ("auto", "python", "ebpf") if topology.ports > 1 else ("auto", "ovs")
    require(
        settings.plane in planes,
        f"a controller runs with plane {' or '.join(planes)} for {topology.spec}, not "
        f"{settings.plane}",
    )
    require(
        topology.ports > 1 or not settings.routing,
        f"your controller routes in {topology.spec}: leave out the routing {settings.routing}",
    )


def _check_timers(topology: Topology, settings: LabSettings) -> None:
    timers_for(topology, settings.timers)


def _check_routing(topology: Topology, settings: LabSettings) -> None:
    routing = settings.routing or usual_routing(topology)
    if topology.ports > 1 and not routing.endswith(".py"):
        router_for(topology, routing)


def _check_rate(topology: Topology, settings: LabSettings) -> None:
    shaping.check_rate(settings.rate_mbit)
    if settings.rate_mbit is not None:
        shaping.check_rate(settings.rate_mbit * max(topology.factors.rates, default=1))


def _check_loss(_topology: Topology, settings: LabSettings) -> None:
    shaping.check_loss(settings.loss)


def _check_delay(topology: Topology, settings: LabSettings) -> None:
    longest = max(topology.factors.delays, default=1)
    shaping.checked_delay(shaping.scaled_delay(settings.delay, longest), None)


def _check_mtu(_topology: Topology, settings: LabSettings) -> None:
    require(
        LEAST_MTU <= settings.mtu <= MOST_MTU,
        f"the MTU is {LEAST_MTU} to {MOST_MTU} bytes, not {settings.mtu}",
    )


def _check_tcp(_topology: Topology, settings: LabSettings) -> None:
    if settings.tcp:
        congestion.source_of(settings.tcp)


def _check_port_addresses(topology: Topology, settings: LabSettings) -> None:
    if settings.port_addresses:
        topology.check_ports_addressable()


def _check_transport(topology: Topology, settings: LabSettings) -> None:
    known = (TCP, MPTCP)
    require(
        settings.transport in known,
        f"there is no transport {settings.transport!r}: {meant(settings.transport, known)}",
        UnknownNameError,
    )
    if settings.multipath:
        require(
            topology.ports > 1,
            f"Multipath TCP needs servers with several ports, and those of {topology.spec} have "
            "one: use transport tcp",
        )
        topology.check_ports_addressable()


def _check_subflows(topology: Topology, settings: LabSettings) -> None:
    if settings.subflows is None:
        return
    require(settings.multipath, "subflows are those of Multipath TCP: set transport = mptcp")
    most = min(topology.ports, MOST_SUBFLOWS)
    require(
        1 <= settings.subflows <= most,
        f"a connection in {topology.spec} has 1 to {most} subflows (one by each port, and at most "
        f"{MOST_SUBFLOWS}), not {settings.subflows}",
    )


def _check_queue(_topology: Topology, settings: LabSettings) -> None:
    Queue(settings.queue).check()


def _check_queue_length(_topology: Topology, settings: LabSettings) -> None:
    Queue(length=settings.queue_length).check()


def _check_catch_up(_topology: Topology, settings: LabSettings) -> None:
    shaping.catch_up_s(settings.catch_up)


def _check_dilation(_topology: Topology, settings: LabSettings) -> None:
    require(
        1 <= settings.dilation <= MOST_DILATION,
        f"a lab runs 1 to {MOST_DILATION} times slower than its network, not "
        f"{settings.dilation:g} times: TCP's longest timeout is 120 s in the lab",
    )
    require(
        settings.dilation == 1 or settings.rate_mbit is not None,
        "a network without a rate cannot be dilated: set rate_mbit",
    )


_CHECKS: dict[str, Callable[[Topology, LabSettings], None]] = {
    "plane": _check_plane,
    "kit": _check_kit,
    "controller": _check_controller,
    "timers": _check_timers,
    "routing": _check_routing,
    "rate_mbit": _check_rate,
    "loss": _check_loss,
    "delay": _check_delay,
    "mtu": _check_mtu,
    "tcp": _check_tcp,
    "port_addresses": _check_port_addresses,
    "transport": _check_transport,
    "subflows": _check_subflows,
    "queue": _check_queue,
    "queue_length": _check_queue_length,
    "catch_up": _check_catch_up,
    "dilation": _check_dilation,
}
