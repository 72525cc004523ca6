"""A lab on a cluster: Dask's scheduler and workers, by ssh or there before, and what is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pillarbox import topos
from pillarbox.experiments.apps.cluster import ssh_hosts
from pillarbox.experiments.base.files import CHECKOUT
from pillarbox.experiments.base.interpreter import code_command
from pillarbox.experiments.lab.linux import offloads, sandbox
from pillarbox.experiments.lab.observe.pcapng import Reader
from pillarbox.experiments.runs.control import mpi
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.apps.cluster.over import SOON_S, apart, running
from tests.experiments.labs import WAIT_S, wait_until

if TYPE_CHECKING:
    from pillarbox.experiments.apps.cluster.local_machines import EmulatedMachines
    from pillarbox.experiments.lab.emulation.lab import Lab

pytest.importorskip("distributed", reason="pip install 'dask[distributed]'")
pytest.importorskip("cryptography", reason="pip install cryptography")

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")
BY_SSH = pytest.mark.skipif(SSHD is None, reason="sudo ./pillarbox setup tests")
NAME = f"test-{os.getpid()}"
SPEC, FIRST, LAST = "bcube,4,1", 0, 15
TWO = "--machines", "2"
PART, JOINED = "pillarbox.experiments.apps.cluster.part", "cluster\0join"
SSHD_CONFIG = """
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
ListenAddress {address}
PidFile none
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
"""
SSH_CONFIG = """
IdentityFile {folder}/user
UserKnownHostsFile {folder}/known
LogLevel ERROR
"""


def environment() -> dict[str, str]:
    found = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found[sandbox.INSIDE] = ""  # the test's own is not that of what it starts
    return found


def pillarbox(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "pillarbox", *words],
        env=environment() | more,
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )


def script(file: Path, *lines: str) -> Path:
    file.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    file.chmod(0o755)
    return file


@contextmanager
def reached_by_ssh(
    folder: Path, computer: EmulatedMachines
) -> Iterator[subprocess.CompletedProcess[str]]:
    """Let sshd run on each machine, and start a cluster there; yield what its start said."""
    for key in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(command, check=True)
    public = " ".join((folder / "host.pub").read_text().split()[:2])
    lines = [f"{address} {public}\n" for address in computer.addresses]
    (folder / "known").write_text("".join(lines))
    (folder / "config").write_text(SSH_CONFIG.format(folder=folder))
    (folder / "bin").mkdir()
    script(folder / "bin/ssh", f'exec {shutil.which("ssh")} -F {folder}/config "$@"')
    path = environment()["PYTHONPATH"]
    program = script(
        folder / "pillarbox",
        f'PYTHONPATH={path} exec {sys.executable} -c "{EVERYTHING}" "$@"',
    )
    plan = {"hosts": computer.addresses, "pillarbox": str(program)}
    (folder / "hosts.toml").write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in plan.items()))
    Path("/run/sshd").mkdir(exist_ok=True)
    with ExitStack() as stack:
        for machine, (address, namespace) in enumerate(
            zip(computer.addresses, computer.namespaces, strict=True)
        ):
            config = folder / f"sshd{machine}"
            config.write_text(SSHD_CONFIG.format(folder=folder, address=address))
            assert SSHD
            with namespace:
                sshd = subprocess.Popen([SSHD, "-D", "-e", "-f", config])
            stack.callback(sshd.wait)
            stack.callback(sshd.kill)
        path = f"{folder}/bin:{os.environ['PATH']}"
        words = "cluster", "up", str(folder / "hosts.toml"), "--name", NAME
        yield pillarbox(*words, PATH=path)


EVERYTHING = "import sys; from pillarbox.experiments.cli.main import main; main(sys.argv[1:])"


@contextmanager
def there_before(
    folder: Path, computer: EmulatedMachines
) -> Iterator[subprocess.CompletedProcess[str]]:
    """Let somebody's scheduler and workers run, without TLS; yield what using them said."""
    from pillarbox.experiments.apps.cluster.dask_processes import DaskChildProcess, order_for
    from pillarbox.experiments.apps.cluster.local_machines import LAB

    join = ["env", f"{sandbox.INSIDE}=", *code_command(EVERYTHING, "cluster", "join")]
    with ExitStack() as stack:

        def started(role: str, address: str, place: Path, **options: Any) -> DaskChildProcess:
            place.mkdir()
            order = order_for(role, address, place, None, remove=False, **options)
            made = DaskChildProcess(join, order, place / "log")
            stack.callback(made.end)
            return made

        scheduler = started("scheduler", LAB, folder / "s", port=0, dashboard=False)
        deadline = time.monotonic() + WAIT_S
        at = scheduler.address(deadline)
        workers = []
        for machine, address in enumerate(computer.addresses):
            with computer.namespaces[machine]:
                place = folder / f"w{machine}"
                workers.append(started("worker", address, place, scheduler_ip=at))
        for worker in workers:
            worker.address(deadline)
        yield pillarbox("cluster", "up", at, "--name", NAME)


@pytest.mark.root
@pytest.mark.parametrize(
    "way",
    [
        pytest.param(there_before, marks=pytest.mark.long),
        pytest.param(reached_by_ssh, marks=[BY_SSH, pytest.mark.long]),
    ],
)
def test_a_lab_on_a_cluster(way: Any, tmp_path: Path) -> None:
    from pillarbox.experiments.apps.cluster.cluster_fabric import ClusterFabric
    from pillarbox.experiments.apps.cluster.cluster_registry import NamedCluster
    from pillarbox.experiments.apps.cluster.local_machines import EmulatedMachines
    from pillarbox.experiments.lab.emulation.lab import Lab

    spare = way is there_before  # a machine that no lab uses, at first
    computer = EmulatedMachines(2 + spare, 1500)
    with way(tmp_path, computer) as said:
        assert said.returncode == 0, said.stderr
        assert f"cluster {NAME}: {2 + spare} machines" in said.stdout
        check_status(computer.addresses)
        if spare:
            check_spread(tmp_path / "run")
        else:
            check_caller(tmp_path / "lab.pcapng")
            check_between(computer)
        fabric = ClusterFabric(ground=NamedCluster(NAME, 2))
        with Lab(topos.parse(SPEC), LabSettings(), tmp_path, fabric=fabric) as lab:
            lab.wait_converged()
            check_pings(lab)
            check_cut(lab)
            if not spare:
                check_programs(lab)
                check_refused()
            check_loss(lab, spare=spare)
            if spare:
                check_scheduler(lab)
        assert pillarbox("cluster", "down", "--name", NAME).returncode == 0
        if way is reached_by_ssh:
            assert not running(JOINED)
        assert not running(PART)
        gone = pillarbox("cluster", "status", "--name", NAME)
        assert f"no cluster '{NAME}' is up" in gone.stderr
    computer.close()


def check_status(addresses: list[str]) -> None:
    told = json.loads(pillarbox("cluster", "status", "--name", NAME, "--json").stdout)
    assert [one["address"] for one in told["machines"]] == addresses
    assert all(one["root"] for one in told["machines"]) and not told["gone"]
    again = pillarbox("cluster", "up", "tcp://198.18.0.1:1", "--name", NAME)
    assert "is up already" in again.stderr


def check_caller(file: Path) -> None:
    """See what a lab's machines capture together, and that nothing is left of a caller's end."""
    caller = subprocess.Popen(
        [sys.executable, "-c", EVERYTHING, "up", SPEC, "--cluster", NAME, *TWO, "--hold"],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert caller.stdout
    said = b""
    while not said.endswith(b"\0"):  # it is there
        more = caller.stdout.read(1)
        assert more, said
        said += more
    assert b"2 machines, 8 of 32 cables cross" in said and running(PART)
    number = said.decode().partition("lab ")[2].partition(":")[0]
    check_capture(number, file)
    check_mpi(number)
    caller.kill()
    caller.communicate(timeout=WAIT_S)
    wait_until(lambda: not running(PART), "a part is left")


def check_mpi(number: str) -> None:
    """See that an MPI program has processes on both computers, and fails as it should."""
    if mpi.mpirun() is None:
        return  # sudo ./pillarbox setup mpi
    topology = topos.parse(SPEC)
    on = ["--lab", number, "--on", ",".join(map(topology.address, (FIRST, LAST)))]
    done = pillarbox("mpirun", *on, "--", "hostname")
    assert sorted(done.stdout.split()) == [f"h{FIRST}", f"h{LAST}"], done.stderr
    assert pillarbox("mpirun", *on, "--", "sh", "-c", "exit 7").returncode == 7


def check_capture(number: str, file: Path) -> None:
    lab = ["--lab", number]
    ends = [topos.parse(SPEC).address(server) for server in (FIRST, LAST)]
    without = pillarbox("capture", *lab, "-o", str(file))
    assert "needs a duration: --seconds" in without.stderr
    pings = subprocess.Popen(
        [sys.executable, "-m", "pillarbox", "exec", *lab, ends[0], "ping", "-i0.1", ends[1]],
        env=environment(),
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
    )
    assert pings.stdout and pings.stdout.readline() and pings.stdout.readline()
    done = pillarbox("capture", *lab, *ends, "--seconds", "1", "-o", str(file), "--no-heartbeats")
    pings.terminate()
    pings.communicate()
    with file.open("rb") as opened:
        frames = list(Reader(opened))
    assert {one.interface.partition(" ")[0] for one in frames} >= set(ends), done.stderr
    assert [one.at_ns for one in frames] == sorted(one.at_ns for one in frames)
    assert abs(frames[0].at_ns / 1e9 - time.time()) < WAIT_S
    followed = pillarbox("follow", str(file))
    assert not followed.returncode and ends[1] in followed.stdout, followed.stderr


def check_between(computer: EmulatedMachines) -> None:
    """See that a card which cannot cut what is in tunnels is found, by what comes through."""
    from pillarbox.experiments.apps.cluster.local_machines import CARD

    with computer.namespaces[1]:
        offloads.switch_off(CARD, [offloads.TUNNEL_SEGMENTS])
    checked = pillarbox("cluster", "check", "--name", NAME, "--json")
    [pair] = json.loads(checked.stdout)["pairs"]
    assert pair["lossy"] == ["198.18.0.3"] and checked.returncode == 1
    assert pair["mtu"] == 9000 and min(pair["tcp_mbit"]) > 0
    there, back = pair["super_mbit"]  # it is the sender's card that matters
    assert back < there / 10


def check_spread(folder: Path) -> None:
    """See that machines take trials of an experiment, each whole, and one of them is no hurdle."""
    sets = [f"--set={one}" for one in ("network=bcube,2,1", "repeats=4", "workload.duration_s=0.5")]
    how = ["--cluster", NAME, "--machines", "1", "--out", str(folder)]
    done = pillarbox("run", "permutation", *sets, *how, "--rate-mbit", "10")
    records = [json.loads(file.read_text()) for file in folder.glob("trials/*/trial.json")]
    assert len(records) == 4 and all(one["verdict"] for one in records), done.stderr
    machines = {file.read_text().splitlines()[0] for file in folder.glob("trials/*/log.txt")}
    assert len(machines) > 1 and all(one.startswith("on ") for one in machines)
    assert not running("pillarbox.experiments.runs.trials.trial_worker")


def check_pings(lab: Lab) -> None:
    for source in (FIRST, LAST):
        others = [server for server in range(lab.topology.servers) if server != source]
        wait_until(
            lambda a=source, b=others: None not in lab.fabric.echoes(a, b, SOON_S).values(),
            f"{source} does not reach all",
        )


def check_cut(lab: Lab) -> None:
    """See that a cable between machines is cut at both ends, and packets go around."""
    cable = next(one for one in lab.topology.links() if apart(lab, (one.a, one.b)))
    server, port = cable.a, str(cable.a_port)
    fault = lab.cut(cable.a, cable.b)
    wait_until(lambda: not lab.state(server)["carrier"][port], "the server has its carrier still")
    wait_until(lambda: lab.trace(FIRST, LAST)["delivered"], "no packet goes around")
    lab.end(fault)
    lab.wait_converged()
    known = lab.computed(FIRST, LAST)
    wait_until(lambda: lab.trace(FIRST, LAST)["path"] == known, f"packets do not take {known}")


def check_programs(lab: Lab) -> None:
    """See that a program on another computer is as one here: input, output, and its end."""
    host = lab.host(LAST)
    words = ["sh", "-c", "cat; echo wrong >&2; cat /sys/class/net/*/ifindex | wc -l; exit 7"]
    program = host.popen(words, stdin=subprocess.PIPE)
    out, err = program.communicate(b"said\n", WAIT_S)
    assert out.startswith(b"said\n") and err == b"wrong\n" and program.returncode == 7
    shell = subprocess.run(
        lab.fabric.reach(LAST), input=b"id -u\n", stdout=subprocess.PIPE, check=True
    )
    assert int(shell.stdout) > 0  # that of a page: it has no rights
    with pytest.raises(PillarboxError, match="is on another computer"):
        lab.namespace_of(LAST)
    waiting = host.popen(["sh", "-c", "echo begun; exec sleep 1000"])
    assert waiting.stdout.readline() == b"begun\n"
    lab.kill(LAST)
    assert waiting.wait(WAIT_S) == -signal.SIGKILL
    assert b"was killed" in waiting.communicate()[1]
    lab.revive(LAST)
    lab.wait_converged()


def check_refused() -> None:
    """See that a machine takes part in one lab."""
    second = pillarbox("up", SPEC, "--cluster", NAME, *TWO, "--exec", os.devnull)
    assert "has a part of another lab" in second.stderr


def check_loss(lab: Lab, *, spare: bool) -> None:
    """See that a machine whose worker is killed is lost, and that the other goes on.

    Then a spare machine takes its place, where there is one.
    """
    before = len(running(PART))
    told = lab.fabric.ground.addresses[1]
    victims = [
        pid for pid in running(JOINED) if told in Path(f"/proc/{pid}/net/fib_trie").read_text()
    ]
    os.kill(max(victims), signal.SIGKILL)
    wait_until(lambda: lab.fabric.lost == {1}, "nobody noticed")
    wait_until(lambda: len(running(PART)) < before, "its part is left")
    living = [server for server in range(lab.topology.servers) if server not in lab.dead]
    wait_until(
        lambda: lab.fabric.echoes(living[0], [living[-1]], SOON_S)[living[-1]] is not None,
        "the others do not go on",
    )
    with nullcontext() if spare else pytest.raises(PillarboxError, match="no unused machine"):
        lab.revive(LAST)
        assert not lab.dead and lab.status()["machines"][1]["address"] == "198.18.0.4"
        lab.wait_converged()
        check_pings(lab)
        program = lab.host(LAST).popen(["true"])
        program.communicate()
        assert program.returncode == 0


def check_scheduler(lab: Lab) -> None:
    """See that without the scheduler all machines are lost, and that nothing of the lab is left."""
    here = Path("/proc/self/ns/net").stat().st_ino
    [scheduler] = (
        one for one in running(JOINED) if Path(f"/proc/{one}/ns/net").stat().st_ino == here
    )
    os.kill(scheduler, signal.SIGKILL)
    wait_until(lambda: lab.fabric.lost == {0, 1}, "nobody noticed")
    wait_until(lambda: not running(PART), "a part is left")


def test_hosts_are_named_by_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(
        'hosts = ["a", "b"]\nuser = "root"\nport = 2222\nkey = "/k"\npillarbox = "/p q"'
    )
    command = ssh_hosts.read(file).ssh("a")
    assert command[-1] == "exec '/p q' cluster join" and command[-3:-1] == ["--", "a"]
    assert command[-9:-3] == ["-l", "root", "-p", "2222", "-i", "/k"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('hosts = ["a"]', "names 1 hosts"),
        ('hosts = ["a", "a"]', "names a host twice"),
        ('hosts = ["a", "-oProxyCommand=x"]', "is not a valid host name"),
        ('hosts = "a"', "is a list of text"),
        ('host = ["a", "b"]', "has host, but may only have the keys"),
        ('hosts = ["a", "b"]\naddresses = ["1.2.3.4"]', "1 addresses for 2 hosts"),
        ('hosts = ["a", "b"]\nport = "x"', "'x' is not valid for the key port"),
        ('hosts = ["a", "b"]\nweights = [2]', "weights are whole numbers above 0, one a host"),
        ('hosts = ["a", "b"]\nweights = [2, 0]', "such as \\[2, 1\\]"),
        ('hosts = ["a", ', "is not TOML"),
    ],
)
def test_files_that_are_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(text)
    with pytest.raises(PillarboxError, match=said):
        ssh_hosts.read(file)


@pytest.mark.parametrize(
    ("code", "words", "said"),
    [
        (255, "ssh: Could not resolve hostname a", "there is no host a"),
        (255, "root@a: Permission denied (publickey).", "refuses the keys"),
        (255, "Host key verification failed.", "ssh does not know a yet"),
        (255, "ssh: connect to host a port 22: Connection refused", "does not answer to ssh"),
        (127, "sh: 1: exec: /p: not found", "has no Pillarbox at /p"),
        (2, "there is no command 'cluster'", "has another version of Pillarbox"),
        (None, "the Dask process left no message", "did not join within"),
        (1, "Pillarbox is no root there", "a did not join: Pillarbox is no root"),
    ],
)
def test_why_a_host_did_not_join(code: int | None, words: str, said: str) -> None:
    assert said in ssh_hosts.why("a", "/p", code, words)
