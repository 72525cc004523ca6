"""``pillarbox check-router``: delivery and path lengths of a routing, tested in memory."""

from __future__ import annotations

import random

import click

from pillarbox.experiments.base.arguments import answer, complete, fail, json_option, network
from pillarbox.hosts.base.failures import parse_failures
from pillarbox.hosts.base.load import router_file_errors, router_for
from pillarbox.hosts.base.shortest import shortest_path
from pillarbox.hosts.memory.tryout import TryoutSummary, network_of, summarize_packets
from pillarbox.topos.base.topology import Topology

LOST = 1


@click.command()
@network
@click.argument("routing", shell_complete=complete("routings"), metavar="NAME|FILE.py")
@fail
@click.option(
    "--pairs",
    default=400,
    show_default=True,
    help="Maximum number of server pairs to send packets between.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    help="Seed for the choice of pairs and for the routers' random choices.",
)
@json_option(
    "topology",
    "routing",
    "pairs",
    "with_a_path",
    "arrived",
    "mean_hops",
    "most_hops",
    "mean_shortest_hops",
    "lost",
)
@click.pass_context
def command(
    ctx: click.Context,
    topology: Topology,
    routing: str,
    fail: tuple[str, ...],
    pairs: int,
    seed: int,
    as_json: bool,
) -> None:
    """Test a routing in memory: send packets between pairs of servers.

    Servers do not know the faults in advance; the protocol has to detect them. Exit code 1: a
    packet was lost although a path existed.

    \b
    pillarbox check-router dcell,4,1 dfr --fail 'cut 0.3-4.0'
    pillarbox check-router ficonn,4,2 my_router.py
    """
    failures = parse_failures(topology, fail)
    chosen = _server_pairs(topology, pairs, seed, failures.nodes)
    with router_file_errors(routing):
        network = network_of(topology, router_for(topology, routing), failures, seed)
        found = summarize_packets(network, chosen)
    paths = [shortest_path(topology, a, b, failures) for a, b in chosen]
    shortest = [len(path) for path in paths if path]
    report = {
        "topology": topology.spec,
        "routing": routing,
        "pairs": found.pairs,
        "with_a_path": len(shortest),
        "arrived": found.arrived,
        "mean_hops": round(found.hops / found.arrived, 3) if found.arrived else None,
        "most_hops": found.most_hops,
        "mean_shortest_hops": round(sum(shortest) / len(shortest), 3) if shortest else None,
        "lost": dict(found.lost),
    }
    answer(as_json, report, _report_text(topology, report, found))
    ctx.exit(LOST if found.arrived < len(shortest) else 0)


def _server_pairs(
    topology: Topology, most: int, seed: int, dead: frozenset[int]
) -> list[tuple[int, int]]:
    """Return up to `most` pairs of live servers: all pairs, or else a random sample."""
    live = [server for server in range(topology.servers) if server not in dead]
    if len(live) * (len(live) - 1) <= most:
        return [(a, b) for a in live for b in live if a != b]
    if len(live) < 2:
        return []
    drawn = random.Random(seed)
    found: dict[tuple[int, int], None] = {}
    while len(found) < most:
        a, b = drawn.sample(live, 2)
        found[a, b] = None
    return list(found)


def _report_text(topology: Topology, report: dict[str, object], found: TryoutSummary) -> str:
    lines = [
        f"{report['routing']} on {topology.spec}: {found.arrived} of {found.pairs} packets "
        f"arrived, {report['with_a_path']} had a path"
    ]
    if found.worst:
        path = " ".join(topology.address(server) for server in found.worst.path.servers)
        lines += [
            f"  hops: {report['mean_hops']} on average ({report['mean_shortest_hops']} on the "
            f"shortest paths), {found.most_hops} at most:",
            f"    {path}",
        ]
    lines += [f"  lost: {count} ({reason})" for reason, count in found.lost.most_common()]
    return "\n".join(lines)
