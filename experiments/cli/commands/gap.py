"""``pillarbox gap``: throughput and known paths of routings compared with the optimum."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from pillarbox.experiments.base.arguments import (
    MORE,
    NumberRange,
    answer,
    complete,
    fail,
    json_option,
    network,
    routing_option,
    seed_option,
)
from pillarbox.hosts.base.failures import parse_failures
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.experiments.models.comparison.server_pairs import PathsBetweenServers
    from pillarbox.experiments.models.comparison.throughput_gap import (
        RoutingThroughput,
        ThroughputGap,
    )
    from pillarbox.experiments.models.fluid.optimum_bounds import Optimum
    from pillarbox.hosts.base.failures import Failures


@click.command(no_args_is_help=True)
@network
@click.argument("ends", shell_complete=complete("servers"), metavar="[SRC DST]", nargs=-1)
@routing_option("routings", multiple=True, about="Routing to evaluate (default: all). Repeatable.")
@click.option(
    "--flows",
    "pattern",
    metavar="PATTERN",
    help="Traffic pattern: permutation, burst, one-to-all, ... [default: all-to-all]",
)
@fail
@seed_option
@click.option(
    "--seconds",
    type=NumberRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Time limit for each of the optimum's two linear programs.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=0),
    default=0,
    help="Number of probe rounds after which adaptive routings are evaluated as well.",
)
@json_option(MORE)
def command(
    topology: Topology,
    ends: tuple[str, ...],
    routings: tuple[str, ...],
    pattern: str | None,
    fail: tuple[str, ...],
    seed: int,
    seconds: float,
    rounds: int,
    as_json: bool,
) -> None:
    """Compare each routing's throughput with the optimum.

    With two servers: compare the number of disjoint paths that each routing knows with the number
    that exist.

    \b
    pillarbox gap bcube,4,1
    pillarbox gap bcube,4,1 0.0 2.3 --fail 'stop s4'
    pillarbox gap dpillar,4,3 --routing sp-cw --routing mp-both --flows permutation
    pillarbox gap dcell,4,1 --fail 'cut 0.3-4.0' --json
    pillarbox gap bcube,4,2 --flows permutation --routing bsr --rounds 10
    """
    failures = parse_failures(topology, fail)
    if ends:
        require(
            len(ends) == 2 and pattern is None and not rounds,
            "gap takes no server (whole network), or two servers without --flows and --rounds",
        )
        _print_paths_between(topology, ends, routings, failures, as_json)
        return
    from pillarbox.experiments.base.text import paragraphs
    from pillarbox.experiments.models.comparison.throughput_gap import compute_throughput_gap
    from pillarbox.experiments.models.workloads.patterns import flows_of
    from pillarbox.experiments.models.workloads.workload import Workload

    pattern = pattern or "all-to-all"
    flows = flows_of(topology, Workload(pattern, duration_s=1.0), seed)
    pairs = [(flow.source, flow.destination) for flow in flows]
    pairs = [pair for pair in pairs if failures.nodes.isdisjoint(pair)]
    require(bool(pairs), f"the failures leave no pair of working servers for {pattern}")
    found = compute_throughput_gap(topology, pairs, routings, failures, seed, seconds, rounds)
    limits = [limit._asdict() for limit in found.limits]
    answer(
        as_json,
        {"topology": topology.spec, "flows": pattern, **asdict(found), "limits": limits},
        f"{_throughput_table(found)}\n\n{paragraphs(_gap_notes(topology, found, len(pairs)))}",
    )


# -- the whole network ---------------------------------------------------------------------------


def _throughput_table(found: ThroughputGap) -> str:
    """Return a table of routings: throughput, share of the optimum, and upper bounds."""
    from pillarbox.experiments.base.text import records

    rows = [_routing_row(one, found) for one in found.reached]
    none = dict.fromkeys(rows[0])
    if found.best_total and found.best_throughput:
        optimum = {"routing": "optimum", "flows": found.flows, "total": found.best_total.at_most}
        optimum |= {"of optimum": 1.0, "ABT": found.best_throughput.at_most, "of its optimum": 1.0}
        rows.append({**none, **optimum})
    rows += [
        {**none, "routing": f"{limit.name} allow", "ABT": limit.throughput}
        for limit in found.limits
    ]
    return records([{key: _number_rounded(value) for key, value in row.items()} for row in rows])


def _routing_row(one: RoutingThroughput, found: ThroughputGap) -> dict[str, object]:
    where = f"{one.worst.from_node} > {one.worst.to_node}" if one.worst else "-"
    return {
        "routing": one.routing,
        "flows": one.flows,
        "total": one.total,
        "of optimum": _share_of_optimum(one.total, found.best_total),
        "ABT": one.throughput,
        # No share of the optimum is given if flows are lost: the others may then be faster.
        "of its optimum": (
            _share_of_optimum(one.throughput, found.best_throughput)
            if one.flows == found.flows
            else None
        ),
        "worst link": where,
        "flows there": one.worst_flows,
        "of mean": one.worst_flows / one.mean_flows if one.mean_flows else None,
    }


def _share_of_optimum(value: float, best: Optimum | None) -> float | None:
    return value / best.at_most if best and best.at_most else None


def _number_rounded(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value


def _gap_notes(topology: Topology, found: ThroughputGap, wanted: int) -> list[str]:
    unit = "one link"
    if topology.factors.rates:
        unit = "a link of relative rate 1"
    notes = [
        f"Unit: the rate of {unit}. total: sum of max-min fair rates; its optimum is the largest "
        "sum of any rates, which may leave some flows without rate. ABT (aggregate bottleneck "
        "throughput): all flows at the rate of the slowest; its optimum is the largest sum of "
        "equal rates. The optimum may split flows over all paths. A routing with several paths "
        "for a pair takes a random path for each flow; rows with rounds are the result after "
        "adaptive path selection."
    ]
    if found.flows < wanted:
        notes.append(f"Failures disconnect {wanted - found.flows} of {wanted} flows.")
    if any(one.flows < found.flows for one in found.reached):
        notes.append("A routing that loses flows although a path exists has no share of the ABT.")
    if found.best_total is None:
        notes.append(
            "The optimum is missing: the linear program would be too large. Choose a smaller "
            "network, or flows from fewer servers."
        )
    for name, best in (("total", found.best_total), ("ABT", found.best_throughput)):
        if best and best.gap:
            notes.append(
                f"The optimum of the {name} is known within {best.gap:.2g}: at least "
                f"{best.at_least:.6g}, at most {best.at_most:.6g}. Shares refer to the latter."
            )
    counted = [f"{limit.name}: {limit.why}" for limit in found.limits]
    if counted:
        notes.append(f"Upper bounds of the ABT for any routing: {'; '.join(counted)}.")
    notes.append(_bisection_text(topology))
    return notes


def _bisection_text(topology: Topology) -> str:
    bound = topology.bisection()
    value = "" if bound.value is None else f" = {bound.value:,.6g}"
    return f"Bisection width, by its formula: {bound.formula}{value} cables ({bound.source})."


# -- two servers ---------------------------------------------------------------------------------


def _print_paths_between(
    topology: Topology,
    ends: tuple[str, ...],
    routings: tuple[str, ...],
    failures: Failures,
    as_json: bool,
) -> None:
    """Print the numbers of disjoint paths between two servers, by routing."""
    from pillarbox.experiments.base.text import paragraphs, records
    from pillarbox.experiments.models.comparison.server_pairs import paths_between

    source, destination = (topology.server(address) for address in ends)
    found = paths_between(topology, source, destination, routings, failures)
    about = {"topology": topology.spec, "source": ends[0], "destination": ends[1]}
    note = (
        "link-disjoint: number of paths over the links of these paths that share no direction of a "
        "cable, and their total throughput in rates of one link (maximum flow). node-disjoint: "
        "number of these paths that share no server and no switch."
    )
    answer(
        as_json, {**about, **asdict(found)}, f"{records(_path_rows(found))}\n\n{paragraphs([note])}"
    )


def _path_rows(found: PathsBetweenServers) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [
        {
            "routing": one.routing,
            "paths": one.paths,
            "longest, hops": one.longest_hops,
            "link-disjoint": one.by_link,
            "node-disjoint": one.by_node,
        }
        for one in found.known
    ]
    every = {"routing": "any path", "link-disjoint": found.by_link, "node-disjoint": found.by_node}
    return [*rows, {**dict.fromkeys(rows[0]), **every}]
