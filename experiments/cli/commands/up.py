"""``pillarbox up``: start of a lab, with its prompt."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pillarbox.experiments.base.arguments import (
    kit_option,
    listen_option,
    network,
    plain_http_option,
    plane,
    routing_option,
    terminals_option,
    timers,
    weights_option,
)
from pillarbox.hosts.base.file_ownership import is_machine_root
from pillarbox.topos.base.errors import NotPermittedError, PillarboxError, require
from pillarbox.topos.base.topology import Topology

FAILED = 1

if TYPE_CHECKING:
    from pillarbox.experiments.apps.cluster.cluster_fabric import ClusterFabric
    from pillarbox.experiments.lab.emulation.lab import Lab


@click.command()
@network
@routing_option(default="", metavar="NAME|FILE.py")
@plane
@timers
@click.option(
    "--rate-mbit",
    type=float,
    default=100.0,
    show_default=True,
    help="Rate of every cable in Mbit/s (0: no limit).",
)
@click.option(
    "--switches",
    type=click.Choice(["bridges", "learning", "static", "vlan"]),
    default="bridges",
    show_default=True,
    help="Kind of switches between servers; all but bridges are Open vSwitch under an "
    "OpenFlow controller.",
)
@kit_option
@click.option(
    "--controller",
    multiple=True,
    metavar="FILE.py",
    help="Your application of Ryu or os-ken that controls all switches (Open vSwitch), or a module "
    "such as ryu.app.simple_switch_13. Repeatable.",
)
@click.option("--delay", metavar="TIME", help="Delay of every cable, such as 5ms.")
@click.option(
    "--loss", type=float, metavar="PERCENT", help="Packet loss of every cable, in percent."
)
@click.option(
    "--mtu",
    type=click.IntRange(576, 65000),
    default=1500,
    show_default=True,
    help="Largest IP packet, in bytes.",
)
@click.option(
    "--tcp",
    default="",
    metavar="CONTROL",
    help="TCP congestion control of the servers' programs: one of the kernel's, a shipped one "
    "(dctcp, delay, scalable), or your NAME.bpf.c (see `cc`).",
)
@click.option(
    "--port-addresses",
    is_flag=True,
    help="Give every port of a server an IP address; packets of two addresses keep to their ports.",
)
@click.option(
    "--mptcp",
    is_flag=True,
    help="Multipath TCP: each port of a server has an address, and a connection a subflow by each "
    "port of its client (see `exec --mptcp`).",
)
@click.option(
    "--subflows",
    type=click.IntRange(min=1),
    metavar="N",
    help="Subflows of a Multipath TCP connection (default: number of a server's ports, at most 9).",
)
@click.option(
    "--queue",
    type=click.Choice(["droptail", "codel", "fq_codel", "ecn"]),
    default="droptail",
    show_default=True,
    help="Queueing discipline (tc qdisc) of every port.",
)
@click.option(
    "--queue-length",
    default="",
    metavar="LENGTH",
    help="Queue length of every port, such as '100 packets', '150 kB' or 10ms.",
)
@click.option(
    "--gateway",
    "gateways",
    multiple=True,
    metavar="SERVER",
    help="Server that is a gateway, with an uplink outside the lab. Repeatable.",
)
@click.option(
    "--machines",
    type=click.IntRange(2, 250),
    default=None,
    metavar="N",
    help="Distribute the network over N machines, each a namespace of this computer (see `place`).",
)
@click.option(
    "--cluster",
    metavar="NAME",
    help="Distribute the network over a running cluster, or over N of its machines "
    "(see `cluster`).",
)
@weights_option
@click.option("--seed", default=0, show_default=True, help="Seed of the routers' random choices.")
@click.option(
    "--exec",
    "script",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run the lines of a file at the prompt and exit; exit code 1 if a line failed.",
)
@click.option(
    "--detach", is_flag=True, help="Leave the lab running in the background (see `down`)."
)
@click.option("--hold", is_flag=True, help="Run without a prompt until standard input is closed.")
@click.option("--page", is_flag=True, help="Serve the lab's live web page and print its address.")
@listen_option
@plain_http_option
@terminals_option
@click.option(
    "--no-sandbox", is_flag=True, help="Run in the machine's own network namespace (see `clean`)."
)
@click.option("--quiet", is_flag=True, help="Print no welcome text.")
def command(
    topology: Topology,
    routing: str,
    rate_mbit: float,
    gateways: tuple[str, ...],
    machines: int | None,
    cluster: str | None,
    weights: tuple[int, ...],
    seed: int,
    script: Path | None,
    detach: bool,
    hold: bool,
    page: bool,
    listen: str,
    plain_http: bool,
    terminals: bool,
    no_sandbox: bool,
    quiet: bool,
    mptcp: bool,
    controller: tuple[str, ...],
    **how: Any,
) -> int:
    """Start a network with a forwarder on every server, and open its prompt.

    The prompt extends Mininet's: servers are written as addresses or host names, and `help` lists
    the commands. The same commands work from another terminal, such as: pillarbox cut 0.3-4.0.

    \b
    sudo ./pillarbox up dcell,4,1
    sudo ./pillarbox up dcell,4,1 --page
    sudo ./pillarbox up bcube,4,1 --routing bsr --rate-mbit 100 --exec commands.txt
    sudo ./pillarbox up bcube,4,1,rates=9:1 --rate-mbit 10
    sudo ./pillarbox up bcube,4,1 --port-addresses
    sudo ./pillarbox up bcube,4,1 --mptcp
    sudo ./pillarbox up dcell,4,1 --detach
    sudo ./pillarbox up tree,4,4 --controller my_switch.py
    sudo ./pillarbox up dcell,4,1 --machines 2
    sudo ./pillarbox up dcell,4,1 --cluster cluster
    """
    from pillarbox.experiments.base.interpreter import require_modules
    from pillarbox.experiments.lab.emulation import lab_registry
    from pillarbox.experiments.lab.emulation.kits import application_file
    from pillarbox.experiments.lab.linux import sandbox
    from pillarbox.experiments.lab.linux.congestion import check_default
    from pillarbox.experiments.runs.control import detached

    without_prompt = "--detach, --hold and --exec exclude one another"
    require(detach + hold + (script is not None) < 2, without_prompt)
    if not is_machine_root():
        by_root = {"--no-sandbox": no_sandbox, "--machines": machines, "--cluster": cluster}
        refused = " ".join(option for option, given in by_root.items() if given)
        require(not refused, f"without root there is no {refused}: use sudo", NotPermittedError)
    if machines or cluster:
        excluded = bool(gateways) * ["--gateway"] + no_sandbox * ["--no-sandbox"]
        excluded += (how["switches"] != "bridges") * ["--switches"]
        excluded += bool(controller) * ["--controller"] + bool(how["tcp"]) * ["--tcp"]
        option = "--cluster" if cluster else "--machines"
        require(not excluded, f"{option} cannot be combined with {' '.join(excluded)}")
    openflow = how["plane"] == "ovs" or how["switches"] != "bridges" or controller
    require(
        bool(openflow or not how["kit"]),
        "--kit is the framework of an OpenFlow controller: add --plane ovs, --switches or "
        "--controller",
    )
    require(bool(not weights or machines or cluster), "--weights needs --machines or --cluster")
    if machines or cluster:
        # Checked before the sandbox, which has no network to install missing Python packages.
        require_modules("distributed", "cryptography")
    controller = tuple(map(application_file, controller))
    how["tcp"] = str(Path(how["tcp"]).resolve()) if how["tcp"].endswith(".bpf.c") else how["tcp"]
    if how["tcp"]:
        check_default(how["tcp"])
    if detach:
        code = detached.fork_detached()
        if code is not None:
            return code
    with_page = None
    if page or not (detach or hold):
        from pillarbox.experiments.apps.page.opening import LabPage

        with_page = LabPage(listen, plain_http=plain_http, terminals=terminals)
    place = lab_registry.create_lab_folder()
    if not no_sandbox and not cluster:  # A lab on a cluster has no node on this machine.
        sandbox.enter()
    from pillarbox.experiments.lab.emulation.lab import Lab
    from pillarbox.experiments.lab.emulation.local_fabric import LocalFabric
    from pillarbox.experiments.lab.linux.sweep import SweptLab
    from pillarbox.experiments.runs.control import prompt
    from pillarbox.experiments.runs.control.service import Service
    from pillarbox.hosts.live.settings import MPTCP, TCP, LabSettings

    settings = LabSettings(
        transport=MPTCP if mptcp else TCP,
        routing=str(Path(routing).resolve()) if routing.endswith(".py") else routing,
        rate_mbit=rate_mbit or None,
        controller=controller,
        **how,
    )
    with ExitStack() as stack:
        detached.end_lab_on_sigterm()
        stack.callback(lab_registry.remove_lab_folder, place)
        if no_sandbox:
            run = SweptLab.begin()
            stack.callback(run.end)
        leading = [topology.server(gateway) for gateway in gateways]
        over = _over_machines(machines, cluster, weights) if machines or cluster else None
        fabric = over or LocalFabric()
        lab = stack.enter_context(
            Lab(topology, settings, place.folder, seed, leading, fabric=fabric)
        )
        service = Service(lab, over.requests() if over else None)
        stack.callback(service.close)
        _wait_converged(lab)
        if with_page:
            stack.callback(with_page.close)
        if with_page and page:
            click.echo(with_page.open(place.folder))
        if not quiet:
            click.echo(_welcome(lab, place.number, over))
            if not is_machine_root():
                click.echo(sandbox.WITHOUT_ROOT)
            elif settings.plane == "auto" and lab.plane == "python":
                click.echo(reason_for_python_plane())
        if detach or hold:
            detached.report_ready_and_wait(place, detach)
            return 0
        open_page = partial(with_page.open, place.folder) if with_page else None
        return FAILED if prompt.run(lab, script, open_page) else 0


def _over_machines(
    machines: int | None, cluster: str | None, weights: tuple[int, ...]
) -> ClusterFabric:
    """Return the fabric of a lab whose servers are distributed over several machines."""
    from pillarbox.experiments.apps.cluster.cluster_fabric import ClusterFabric
    from pillarbox.experiments.apps.cluster.cluster_registry import NamedCluster

    provider = NamedCluster(cluster, machines) if cluster else None
    return ClusterFabric(machines or 0, ground=provider, weights=weights)


def _wait_converged(lab: Lab) -> None:
    """Wait until servers know their neighbours, so that the first packet is not lost."""
    try:
        lab.wait_converged()
    # Servers detect no steady links on cables with high loss: the lab still runs.
    except PillarboxError as error:
        click.echo(f"pillarbox: {error}", err=True)


def reason_for_python_plane() -> str:
    """Return the reason why the lab uses the Python data plane instead of eBPF, as a message."""
    from pillarbox.experiments.lab.emulation.defaults import missing_for_ebpf

    why = missing_for_ebpf() or "Open vSwitch without its kernel module loses TCP packets"
    return f"every packet passes through Python, since eBPF cannot be used here: {why}"


def _rates_text(lab: Lab) -> str:
    """Return a line with the rates of the levels of cables, if they have rates of their own."""
    from pillarbox.experiments.lab.emulation.cable_shapes import rates_mbit_of_levels

    rates = rates_mbit_of_levels(lab.topology, lab.settings.rate_mbit)
    each = (f"level {level} {rate:g} Mbit/s" for level, rate in enumerate(rates))
    return f"\ncables: {', '.join(each)}" if rates else ""


def _welcome(lab: Lab, number: int, over: ClusterFabric | None) -> str:
    topology = lab.topology
    how = f"routing {lab.routing}, plane {lab.plane}"
    how += f"; {over.summary()}" if over else ""
    first, last = topology.address(0), topology.address(topology.servers - 1)
    # Programs get a number as it is, so a server whose address is one number needs its host name.
    host = last if "." in last else topology.node_name(topology.servers - 1)
    return (
        f"lab {number}: {topology.spec}, {topology.servers} servers, {topology.switches} switches; "
        f"{how}{_rates_text(lab)}\ntry: path {first} {last}, or {first} ping -c 3 {host}"
    )
