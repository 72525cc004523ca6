"""``pillarbox packaging``: racks and wires of a network in a container (Guo 2009, section 5.2)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from pillarbox.experiments.base.arguments import MORE, NumberRange, answer, json_option, network
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pillarbox.experiments.models.comparison.racks import ContainerDimensions, Packing

COUNT = click.IntRange(min=1)


@click.command(no_args_is_help=True)
@network
@click.option("--servers-per-rack", type=COUNT, default=64, show_default=True)
@click.option("--rack-columns", type=COUNT, default=2, show_default=True)
@click.option("--racks-per-super-rack", type=COUNT, default=8, show_default=True)
@click.option("--servers-per-unit", type=COUNT, default=2, show_default=True)
@click.option("--switches-per-unit", type=COUNT, default=4, show_default=True)
@click.option("--units-per-rack", type=COUNT, default=44, show_default=True)
@click.option(
    "--wire-diameter-cm", type=NumberRange(0, min_open=True), default=0.54, show_default=True
)
@json_option(MORE)
def command(topology: Topology, as_json: bool, **room_options: Any) -> None:
    """Pack a network into racks and count switches and wires.

    \b
    pillarbox packaging bcube,8,3,servers=2048
    pillarbox packaging dcell,8,2,servers=2048 --servers-per-rack 72

    Only BCube has a packaging in its paper; other networks are packed by the same rules.
    """
    from pillarbox.experiments.models.comparison.racks import ContainerDimensions, pack_into_racks

    room = ContainerDimensions(**room_options)
    packing = pack_into_racks(topology, room)
    known = {"spec": topology.spec, "room": asdict(room), **asdict(packing)}
    known["wires_between_racks"] = packing.between_racks
    answer(as_json, known, _packing_as_text(topology, room, packing), indent=2)


def _packing_as_text(topology: Topology, room: ContainerDimensions, packing: Packing) -> str:
    fewest, most = packing.switches_per_rack
    switches = f"{most}" if fewest == most else f"{fewest} to {most}"
    free = room.units_per_rack - packing.units_used
    fits = f"{free} left" if free >= 0 else f"{-free} too many: it does not fit"
    lines = [
        f"{topology.spec}: {topology.servers:,} servers, {topology.switches:,} switches",
        "",
        f"racks                   {packing.racks} in {room.rack_columns} column(s) of "
        f"{packing.racks_per_column}",
        f"super-racks             {packing.super_racks} of {room.racks_per_super_rack} racks",
        f"switches in each rack   {switches}",
        f"rack units              {packing.units_used} of {room.units_per_rack} ({fits})",
        f"wires between racks     {packing.between_racks:,} of {topology.cables:,}",
        "",
        "level  in racks  in super-racks  between them  most along a column   after rack",
    ]
    lines += [
        f"{w.level:>5}  {w.inside_racks:>8,}  {w.inside_super_racks:>14,}  "
        f"{w.between_super_racks:>12,}  {w.most_along_column:>19,}  "
        f"{w.most_at if w.most_along_column else '-':>11}"
        for w in packing.levels
    ]
    parts = [w.most_along_column for w in packing.levels if w.most_along_column]
    terms = " + ".join(f"{part:,}" for part in parts) or "none"
    side = packing.space_cm2**0.5
    lines += [
        "",
        f"wires along a column    at most {packing.sum_of_most:,} = {terms} (maximum of each "
        "level)",
        f"                        at most {packing.most_at_one_place:,} at any one place",
        f"space for {packing.sum_of_most:,} wires     {packing.space_cm2:.0f} cm^2, a square of "
        f"{side:.1f} cm",
    ]
    return "\n".join(lines)
