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

from pillarbox.experiments.apps.cluster.cluster_fabric import ClusterFabric
from pillarbox.experiments.apps.cluster.cluster_registry import NamedCluster
from pillarbox.experiments.apps.cluster.dask_cluster import GONE, Cluster
from pillarbox.experiments.apps.cluster.dask_process import source_hash
from pillarbox.experiments.lab.emulation.lab import Lab
from pillarbox.experiments.lab.emulation.underlay import TUNNEL_BYTES
from pillarbox.experiments.lab.linux.shaping import HEADER_ROOM
from pillarbox.experiments.runs.control.queries import iperf
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.spec import parse

# network of the check: packets between servers 0 and 3 are relayed by another server
SPEC = "bcube,2,1"
SECONDS = 0.5  # duration of each TCP flow of the check, in seconds
# fraction of plain TCP's rate below which tunnels are assumed to lose super-packets
LEAST_SHARE = 0.1
ANSWER_S = 30.0
IP_ICMP_BYTES = 28
LEAST_MTU, USUAL_MTU = 576, 1500
CHUNK = 1 << 20
SETTLED_MS = 1.0  # clock error in ms above which no trial over these machines is valid


class MachineProbe:
    """Dask actor that measures rate and MTU from its machine to other machines."""

    def listen(self) -> int:
        """Listen for a TCP connection whose rate the peer measures; return the port."""
        from distributed import get_worker

        address = get_worker().address.rpartition("://")[2].rpartition(":")[0]
        listener = socket.create_server((address, 0))
        listener.settimeout(ANSWER_S)
        threading.Thread(target=_receive, args=[listener], daemon=True).start()
        return int(listener.getsockname()[1])

    def rate(self, address: str, port: int) -> float:
        """Measure and return the TCP rate to another machine's listener, in bit/s."""
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
            shutil.which("ping") is not None,
            f"{socket.gethostname()} has no program ping: install iputils-ping",
        )
        if not _is_ping_answered(address, LEAST_MTU):
            return 0
        low, high = LEAST_MTU, most + 1
        size = most
        while high - low > 1:
            low, high = (size, high) if _is_ping_answered(address, size) else (low, size)
            size = (low + high) // 2
        return low


def _receive(listener: socket.socket) -> None:
    with listener, listener.accept()[0] as come:
        begin, count = time.monotonic(), 0
        while data := come.recv(CHUNK):
            count += len(data)
        come.sendall(b"%f" % (count * 8 / (time.monotonic() - begin)))


def _is_ping_answered(address: str, size: int) -> bool:
    whole = ["ping", "-n", "-q", "-c", "1", "-W", "1", "-M", "do", "-s", str(size - IP_ICMP_BYTES)]
    return subprocess.run([*whole, address], capture_output=True, check=False).returncode == 0


def check(name: str) -> Iterator[dict[str, Any]]:
    """Check a cluster: yield the facts of all machines, then the result of each pair."""
    ground = NamedCluster(name)
    cluster = Cluster(ground, lambda *_: None)
    try:
        cluster.open(Path(), 0)
        facts = cluster.facts()
        yield {"machines": facts, "wrong": list(_problems_of_machines(facts))}
        probes = cluster.actors(MachineProbe)
        for a, b in combinations(range(len(facts)), 2):
            pair = [(a, b, probes[a], facts[b]), (b, a, probes[b], facts[a])]
            mtu = min(
                _actor_result(probe.mtu(to["address"], to["card_mtu"])) for _, _, probe, to in pair
            )
            rates = [
                _actor_result(probe.rate(to["address"], _actor_result(probes[there].listen())))
                for _, there, probe, to in pair
            ]
            yield _pair_result(name, ground, a, b, mtu, rates)
    finally:
        cluster.close()


def _actor_result(asked: Any) -> Any:
    try:
        return asked.result(timeout=ANSWER_S)
    except GONE as error:
        raise PillarboxError(
            f"a machine of the cluster is down, or a firewall blocks TCP between machines: {error}"
        ) from None


def _pair_result(
    name: str, ground: NamedCluster, a: int, b: int, mtu: int, rates: list[float]
) -> dict[str, Any]:
    """Return MTU, rates and problems of the network between two machines of a cluster."""
    found: dict[str, Any] = {"a": a, "b": b, "mtu": mtu, "tcp_mbit": [r * 1e-6 for r in rates]}
    most = mtu - TUNNEL_BYTES - HEADER_ROOM
    wrong = []
    if most < LEAST_MTU:
        wrong.append(f"packets of {mtu} bytes at most pass between {a} and {b}: no lab fits in")
    else:
        only = [ground.workers[a], ground.workers[b]]
        found |= _small_lab_result(name, only, min(most, USUAL_MTU))
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


def _small_lab_result(name: str, only: list[str], mtu: int) -> dict[str, Any]:
    """Start a small lab over two machines; return its rates and the error of their clocks."""
    settings = LabSettings(rate_mbit=None, mtu=mtu)
    with tempfile.TemporaryDirectory(prefix="pillarbox-") as folder:
        fabric = ClusterFabric(ground=NamedCluster(name, only=only), whole=True)
        with Lab(parse(SPEC), settings, Path(folder), fabric=fabric) as lab:
            lab.wait_converged()
            errors = [offset.error_s for offset in fabric.clocks.measure().values()]
            last = lab.topology.servers - 1
            carried = [_lab_throughput_mbit(lab, *ends) for ends in ((0, last), (last, 0))]
    return {"super_mbit": carried, "clock_ms": max(errors) * 1e3}


def _lab_throughput_mbit(lab: Lab, source: int, destination: int) -> float:
    try:
        return float(iperf(lab, source, destination, SECONDS)["mbit"])
    except PillarboxError:  # the flow's TCP connection failed
        return 0.0


def _problems_of_machines(facts: list[dict[str, Any]]) -> Iterator[str]:
    for machine, one in enumerate(facts):
        if one["code"] != source_hash():
            yield f"machine {machine} ({one['host']}) has another version of Pillarbox"
        if not one["root"]:
            yield f"machine {machine} ({one['host']}): its worker does not run as root"
