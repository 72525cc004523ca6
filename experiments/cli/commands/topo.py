"""``pillarbox topo``: description of a network: counts, bounds, addresses, cables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from pillarbox.experiments.base.arguments import FILE, STANDARD_OUTPUT, answer, json_option, network
from pillarbox.experiments.base.files import give_to_user, write_atomically
from pillarbox.experiments.base.text import columns
from pillarbox.experiments.models.export import WRITERS, format_of, network_file
from pillarbox.topos.base.diameter import MOST_SEARCHED, diameter
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.spec import report_network_file_errors
from pillarbox.topos.base.topology import Bound, Topology

# Words for a bound whose formula begins with one of these signs; other formulas are exact.
COMPARISONS = {"<= ": "at most", ">= ": "at least", "> ": "more than"}


@click.command()
@network
@json_option(
    "spec",
    "servers",
    "switches",
    "ports_per_server",
    "cables",
    "diameter_bound",
    "diameter",
    "bisection",
    "parameters",
)
@click.option("--cables", is_flag=True, help="Print one JSON line per switch and direct cable.")
@click.option("--check", is_flag=True, help="Check the wiring of every cable from both ends.")
@click.option(
    "--draw",
    type=FILE,
    metavar="FILE.svg|.png",
    help="Draw the network to a file, in the style of its paper.",
)
@click.option(
    "--export",
    type=FILE,
    metavar="FILE",
    help="Write the network to a file (- for standard output) for other tools (docs/graphs.md).",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice([*WRITERS]),
    help="Format of the exported file (default: that of its suffix).",
)
def command(
    topology: Topology,
    as_json: bool,
    cables: bool,
    check: bool,
    draw: Path | None,
    export: Path | None,
    file_format: str | None,
) -> None:
    """Describe a network: counts, bounds, addresses.

    \b
    pillarbox topo bcube,4,1
    pillarbox topo bcube,8,3,servers=2048 --json
    pillarbox topo dcell,4,1 --cables
    pillarbox topo bcube,4,1,rates=9:1
    pillarbox topo dpillar,8,2 --draw dpillar.svg
    pillarbox topo bcube,4,1 --export bcube.graphml
    pillarbox topo bcube,4,1 --export - --format dot | neato -Tsvg
    pillarbox topo bcube.graphml
    """
    require(
        file_format is None or export is not None,
        "--format is the format of an exported file: add --export FILE",
    )
    with report_network_file_errors(topology.kind):
        if draw is not None:
            from pillarbox.experiments.runs.reporting.drawing import draw_topology

            draw_topology(topology, draw)
        if export is not None:
            content = network_file(topology, format_of(export, file_format))
            if export == STANDARD_OUTPUT:
                click.echo(content, nl=False)
            else:
                write_atomically(export, content.encode())
                give_to_user(export)
        if check:
            _check_wiring(topology)
        if cables:
            for line in cable_lines(topology):
                click.echo(json.dumps(line))
        elif as_json or (not check and draw is None and export is None):
            answer(as_json, counts_as_json(topology), counts_as_text(topology))


def counts_as_json(topology: Topology) -> dict[str, Any]:
    """Return the counts and bounds of a network as JSON data."""
    return {
        "spec": topology.spec,
        "servers": topology.servers,
        "switches": topology.switches,
        "ports_per_server": topology.ports,
        "cables": topology.cables,
        "diameter_bound": topology.diameter_bound().value,
        "diameter": diameter(topology) if topology.servers <= MOST_SEARCHED else None,
        "bisection": topology.bisection().value,
        "parameters": topology.parameters,
        **{f"level_{name}": list(of) for name, of in topology.factors._asdict().items() if of},
    }


def counts_as_text(topology: Topology) -> str:
    """Return the counts and bounds of a network as text."""
    first, last = 0, topology.servers - 1
    rows = [
        ("servers", f"{topology.servers:,}"),
        ("switches", _switches_text(topology)),
        ("ports per server", str(topology.ports)),
        ("cables", f"{topology.cables:,}"),
        ("diameter", _diameter_text(topology)),
        ("bisection width", _bound_text(topology.bisection(), " cables")),
        ("disjoint paths", _bound_text(topology.disjoint_paths(), "")),
        ("addresses", f"{topology.address(first)} to {topology.address(last)}"),
        ("IPv4", _ip_range(topology)),
        *_level_rows(topology),
    ]
    return f"{topology.title} {topology.spec} ({topology.paper})\n\n{columns(rows)}"


def _switches_text(topology: Topology) -> str:
    """Return the number of switches and their ports, such as ``8 of up to 4 ports``."""
    ports = f" of up to {topology.switch_ports} ports" if topology.switches else ""
    return f"{topology.switches:,}{ports}"


def _level_rows(topology: Topology) -> Iterator[tuple[str, str]]:
    """Yield a row for each of rates, delays and prices of which levels have their own."""
    for name, of_levels in topology.factors._asdict().items():
        if of_levels:
            each = (f"{factor} x at level {level}" for level, factor in enumerate(of_levels))
            yield f"relative {name}", ", ".join(each)


def cable_lines(topology: Topology) -> Iterator[dict[str, Any]]:
    """Yield each switch with its servers, and each cable between two servers, as JSON data."""
    for switch in range(topology.switches):
        node = topology.servers + switch
        plugs = [plug for _, plug in topology.neighbours(node)]
        servers = [plug for plug in plugs if plug.node < topology.servers]
        above = [plug.node for plug in plugs if plug.node > node]
        line: dict[str, Any] = {
            "switch": topology.node_name(node),
            "label": topology.switch_label(switch),
            "servers": [topology.address(plug.node) for plug in servers],
            "level": min(plug.level for plug in plugs),
        }
        if above:
            line["switches"] = [topology.node_name(upper) for upper in above]
        yield line
    for server in range(topology.servers):
        for _, plug in topology.neighbours(server):
            if server < plug.node < topology.servers:
                ends = [topology.address(server), topology.address(plug.node)]
                yield {"cable": ends, "level": plug.level}


def _diameter_text(topology: Topology) -> str:
    """Return the paper's diameter, or its bound and the exact one if a search is short."""
    bound = topology.diameter_bound()
    claimed = _bound_text(bound, " hop" if bound.value == 1 else " hops")
    if not bound.formula.startswith("<") or topology.servers > MOST_SEARCHED:
        return claimed
    return f"{diameter(topology)} hops (searched); {claimed}"


def _bound_text(bound: Bound, unit: str) -> str:
    if bound.value is None:
        return f"no proven bound: {bound.formula} ({bound.source})"
    value, formula = f"{bound.value:,.6g}{unit}", bound.formula
    for sign, words in COMPARISONS.items():
        if formula.startswith(sign):
            return f"{words} {value}: {formula.removeprefix(sign)} ({bound.source})"
    return f"{value}{'' if formula == f'{bound.value:g}' else f' = {formula}'} ({bound.source})"


def _ip_range(topology: Topology) -> str:
    from pillarbox.topos.base.errors import PillarboxError

    try:
        return f"{topology.ip(0)} to {topology.ip(topology.servers - 1)}"
    except PillarboxError as error:
        return f"none: {error}"


def _check_wiring(topology: Topology) -> None:
    from pillarbox.topos.base.check import problems

    found = problems(topology)
    if found:
        more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
        raise click.ClickException(f"{topology.spec} is wired inconsistently: {found[0]}{more}")
    click.echo(f"{topology.spec}: {topology.cables} cables checked from both ends, all agree")
