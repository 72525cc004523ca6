"""``pillarbox path``: the path of a packet, hop by hop."""

from __future__ import annotations

import click

from pillarbox.experiments.base.arguments import (
    answer,
    complete,
    fail,
    json_option,
    network,
    routing_option,
)
from pillarbox.experiments.base.text import counted
from pillarbox.hosts.base.algorithms import Routed, algorithms, choose, route
from pillarbox.hosts.base.failures import Failures, parse_failures
from pillarbox.hosts.base.load import router_file_errors, router_for
from pillarbox.hosts.base.path import Path, switches_between
from pillarbox.hosts.base.pinned_paths import pinned_path
from pillarbox.hosts.memory.tryout import network_of, packet_path
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

DROPPED = 1


@click.command()
@network
@click.argument("source", shell_complete=complete("servers"), metavar="SRC")
@click.argument("destination", shell_complete=complete("servers"), metavar="DST")
@routing_option(
    about="Routing, such as mp, dfr, bsr, tar, shortest (default: the network's own).",
    metavar="NAME|FILE.py",
)
@click.option(
    "--all", "several", is_flag=True, help="Print all disjoint paths between the two servers."
)
@click.option(
    "--direction", type=click.Choice(["cw", "ccw"]), help="Direction around DPillar's columns."
)
@fail
@click.option(
    "--protocol",
    is_flag=True,
    help="Run the servers' protocol in memory to find the path; it has to detect the faults.",
)
@json_option("paths", "dropped", "most_disjoint")
@click.pass_context
def command(
    ctx: click.Context,
    topology: Topology,
    source: str,
    destination: str,
    routing: str | None,
    several: bool,
    direction: str | None,
    fail: tuple[str, ...],
    protocol: bool,
    as_json: bool,
) -> None:
    """Print the path from one server to another: servers, ports, switches.

    0.0%1 is the address of port 1 of server 0.0 in a lab with port addresses. Such a packet keeps
    to its pinned path; if that has failed, the routing decides. Exit code 1: the packet is dropped;
    the reason is printed.

    \b
    pillarbox path dcell,4,1 0.0 4.3
    pillarbox path dpillar,8,2 0.0.0 0.3.3 --all --direction ccw
    pillarbox path bcube,4,1 0.0%1 2.3
    pillarbox path bcube,4,1 0.0 2.3 --fail 'stop s4' --routing bsr --protocol
    """
    begin, end = topology.end(source), topology.end(destination)
    ends = begin.server, end.server
    failures = parse_failures(topology, fail)
    if routing and routing.endswith(".py"):
        name, about, protocol = routing, routing, True
    else:
        name = choose(topology, routing, several, direction == "ccw")
        about = algorithms(topology)[name].about
    if protocol:
        require(not several, "--protocol shows the path in use: leave out --all")
        with router_file_errors(name):
            routed = packet_path(network_of(topology, router_for(topology, name), failures), *ends)
    else:
        routed = route(topology, name, *ends, failures, several=several)
    if begin.port is not None or end.port is not None:
        require(
            not (several or protocol or direction),
            "the ports decide the path: leave out --all, --protocol and --direction",
        )
        pinned = pinned_path(topology, begin.server, begin.port, end.server, end.port)
        if pinned and not failures.first_on(topology, pinned):
            routed, about = Routed([pinned]), "pinned to the ports"
    disjoint_count = _disjoint_paths(topology, *ends) if several else None
    if as_json:
        paths = [[topology.address(server) for server in path.servers] for path in routed.paths]
        dropped = {"dropped": routed.dropped} if routed.dropped else {}
        disjoint = {"most_disjoint": disjoint_count} if several else {}
        answer(True, {"paths": paths, **dropped, **disjoint}, "")
    elif routed.dropped:
        click.echo(f"dropped: {routed.dropped}")
    else:
        click.echo(f"{topology.spec}, {about}")
        for path in routed.paths:
            click.echo("\n" + path_as_text(topology, path, failures))
        if disjoint_count is not None:
            disjoint_text = f"at most {disjoint_count} are node-disjoint (max-flow, as in compare)"
            click.echo(f"\npaths: {len(routed.paths)}; {disjoint_text}")
    ctx.exit(DROPPED if routed.dropped else 0)


def _disjoint_paths(topology: Topology, source: int, destination: int) -> int | None:
    """Return the number of node-disjoint paths between two servers without failures, or None."""
    try:
        from pillarbox.experiments.models.comparison.path_metrics import MOST_PAIRED
        from pillarbox.experiments.models.fluid.disjoint import disjoint_paths
    except ModuleNotFoundError:  # Pillarbox is installed without the extra [sim].
        return None
    small = topology.servers <= MOST_PAIRED and source != destination
    return disjoint_paths(topology, source, destination).by_node if small else None


def path_as_text(topology: Topology, path: Path, failures: Failures) -> str:
    """Return a path between servers as text, one line for each hop."""
    lines = [f"{topology.address(path.source)}  ({counted(len(path), 'hop')})"]
    for server, step in zip(path.servers, path.steps, strict=False):
        switches = [
            f"{topology.node_name(node)} {topology.switch_label(node - topology.servers)}"
            for node in switches_between(topology, server, step, failures.nodes, failures.links)
        ]
        over = f" over {', '.join(switches)}" if switches else ""
        lines.append(f"  port {step.port}{over} to {topology.address(step.peer)}")
    return "\n".join(lines)
