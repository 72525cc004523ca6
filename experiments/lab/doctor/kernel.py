"""Probes of kernel features, each tried in a temporary network namespace."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from pillarbox.experiments.base.files import file_text
from pillarbox.experiments.lab.doctor.finding import (
    LESS,
    MISSING,
    OK,
    UNKNOWN,
    Finding,
    Probe,
    finding,
)
from pillarbox.experiments.lab.linux.sandbox import WITHOUT_ROOT
from pillarbox.hosts.base.file_ownership import is_machine_root
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux import user_namespace
from pillarbox.hosts.linux.bpf import may_load_programs
from pillarbox.hosts.live.devices import MEND_TUN, TUN
from pillarbox.topos.base.errors import PillarboxError

LOOPBACK = 1
RETURN_MITIGATION = Path("/sys/devices/system/cpu/vulnerabilities/spec_rstack_overflow")
SAFE_RET = "Safe RET"
NEEDS_ROOT = "only root can try it: sudo pillarbox doctor"
MODULES = "install the kernel's extra modules (Ubuntu: linux-modules-extra-$(uname -r)) and reboot"


def probes() -> list[Probe]:
    """Return `doctor`'s checks of kernel features, in the order of the report."""
    at_ports = [bpf_programs_at_ports, bpf_programs_by_tcx]
    return [
        root,
        labs_of_users,
        namespaces,
        veth_pairs,
        bridges,
        cable_rates,
        port_bursts,
        cable_delays,
        *at_ports,
        tun,
        ebpf,
        controls,
        multipath_tcp,
    ]


def root() -> Finding:
    """Return whether this process runs as root, or can be root of a user namespace."""
    if is_machine_root():
        return Finding("root", OK, "this is root")
    refused = user_namespace.refusal()
    costs, state = f"labs run {WITHOUT_ROOT}", LESS
    if refused:
        costs, state = f"no lab can be started: {refused}", MISSING
    return Finding("root", state, "this is an ordinary user", costs, "run it with sudo")


def labs_of_users() -> Finding:
    """Return whether ordinary users can start labs: whether they may create user namespaces."""
    setting = user_namespace.forbidding_setting()
    lack = f"{setting.name} is {setting.forbids}" if setting else ""
    mend = f"sudo sysctl -w {setting.name}={setting.permits}" if setting else ""
    found, costs = "ordinary users can start labs", "only root can start labs"
    return finding("user namespaces", found, lack, costs, mend)


def namespaces() -> Finding:
    """Return whether network namespaces for servers can be created."""

    def attempt() -> None:
        with _temporary_namespace():
            pass

    costs = "no lab can be started: each server is a network namespace"
    mend = "use a virtual machine, or a privileged container"
    return _finding_by_attempt(
        "namespaces", "network namespaces can be made", attempt, costs, mend, MISSING
    )


def veth_pairs() -> Finding:
    """Return whether the kernel has veth pairs."""

    def attempt() -> None:
        from pillarbox.experiments.lab.linux.link_requests import End, cable

        with _temporary_namespace() as place:
            ends = (End(f"probe{i}", 1000 + i, place.descriptor, None) for i in range(2))
            place.send(cable(*ends, mtu=1500))

    mend = "load the module (modprobe veth); " + MODULES
    return _finding_by_attempt(
        "veth", "cables can be made", attempt, "no lab can be started", mend, MISSING
    )


def bridges() -> Finding:
    """Return whether the kernel has bridges."""

    def attempt() -> None:
        from pillarbox.experiments.lab.linux.link_requests import bridge

        with _temporary_namespace() as place:
            place.send(bridge("probe", 1000))

    costs = "no lab with switches can be started: each mini-switch is a bridge"
    mend = "load the module (modprobe bridge); " + MODULES
    return _finding_by_attempt("bridge", "switches can be made", attempt, costs, mend, MISSING)


def cable_rates() -> Finding:
    """Return whether cables can have a rate (HTB)."""

    def attempt() -> None:
        from pillarbox.experiments.lab.linux.shaping import limited

        with _temporary_namespace() as place:
            place.send(*limited(LOOPBACK, 10.0, None))

    costs = "cables have no rate (--rate-mbit), so no throughput can be trusted"
    mend = "load the module (modprobe sch_htb); " + MODULES
    return _finding_by_attempt("HTB", "cables can have a rate", attempt, costs, mend)


def port_bursts() -> Finding:
    """Return whether HTB's hysteresis can be enabled: ports then send queued packets in bursts."""
    if os.geteuid() != 0:
        return Finding("HTB's hysteresis", UNKNOWN, NEEDS_ROOT)
    from pillarbox.experiments.lab.linux import shaping

    shaping.load_htb()
    lack = "" if os.access(shaping.HYSTERESIS, os.W_OK) else f"{shaping.HYSTERESIS} is not writable"
    costs = "a timer for each frame: the largest rate that a trial is valid at may be half as large"
    mend = "use no container whose /sys is read-only"
    return finding("HTB's hysteresis", "ports can send in bursts", lack, costs, mend)


def cable_delays() -> Finding:
    """Return whether the kernel has netem for delays."""

    def attempt() -> None:
        from pillarbox.experiments.lab.linux.shaping import LinkDelay, limited

        with _temporary_namespace() as place:
            place.send(*limited(LOOPBACK, None, LinkDelay(1e-3)))

    costs = "delays of cables are made by a process, within 0.3 ms, and are fixed from the start"
    mend = "load the module (modprobe sch_netem); " + MODULES
    return _finding_by_attempt("netem", "the kernel can delay", attempt, costs, mend)


def bpf_programs_at_ports() -> Finding:
    """Return whether BPF programs can be attached to ports, for silent cuts and loss."""

    def attempt() -> None:
        from pillarbox.experiments.lab.linux import cable_programs

        tap, program = cable_programs.CableTap(LOOPBACK, nl.CLSACT_INGRESS), cable_programs.drop()
        with ExitStack() as stack:
            place = stack.enter_context(_temporary_namespace())
            how = tap, cable_programs.CUT
            if may_load_programs():
                loaded = cable_programs.load(program)
                stack.callback(os.close, loaded)
                request = cable_programs.attach(*how, loaded, "try")
            else:
                request = cable_programs.attach_filter(*how, program.classic, "try")
            place.send(cable_programs.hook(tap), request)

    costs = "no silent cuts, no loss, and no cables from server to server"
    mend = "use a kernel with CONFIG_BPF_SYSCALL, sch_ingress and cls_bpf; " + MODULES
    return _finding_by_attempt("clsact", "programs can stand at ports", attempt, costs, mend)


def bpf_programs_by_tcx() -> Finding:
    """Return whether BPF programs can be attached to ports by TCX, and quickly."""
    if os.geteuid() != 0:
        return Finding("TCX", UNKNOWN, NEEDS_ROOT)
    from pillarbox.hosts.linux import tcx

    may_hurry = os.access(tcx.HURRY, os.W_OK)
    lack = "" if may_hurry else f"{tcx.HURRY} cannot be written"
    lack = lack if tcx.is_supported() else "this kernel knows filters only"
    costs = "filters call them: relays carry some 3 % less, and labs take more of the machine"
    mend = "use Linux 6.6 or later, and no container whose /sys is read-only"
    return finding("TCX", "programs stand at ports without filters", lack, costs, mend)


def tun() -> Finding:
    """Return whether servers can have a TUN interface for applications."""
    lack = "" if TUN.exists() else f"there is no {TUN}"
    mend = MEND_TUN
    if TUN.exists() and not os.access(TUN, os.R_OK | os.W_OK):
        lack, mend = f"this user may not open {TUN}", f"run it with sudo, or chmod 666 {TUN}"
    costs = "applications' interfaces are veth interfaces, and only the Python plane forwards"
    return finding("TUN", str(TUN), lack, costs, mend)


def ebpf() -> Finding:
    """Return whether the kernel can forward packets by eBPF."""
    if os.geteuid() != 0:
        return Finding("eBPF plane", UNKNOWN, NEEDS_ROOT)
    from pillarbox.hosts.live import lab_programs

    costs = "every packet goes through Python: some 100 times slower (--plane python)"
    mend = "see docs/adr/0002-ebpf-by-clang-and-libbpf.md; run vagrant/provision.sh again"
    return finding("eBPF plane", "the kernel can forward", lab_programs.available(), costs, mend)


def controls() -> Finding:
    """Return whether TCP congestion controls in eBPF can be registered."""
    if not is_machine_root():
        return Finding("TCP controls", UNKNOWN, NEEDS_ROOT)

    def attempt() -> None:
        from pillarbox.experiments.lab.linux.congestion import control_in_use, shipped

        with control_in_use(min(shipped())):
            pass

    costs = "no congestion control of your own (cc, --tcp); the kernel's remain"
    mend = "use Linux 6.4 or later with BTF, and install clang and libbpf-dev"
    found = _finding_by_attempt("TCP controls", "eBPF can control TCP", attempt, costs, mend)
    if found.state == OK and SAFE_RET in file_text(RETURN_MITIGATION):
        lack = f"eBPF can control TCP; the kernel skips some calls (mitigation {SAFE_RET})"
        costs = "some flows keep queues full: check their fairness (docs/congestion.md)"
        return Finding(found.name, LESS, lack, costs, "use another processor")
    return found


def multipath_tcp() -> Finding:
    """Return whether the kernel has Multipath TCP."""
    if user_namespace.refusal():
        return Finding("Multipath TCP", UNKNOWN, NEEDS_ROOT)
    from pillarbox.experiments.lab.linux import mptcp

    missing = user_namespace.text_inside(mptcp.missing)
    costs = "no lab with `up --mptcp`; experiments leave systems with transport mptcp out"
    mend = "use Linux 6.5 or later with CONFIG_MPTCP"
    return finding("Multipath TCP", "subflows can be opened", missing, costs, mend)


@contextmanager
def _temporary_namespace() -> Iterator[Any]:
    """Yield a temporary network namespace."""
    from pillarbox.experiments.lab.linux.namespaces import Namespace

    with closing(Namespace()) as place:
        yield place


def _finding_by_attempt(
    name: str, found: str, attempt: Callable[[], None], costs: str, mend: str, state: str = "less"
) -> Finding:
    """Try a kernel feature; return `doctor`'s finding on the feature."""
    if user_namespace.refusal():
        return Finding(name, UNKNOWN, NEEDS_ROOT)

    def lack() -> str:
        try:
            attempt()
        except (PillarboxError, OSError) as error:
            return f"tried, and refused: {error}"
        return ""

    return finding(name, found, user_namespace.text_inside(lack), costs, mend, state)
