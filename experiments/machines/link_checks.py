"""Check of a cluster's machines and of the network between each two (`cluster check`).

Super-packets are tried as labs use them: a small lab over the two machines, whose routing header
(0x88B5) no card knows, sends one flow across in super-packets, whatever the cards report. A device
that would have to segment super-packets drops them, while every ping arrives.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

from experiments.control.queries import iperf
from experiments.emulation.underlay import TUNNEL_BYTES
from experiments.linux.shaping import HEADER_ROOM
from experiments.machines.cluster_registry import NamedCluster
from experiments.machines.dask_cluster import GONE, Cluster
from experiments.machines.dask_process import code
from experiments.machines.distributed_lab import LabOverMachines
from hosts.live.settings import LabSettings
from topos.base.errors import PillarboxError, require
from topos.base.spec import parse

# servers 0 and 3 share no switch, so that a relay and its header are on their path
SPEC = "bcube,2,1"
SECONDS = 0.5  # duration of each flow
# fraction of plain TCP's rate: whole super-packets reach a half, lost ones a thousandth
LEAST_SHARE = 0.1
ANSWER_S = 30.0
IP_ICMP_BYTES = 28
LEAST_MTU, USUAL_MTU = 576, 1500
CHUNK = 1 << 20
SETTLED_MS = 1.0  # clock error in ms above which no trial over these machines is valid


class MachineProbe:
    """Dask actor that measures rate and MTU from its machine to other machines."""

    def listen(self) -> int:
        """Accept one connection in a thread and report its rate to the peer; return the port."""
        from distributed import get_worker

        address = get_worker().address.rpartition("://")[2].rpartition(":")[0]
        listener = socket.create_server((address, 0))
        listener.settimeout(ANSWER_S)
        threading.Thread(target=_receive, args=[listener], daemon=True).start()
        return int(listener.getsockname()[1])

    def rate(self, address: str, port: int) -> float:
        """Return the TCP rate to another machine's listener, in bit/s."""
        data = bytes(CHUNK)
        with socket.create_connection((address, port), ANSWER_S) as out:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                out.sendall(data)
            out.shutdown(socket.SHUT_WR)
            return float(out.recv(64))

    def mtu(self, address: str, most: int) -> int:
        """Return the largest packet in bytes that ping delivers unfragmented, 0 for none."""
        require(
            shutil.which("ping") is not None, "a machine has no ping: install iputils-ping there"
        )
        if not _passes(address, LEAST_MTU):
            return 0
        low, high = LEAST_MTU, most + 1
        size = most
        while high - low > 1:
            low, high = (size, high) if _passes(address, size) else (low, size)
            size = (low + high) // 2
        return low


def _receive(listener: socket.socket) -> None:
    with listener, listener.accept()[0] as come:
        begin, count = time.monotonic(), 0
        while data := come.recv(CHUNK):
            count += len(data)
        come.sendall(b"%f" % (count * 8 / (time.monotonic() - begin)))


def _passes(address: str, size: int) -> bool:
    whole = ["ping", "-n", "-q", "-c", "1", "-W", "1", "-M", "do", "-s", str(size - IP_ICMP_BYTES)]
    return subprocess.run([*whole, address], capture_output=True, check=False).returncode == 0


def check(name: str) -> Iterator[dict[str, Any]]:
    """Yield the facts of all machines first, then the result of each pair of machines."""
    ground = NamedCluster(name)
    cluster = Cluster(ground, lambda *_: None)
    try:
        cluster.open(Path(), 0)
        facts = cluster.facts()
        yield {"machines": facts, "wrong": list(_wrong(facts))}
        probes = cluster.actors(MachineProbe)
        for a, b in combinations(range(len(facts)), 2):
            pair = [(a, b, probes[a], facts[b]), (b, a, probes[b], facts[a])]
            mtu = min(_of(probe.mtu(to["address"], to["card_mtu"])) for _, _, probe, to in pair)
            rates = [
                _of(probe.rate(to["address"], _of(probes[there].listen())))
                for _, there, probe, to in pair
            ]
            yield _pair(name, ground, a, b, mtu, rates)
    finally:
        cluster.close()


def _of(asked: Any) -> Any:
    try:
        return asked.result(timeout=ANSWER_S)
    except GONE as error:
        raise PillarboxError(
            f"a machine does not answer, or another does not let it: {error}"
        ) from None


def _pair(
    name: str, ground: NamedCluster, a: int, b: int, mtu: int, rates: list[float]
) -> dict[str, Any]:
    """Return the check's result for a pair of machines, with a list of problems."""
    found: dict[str, Any] = {"a": a, "b": b, "mtu": mtu, "tcp_mbit": [r * 1e-6 for r in rates]}
    most = mtu - TUNNEL_BYTES - HEADER_ROOM
    wrong = []
    if most < LEAST_MTU:
        wrong.append(f"packets of {mtu} bytes at most pass between {a} and {b}: no lab fits in")
    else:
        only = [ground.workers[a], ground.workers[b]]
        found |= _tried(name, only, min(most, USUAL_MTU))
        least = LEAST_SHARE * min(rates) * 1e-6
        lossy = [at for at, mbit in zip((a, b), found["super_mbit"], strict=True) if mbit < least]
        found["lossy"] = [ground.addresses[at] for at in lossy]
        wrong += [
            f"super-packets do not come whole from {at} to {a + b - at}: labs on this cluster will "
            "have them packed by eBPF, or send single packets"
            for at in lossy
        ]
        if most < USUAL_MTU:
            wrong.append(f"between {a} and {b} labs need --mtu {most} or less")
        if found["clock_ms"] > SETTLED_MS:
            wrong.append(f"clocks of {a} and {b} are known to {found['clock_ms']:.1f} ms only")
    return {**found, "wrong": wrong}


def _tried(name: str, only: list[str], mtu: int) -> dict[str, Any]:
    """Return the rates of a small lab over two machines, and the error of their clocks."""
    settings = LabSettings(rate_mbit=None, mtu=mtu)
    with tempfile.TemporaryDirectory(prefix="pillarbox-") as folder:
        ground = NamedCluster(name, only=only)
        lab = LabOverMachines(parse(SPEC), settings, Path(folder), 2, ground=ground, whole=True)
        with lab:
            lab.wait_converged()
            errors = [offset.error_s for offset in lab.clocks.measure().values()]
            last = lab.topology.servers - 1
            carried = [_carried(lab, *ends) for ends in ((0, last), (last, 0))]
    return {"super_mbit": carried, "clock_ms": max(errors) * 1e3}


def _carried(lab: LabOverMachines, source: int, destination: int) -> float:
    try:
        return float(iperf(lab, source, destination, SECONDS)["mbit"])
    except PillarboxError:  # the connection of the flow was not established
        return 0.0


def _wrong(facts: list[dict[str, Any]]) -> Iterator[str]:
    for machine, one in enumerate(facts):
        if one["code"] != code():
            yield f"machine {machine} ({one['host']}) has another version of Pillarbox"
        if not one["root"]:
            yield f"machine {machine} ({one['host']}): its worker does not run as root"
