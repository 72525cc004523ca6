"""Probes of programs and libraries that labs use."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

from pillarbox.experiments.base.files import CHECKOUT
from pillarbox.experiments.lab.doctor.finding import LESS, MISSING, Finding, Probe, finding

IS_CHECKOUT = (CHECKOUT / "vagrant" / "provision.sh").is_file()
PROVISION = "run vagrant/provision.sh" if IS_CHECKOUT else "run 'sudo pillarbox setup live'"
ASK_S = 10.0


def probes() -> list[Probe]:
    """Return `doctor`'s checks of installed programs, in the order of the report."""
    return [mininet, iperf3, multipath_tcp, tools, open_vswitch, openflow, tshark]


def mininet() -> Finding:
    """Return whether Mininet can be imported."""
    lack = "" if importlib.util.find_spec("mininet") else "there is no Mininet"
    costs = "no lab can be started"
    return finding("Mininet", "can be imported", lack, costs, PROVISION, MISSING)


def iperf3() -> Finding:
    """Return whether iperf3 is installed in a recent version."""
    from pillarbox.experiments.lab.traffic.iperf3 import OLDEST, version

    try:
        found = version()
    except Exception as error:  # noqa: BLE001 - any error becomes a sentence for the user
        lack, release = str(error), ""
    else:
        release = ".".join(map(str, found))
        oldest = ".".join(map(str, OLDEST))
        lack = "" if found >= OLDEST else f"{release} is older than {oldest}"
    costs = "experiments use the built-in generator only"
    return finding("iperf3", release, lack, costs, PROVISION)


def multipath_tcp() -> Finding:
    """Return whether programs can use Multipath TCP in place of TCP."""
    from pillarbox.experiments.lab.linux import mptcp

    lack = mptcp.lack_for_programs()
    costs = "only programs that open Multipath TCP sockets themselves use it, and the generator"
    mend = "install clang, binutils and libc6-dev"
    return finding("exec --mptcp", "TCP sockets can become Multipath TCP", lack, costs, mend)


def tools() -> Finding:
    """Return whether the tools that users and Mininet call are installed."""
    wanted = ("ip", "tc", "ping", "tcpdump", "ethtool", "brctl")
    missing = [name for name in wanted if not shutil.which(name)]
    lack = f"there is no {' '.join(missing)}" if missing else ""
    costs = "commands of the lab sheets that call them fail"
    return finding("tools", " ".join(wanted), lack, costs, PROVISION)


def open_vswitch() -> Finding:
    """Return whether Open vSwitch is installed, with its kernel datapath."""
    costs = "the fat-tree cannot run on Open vSwitch (--plane ovs); as Linux routers it does"
    mend = "sudo ./pillarbox setup openflow"
    if not shutil.which("ovs-vswitchd"):
        return finding("Open vSwitch", "", "it is not installed", costs, mend)
    if not _kernel_has_ovs():
        costs = "Open vSwitch forwards in a process: right, but at under 1 Gbit/s"
        mend = "load the module (modprobe openvswitch)"
        return finding("Open vSwitch", "", "without the kernel's module", costs, mend)
    return finding("Open vSwitch", "with the kernel's datapath", "", "", "")


def openflow() -> Finding:
    """Return whether a framework for the OpenFlow controller is installed."""
    from pillarbox.experiments.lab.emulation.kits import OPENFLOW_KITS

    kits = [kit for kit, package in OPENFLOW_KITS.items() if importlib.util.find_spec(package)]
    lack = "" if kits else "neither os-ken nor Ryu"
    costs = "the fat-tree cannot run on Open vSwitch (--plane ovs)"
    mend = "sudo ./pillarbox setup openflow"
    return finding("OpenFlow", " ".join(kits), lack, costs, mend)


def tshark() -> Finding:
    """Return whether tshark is installed to dissect captures."""
    lack = "" if shutil.which("tshark") else "it is not installed"
    costs = "captures can be made and followed, but not dissected field by field"
    return finding("tshark", "is there", lack, costs, PROVISION, LESS)


def _kernel_has_ovs() -> bool:
    if Path("/sys/module/openvswitch").exists():
        return True
    try:  # modprobe -n: only checks that the module exists
        asked = subprocess.run(
            ["modprobe", "-n", "openvswitch"], capture_output=True, check=False, timeout=ASK_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0
