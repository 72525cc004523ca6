"""``pillarbox place``: distribution of a network over several machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pillarbox.experiments.base.arguments import answer, json_option, network, weights_option
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.experiments.apps.cluster.forecast import Forecast
    from pillarbox.experiments.apps.cluster.placement import Placement

MOST_MACHINES = 1000


@click.command()
@network
@click.argument("machines", metavar="N", type=click.IntRange(1, MOST_MACHINES))
@weights_option
@json_option(
    "network", "machines", "digits", "cables", "crossing", "flows", "links", "crossings", "shares"
)
def command(topology: Topology, machines: int, weights: tuple[int, ...], as_json: bool) -> None:
    """Show how a network would be distributed over N machines.

    Prints each machine's servers and switches, and the cables between machines.

    \b
    pillarbox place dcell,4,2 4
    pillarbox place bcube,4,2 3 --weights 2,1,1
    """
    from pillarbox.experiments.apps.cluster.forecast import forecast
    from pillarbox.experiments.apps.cluster.placement import place

    placed = place(topology, machines, weights)
    found = forecast(topology, placed)
    data = {
        "network": topology.spec,
        "machines": machines,
        "digits": list(placed.digits),
        **found._asdict(),
        "shares": [share._asdict() for share in found.shares],
    }
    answer(as_json, data, _placement_text(topology, placed, found))


def _placement_text(topology: Topology, placed: Placement, found: Forecast) -> str:
    """Return a placement as text: crossing cables, a table of machines, busiest machine."""
    from pillarbox.experiments.base.text import columns

    names = [f"a{len(placed.digits) - 1 - digit}" for digit in placed.digits]
    pairs = topology.servers * (topology.servers - 1)
    flows = f"{found.flows:,} flows" + ("" if found.flows == pairs else " between random servers")
    lines = [
        f"{topology.spec} over {placed.machines} machines: consecutive servers, ordered by their "
        f"digits {' '.join(names)}",
        f"cables that cross     {found.crossing:,} of {found.cables:,} "
        f"({found.crossing / found.cables:.1%})",
        f"crossings of a flow   {found.crossings:.2f} of the {found.links:.2f} links on its path "
        f"(all-to-all, {flows})",
        "",
    ]
    rows = [["machine", "servers", "switches", "crossing cables", "work", "card"]]
    for machine, share in enumerate(found.shares):
        counts = f"{share.servers:,}", f"{share.switches:,}", f"{share.cables:,}"
        rows.append([f"{machine}", *counts, f"{share.work:.1%}", f"{share.card:.2f}"])
    lines += columns(rows, numbers=range(6)).splitlines()
    work, card = ([getattr(share, name) for share in found.shares] for name in ("work", "card"))
    lines += [
        "",
        f"busiest machine       {work.index(max(work))}: sends {max(work):.1%} of all frames",
        f"busiest card          {card.index(max(card))}: {max(card):.2f} crossings per flow",
    ]
    return "\n".join(lines)
