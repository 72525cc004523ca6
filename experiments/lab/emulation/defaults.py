"""The default routing and the default plane of a lab."""

from __future__ import annotations

from pillarbox.hosts.base.algorithms import algorithms
from pillarbox.hosts.base.declarations import declared
from pillarbox.hosts.live import lab_programs
from pillarbox.hosts.live.devices import missing_tun
from pillarbox.topos.base.errors import UnknownNameError, require
from pillarbox.topos.base.topology import Topology


def chosen_plane(wanted: str) -> str:
    """Return the forwarding plane, ``python`` or ``ebpf``; ``auto`` chooses the faster one."""
    require(
        wanted in ("auto", "python", "ebpf"),
        f"there is no plane {wanted!r}: auto, python, ebpf",
        UnknownNameError,
    )
    if wanted == "python":
        return wanted
    missing = missing_for_ebpf()
    require(not missing or wanted == "auto", f"the eBPF plane cannot be used here: {missing}")
    return "python" if missing else "ebpf"


def missing_for_ebpf() -> str:
    """Return the reason why this machine cannot use the eBPF plane, "" if it can."""
    return lab_programs.available() or missing_tun()


def usual_routing(topology: Topology) -> str:
    """Return the default routing of a network's servers.

    The default is a routing that survives failures, if there is one.
    """
    network = declared(topology.kind)
    if network and network.usual:
        return network.usual
    names = [name for name, found in algorithms(topology).items() if found.router]
    return next((name for name in ("dfr", "bsr", "tar", "mp-far-side") if name in names), names[0])
