"""What a cluster's machines are, and what passes between each two of them: `cluster check`.

Super-packets are tried as they are used: a small network over the two machines, whose routing has a
header that cards do not know (0x88B5), sends one flow across, in super-packets whatever the cards
say of themselves. Where something has to cut them up they are lost, while every ping arrives.
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

from experiments.control.looks import iperf
from experiments.emulation.underlay import TUNNEL_BYTES
from experiments.linux.shaping import HEADER_ROOM
from experiments.machines.cluster import GONE, Cluster
from experiments.machines.joined import code
from experiments.machines.lab import LabOverMachines
from experiments.machines.named import NamedCluster
from hosts.live.settings import LabSettings
from topos.base.errors import PillarboxError, require
from topos.base.spec import parse

SPEC = "bcube,2,1"  # servers 0 and 3 share no switch: a relay, and its header, are between them
SECONDS = 0.5  # of each flow
LEAST_SHARE = 0.1  # of TCP without tunnels: what arrives whole is a half of it, cut up a thousandth
ANSWER_S = 30.0
IP_ICMP_BYTES = 28
LEAST_MTU, USUAL_MTU = 576, 1500
CHUNK = 1 << 20
SETTLED_MS = 1.0  # of doubt about a clock: beyond, no trial over these machines is valid


class Probe:
    """What tries the way to other machines: a Dask actor on each."""

    def listen(self) -> int:
        """Take one connection, and tell who made it how many bytes came in how long."""
        from distributed import get_worker

        address = get_worker().address.rpartition("://")[2].rpartition(":")[0]
        listener = socket.create_server((address, 0))
        listener.settimeout(ANSWER_S)
        threading.Thread(target=_receive, args=[listener], daemon=True).start()
        return int(listener.getsockname()[1])

    def rate(self, address: str, port: int) -> float:
        """Return what TCP carries there, in bit/s."""
        data = bytes(CHUNK)
        with socket.create_connection((address, port), ANSWER_S) as out:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                out.sendall(data)
            out.shutdown(socket.SHUT_WR)
            return float(out.recv(64))

    def mtu(self, address: str, most: int) -> int:
        """Return the largest packet that comes there whole, 0 for none, by pings not to be cut."""
        require(shutil.which("ping") is not None, "there is no ping on a machine: iputils-ping")
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
    """Yield first what there is to know of the machines, then of each pair."""
    ground = NamedCluster(name)
    cluster = Cluster(ground, lambda *_: None)
    try:
        cluster.open(Path(), 0)
        facts = cluster.facts()
        yield {"machines": facts, "wrong": list(_wrong(facts))}
        probes = cluster.actors(Probe)
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
    """Return what passes between two machines."""
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
    """Return what a small lab over two machines carries, and how well clocks are known."""
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
    except PillarboxError:  # not even its beginning came through
        return 0.0


def _wrong(facts: list[dict[str, Any]]) -> Iterator[str]:
    for machine, one in enumerate(facts):
        if one["code"] != code():
            yield f"machine {machine} ({one['host']}) has another version of Pillarbox"
        if not one["root"]:
            yield f"machine {machine} ({one['host']}): its worker is no root"
