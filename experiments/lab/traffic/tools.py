"""Choice of the program that sends a workload's flows, and TCP's settings on the servers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pillarbox.experiments.base.processes import processors
from pillarbox.experiments.lab.linux.namespaces import HOST_SYSCTLS, write_sysctl
from pillarbox.experiments.models.workloads.flows import Flow, Sending, Tool
from pillarbox.topos.base.errors import UnknownNameError, require

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

AUTO, GENERATOR, IPERF3 = "auto", "generator", "iperf3"
# Maximum number of flows per processor for which "auto" chooses iperf3: its two processes per flow
# slow the emulated network down.
IPERF3_FLOWS = 32

ECN = "net/ipv4/tcp_ecn"
# queueing disciplines of a lab that mark packets of senders that support ECN
ECN_MARKING_QUEUES = ("ecn", "codel", "fq_codel")

# TCP sysctls and the value that all servers get in trials: those that namespaces inherit from the
# machine, and others that affect TCP.
PINNED = {
    **{name: value for name, value in HOST_SYSCTLS.items() if "tcp" in name},
    "net/ipv4/tcp_moderate_rcvbuf": "1",
    "net/ipv4/tcp_window_scaling": "1",
    "net/ipv4/tcp_timestamps": "1",
    "net/ipv4/tcp_sack": "1",
    ECN: "2",
    "net/ipv4/tcp_slow_start_after_idle": "1",
    "net/ipv4/tcp_mtu_probing": "0",
}

# TCP sysctls that are times, and Linux' values: minimum retransmission timeout in us, window of the
# minimum round-trip time in s, delay and slack of compressed SACKs in ns.
TIMES = {
    "net/ipv4/tcp_rto_min_us": 200_000,
    "net/ipv4/tcp_min_rtt_wlen": 300,
    "net/ipv4/tcp_comp_sack_delay_ns": 1_000_000,
    "net/ipv4/tcp_comp_sack_slack_ns": 100_000,
}
# sysctl of tail loss probes. The kernel adds 2 ms to the time of a probe, and no setting changes
# that, so senders of dilated labs do without probes.
EARLY_RETRANSMIT = "net/ipv4/tcp_early_retrans"


def _iperf3_tool(lab: Lab, flows: Sequence[Flow], sending: Sending) -> Tool:
    from pillarbox.experiments.lab.traffic.iperf3 import Iperf3

    return Iperf3(lab, flows, sending)


def _generator_tool(lab: Lab, flows: Sequence[Flow], sending: Sending) -> Tool:
    from pillarbox.experiments.lab.traffic.generator import Generator

    return Generator(lab, flows, sending)


TOOLS: dict[str, Callable[[Lab, Sequence[Flow], Sending], Tool]] = {
    IPERF3: _iperf3_tool,
    GENERATOR: _generator_tool,
}


def tool_for(name: str, lab: Lab, flows: Sequence[Flow], sending: Sending) -> Tool:
    """Return the traffic tool, by its name, that sends these flows over a lab.

    Parameters
    ----------
    name : str
        Name in TOOLS, or ``auto``: iperf3 if it is installed, the flows are few for the number of
        processors, and their transport is TCP; else the built-in generator.
    lab : Lab
        The running lab.
    flows : sequence of Flow
        Flows to send.
    sending : Sending
        Congestion control, intervals and timeout.
    """
    chosen = chosen_tool(name, len(flows), multipath=sending.multipath)
    return TOOLS[chosen](lab, flows, sending)


def chosen_tool(name: str, flows: int, *, multipath: bool = False) -> str:
    """Return the traffic tool's name: for ``auto`` by the number of flows, else `name` itself.

    With Multipath TCP, ``auto`` is the generator, which measures subflows.
    """
    there = shutil.which("iperf3") is not None
    if name == AUTO and multipath:
        return GENERATOR
    if name == AUTO:
        few = flows <= IPERF3_FLOWS * processors()
        return IPERF3 if there and few else GENERATOR
    require(
        name in TOOLS,
        f"there is no traffic tool {name!r}: choose {AUTO}, {', '.join(TOOLS)}",
        UnknownNameError,
    )
    require(
        there or name != IPERF3,
        "iperf3 is not installed: install it (apt install iperf3), or choose generator",
    )
    return name


def time_sysctls(dilation: float) -> dict[str, str]:
    """Return TCP's sysctls that are times, for a lab that runs `dilation` times slower.

    >>> time_sysctls(10)["net/ipv4/tcp_rto_min_us"]
    '2000000'
    """
    times = {name: f"{value * dilation:.0f}" for name, value in TIMES.items()}
    return {**times, EARLY_RETRANSMIT: "0"}


def missing_time_sysctls() -> list[str]:
    """Return the sysctls of `TIMES` that this kernel does not have, in sysctl's notation."""
    return [name.replace("/", ".") for name in TIMES if not (Path("/proc/sys") / name).exists()]


def pinned_sysctls(lab: Lab) -> dict[str, str]:
    """Set the TCP sysctls of all servers to fixed values; return them for the manifest.

    Sysctls that this kernel lacks are left out.
    """
    found: dict[str, str] = {}
    times = time_sysctls(lab.settings.dilation) if lab.settings.dilation != 1 else {}
    asks = "1" if lab.settings.queue in ECN_MARKING_QUEUES else PINNED[ECN]
    for server in lab.here():
        with lab.host(server).live_namespace():
            for name, value in {**PINNED, ECN: asks, **times}.items():
                write_sysctl(name, value)
                path = Path("/proc/sys") / name
                if path.exists():
                    found[name.replace("/", ".")] = " ".join(path.read_text().split())
    return found
