"""``pillarbox cluster``: clusters of several computers for one lab, managed by Dask."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from pillarbox.experiments.base.arguments import Group, answer, json_option
from pillarbox.topos.base.errors import NotPermittedError, PillarboxError, require

SCHEMES = "tcp://", "tls://"

name_option = click.option(
    "--name", default="cluster", show_default=True, metavar="NAME", help="Name of the cluster."
)


@click.group(cls=Group)
def command() -> None:
    """Use several computers for one lab: start, check and end a cluster.

    \b
    sudo ./pillarbox cluster up hosts.toml
    sudo ./pillarbox cluster check
    sudo ./pillarbox up bcube,4,1 --cluster cluster
    sudo ./pillarbox cluster down
    """


@command.command("up")
@click.argument("where", metavar="HOSTS.toml|SCHEDULER")
@name_option
def up(where: str, name: str) -> int:
    """Start Dask's scheduler and workers by ssh, or use a running Dask cluster.

    HOSTS.toml lists the hosts. They need ssh access for root, and Pillarbox. The cluster has its
    own TLS keys, and runs until `cluster down`. SCHEDULER is tcp://HOST:8786, or tls://HOST:8786
    with keys in Dask's configuration.

    \b
    echo 'hosts = ["10.0.0.2", "10.0.0.3"]' > hosts.toml
    sudo ./pillarbox cluster up hosts.toml
    sudo ./pillarbox cluster up tcp://10.0.0.2:8786 --name slurm
    """
    require(os.geteuid() == 0, "a cluster needs root: use sudo", NotPermittedError)
    if where.startswith(SCHEMES):
        return _register_scheduler(where, name)
    from pillarbox.experiments.apps.cluster import ssh_hosts
    from pillarbox.experiments.runs.control import detached

    hosts_file = ssh_hosts.read(Path(where))
    code = detached.fork_detached()
    return _run_cluster(hosts_file, name) if code is None else code


def _register_scheduler(scheduler: str, name: str) -> int:
    """Save the address of a running Dask scheduler as a cluster, if the scheduler answers."""
    from pillarbox.experiments.apps.cluster import cluster_registry

    lock = cluster_registry.lock_new_cluster(name)
    with ExitStack() as stack:
        stack.callback(lock.close)
        stack.callback(shutil.rmtree, cluster_registry.folder_of(name), ignore_errors=True)
        cluster_registry.write_about(name, scheduler=scheduler, keeper=None)
        cluster = cluster_registry.NamedCluster(name)
        click.echo(_welcome(name, cluster.machines, scheduler))
        cluster.close()
        stack.pop_all()
    lock.close()
    return 0


def _run_cluster(hosts_file: Any, name: str) -> int:
    """Start a cluster on hosts over ssh, and run in the background until the cluster ends."""
    from pillarbox.experiments.apps.cluster import cluster_registry, ssh_hosts
    from pillarbox.experiments.runs.control import detached

    detached.end_lab_on_sigterm()
    lock = cluster_registry.lock_new_cluster(name)
    folder = cluster_registry.folder_of(name)
    with ExitStack() as stack:
        stack.callback(lock.close)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        ssh_cluster = ssh_hosts.SshDaskCluster(hosts_file, folder)
        stack.callback(ssh_cluster.close)
        scheduler = ssh_cluster.start()
        machines = len(hosts_file.hosts)
        known = {"keeper": os.getpid(), "machines": machines, "hosts": hosts_file.hosts}
        known["weights"] = hosts_file.weights
        cluster_registry.write_about(name, scheduler=scheduler, **known)
        click.echo(_welcome(name, machines, scheduler))
        detached.report_ready_and_log_to(folder / "keeper.log")
        ssh_cluster.wait()
    return 0


def _welcome(name: str, machines: int, scheduler: str) -> str:
    return (
        f"cluster {name}: {machines} machines, scheduler at {scheduler}\n"
        f"try: cluster check --name {name}, or up bcube,4,1 --cluster {name}"
    )


@command.command("status")
@name_option
@json_option("name", "scheduler", "machines", "gone")
def status(name: str, as_json: bool) -> None:
    """Show a cluster's machines and the number of machines that have left.

    \b
    sudo ./pillarbox cluster status
    """
    from pillarbox.experiments.apps.cluster import cluster_registry
    from pillarbox.experiments.apps.cluster.dask_cluster import Cluster
    from pillarbox.experiments.base.text import columns

    known = cluster_registry.stored_facts(name)
    named_cluster = cluster_registry.NamedCluster(name, partly=True)
    cluster = Cluster(named_cluster, lambda *_: None)
    try:
        cluster.open(Path(), 0)
        machines = cluster.facts()
    finally:
        cluster.close()
    gone = max(0, known.get("machines", 0) - len(machines))
    data = {"name": name, "scheduler": known["scheduler"], "machines": machines, "gone": gone}
    rows = [["host", "address", "processors", "GiB", "card", "MTU", "kernel", "version"]]
    for one in machines:
        size = f"{one['processors']}", f"{one['memory_gib']:.1f}"
        card = one["card"], f"{one['card_mtu']}"
        rows.append([one["host"], one["address"], *size, *card, one["kernel"], one["code"]])
    lines = [f"cluster {name}: scheduler at {known['scheduler']}", "", columns(rows)]
    if gone:
        lines += ["", f"{gone} of its {known['machines']} machines have left the cluster"]
    answer(as_json, data, "\n".join(lines))


@command.command("check")
@name_option
@json_option("name", "machines", "pairs", "wrong")
def check(name: str, as_json: bool) -> int:
    """Check the network between each two machines, and their versions of Pillarbox.

    Measures MTU, TCP throughput, clock offset, and support for super-packets with the papers'
    headers, in about 3 s per pair. Labs use the stored result. Exit code 1: something is wrong.

    \b
    sudo ./pillarbox cluster check
    """
    from pillarbox.experiments.apps.cluster import cluster_registry
    from pillarbox.experiments.apps.cluster.link_checks import check as checked
    from pillarbox.experiments.base.text import columns

    first, *pairs = checked(name)
    wrong = first["wrong"] + [sentence for pair in pairs for sentence in pair["wrong"]]
    lossy = sorted({address for pair in pairs for address in pair.get("lossy", ())})
    cluster_registry.write_about(name, lossy=lossy)
    data = {"name": name, "machines": first["machines"], "pairs": pairs, "wrong": wrong}
    rows = [["machines", "MTU", "clock ms", "TCP Mbit/s", "back", "super-packets", "back"]]
    for pair in pairs:
        clock = f"{pair['clock_ms']:.2f}" if "clock_ms" in pair else "-"
        carried = [*pair["tcp_mbit"], *pair.get("super_mbit", ())]
        mbit = [f"{one:,.0f}" if one > 10 else f"{one:.1f}" for one in carried]
        rows.append([f"{pair['a']}-{pair['b']}", f"{pair['mtu']}", clock, *mbit])
    lines = [columns(rows, numbers=range(1, 7)), "", *wrong]
    answer(as_json, data, "\n".join([*lines] if wrong else [*lines, "no problem found"]))
    return int(bool(wrong))


@command.command("down")
@name_option
def down(name: str) -> None:
    """End a cluster, or remove its registration if Pillarbox did not start it.

    Labs on the cluster lose their machines: end them first.

    \b
    sudo ./pillarbox cluster down
    """
    from pillarbox.experiments.apps.cluster import cluster_registry

    keeper = cluster_registry.stored_facts(name)["keeper"]
    if not cluster_registry.is_up(name):
        raise PillarboxError(f"cluster {name!r} had already ended: its leftovers are removed")
    if keeper is None:
        shutil.rmtree(cluster_registry.folder_of(name))
        return
    os.kill(keeper, signal.SIGTERM)
    cluster_registry.wait_for_end(name)


@command.command("join", hidden=True)
def join() -> None:
    """Run as a worker of a cluster (started by `cluster up` over ssh)."""
    from pillarbox.experiments.apps.cluster.dask_process import main

    main()
