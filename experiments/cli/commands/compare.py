"""``pillarbox compare``: properties of networks, and the papers' tables recomputed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from pillarbox.experiments.base.arguments import FILE, SPEC, NumberRange, answer, json_option
from pillarbox.topos.base.topology import Topology

MANY: Any = {"multiple": True, "metavar": "[PORTS=]NUMBER"}


@click.command(no_args_is_help=True)
@click.argument("topologies", metavar="SPEC...", nargs=-1, type=SPEC)
@click.option(
    "--papers", is_flag=True, help="Recompute the papers' tables instead of comparing networks."
)
@click.option(
    "--all", "everything", is_flag=True, help="Compare all networks at about 64, 512, 4096 servers."
)
@click.option("--csv", "csv_file", type=FILE, help="CSV file for the table of --all.")
@json_option("networks", "tables")
@click.option(
    "--exact/--no-exact",
    default=True,
    help="Search for exact diameters, bisections and disjoint paths of small networks.",
)
@click.option(
    "--seconds",
    type=NumberRange(min=0),
    default=5.0,
    show_default=True,
    help="Time limit for computing each network's exact bisection width.",
)
@click.option(
    "--prices",
    "list_name",
    type=click.Choice(["liao2012", "guo2009"]),
    default="liao2012",
    show_default=True,
    help="Price list of devices: Liao 2012, Table 1 or Guo 2009, Table 2.",
)
@click.option("--switch-price", **MANY, help="Price of a switch with PORTS ports, in dollars.")
@click.option("--nic-price", **MANY, help="Price of a network card with PORTS ports, in dollars.")
@click.option("--switch-power", **MANY, help="Power of a switch with PORTS ports, in watts.")
@click.option("--nic-power", **MANY, help="Power of a network card with PORTS ports, in watts.")
@click.option("--cable-price", type=NumberRange(min=0), help="Price of a cable, in dollars.")
@click.option("--server-price", type=NumberRange(min=0), help="Price of a server, in dollars.")
@click.option("--server-power", type=NumberRange(min=0), help="Power of a server, in watts.")
def command(
    topologies: tuple[Topology, ...],
    papers: bool,
    everything: bool,
    csv_file: Path | None,
    as_json: bool,
    exact: bool,
    seconds: float,
    list_name: str,
    **given: Any,
) -> None:
    """Compare networks: size, paths, bisection, cost, power.

    \b
    pillarbox compare bcube,4,1 dcell,4,1 dpillar,8,2 ficonn,4,2
    pillarbox compare bcube,8,3,servers=2048 fattree,8,levels=5 --prices guo2009 --json
    pillarbox compare fattree,64 --switch-price 64=2000 --no-exact
    pillarbox compare --papers
    pillarbox compare --all --csv networks.csv
    """
    if csv_file and not everything:
        raise click.UsageError("--csv writes the table of --all: add --all")
    if everything:
        if topologies or papers:
            raise click.UsageError("--all has networks of its own: leave out SPECs and --papers")
        _print_all_networks(as_json, _price_list(list_name, given), csv_file)
        return
    if papers:
        if topologies:
            raise click.UsageError("--papers uses the networks of the papers: leave out the SPECs")
        _print_paper_tables(as_json, seconds)
        return
    if not topologies:
        raise click.UsageError("give at least one network, --all or --papers")
    from pillarbox.experiments.base.text import paragraphs, side_by_side
    from pillarbox.experiments.models.comparison import network_measures

    prices = _price_list(list_name, given)
    measured = [
        network_measures.compute_network_measures(topology, prices, exact, seconds)
        for topology in topologies
    ]
    answer(
        as_json,
        {"networks": list(map(network_measures.measures_as_json, measured))},
        "\n\n".join(
            [
                side_by_side(network_measures.comparison_rows(measured)),
                paragraphs(network_measures.comparison_notes(measured, prices)),
            ]
        ),
        indent=2,
    )


def _price_list(list_name: str, given: dict[str, Any]) -> Any:
    """Return a price list updated with the prices and powers of the options."""
    from pillarbox.experiments.models.comparison import prices

    found = prices.LISTS[list_name]
    for option, value in given.items():
        part, _, unit = option.partition("_")
        name = f"{part}_{'usd' if unit == 'price' else 'w'}"
        changed: Any = {}
        # Prices of switches and cards are given as (number of ports, price).
        if isinstance(value, tuple):
            words = f"--{option.replace('_', '-')}"
            changed = {name: prices.updated_price_table(getattr(found, name), value, words)}
        elif value is not None:
            changed = {name: value}
        found = replace(found, **changed)
    return found


def _print_all_networks(as_json: bool, prices: Any, csv_file: Path | None) -> None:
    import csv
    import io

    from pillarbox.experiments.base.files import write_atomically
    from pillarbox.experiments.base.text import columns, paragraphs
    from pillarbox.experiments.models.comparison import all_networks

    rows = all_networks.compare_all(prices)
    if csv_file:
        table = io.StringIO()
        csv.writer(table).writerows([all_networks.NetworkRow._fields, *rows])
        write_atomically(csv_file, table.getvalue().encode())
    cells = [[*all_networks.COLUMNS]]
    for row, before in zip(rows, [None, *rows], strict=False):
        if before and before.size_class != row.size_class:
            cells.append([""] * len(all_networks.COLUMNS))
        cells.append(all_networks.row_cells(row))
    answer(
        as_json,
        {"networks": [row._asdict() for row in rows]},
        "\n\n".join(
            [
                columns(cells, range(1, len(all_networks.COLUMNS))),
                paragraphs(all_networks.notes(prices)),
            ]
        ),
        indent=2,
    )


def _print_paper_tables(as_json: bool, seconds: float) -> None:
    from pillarbox.experiments.models.comparison import papers, table_checks

    tables = papers.checked_paper_tables(seconds)
    answer(
        as_json,
        {"tables": list(map(table_checks.paper_table_as_json, tables))},
        "\n\n".join(map(table_checks.paper_table_as_text, tables)),
        indent=2,
    )
