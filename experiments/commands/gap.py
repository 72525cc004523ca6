"""``pillarbox gap``: what routings carry, beside the most that the network could."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from experiments.cli import SPEC
from hosts.base.failures import parse_failures
from topos.base.errors import require
from topos.base.topology import Topology

if TYPE_CHECKING:
    from experiments.comparison.gap import Gap, Reached


@click.command(no_args_is_help=True)
@click.argument("topology", metavar="SPEC", type=SPEC)
@click.option("--routing", "routings", multiple=True, metavar="NAME", help="Repeatable; else all.")
@click.option(
    "--flows",
    "pattern",
    default="all-to-all",
    show_default=True,
    metavar="PATTERN",
    help="Who sends to whom, as in experiments: permutation, burst, one-to-all, ...",
)
@click.option("--fail", multiple=True, metavar="WHAT", help="As in `pillarbox path`; repeatable.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of all that is random.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    topology: Topology,
    routings: tuple[str, ...],
    pattern: str,
    fail: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> None:
    """Show what each routing carries, and what share that is of the optimum.

    \b
    pillarbox gap bcube,4,1
    pillarbox gap dpillar,4,3 --routing sp-cw --routing mp-both --flows permutation
    pillarbox gap dcell,4,1 --fail link:0.3-4.0 --json
    """
    from experiments.comparison.gap import gap
    from experiments.comparison.text import paragraphs
    from experiments.plans.experiment import Workload
    from experiments.traffic.patterns import flows_of

    failures = parse_failures(topology, fail)
    flows = flows_of(topology, Workload(pattern, duration_s=1.0), seed)
    pairs = [
        (flow.source, flow.destination)
        for flow in flows
        if failures.nodes.isdisjoint((flow.source, flow.destination))
    ]
    require(bool(pairs), f"no two servers that work are left for {pattern}")
    found = gap(topology, pairs, routings, failures, seed)
    if as_json:
        click.echo(json.dumps({"topology": topology.spec, "flows": pattern, **asdict(found)}))
        return
    click.echo(_table(found))
    click.echo("\n" + paragraphs(_notes(found, len(pairs))))


def _table(found: Gap) -> str:
    """Return a row for each routing, and one for the optimum."""
    from experiments.benches._frame import table

    rows = [_row(one, found) for one in found.reached]
    if found.best_total is not None:
        optimum = {"routing": "optimum", "flows": found.flows, "total": found.best_total}
        optimum |= {"of optimum": 1.0, "ABT": found.best_throughput, "of its optimum": 1.0}
        rows.append({**dict.fromkeys(rows[0]), **optimum})
    return table([{key: _shown(value) for key, value in row.items()} for row in rows])


def _row(one: Reached, found: Gap) -> dict[str, object]:
    where = f"{one.worst.from_node} > {one.worst.to_node}" if one.worst else "-"
    return {
        "routing": one.routing,
        "flows": one.flows,
        "total": one.total,
        "of optimum": _share(one.total, found.best_total),
        "ABT": one.throughput,
        # Without some of the flows the others' rates could be higher than with all.
        "of its optimum": (
            _share(one.throughput, found.best_throughput) if one.flows == found.flows else None
        ),
        "worst link": where,
        "flows there": one.worst_flows,
        "of mean": one.worst_flows / one.mean_flows if one.mean_flows else None,
    }


def _share(value: float, best: float | None) -> float | None:
    return value / best if best else None


def _shown(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value


def _notes(found: Gap, wanted: int) -> list[str]:
    told = [
        "In units of one link's rate. total: of max-min fair rates, beside the largest total of "
        "any rates, by which some flows may get nothing. ABT, the aggregate bottleneck throughput: "
        "all flows as slow as the slowest, beside the largest total of equal rates. The optimum "
        "may split flows over all ways. A routing with several paths for a pair takes a random one "
        "for each flow.",
    ]
    if found.flows < wanted:
        told.append(f"Failures part the ends of {wanted - found.flows} of {wanted} flows.")
    if any(one.flows < found.flows for one in found.reached):
        told.append("A routing that loses flows which have a way left has no share of the ABT.")
    if found.best_total is None:
        told.append(
            "The optimum is missing: the linear program would be too large. Choose a smaller "
            "network, or flows from fewer servers."
        )
    return told
