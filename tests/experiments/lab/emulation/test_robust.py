"""What nobody should send, and deaths that nobody ordered: a lab bears them and says so."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.base.processes import all_processes
from pillarbox.hosts.base.actions import EVERYONE
from pillarbox.hosts.base.timers import FAST
from pillarbox.hosts.live.control import MOST_CLIENTS
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP, Frame
from tests.benches.fuzz_routers import CapturedFrame, damaged_frame

pytestmark = pytest.mark.root

NETWORKS = ("dpillar,4,2", "dcell,2,2", "bcube,2,2", "ficonn,4,1")
PLANES = ("python", "ebpf")
FRAMES = 5_000  # in each of the cases
TOGETHER = 50  # frames, then a breath: the attack must not be a flood that fills queues
ETH_P_ALL = 3
REFUSALS = {"bad checksum", "bad version", "truncated", "sender is no neighbour"}
BROADCAST = b"\xff" * 6
LIMIT_S = 40.0  # a guard only


@contextmanager
def lab_of(spec: str, folder: Path, plane: str = "python") -> Iterator[Any]:
    from mininet.log import setLogLevel

    from pillarbox.experiments.lab.emulation.local_fabric import running
    from pillarbox.hosts.live.settings import LabSettings

    setLogLevel("critical")
    settings = LabSettings(plane=plane, rate_mbit=None)
    with running(topos.parse(spec), settings, folder / "lab") as lab:
        lab.wait_converged()
        yield lab


def packet_socket(lab: Any, server: int, port: int) -> socket.socket:
    with lab.host(server).live_namespace():
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    made.bind((lab.topology.interface(server, port), ETH_P_ALL))
    made.setblocking(False)
    return made


def ping(lab: Any, source: int, destination: int, *options: str) -> subprocess.Popen[str]:
    command = ["ping", "-n", "-i0.02", *options, lab.topology.ip(destination)]
    started = lab.host(source).popen(command, stdout=subprocess.PIPE, text=True)
    assert isinstance(started, subprocess.Popen)
    return started


def received(pinging: subprocess.Popen[str]) -> tuple[int, int]:
    """Return how many of how many echoes came back."""
    said = pinging.communicate(timeout=LIMIT_S)[0]
    words = said[said.index("statistics") :].replace(",", "").split()
    return int(words[words.index("received") - 1]), int(words[words.index("packets") - 1])


# -- deaths --------------------------------------------------------------------------------------


@pytest.mark.parametrize("plane", PLANES)
def test_a_killed_server_relays_nothing_from_then_on(plane: str, tmp_path: Path) -> None:
    """Not even while the kernel still tidies up behind its process."""
    with lab_of("bcube,2,1", tmp_path, plane) as lab:
        relay = lab.topology.server(lab.trace(0, 3)["path"][1])
        pinging = ping(lab, 0, 3, "-i0.01", "-c100", "-O")
        assert isinstance(pinging.stdout, io.TextIOBase)
        while "icmp_seq=10 " not in pinging.stdout.readline():
            pass
        os.kill(lab.forwarders.pids[relay], signal.SIGKILL)
        got, sent = received(pinging)
    # Its neighbours notice after a tenth of a second at the least, and go around it.
    assert 0 < got < sent


# -- a machine that stands still -----------------------------------------------------------------


@pytest.mark.alone  # a pause of more than a second is another case
@pytest.mark.parametrize("plane", PLANES)
def test_a_pause_of_all_heartbeats_silences_nobody(plane: str, tmp_path: Path) -> None:
    with lab_of("bcube,2,1", tmp_path, plane) as lab:
        (pacer,) = [each for each in all_processes() if os.sched_getscheduler(each)]
        began_s = time.monotonic()
        os.kill(pacer, signal.SIGSTOP)
        time.sleep(3 * FAST.neighbour_timeout_s)  # that no heartbeat comes is what is tried here
        os.kill(pacer, signal.SIGCONT)
        lab.kill(0)
        told: set[int] = set()
        while told != {1, 2}:  # its neighbours
            assert time.monotonic() < began_s + LIMIT_S
            lost = [news for news in news_of(lab, began_s) if not news["up"]]
            told = {news["server"] for news in lost}
        assert all(lab.topology.server(news["peer"]) == 0 for news in lost)


def news_of(lab: Any, since_s: float) -> list[dict[str, Any]]:
    """Return what the living servers of a lab noticed of links since then."""
    living = set(range(lab.topology.servers)) - set(lab.dead)
    return [
        news | {"server": server}
        for server in living
        for news in lab.state(server)["news"]
        if news["at_s"] > since_s
    ]


# -- frames --------------------------------------------------------------------------------------


def seen_at(port: socket.socket, wait_s: float) -> list[CapturedFrame]:
    """Return what passed a port within that time, a frame of ours at least."""
    found: list[CapturedFrame] = []
    end = time.monotonic() + wait_s
    while time.monotonic() < end or not any(one.frame.ethertype == ETH_DCN for one in found):
        assert time.monotonic() < end + LIMIT_S, "no heartbeat is seen"
        try:
            frame = port.recv(65600)
        except BlockingIOError:
            time.sleep(0.005)
            continue
        ethertype = int.from_bytes(frame[12:14], "big")
        if ethertype in (ETH_DCN, ETH_IP):
            found.append(CapturedFrame(0, EVERYONE, Frame(ethertype, frame[14:])))
    return found


def hostile(samples: list[CapturedFrame], macs: tuple[bytes, bytes], draw: random.Random) -> bytes:
    """Return a frame to the victim that no forwarder would send."""
    victim, neighbour = macs
    sample = draw.choice(samples)
    ethertype = draw.choice((sample.frame.ethertype, ETH_DCN, ETH_IP, 0x8100, 0x86DD, 5))
    to = draw.choice((victim, victim, victim, BROADCAST, draw.randbytes(6)))
    by = draw.choice((neighbour, neighbour, neighbour, victim, draw.randbytes(6)))
    data = damaged_frame(sample.frame.data, samples, draw)[:1400]
    return to + by + struct.pack(">H", ethertype) + data


def attack(lab: Any, victim: int, port: int) -> None:
    """Send thousands of frames to a server from the namespace of one behind its port."""
    topology = lab.topology
    peer = topology.peers(victim, port)[0]
    peer_port = next(p for p in range(topology.ports) if victim in topology.peers(peer, p))
    macs = tuple(
        topology.mac_number(server, number).to_bytes(6, "big")
        for server, number in ((victim, port), (peer, peer_port))
    )
    draw = random.Random(f"{topology.spec} {lab.plane}")
    with packet_socket(lab, peer, peer_port) as cable:
        samples = seen_at(cable, 0.4)
        for i in range(FRAMES):
            try:
                cable.send(hostile(samples, macs, draw))
            except BlockingIOError:
                time.sleep(0.001)
            if i % TOGETHER == 0:
                time.sleep(0.002)


@pytest.mark.few
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("spec", NETWORKS)
def test_hostile_frames_are_counted_and_harm_nobody(spec: str, plane: str, tmp_path: Path) -> None:
    with lab_of(spec, tmp_path, plane) as lab:
        victim, other = 0, lab.topology.servers - 1
        pinging = ping(lab, victim, other)
        attack(lab, victim, port=0)
        # The others have an ethertype, or the MAC address of somebody, that is not looked at.
        wait_until(lambda: sum(refusals(lab, victim).values()) > FRAMES / 10)
        assert refusals(lab, victim).keys() >= REFUSALS
        kernel = lab.state(victim).get("kernel", {})
        assert plane == "python" or kernel["slow not plain data"] > FRAMES / 10
        pinging.send_signal(signal.SIGINT)
        came, sent = received(pinging)
        # Forged link states and failure messages may cost most of them,
        assert came > 0, f"{came} of {sent} echoes came back"
        assert not lab.dead
        lab.wait_converged()
        # but forged failures are believed for seconds, and then no more.
        wait_until(lambda: received(ping(lab, other, victim, "-c20", "-W1")) == (20, 20))


def refusals(lab: Any, server: int) -> dict[str, int]:
    """Return what a server has dropped, by reason."""
    state = lab.state(server)
    return dict(state["drops"] | state["plane_drops"])


# -- requests ------------------------------------------------------------------------------------

REQUESTS = (
    b"",
    b"\n",
    b"\xff\xfe\x00\n",
    b"[" * 4000 + b"\n",
    b'{"ask": ' * 400 + b"\n",
    b'{"ask": ["state"]}\n',
    b'{"ask": "state", "server": 7}\n',
    b'{"ask": "state", "server": ["0.0"]}\n',
    b'{"ask": "state", "server": "h' + b"9" * 4050 + b'"}\n',
    b'{"ask": "trace", "source": "0.0"}\n',
    b'{"ask": "enter", "server": "9.9.9"}\n',
    b'{"ask": "status"',
    b"x" * 100_000,
    b"NaN\n",
    b"1e400\n",
)
QUESTION = b'{"ask": "state", "server": "0.0"}\n'


def told(path: Path, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(path))  # waits while others are in front
        client.settimeout(LIMIT_S)
        try:
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            return client.makefile("rb").readline()
        except (BrokenPipeError, ConnectionResetError):
            return b""


def test_hostile_requests_get_an_error_and_the_next_one_its_answer(tmp_path: Path) -> None:
    from pillarbox.experiments.runs.control.service import Service

    with lab_of("bcube,2,1", tmp_path) as lab:
        service = Service(lab)
        paths = [lab.forwarders.control(0), lab.folder / "lab.sock"]
        for path in paths:
            for request in REQUESTS:
                answer = told(path, request)
                assert not answer or isinstance(json.loads(answer), (dict, list)), request
            with ExitStack() as stack:  # who connect and say nothing
                for _ in range(2 * MOST_CLIENTS if path == paths[0] else 3):
                    idle = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                    idle.connect(str(path))
                if path == paths[0]:
                    assert json.loads(told(path, QUESTION))["server"] == "0.0"
            assert json.loads(told(path, QUESTION))["server"] == "0.0"
            assert path.stat().st_mode & 0o777 == 0o600
        service.close()
        assert not lab.dead


# -- deaths --------------------------------------------------------------------------------------


def test_a_forwarder_that_crashes_is_told_and_its_server_can_be_revived(tmp_path: Path) -> None:
    with lab_of("bcube,2,1", tmp_path) as lab:
        said: list[str] = []
        lab.print_event = said.append
        os.kill(lab.forwarders.pids[3], signal.SIGSEGV)
        wait_until(lambda: said)
        assert len(said) == 1 and "server 1.1 has ended unexpectedly, with code -11" in said[0]
        assert lab.status()["dead"] == ["1.1"]
        lab.revive(3)
        lab.wait_converged()
        # Where the failure is remembered the first may be lost.
        wait_until(lambda: received(ping(lab, 0, 3, "-c5", "-W1")) == (5, 5))
    events = [json.loads(line) for line in (tmp_path / "lab/events.jsonl").open()]
    ended = [one for one in events if one["event"] == "forwarder ended"]
    assert [(one["server"], one["status"]) for one in ended] == [("1.1", -signal.SIGSEGV)]


def wait_until(condition: Any, limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# -- kill -9 -------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[4]
PILLARBOX = [sys.executable, "-c", "from pillarbox.experiments.cli.main import main; main()"]
LABS = Path("/run/pillarbox/labs")
THEIRS = {"lo", "s77", "s77-eth1", "theirs"}
FAULTS = """\
cut 0.0-s0
kill 1.1
heal 0.0-s0
revive 1.1
stop s1
heal s1
0.0 ping -c1 -W1 10.0.0.1
"""


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def links() -> set[str]:
    return {line.split(":")[1].strip().partition("@")[0] for line in ip("-o", "link").splitlines()}


def make_theirs() -> None:
    """Make what a stock Mininet beside the lab has, under a /run of our own."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)
    ip("netns", "add", "their-host")
    ip("link", "add", "s77", "type", "bridge")
    ip("link", "add", "s77-eth1", "type", "veth", "peer", "name", "theirs")
    ip("link", "set", "s77-eth1", "master", "s77", "up")
    ip("link", "set", "theirs", "up")
    ip("netns", "exec", "their-host", "ip", "link", "set", "lo", "up")


def running_processes() -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    found.add(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def below(process: int) -> list[int]:
    """Return the descendants of a process, parents first."""
    try:
        text = Path(f"/proc/{process}/task/{process}/children").read_text()
    except FileNotFoundError:
        return []
    children = [int(word) for word in text.split()]
    return children + [far for child in children for far in below(child)]


def up(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    script = folder / "faults.txt"
    script.write_text(FAULTS * 100)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    del environment["PILLARBOX_SANDBOX"]  # the test's own is not the lab's
    return subprocess.Popen(
        [*PILLARBOX, "up", "bcube,2,1", "--plane=python", f"--exec={script}", *options],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def check_only_theirs_is_left(before: set[int]) -> None:
    wait_until(lambda: running_processes() <= before)
    wait_until(lambda: links() == THEIRS)
    assert ip("netns").split() == ["their-host"]
    ip("netns", "exec", "their-host", "ping", "-c1", "127.0.0.1")
    carrier = Path("/sys/class/net/theirs/carrier").read_text()
    assert carrier.strip() == "1"


def check_the_place_is_taken_over(folder: Path) -> None:
    """See that a new lab gets the dead one's number."""
    (folder / "nothing.txt").write_text("status\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    del environment["PILLARBOX_SANDBOX"]
    command = [*PILLARBOX, "up", "bcube,2,1", f"--exec={folder / 'nothing.txt'}"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("lab 1: bcube,2,1"), done.stdout + done.stderr
    assert not list(LABS.iterdir())


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))]
)
def test_whatever_of_a_lab_is_killed_whenever_nothing_is_left(seed: int, tmp_path: Path) -> None:
    make_theirs()
    before = running_processes()
    draw = random.Random(seed)
    lab = up(tmp_path)
    time.sleep(draw.uniform(0.05, 2.0))
    kill(draw.choice([lab.pid, *below(lab.pid)]))
    time.sleep(draw.uniform(0, 0.2))  # where it was only a forwarder, or the nursery, it goes on
    kill(lab.pid)
    lab.wait(LIMIT_S)
    check_only_theirs_is_left(before)
    check_the_place_is_taken_over(tmp_path)


@pytest.mark.in_turn  # its cgroups are the machine's: a sandbox has none of its own
@pytest.mark.parametrize("seed", range(3))
def test_killed_without_a_sandbox_it_is_swept_or_cleaned_away(seed: int, tmp_path: Path) -> None:
    make_theirs()
    before, groups = running_processes(), cgroups()
    draw = random.Random(seed)
    lab = up(tmp_path, "--no-sandbox")
    time.sleep(draw.uniform(0.3, 2.0))
    try:
        # Seldom is the process that sweeps a dead run killed as well: then `clean` is for that.
        for process in [lab.pid, *below(lab.pid)] if seed % 2 else [lab.pid]:
            kill(process)
        lab.wait(LIMIT_S)
        if seed % 2:
            clean = subprocess.run([*PILLARBOX, "clean"], cwd=ROOT, check=False)
            assert clean.returncode == 0
        check_only_theirs_is_left(before)
        wait_until(lambda: cgroups() == groups)
    finally:
        for group in cgroups() - groups:
            with suppress(OSError):
                group.rmdir()
    check_the_place_is_taken_over(tmp_path)


def cgroups() -> set[Path]:
    return {path for path in Path("/sys/fs/cgroup").glob("**/pillarbox-*") if path.is_dir()}
